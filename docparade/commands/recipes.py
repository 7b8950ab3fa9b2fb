"""`docparade recipes`: list or show the recipes that come with docparade."""

import re
import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from docparade.commands.output import JsonOption, note, print_json

Access = Literal["included", "free download", "on request", "your own files"]
"""How to get a collection."""

# Whether a collection is free; unknown for the user's own files.
FREE: dict[Access, bool | None] = {
    "included": True,
    "free download": True,
    "on request": False,
    "your own files": None,
}


def recipes(
    name: Annotated[str | None, typer.Argument(help="The recipe to show. Without it, all recipes are listed.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the recipes that come with docparade, or show one of them.

    A recipe is a YAML file that describes an experiment: model, data, training, test. `docparade train NAME` runs it
    from any folder. Its data are included, free to download, available from their owners on request, or your own files.

    Examples:

        docparade recipes
        docparade recipes quickstart
        docparade recipes quickstart > mine.yaml    # to change it, then run it:
        docparade train mine.yaml
    """
    from docparade.experiments.recipes.recipe_files import find_recipe, shipped_recipes

    if name is not None:
        _show(find_recipe(name), as_json)
        return
    found = [describe(path) for path in shipped_recipes().values()]
    if as_json:
        print_json([asdict(one) for one in found])
        return
    groups = {
        "Data are included:": [one for one in found if one.access == ["included"]],
        "Data are free to download:": [one for one in found if one.free and one.access != ["included"]],
        "Data come from their owners on request, or are your own files:": [one for one in found if not one.free],
    }
    for title, members in groups.items():
        print(title)
        for one in members:
            _print_line(one)
        print()
    note(
        "docparade recipes NAME shows a recipe, docparade train NAME runs it, docparade table NAME all of its variants."
    )


@dataclass(frozen=True)
class Description:
    """A recipe's description, without a chosen variant."""

    name: str
    file: str
    about: str
    variants: dict[str, list[str]]
    """Axis -> labels."""
    collections: list[str]
    access: list[Access]
    """How to get the collections."""
    free: bool | None
    """Whether all collections are free; `None` if that depends on the user's own files."""


def describe(path: Path) -> Description:
    """Describe a recipe from its files, without loading data or weights."""
    from docparade.experiments.recipes.merging import read_recipe, variants
    from docparade.experiments.recipes.recipe_files import name_recipe

    content = read_recipe(path)
    collections = list(dict.fromkeys(_find_collections(content)))
    access = list(dict.fromkeys(map(_find_access, collections)))
    free = {FREE[one] for one in access}
    return Description(
        name=name_recipe(path),
        file=str(path),
        about=content.get("reproduces") or _first_sentence(path),
        variants=variants(path),
        collections=collections,
        access=access,
        free=False if False in free else None if None in free else True,
    )


def _show(path: Path, as_json: bool) -> None:
    from docparade.retrieval.storage.files import open_text

    with open_text(path) as file:
        text = file.read()
    if as_json:
        print_json({**asdict(describe(path)), "content": text})
        return
    print(f"# {path}", text.rstrip(), sep="\n")


def _print_line(one: Description) -> None:
    text = one.about.partition(";")[0].rstrip(".") + "."
    if one.variants:
        text += f" Variants: {' × '.join(one.variants)}."
    width = shutil.get_terminal_size((100, 0)).columns
    print(textwrap.fill(text, width, initial_indent=f"  {one.name:25}", subsequent_indent=" " * 27))


def _first_sentence(path: Path) -> str:
    """The first sentence of the comment at the top of a recipe."""
    lines = takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
    comment = " ".join(line.removeprefix("#").strip() for line in lines)
    return re.split(r"(?<=\.) ", comment, maxsplit=1)[0]


def _find_collections(content: Any) -> Iterator[str]:
    """Find the collections and triples that a recipe names, at any depth."""
    if isinstance(content, list):
        for item in content:
            yield from _find_collections(item)
    if not isinstance(content, dict):
        return
    for key, value in content.items():
        if key in ("collection", "triples"):
            yield from [value] if isinstance(value, str) else value
        else:
            yield from _find_collections(value)


def _find_access(collection: str) -> Access:
    from ir_datasets.util import DownloadConfig

    if collection.startswith("docparade:"):
        return "included"
    downloads = DownloadConfig.contents().get(collection.partition("/")[0])
    if downloads is None:
        return "your own files"
    # ir_datasets has instructions for data that it cannot download.
    return "on request" if any("instructions" in download for download in downloads.values()) else "free download"
