"""`load_recipe`: from a recipe's file to a `Recipe`.

The file is read with everything that it extends (see `merging`), every key, type and range is checked, and what was
left out is filled in; neither data nor weights are needed. The `Recipe` says all that a run does, and its `to_yaml`
writes it as a recipe that is complete in itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from docparade.retrieval.errors import InputError

from .data_recipe import DataRecipe
from .merging import merge, read_recipe
from .model_recipe import ModelRecipe
from .recipe import ONLY_STAGE, Recipe, Stage
from .recipe_checks import check_recipe
from .rerank_recipe import RerankRecipe, SignificanceRecipe
from .training_recipe import read_training
from .typed_values import build, check_keys, check_mapping, inside, typed

_TOP: dict[str, Any] = {
    "name": str,
    "seed": int,
    "paper": str,
    "reproduces": str,
    "lora": bool,
    "test": Any,
    "stages": Any,
    "rerank": Any,
    "measures": str,
    "significance": Any,
}
_STAGE_KEYS = ("model", "data", "training", "validation", "teacher")


def load_recipe(recipe: str | Path, variant: str = "", overrides: Sequence[tuple[str, str]] = ()) -> Recipe:
    """Read a recipe, complete and checked.

    Args:
        recipe: The YAML file, or the recipe's name if it comes with docparade.
        variant: Labels of the recipe's variants, separated by commas; of an axis without one, the first is taken.
        overrides: Keys with dots, and values as YAML: `[("training.learning_rate", "3e-6")]`.

    Example:
        >>> load_recipe("zhang2021-table1", "gov2-title,sump", [("seed", "7")]).seed
        7
    """
    content = read_recipe(recipe, variant, overrides)
    place = str(recipe)
    check_keys(content, [*_TOP, *_STAGE_KEYS], place)
    if "name" not in content:
        raise InputError(f"{place}, name: is missing; give text.")
    values = {key: typed(content[key], hint, inside(place, key)) for key, hint in _TOP.items() if key in content}
    values["rerank"] = RerankRecipe.of(content.get("rerank", {}), inside(place, "rerank"))
    values["significance"] = build(SignificanceRecipe, content.get("significance", {}), inside(place, "significance"))
    values["test"] = _sets(content.get("test"), inside(place, "test"))
    values["stages"] = _stages(content, place)
    try:
        loaded = Recipe(**values, file=place)
        check_recipe(loaded)
    except InputError as error:
        raise InputError(f"{place}, {error}") from None
    return loaded


def _stages(content: Mapping[str, Any], place: str) -> tuple[Stage, ...]:
    """The stages, each complete: what it leaves out is as above the stages."""
    shared = {key: content[key] for key in _STAGE_KEYS if key in content}
    if "stages" not in content:
        return (_stage(ONLY_STAGE, shared, place),)
    named = content["stages"]
    if not isinstance(named, Mapping) or all(stage is None for stage in named.values()):
        raise InputError(f"{place}, stages: has to be a mapping of names to stages.")
    # A stage that a variant sets to nothing is left out.
    return tuple(
        _stage(str(name), merge(shared, stage), f"{place}, stages.{name}")
        for name, stage in named.items()
        if stage is not None
    )


def _stage(name: str, content: Any, place: str) -> Stage:
    check_mapping(content, place)
    check_keys(content, _STAGE_KEYS, place)
    for key in ("model", "data"):
        if key not in content:
            raise InputError(f"{inside(place, key)}: is missing; a recipe says what is trained, and on what.")
    return Stage(
        name=name,
        model=ModelRecipe.of(content["model"], inside(place, "model")),
        data=DataRecipe.of(content["data"], inside(place, "data")),
        training=read_training(content.get("training", {}), inside(place, "training")),
        validation=_sets(content.get("validation"), inside(place, "validation")),
        teacher=typed(content.get("teacher"), str | None, inside(place, "teacher")),
    )


def _sets(content: Any, place: str) -> tuple[DataRecipe, ...]:
    """Validation or test sets: a list of them, or one without a list around it."""
    listed = [] if content is None else content if isinstance(content, list) else [content]
    return tuple(DataRecipe.of(one, f"{place}.{i}") for i, one in enumerate(listed, start=1))
