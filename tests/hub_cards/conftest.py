"""A model that was really trained and measured, for this room's tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.recipes import recipe_folder, succeed, tiny_recipe
from support.training import small

__all__ = ["small"]


@pytest.fixture(scope="session")
def world(encoder_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which a recipe was run: `out` is its output folder."""
    folder = tmp_path_factory.mktemp("cards")
    shutil.copytree(encoder_folder("bert"), folder / "encoder")
    (folder / "encoder" / "README.md").write_text("---\nlicense: mit\n---\n# An encoder\n")
    recipe = tiny_recipe("encoder", {"test": {"name": "everything", "collection": "small"}})
    recipe["data"] = {"name": "small", "collection": "small", "validation_share": 0.3}
    recipe["training"]["logging_steps"] = 2
    with recipe_folder(folder, recipe):
        succeed("train", "tiny.yaml", "--output", "out")
        yield folder


@pytest.fixture
def checkpoint(world: Path, tmp_path: Path) -> Path:
    """A copy of the trained model."""
    return Path(shutil.copytree(world / "out" / "model", tmp_path / "model"))
