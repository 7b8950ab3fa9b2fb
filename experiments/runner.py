"""`run_recipe`: from a recipe to a folder with a trained ranker, its runs and its measures (see `output_folder`)."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from accelerate import PartialState
from accelerate.utils import set_seed
from transformers.utils import logging

from docparade.experiments.recipes.data_recipe import DataRecipe
from docparade.experiments.recipes.recipe import Recipe
from docparade.modeling import DocumentRanker
from docparade.reranking.loading import load_ranker
from docparade.reranking.processes.process_group import join_process_group, lock_output_for_all
from docparade.reranking.query_set import QuerySet
from docparade.reranking.rerank_run import check_documents
from docparade.retrieval.errors import InputError, errors_at
from docparade.retrieval.folds import Fold, Folds
from docparade.retrieval.runs import cut
from docparade.retrieval.storage.files import make_folder

from .data_loading import load_query_set
from .evaluation import BirchSettings, choose_weight, evaluate_ranker
from .experiment_results import Results, write_measures
from .fold_lists import with_lists_of_fold, with_tested_lists
from .input_checks import check_inputs
from .model_building import build_model, set_processor
from .model_record import record_provenance
from .output_folder import OutputFolder, open_folder
from .query_splits import choose_fold, fold_names, make_folds, tested_queries
from .stages import train_stage
from .trained_models import take_trained
from .training_data import TrainingData, load_training_data, training_data_of_fold

logger = logging.get_logger(__name__)


def run_recipe(recipe: Recipe, folder: Path) -> list[Results]:
    """Train, rerank and measure; returns the results on each test set. In a process group, all processes call this.

    Args:
        recipe: As `load_recipe` returns it. If it has folds, it names one of them.
        folder: Where everything goes; made if it does not exist.

    Example:
        ```python
        recipe = load_recipe("cranfield-minilm")
        run_recipe(recipe, Path("outputs/cranfield"))
        ```
    """
    output, fold = OutputFolder(folder), _chosen_fold(recipe)
    check_inputs(recipe, output, [] if output.model.is_dir() else [fold])
    join_process_group()
    with lock_output_for_all(folder):
        open_folder(recipe, output)
        tests, birch = _load_test_sets(recipe, output)
        start = train_earlier_stages(recipe, output)
        if fold is None:
            take_trained(recipe, recipe.stages[-1], output)
            data = load_training_data(recipe, recipe.stages[-1], output)
            return _train_and_test(recipe, output, data, tests, birch, start=start)
        place = recipe.place("data", recipe.stages[-1])
        queries = load_query_set(recipe.data, output, place)
        chosen = make_folds(recipe.data, queries, place)[fold]
        queries = with_lists_of_fold(recipe.data, queries, fold, chosen, output, output, place)
        return run_fold(recipe, output, queries, fold, chosen, start)


def train_earlier_stages(recipe: Recipe, output: OutputFolder) -> Path | None:
    """Train all stages but the last, which may have folds; returns the model to start the last one from."""
    start = None
    for stage in recipe.stages[:-1]:
        folder = output.stage(stage.name)
        take_trained(recipe, stage, folder)
        # The data of a finished stage are no longer needed.
        if not folder.model.is_dir():
            train_stage(recipe, stage, folder, load_training_data(recipe, stage, output), start=start)
        start = folder.model
    return start


def run_fold(
    recipe: Recipe, output: OutputFolder, queries: QuerySet, name: str, fold: Fold, start: Path | None
) -> list[Results]:
    """The last stage on one fold: trained on its training queries, chosen on dev, tested on test."""
    take_trained(recipe, recipe.stages[-1], output, name)
    data = training_data_of_fold(recipe, queries, fold)
    return _train_and_test(recipe, output, data, [queries.select(fold.test, "test")], {}, name, start)


def _train_and_test(
    recipe: Recipe,
    output: OutputFolder,
    data: TrainingData,
    tests: Sequence[QuerySet],
    birch: Mapping[str, BirchSettings],
    fold: str | None = None,
    start: Path | None = None,
) -> list[Results]:
    trained = train_stage(recipe, recipe.stages[-1], output, data, fold, start)
    _free_trainer()
    make_folder(output.runs)
    model = _load(recipe, trained)
    weight = choose_weight(recipe, model, data.validation, output.runs)
    untrained = _build_untrained(recipe, fold, start) if recipe.rerank.untrained else None
    results = [
        evaluate_ranker(recipe, model, queries, output.runs, weight, birch.get(queries.name), untrained)
        for queries in tests
    ]
    if PartialState().is_main_process:
        write_measures(results, output)
        record_provenance(trained, recipe, results, model.num_parameters(), fold)
    PartialState().wait_for_everyone()
    return results


def _free_trainer() -> None:
    """Give the memory of a trainer that is no longer used back to the system."""
    gc.collect()  # it refers to itself: its optimizer would stay in memory
    # glibc keeps what is freed in small pieces, while reading the test set needs large ones.
    with suppress(OSError, AttributeError):  # other systems have other libraries
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _chosen_fold(recipe: Recipe) -> str | None:
    """The fold that the recipe names; `None` if it has no folds."""
    if recipe.data.folds is None:
        return None
    place = recipe.place("data", recipe.stages[-1])
    if recipe.data.fold is None:
        raise InputError(
            f"{place}.folds: there are several; train on one with --data.fold 1, or on all with docparade crossval."
        )
    return choose_fold(fold_names(recipe.data, place), recipe.data.fold, f"{place}.fold")


def _load_test_sets(recipe: Recipe, output: OutputFolder) -> tuple[list[QuerySet], dict[str, BirchSettings]]:
    """The test sets, and the settings of Birch for those that have some."""
    tests: list[QuerySet] = []
    birch: dict[str, BirchSettings] = {}
    for number, data in enumerate(recipe.test, start=1):
        place = recipe.place(f"test.{number}")
        queries = load_query_set(data, output, place)
        folds = {} if data.folds is None else make_folds(data, queries, place)
        queries = with_tested_lists(data, queries, folds, lambda fold: output, output, place)
        if folds:
            queries = _select_of_folds(data, queries, folds, place)
        queries = queries.select_judged()
        if data.run is not None and recipe.rerank.candidates == "first_stage":
            # A run from elsewhere may name unknown documents; this should show before the training.
            with errors_at(f"{place}.run"):
                check_documents(queries.documents, cut(queries.run, recipe.rerank.depth))
        if data.birch:
            birch[queries.name] = BirchSettings(data.birch, folds)
        tests.append(queries)
    return tests, birch


def _select_of_folds(data: DataRecipe, queries: QuerySet, folds: Folds, place: str) -> QuerySet:
    """The queries that the folds test; for Birch, also those that choose its weights, which are not measured."""
    tested = tested_queries(folds)
    untested = [query for query in queries.judged() if query not in tested]
    if untested:
        logger.warning(
            f"{place}.folds: {len(untested)} judged queries are tested by no fold, and are not measured: "
            f"{', '.join(untested[:5])}{', …' if len(untested) > 5 else ''}."
        )
    choosing = {query for fold in folds.values() for query in (*fold.train, *fold.dev) if data.birch}
    return queries.select([query for query in queries.queries if query in tested | choosing])


def _build_untrained(recipe: Recipe, fold: str | None, start: Path | None) -> DocumentRanker:
    """The ranker as the last stage starts with it."""
    set_seed(recipe.seed)
    stage = recipe.stages[-1]
    return _as_in_tests(recipe, build_model(stage.model, recipe.place("model", stage), fold, start))


def _load(recipe: Recipe, trained: Path) -> DocumentRanker:
    return _as_in_tests(recipe, load_ranker(str(trained)))


def _as_in_tests(recipe: Recipe, model: DocumentRanker) -> DocumentRanker:
    """The ranker with the passage settings of the tests."""
    if recipe.rerank.processor:
        set_processor(model, recipe.rerank.processor_options, f"{recipe.file}, rerank.processor")
    return model
