"""Hooks of mkdocs: pages made from files outside docs/, and links to such files.

The front page is the README. The reference is made from docstrings and from the help of the command line.
"""

from __future__ import annotations

import ast
import os
import posixpath
import re
import shutil
import tempfile
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PROJECT = Path(__file__).resolve().parent.parent
# Pages of the site made from files at the top of the repository.
TOP_PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
ROOMS = ("modeling", "retrieval", "reranking", "trainer", "experiments", "hub_cards")

_sources = Path(tempfile.gettempdir())


@event_priority(100)  # before mkdocstrings reads its settings
def on_config(config: MkDocsConfig) -> None:
    """Copy the rooms to where mkdocstrings finds them by import name: it does not know setuptools' package-dir."""
    global _sources  # noqa: PLW0603 (mkdocs calls functions; there is no object to keep it in)
    _sources = Path(tempfile.mkdtemp(prefix="docparade-site-"))
    package = _sources / "docparade"
    shutil.copytree(PROJECT / "docparade", package)
    for room in PROJECT.glob("*/__init__.py"):
        if room.parent.name != "docparade":
            shutil.copytree(room.parent, package / room.parent.name)
    for stub in _sources.rglob("__init__.pyi"):
        list_names(stub)
    for file in _sources.rglob("*.py"):
        file.write_text(fence_examples(file.read_text(encoding="utf-8")), encoding="utf-8")
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [str(_sources)]


def list_names(stub: Path) -> None:
    """Write the names that a room exports lazily, listed in its stub, into the copy of its `__init__.py`."""
    imports = ast.parse(stub.read_text(encoding="utf-8"))
    names = [alias.name for node in imports.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    module = stub.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))
    module.write_text(f"{docstring!r}\n{ast.unparse(imports)}\n__all__ = {names}\n", encoding="utf-8")
    stub.unlink()


def fence_examples(source: str) -> str:
    """Mark examples in docstrings as code; Markdown would render `>>>` as a quotation."""
    return re.sub(r"^( *)>>> .*\n(?:\1(?!\"\"\").*\S.*\n)*", r"\1```pycon\n\g<0>\1```\n", source, flags=re.MULTILINE)


def on_post_build(config: MkDocsConfig) -> None:
    shutil.rmtree(_sources)


def on_files(files: Files, config: MkDocsConfig) -> None:
    for source, name in TOP_PAGES.items():
        if (PROJECT / source).exists():
            files.append(File.generated(config, name, content=(PROJECT / source).read_text(encoding="utf-8")))
    for room in ROOMS:
        page = f"# docparade.{room}\n\n::: docparade.{room}\n"
        files.append(File.generated(config, f"reference/{room}.md", content=page))
    files.append(File.generated(config, "reference/docparade.md", content=list_public_names()))
    files.append(File.generated(config, "reference/commands.md", content=describe_commands()))


def list_public_names() -> str:
    """The page of the package `docparade`: its names link to the rooms that define them."""
    import docparade

    # Names of the package itself are explained on this page.
    places = {"load_default": "docparade.default.load_default"}
    names = "".join(f"- [`{name}`][{places.get(name, f'docparade.{name}')}]\n" for name in docparade.__all__)
    own = "\n::: docparade.default.load_default\n"
    return f"# docparade\n\n::: docparade\n    options: {{members: false}}\n\n{names}{own}"


def describe_commands() -> str:
    """The command line's help as a page."""
    import typer
    from typer.cli import get_docs_for_click

    from docparade.cli import app

    command = typer.main.get_command(app)
    page = get_docs_for_click(obj=command, ctx=typer.Context(command, info_name="docparade"), name="docparade")
    # The lists of commands have shortened descriptions, and repeat the page's table of contents.
    return re.sub(r"\*\*Commands\*\*:\n\n(?:\* .*\n)+", "", page)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links between files of the repository, which work on GitHub, so that they work on the site."""
    source = next((top for top, name in TOP_PAGES.items() if name == page.file.src_uri), f"docs/{page.file.src_uri}")

    def on_site(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[1]))
        name = TOP_PAGES.get(path, path.removeprefix("docs/"))
        if files.get_file_from_path(name):
            target = os.path.relpath(name, posixpath.dirname(page.file.src_uri) or ".")
        else:
            target = f"{config.repo_url}/blob/main/{path}" if (PROJECT / path).exists() else match[1]
        return f"]({target}{match[2]})"

    return re.sub(r"\]\(([^)#:\s]+)(#[^)\s]*|)\)", on_site, markdown)
