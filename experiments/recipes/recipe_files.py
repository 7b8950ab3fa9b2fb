"""The files of recipes: which ones come with docparade, how they are found, and how their YAML is read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from docparade.retrieval.errors import InputError
from docparade.retrieval.storage.files import open_text

SHIPPED = Path(str(files("docparade.configs")))
"""The files that come with docparade."""
RECIPES = "recipes"


def shipped_recipes() -> dict[str, Path]:
    """The recipes that come with docparade, by name.

    Example:
        >>> "quickstart" in shipped_recipes()
        True
    """
    return dict(sorted((name_recipe(file), file) for file in (SHIPPED / RECIPES).rglob("*.yaml")))


def name_recipe(file: Path) -> str:
    """The name of a recipe that comes with docparade, such as `default/pairs`; of any other file, its own name."""
    folder = SHIPPED / RECIPES
    return file.relative_to(folder).with_suffix("").as_posix() if folder in file.parents else file.stem


def find_recipe(recipe: str | Path) -> Path:
    """The file of a recipe, which is named by its path, or by its name if it comes with docparade.

    Example:
        >>> find_recipe("quickstart").name
        'quickstart.yaml'
    """
    known, path = shipped_recipes(), Path(recipe)
    if str(recipe) in known:
        return known[str(recipe)]
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a recipe in it.")
    if path.exists():
        return path
    if path.suffix == ".yaml" or len(path.parts) > 1:
        hint = f"; the recipe that comes with docparade is called {path.stem}" if path.stem in known else ""
        raise InputError(f"{path} does not exist{hint}.")
    if path.with_name(f"{path.name}.yaml").is_file():
        raise InputError(f"there is no recipe {path}; for the file in this folder, write {path}.yaml.")
    raise InputError(f"there is no recipe {path}; {suggest(path.name, known)} `docparade recipes` lists them all.")


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping that a file holds."""
    with open_text(path) as file:
        try:
            content = load_yaml(file.read())
        except (yaml.YAMLError, ValueError) as error:
            mark = getattr(error, "problem_mark", None)
            line = f", line {mark.line + 1}" if mark else ""
            problem = getattr(error, "problem", None) or " ".join(str(error).split())
            raise InputError(f"{path}{line}: not YAML ({problem}).") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: is no mapping of keys to values.")
    return content


def load_yaml(text: str) -> Any:
    """What YAML stands for; a key that stands twice is refused."""
    return yaml.load(text, _Loader)


class _Loader(yaml.SafeLoader):
    """YAML in which a key stands once: the plain loader takes the last of two, in silence."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value} stands there twice", problem_mark=key.start_mark
                )
            seen.add(str(key.value))
        return node


def suggest(name: str, known: Iterable[str]) -> str:
    """The known names that are nearest to one that is unknown, or all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names)}."
