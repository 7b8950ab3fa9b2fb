"""The lists of each fold: a run that is named for it, or a first stage whose parameters are tuned on its own queries.

Every combination of the grid is retrieved and measured once, for all queries, and kept (`first-stage/…-tuning/` of the
experiment's folder); each fold chooses by the mean over its own queries. What it chose, and from what, is beside its
lists: `first-stage/LABEL-METHOD-KEY-FOLD.txt` and `.json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from accelerate import PartialState

from docparade.experiments.recipes.data_recipe import FOLD, DataRecipe
from docparade.experiments.recipes.first_stage_recipe import FirstStageRecipe
from docparade.reranking.caches.fingerprints import fingerprint_values
from docparade.reranking.query_set import QuerySet
from docparade.retrieval.errors import InputError, errors_at
from docparade.retrieval.evaluation.measures import evaluate
from docparade.retrieval.folds import Fold, Folds, deciding_queries
from docparade.retrieval.index.first_stage import FirstStage
from docparade.retrieval.index.tuning import Tuning, choose
from docparade.retrieval.progress import show_progress
from docparade.retrieval.runs import Qrels, merge, read_run, write_run
from docparade.retrieval.storage.files import atomic_write, make_folder

from .data_loading import OpenedData, open_data, retrieve_lists, training_judgments
from .output_folder import OutputFolder


def with_lists_of_fold(
    data: DataRecipe, queries: QuerySet, name: str, fold: Fold, own: OutputFolder, shared: OutputFolder, place: str
) -> QuerySet:
    """The query set with one fold's lists, for all of its queries; as it is, if folds share their lists.

    All processes call this.

    Args:
        data: The recipe's section.
        queries: Its query set.
        name: The fold's name.
        fold: The fold.
        own: The folder that keeps the fold's lists.
        shared: The folder that keeps what is the same for all folds.
        place: The section's place, for errors: `recipe.yaml, data`.
    """
    if not data.varies_by_fold:
        return queries
    if data.run is not None:
        with errors_at(f"{place}.run"):
            return replace(queries, run=read_run(data.run.replace(FOLD, name)))
    stage, path = data.first_stage, tuned_list_file(data, queries, name, fold, own)
    assert stage is not None
    # The first process makes it; the others wait and read it.
    with PartialState().main_process_first(), errors_at(f"{place}.first_stage"):
        if not path.is_file():
            opened = open_data(data, place)
            tuning = _tune(data, stage, opened, queries, name, fold, shared)
            run = retrieve_lists(opened, tuning.best, stage.hits, stage.engine)
            make_folder(path.parent)
            _record(stage, tuning, name, path.with_suffix(".json"))
            write_run(run, path, tag=stage.method)
    return replace(queries, run=read_run(path))


def tuned_list_file(data: DataRecipe, queries: QuerySet, name: str, fold: Fold, own: OutputFolder) -> Path:
    """Where a fold's tuned list is kept; the arguments are those of `with_lists_of_fold`."""
    stage = data.first_stage
    assert stage is not None
    asked = [data.collection, data.query_field, data.max_queries, asdict(stage)]
    # The judgments, too, decide what is chosen.
    key = fingerprint_values([*asked, fold.train, fold.dev, _deciding_judgments(data, queries)])[:8]
    return own.first_stage / f"{data.label}-{stage.method}-{key}-{name}.txt"


def with_tested_lists(
    data: DataRecipe,
    queries: QuerySet,
    folds: Folds,
    own: Callable[[str], OutputFolder],
    shared: OutputFolder,
    place: str,
) -> QuerySet:
    """The query set with the list of each query from the fold that tests it; as it is, if folds share their lists.

    The arguments are those of `with_lists_of_fold`; `own` takes a fold's name.
    """
    if not data.varies_by_fold:
        return queries
    runs = (
        with_lists_of_fold(data, queries, name, fold, own(name), shared, place).select(fold.test).run
        for name, fold in folds.items()
    )
    return replace(queries, run=merge(runs))


def _tune(
    data: DataRecipe,
    stage: FirstStageRecipe,
    opened: OpenedData,
    queries: QuerySet,
    name: str,
    fold: Fold,
    shared: OutputFolder,
) -> Tuning:
    tune, judged = stage.tune, _deciding_judgments(data, queries)
    assert tune is not None
    deciding = [query for query in deciding_queries(fold, tune.queries) if query in judged]
    if not deciding:
        raise InputError(f"tune.queries: fold {name} has no {tune.queries} queries with judgments to tune on.")
    described = [data.collection, data.query_field, stage.hits, stage.engine, tune.measure, judged]
    folder = shared.first_stage / f"{data.label}-{stage.method}-{fingerprint_values(described)[:8]}-tuning"
    make_folder(folder)
    bar = show_progress(stage.combinations(), desc="tuning the first stage", unit=" settings")
    return choose([(one, _measure(one, stage, opened, judged, folder)) for one in bar], tune.measure, deciding)


def _deciding_judgments(data: DataRecipe, queries: QuerySet) -> Qrels:
    judgments = training_judgments(data, queries)
    return {query: judgments[query] for query in queries.queries if judgments.get(query)}


def _measure(
    tried: FirstStage, stage: FirstStageRecipe, opened: OpenedData, judged: Qrels, folder: Path
) -> Mapping[str, float]:
    """The measure's value for each judged query, from a file if it was computed before."""
    assert stage.tune is not None
    measure = stage.tune.measure
    path = folder / f"{fingerprint_values(asdict(tried))[:16]}.json"
    if not path.is_file():
        found = evaluate(judged, retrieve_lists(opened, tried, stage.hits, stage.engine), measure).per_query[measure]
        with atomic_write(path) as file:
            json.dump({"first_stage": _parameters(tried), "measure": measure, "per_query": found}, file, indent=1)
    values: Mapping[str, float] = json.loads(path.read_text(encoding="utf-8"))["per_query"]
    return values


def _record(stage: FirstStageRecipe, tuning: Tuning, fold: str, path: Path) -> None:
    assert stage.tune is not None
    content = {
        "fold": fold,
        "queries": stage.tune.queries,
        "measure": tuning.measure,
        "chosen": _parameters(tuning.best),
        "trials": [{**_parameters(tried), tuning.measure: value} for tried, value in tuning.trials],
    }
    with atomic_write(path) as file:
        json.dump(content, file, indent=1)
        file.write("\n")


def _parameters(stage: FirstStage) -> dict[str, Any]:
    return {name: value for name, value in asdict(stage).items() if value is not None}
