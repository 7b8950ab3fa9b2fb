"""Every recipe that comes with docparade runs to its end, cut down to one step on tiny models and collections.

Of a recipe's variants, those are run that go through other code than the ones before them, of all recipes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.marks import others_slow
from support.project import PROJECT
from support.tiny_recipes import TINY, TinyWorld, cut_down, find_architecture, outline

from docparade import DocumentRanker
from docparade.experiments.recipes.merging import read_recipe, variants
from docparade.experiments.recipes.recipe import Recipe
from docparade.experiments.recipes.recipe_files import shipped_recipes
from docparade.experiments.recipes.recipe_loading import load_recipe
from docparade.experiments.runner import run_recipe
from docparade.retrieval.evaluation.measures import parse_measures

RECIPES = list(shipped_recipes())
ARCHITECTURE = re.compile(rf"{TINY}[\w-]+")
# Settings that work together are compared together.
TOGETHER = (
    ("model", "training", "teacher", "stages", "lora"),
    ("data", "validation"),
    ("rerank", "test"),
    ("measures",),
)


@pytest.fixture(scope="module")
def world(
    encoder_folder: Callable[..., Path],
    tiny_ranker: Callable[..., DocumentRanker],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> TinyWorld:
    return TinyWorld(tmp_path_factory.mktemp("recipes"), encoder_folder, tiny_ranker, request.getfixturevalue)


@cache
def choose_variants() -> dict[str, dict[str, dict[str, Any]]]:
    """Recipe -> labels -> cut-down content: the first variant, and those with something that was not seen before."""
    seen: set[str] = set()
    chosen: dict[str, dict[str, dict[str, Any]]] = {}
    for name in RECIPES:
        labels = ["", *(label for axis in variants(name).values() for label in axis)]
        for label in labels:
            content = cut_down(read_recipe(name, label))
            outlined = outline(content)
            parts = {json.dumps([outlined.get(key) for key in keys], sort_keys=True) for keys in TOGETHER}
            # Each architecture is read once, and each method once with any architecture.
            parts = {ARCHITECTURE.sub("", part) for part in parts} | set(ARCHITECTURE.findall(" ".join(parts)))
            if not label or parts - seen:
                chosen.setdefault(name, {})[label] = content
            seen |= parts
    return chosen


def test_the_architecture_of_a_model_is_found_in_its_name() -> None:
    names = (
        "google/bigbird-roberta-base",
        "dmis-lab/biobert-base-cased-v1.2",
        "albert/albert-base-v2",
        "outputs/teacher",
    )
    assert [find_architecture(name) for name in names] == ["big_bird", "bert", "albert", "bert"]


@pytest.mark.slow
def test_the_page_of_all_systems_names_the_variants_that_run() -> None:
    page = (PROJECT / "docs/systems.md").read_text(encoding="utf-8").partition("## Variants that ran")[2]
    named = {name: labels.split(", ") for name, labels in re.findall(r"^- `(.+)`: (.+)$", page, re.MULTILINE)}
    chosen = {name: [label for label in labels if label] for name, labels in choose_variants().items()}
    assert named == {name: labels for name, labels in chosen.items() if labels}


@pytest.mark.parametrize("name", others_slow(RECIPES, fast=[RECIPES.index("default/cranfield")]))
def test_every_recipe_runs(name: str, world: TinyWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for label, content in choose_variants()[name].items():
        folder = tmp_path / (label or "default")
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(world.build(content), sort_keys=False), encoding="utf-8")
        recipe = load_recipe("recipe.yaml")
        run_recipe(recipe, folder)
        check_results(recipe, folder)


def check_results(recipe: Recipe, folder: Path) -> None:
    for stage in recipe.stages:
        place = folder if stage is recipe.stages[-1] else folder / "stages" / stage.name
        # A stage that another variant has trained already is taken from there.
        is_trained = stage.training["num_train_epochs"] > 0 and not (place / "trained.json").exists()
        assert (place / "checkpoints/checkpoint-1").is_dir() == is_trained
        assert (place / "model/config.json").is_file()
    measured = json.loads((folder / "measures.json").read_text())
    assert list(measured) == ([data.label for data in recipe.test] or ["test"])
    for tested in measured.values():
        for run in tested["runs"].values():
            assert list(run["means"]) == [str(measure) for measure in parse_measures(recipe.measures)]
            assert all(math.isfinite(value) for value in run["means"].values())
    for data in recipe.test:
        assert any(run.startswith("birch") for run in measured[data.label]["runs"]) == bool(data.birch)
