"""The page of every system, table and figure names every recipe, and what it names exists."""

from __future__ import annotations

import re
from collections.abc import Iterator

from support.project import PROJECT

from docparade.experiments.recipes.merging import read_recipe
from docparade.experiments.recipes.recipe_files import shipped_recipes

PAGE = PROJECT / "docs" / "systems.md"
HEAD = ["what", "run with", "recipe", "the paper has", "ran here", "what differs, and why"]


def rows() -> Iterator[list[str]]:
    """The cells of every row but heads and lines below them."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if cells != HEAD:
                yield cells


def test_every_row_is_whole() -> None:
    assert all(len(row) == len(HEAD) and row[0] for row in rows())


def test_every_recipe_is_named_and_exists() -> None:
    cells = [row[HEAD.index("recipe")] for row in rows()]
    named = {tuple(name.split(" --variant ")) for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    assert all(cell == "–" or cell.startswith("`") for cell in cells)
    assert {recipe for recipe, *_ in named} == set(shipped_recipes())
    for recipe, *variant in named:
        read_recipe(recipe, *variant)


def test_every_paper_has_its_tables_and_figures() -> None:
    papers = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:6]
    numbers = {"Table": (3, 2, 2, 4, 12), "Figure": (1, 0, 0, 4, 5)}
    for kind, counts in numbers.items():
        for paper, count in zip(papers, counts, strict=True):
            firsts = [line.split("|")[1] for line in paper.splitlines() if line.startswith("| ")]
            found = {n for cell in firsts for each in re.findall(rf"{kind}s? ([\d and]+)", cell) for n in each.split()}
            assert {str(number) for number in range(1, count + 1)} <= found, paper.splitlines()[0]
