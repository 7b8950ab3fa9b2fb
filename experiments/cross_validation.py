"""Cross-validation: every fold trained, chosen and tested on its own, and the test queries of all put together.

The folder is that of a run, with one folder more for each fold (`fold-s1`, ...), which holds what a run's own folder
would. Folds may be run on different machines: copy their folders into one, and merge.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from accelerate import PartialState

from docparade.reranking.processes import join_processes, one_at_a_time, working_together
from docparade.retrieval.errors import InputError
from docparade.retrieval.folds import Folds, write_folds
from docparade.retrieval.runs import Run, merge, read_run
from docparade.retrieval.storage.files import sweep
from docparade.trainer.checkpoints import make_folder

from .preflight import check_inputs
from .query_sets import Material, choose_fold, fold_names, load_material, make_folds
from .recipe import Recipe
from .results import FIRST_STAGE, INTERPOLATED, RERANKED, Results, keep, measure, write_measures
from .runner import FOLD, RUNS_FOLDER, open_folder, run_fold, train_earlier_stages
from .training_data import MODEL_FOLDER

MERGED = "test"


@working_together()
def cross_validate(recipe: Recipe, folder: Path, fold: str | None = None, merge_only: bool = False) -> Results:
    """Run the folds that are not done yet, or one of them, and measure. All processes call this.

    Args:
        recipe: What `load_recipe` gave, with folds.
        folder: Where everything goes; made if it is not there.
        fold: Run this one alone, by its name or number; what is returned is measured on its test queries.
        merge_only: Run none, and put together those that are there.

    Example:
        ```python
        recipe = load_recipe("ghasemi2021")
        cross_validate(recipe, Path("outputs/ghasemi2021"))
        ```
    """
    recipe = without_fold(recipe)
    place = recipe.place("data", recipe.stages[-1])
    names = fold_names(recipe.data, place)
    chosen = [] if merge_only else names if fold is None else [choose_fold(names, fold, "--fold")]
    if chosen:
        check_inputs(
            recipe, folder, [name for name in chosen if not (fold_folder(folder, name) / MODEL_FOLDER).is_dir()]
        )
    join_processes()
    # The folder is held for what folds share, and each fold's own while it runs: two folds may run at once.
    with one_at_a_time(folder):
        open_folder(recipe, folder)
        material = load_material(recipe.data, folder, place)
        folds = make_folds(recipe.data, material, place)
        if PartialState().is_main_process:
            write_folds(folds, folder / "folds.json")
        start = train_earlier_stages(recipe, folder) if chosen else None
    results = _run(recipe, folder, material, folds, chosen, start)
    if fold is not None:
        return results[0]
    with one_at_a_time(folder):
        return _merge(recipe, folder, material, folds)


def without_fold(recipe: Recipe) -> Recipe:
    """The recipe with all of its folds, where it names one."""
    if recipe.data.folds is None:
        raise InputError(f"{recipe.file}, data.folds: are missing; say how many with --data.folds.count 5.")
    last = recipe.stages[-1]
    return replace(recipe, stages=(*recipe.stages[:-1], replace(last, data=replace(last.data, fold=None))))


def _run(
    recipe: Recipe, folder: Path, material: Material, folds: Folds, names: list[str], start: Path | None
) -> list[Results]:
    results = []
    for name in names:
        place = fold_folder(folder, name)
        make_folder(place)
        with one_at_a_time(place):
            if PartialState().is_main_process:
                sweep(place)
            results += run_fold(recipe, place, material, name, folds[name], start)
    return results


def fold_folder(folder: Path, name: str) -> Path:
    """Where a fold's files are."""
    return folder / f"{FOLD}{name}"


def _merge(recipe: Recipe, folder: Path, material: Material, folds: Folds) -> Results:
    missing = [name for name in folds if not (fold_folder(folder, name) / "measures.json").is_file()]
    if missing:
        raise InputError(
            f"{folder} lacks the folds {', '.join(missing)}; run them with --fold, or copy their folders "
            f"({fold_folder(folder, missing[0]).name}, …) here from where they were run."
        )
    tested = material.of([query for fold in folds.values() for query in fold.test])
    runs: dict[str, Run] = {FIRST_STAGE: tested.run, RERANKED: _merged(folder, folds, "test")}
    weights = {name: _weight(fold_folder(folder, name)) for name in folds}
    # Without queries to choose the weight on, as with two folds, no fold has an interpolated run.
    if all(weight is not None for weight in weights.values()):
        runs[INTERPOLATED] = _merged(folder, folds, "test-interpolated")
    make_folder(folder / RUNS_FOLDER)
    for label, run in runs.items():
        keep(run, folder / RUNS_FOLDER / f"{label.replace(' ', '-')}.txt", label.replace(" ", "-"))
    judged = {query: tested.qrels[query] for query in tested.judged()}
    results = measure(MERGED, runs, judged, recipe.measures, weights)
    if PartialState().is_main_process:
        write_measures([results], folder)
    PartialState().wait_for_everyone()
    return results


def _merged(folder: Path, folds: Folds, name: str) -> Run:
    return merge(read_run(fold_folder(folder, fold) / RUNS_FOLDER / f"{name}.txt") for fold in folds)


def _weight(folder: Path) -> float | None:
    path = folder / "measures.json"
    try:
        weight: float | None = json.loads(path.read_text(encoding="utf-8"))["test"]["first_stage_weight"]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"{path} is damaged; copy the fold's folder again, or remove the file and run the fold."
        ) from None
    return weight
