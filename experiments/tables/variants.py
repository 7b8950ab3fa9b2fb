"""The variants of a recipe, each with a folder of its own: which there are, which are done, and running the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

from accelerate.utils.memory import clear_device_cache

from docparade.experiments.cross_validation import cross_validate
from docparade.experiments.input_checks import check_inputs
from docparade.experiments.output_folder import OutputFolder, check_folder
from docparade.experiments.query_splits import choose_fold, fold_names
from docparade.experiments.recipes.merging import TABLE, table_section, variants
from docparade.experiments.recipes.recipe import Recipe
from docparade.experiments.recipes.recipe_loading import load_recipe
from docparade.experiments.recipes.typed_values import typed
from docparade.experiments.runner import run_recipe
from docparade.reranking.processes.process_group import join_process_group, share_from_main
from docparade.retrieval.errors import InputError

State = Literal["done", "started", "not run"]
LEFT_OUT = "leave_out"
"""the key of the `table` section that lists combinations of labels that are no variants"""


@dataclass(frozen=True)
class Variant:
    """One choice of labels of a recipe, and the folder of its results."""

    labels: Mapping[str, str]
    """Axis -> label."""
    recipe: Recipe
    output: OutputFolder

    @property
    def has_folds(self) -> bool:
        """Whether it is cross-validated: it has folds, and names none of them."""
        return self.recipe.data.folds is not None and self.recipe.data.fold is None

    def find_state(self) -> State:
        """How far it has been run; what another recipe left in its folder is an `InputError`."""
        check_folder(self.recipe, self.output)
        if not self.output.resolved.is_file():
            return "not run"
        return "done" if self.output.measures.is_file() else "started"


def list_variants(
    recipe: str | Path, chosen: str = "", overrides: Sequence[tuple[str, str]] = (), folder: Path = Path("outputs")
) -> list[Variant]:
    """All variants of a recipe, or those with the chosen labels; the last axis varies fastest.

    Combinations of labels that the recipe's `table.leave_out` lists are no variants.

    Args:
        recipe: The YAML file, or the recipe's name if it comes with docparade.
        chosen: Labels separated by commas; of an axis without one, all are taken.
        overrides: Keys with dots, and values as YAML, for every variant.
        folder: Where the folders of the variants are; each is named after its variant.

    Example:
        >>> [one.recipe.name for one in list_variants("zhang2021-table1", "gov2-title,maxp,avgp")]
        ['zhang2021-table1-gov2-title-maxp', 'zhang2021-table1-gov2-title-avgp']
    """
    axes = choose_labels(variants(recipe), chosen, str(recipe))
    place = f"{recipe}, {TABLE}.{LEFT_OUT}"
    left_out = [set(labels) for labels in typed(table_section(recipe).get(LEFT_OUT) or [], list[list[str]], place)]
    found = []
    for labels in product(*axes.values()):
        if any(each <= set(labels) for each in left_out):
            continue
        loaded = load_recipe(recipe, ",".join(labels), overrides)
        found.append(Variant(dict(zip(axes, labels, strict=True)), loaded, OutputFolder(folder / loaded.name)))
    if not found:
        raise InputError(f"{place}: leaves out all variants with the labels {chosen}.")
    return found


def choose_labels(axes: Mapping[str, list[str]], chosen: str, place: str) -> dict[str, list[str]]:
    """The labels of each axis that are chosen, in the recipe's order; all of an axis of which none is.

    Example:
        >>> choose_labels({"data": ["a", "b"], "model": ["x", "y", "z"]}, "z,x", "recipe.yaml")
        {'data': ['a', 'b'], 'model': ['x', 'z']}
    """
    wanted: dict[str, set[str]] = {}
    for label in filter(None, map(str.strip, chosen.split(","))):
        owners = [axis for axis, labels in axes.items() if label in labels]
        if not owners:
            choices = "; ".join(f"{axis}: {', '.join(labels)}" for axis, labels in axes.items())
            hint = f"choose among {choices}" if choices else "it has no variants"
            raise InputError(f"{place}: there is no variant {label}; {hint}.")
        if len(owners) > 1:
            raise InputError(f"{place}: the label {label} is on the axes {' and '.join(owners)}; rename one of them.")
        wanted.setdefault(owners[0], set()).add(label)
    return {axis: [one for one in labels if one in wanted.get(axis, labels)] for axis, labels in axes.items()}


def run_variants(found: Sequence[Variant], announce: Callable[[str], None]) -> None:
    """Run the variants that are not done, in order. In a process group, all processes call this.

    What all of them name is looked for before the first one begins, and a variant that was stopped continues.

    Args:
        found: As `list_variants` returns them.
        announce: Is called with a sentence when a variant begins.
    """
    join_process_group()
    # One process looks: the others might see files that are written meanwhile.
    states: list[State] = share_from_main([one.find_state() for one in found])
    missing = [(number, one) for number, one in enumerate(found, start=1) if states[number - 1] != "done"]
    for _, one in missing:
        if not _waits_for_another(one, found):
            _check(one)
    for number, one in missing:
        verb = "continuing" if states[number - 1] == "started" else "running"
        announce(f"{verb} variant {number} of {len(found)}: {one.recipe.name}, in {one.output.path}.")
        if one.has_folds:
            cross_validate(one.recipe, one.output.path)
        else:
            run_recipe(one.recipe, one.output.path)
        clear_device_cache(garbage_collection=True)  # the next one needs the memory


def _check(one: Variant) -> None:
    """Check what a variant names, as running it will."""
    recipe, output = one.recipe, one.output
    if recipe.data.folds is None:
        check_inputs(recipe, output, [] if output.model.is_dir() else [None])
        return
    place = recipe.place("data", recipe.stages[-1])
    names = fold_names(recipe.data, place)
    if one.has_folds:
        check_inputs(recipe, output, [name for name in names if not output.fold(name).model.is_dir()])
    elif not output.model.is_dir():
        check_inputs(recipe, output, [choose_fold(names, str(recipe.data.fold), f"{place}.fold")])


def _waits_for_another(one: Variant, found: Sequence[Variant]) -> bool:
    """Whether a variant starts from, or learns from, a model that another one leaves; it is checked when it runs."""
    named = [name for stage in one.recipe.stages for name in (stage.teacher, stage.model.checkpoint) if name]
    return any(other.output.path in Path(name).parents for other in found if other is not one for name in named)
