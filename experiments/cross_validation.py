"""Cross-validation: each fold is trained and tested on its own, and all test queries are measured together.

An experiment's folder then has a further folder for each fold (see `output_folder`). Folds may be run on different
machines: copy their folders into one, and merge.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from accelerate import PartialState

from docparade.experiments.recipes.recipe import Recipe
from docparade.reranking.processes.process_group import join_process_group, lock_output_for_all
from docparade.reranking.query_set import QuerySet
from docparade.retrieval.errors import InputError
from docparade.retrieval.folds import Folds, write_folds
from docparade.retrieval.runs import Run, merge, read_run
from docparade.retrieval.storage.files import make_folder, sweep

from .data_loading import load_query_set
from .evaluation import write_once
from .experiment_results import FIRST_STAGE, INTERPOLATED, RERANKED, UNTRAINED, Results, measure, write_measures
from .fold_lists import with_lists_of_fold, with_tested_lists
from .input_checks import check_inputs
from .output_folder import OutputFolder, open_folder
from .query_splits import choose_fold, fold_names, make_folds
from .runner import run_fold, train_earlier_stages


def cross_validate(recipe: Recipe, folder: Path, fold: str | None = None, merge_only: bool = False) -> Results:
    """Run the folds that are not done yet, or one of them, and measure. In a process group, all processes call this.

    Args:
        recipe: As `load_recipe` returns it, with folds.
        folder: Where everything goes; made if it does not exist.
        fold: Run only this one, by its name or number; the results are then those of its test queries.
        merge_only: Run none, and merge those that are done.

    Example:
        ```python
        recipe = load_recipe("ghasemi2021")
        cross_validate(recipe, Path("outputs/ghasemi2021"))
        ```
    """
    recipe, output = without_fold(recipe), OutputFolder(folder)
    place = recipe.place("data", recipe.stages[-1])
    names = fold_names(recipe.data, place)
    chosen = [] if merge_only else names if fold is None else [choose_fold(names, fold, "--fold")]
    if chosen:
        check_inputs(recipe, output, [name for name in chosen if not output.fold(name).model.is_dir()])
    join_process_group()
    # The folder is locked for what folds share, and each fold's own while it runs: two folds may run at once.
    with lock_output_for_all(folder):
        open_folder(recipe, output)
        queries = load_query_set(recipe.data, output, place)
        folds = make_folds(recipe.data, queries, place)
        if PartialState().is_main_process:
            write_folds(folds, output.folds)
        own = {
            name: with_lists_of_fold(recipe.data, queries, name, folds[name], output.fold(name), output, place)
            for name in chosen
        }
        start = train_earlier_stages(recipe, output) if chosen else None
    results = _run_folds(recipe, output, own, folds, start)
    if fold is not None:
        return results[0]
    with lock_output_for_all(folder):
        return _merge(recipe, output, queries, folds, place)


def without_fold(recipe: Recipe) -> Recipe:
    """The recipe with all of its folds, even if it names one."""
    if recipe.data.folds is None:
        raise InputError(f"{recipe.file}, data.folds: are missing; say how many with --data.folds.count 5.")
    last = recipe.stages[-1]
    return replace(recipe, stages=(*recipe.stages[:-1], replace(last, data=replace(last.data, fold=None))))


def _run_folds(
    recipe: Recipe, output: OutputFolder, queries: Mapping[str, QuerySet], folds: Folds, start: Path | None
) -> list[Results]:
    results = []
    for name in queries:
        own = output.fold(name)
        make_folder(own.path)
        with lock_output_for_all(own.path):
            if PartialState().is_main_process:
                sweep(own.path)
            results += run_fold(recipe, own, queries[name], name, folds[name], start)
    return results


def _merge(recipe: Recipe, output: OutputFolder, queries: QuerySet, folds: Folds, place: str) -> Results:
    missing = [name for name in folds if not output.fold(name).measures.is_file()]
    if missing:
        raise InputError(
            f"{output.path} lacks the folds {', '.join(missing)}; run them with --fold, or copy their folders "
            f"({output.fold(missing[0]).path.name}, …) here from where they were run."
        )
    # Lists that are lost are tuned again: on all queries, as before, also on those that no fold tests.
    queries = with_tested_lists(recipe.data, queries, folds, output.fold, output, place)
    tested = queries.select([query for fold in folds.values() for query in fold.test])
    runs: dict[str, Run] = {FIRST_STAGE: tested.run}
    if recipe.rerank.untrained:
        runs[UNTRAINED] = _merged(output, folds, "test-untrained")
    runs[RERANKED] = _merged(output, folds, "test")
    weights = {name: _read_weight(output.fold(name)) for name in folds}
    # Without validation queries to choose the weight on, as with two folds, there are no interpolated runs.
    if all(weight is not None for weight in weights.values()):
        runs[INTERPOLATED] = _merged(output, folds, "test-interpolated")
    make_folder(output.runs)
    for label, run in runs.items():
        tag = label.replace(" ", "-")
        write_once(run, output.runs / f"{tag}.txt", tag)
    results = measure("test", runs, tested.judged(), recipe.measures, weights, recipe.significance)
    if PartialState().is_main_process:
        write_measures([results], output)
    PartialState().wait_for_everyone()
    return results


def _merged(output: OutputFolder, folds: Folds, name: str) -> Run:
    return merge(read_run(output.fold(fold).runs / f"{name}.txt") for fold in folds)


def _read_weight(fold: OutputFolder) -> float | None:
    try:
        weight: float | None = json.loads(fold.measures.read_text(encoding="utf-8"))["test"]["first_stage_weight"]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"{fold.measures} is damaged; copy the fold's folder again, or remove the file and run the fold."
        ) from None
    return weight
