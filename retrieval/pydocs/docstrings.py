"""Docstrings of installed modules, read from the source without importing it."""

import ast
import inspect
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

STANDARD_LIBRARY = "python"
"""The standard library's name in a list of packages."""

# Tests, demonstrations, copies of other packages, and the models of transformers, whose docstrings are nearly the same.
_NOT_DOCUMENTATION = {"test", "tests", "testing", "idlelib", "lib2to3", "turtledemo", "site-packages", "models"}
_TRIPLE_QUOTED = re.compile(r'"""(.*?)"""|\'\'\'(.*?)\'\'\'', re.DOTALL)


@dataclass(frozen=True)
class Entry:
    """A function, class or method: its name within the module, its signature, and its docstring in two parts."""

    name: str
    signature: str
    summary: str
    """The first paragraph, on one line."""
    rest: str

    def text(self, with_summary: bool = True) -> str:
        """Signature and docstring, with or without the summary line."""
        parts = (self.signature, self.summary if with_summary else "", self.rest)
        return "\n".join(part for part in parts if part)


@dataclass(frozen=True)
class Module:
    """The docstrings of a module and of its classes and functions."""

    name: str
    introduction: str
    entries: tuple[Entry, ...]

    def words(self) -> list[str]:
        """All words of the documentation."""
        return " ".join([self.introduction, *(entry.text() for entry in self.entries)]).split()


def read_modules(package: str, least_words: int) -> Iterator[Module]:
    """The modules of an installed package whose docstrings have at least `least_words` words, sorted by path.

    ```python
    [module.name for module in read_modules("rich", 2000)]
    ```
    """
    root = _folder_of(package)
    prefix = () if package == STANDARD_LIBRARY else (package,)
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if any(part in _NOT_DOCUMENTATION or part.startswith("_") for part in parts[:-1]):
            continue
        name = ".".join(part for part in (*prefix, *parts) if part != "__init__")
        module = _read_module(path, name, least_words)
        if module is not None:
            yield module


def is_installed(package: str) -> bool:
    """Whether a package's source is installed."""
    if package == STANDARD_LIBRARY:
        return True
    spec = find_spec(package)
    return spec is not None and bool(spec.submodule_search_locations)


def _folder_of(package: str) -> Path:
    if package == STANDARD_LIBRARY:
        return Path(sysconfig.get_path("stdlib"))
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{package} is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def _read_module(path: Path, name: str, least_words: int) -> Module | None:
    try:
        source = path.read_text(encoding="utf-8")
        # Looking for quotes is many times faster than parsing, and most modules have little between them.
        if sum(len((a or b).split()) for a, b in _TRIPLE_QUOTED.findall(source)) < least_words:
            return None
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError):
        return None
    module = Module(name, _docstring(tree), tuple(_entries(tree, "")))
    return module if len(module.words()) >= least_words else None


def _entries(tree: ast.Module | ast.ClassDef, prefix: str) -> Iterator[Entry]:
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if text := _docstring(node):
            summary, _, rest = text.partition("\n\n")
            yield Entry(prefix + node.name, _signature(node), " ".join(summary.split()), rest.strip("\n"))
        if isinstance(node, ast.ClassDef):
            yield from _entries(node, f"{prefix}{node.name}.")


def _docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    # Half of a surrogate pair, written as an escape, is no text that a file could hold.
    text = ast.get_docstring(node, clean=False) or ""
    return inspect.cleandoc(text.encode("utf-8", "replace").decode("utf-8"))


def _signature(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}"
    arguments = node.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return f"{node.name}({', '.join(name for name in names if name not in ('self', 'cls'))})"
