"""Check everything that a recipe names, in all stages, before the first one begins: data, models and arguments.

Otherwise a mistake in the last stage would show after hours. Nothing is computed, and no weights are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DynamoBackend
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import Trainer
from transformers.integrations import get_reporting_integration_callbacks
from transformers.utils import is_liger_kernel_available, logging

from docparade.experiments.recipes.data_recipe import FOLD, SCORED_DOCUMENTS, DataRecipe
from docparade.experiments.recipes.model_recipe import check_settings
from docparade.experiments.recipes.recipe import Recipe, Stage
from docparade.modeling.configuration_ranker import is_ranker
from docparade.modeling.encoders import position_limit
from docparade.modeling.reader_cross_encoder import check_head
from docparade.modeling.sentence_transformers_files import SentenceTransformersFiles
from docparade.reranking.loading import explain_load_errors
from docparade.reranking.processes.process_group import join_process_group
from docparade.retrieval.collections.catalog import load_collection
from docparade.retrieval.collections.collection import Collection
from docparade.retrieval.collections.irds import IrDatasetsCollection
from docparade.retrieval.errors import InputError, errors_at
from docparade.retrieval.index.lucene import java_with_anserini
from docparade.retrieval.storage.files import read_lines
from docparade.trainer.arguments import RankingTrainingArguments
from docparade.trainer.data.triples import Triples, check_file
from docparade.trainer.layer_selection import check_layers

from .data_loading import first_stage_file, load_query_set, open_data
from .fold_lists import tuned_list_file
from .model_building import check_encoder, locate, processor_settings, will_be_separate
from .model_checks import check_model, check_ranker, check_scorer, encoder_of
from .output_folder import OutputFolder
from .query_splits import choose_fold, fold_names, make_folds, read_named_folds
from .stages import training_arguments
from .training_data import are_files, load_hub_triples

logger = logging.get_logger(__name__)


def check_inputs(recipe: Recipe, output: OutputFolder, folds: Sequence[str | None] = (None,)) -> None:
    """Check what a recipe names; errors give the file and the key. In a process group, all processes call this.

    Args:
        recipe: As `load_recipe` returns it.
        output: The experiment's folder; the data of stages that are done there are not needed.
        folds: Names of the last stage's folds that are not trained yet; `None` stands for data without folds.
    """
    join_process_group()
    for stage in recipe.stages[:-1]:
        if not output.stage(stage.name).model.is_dir():
            _check_stage(recipe, stage, output, (None,))
    _check_stage(recipe, recipe.stages[-1], output, folds)
    for number, data in enumerate(recipe.test, start=1):
        _check_data(data, output, recipe.place(f"test.{number}"))


def _check_stage(recipe: Recipe, stage: Stage, output: OutputFolder, folds: Sequence[str | None]) -> None:
    _check_training(recipe, stage)
    # If the recipe names one fold, its files are the experiment's own.
    own = output.fold if stage.data.folds is not None and stage.data.fold is None else None
    _check_data(stage.data, output, recipe.place("data", stage), own)
    for number, data in enumerate(stage.validation, start=1):
        _check_data(data, output, recipe.place(f"validation.{number}", stage))
    _check_scorer(recipe, stage)
    for fold in folds:
        _check_model(recipe, stage, output, fold)
        if stage.teacher is not None:
            place = recipe.place("teacher", stage)
            check_scorer(locate(stage.teacher, place, fold), place)


# --- Training --------------------------------------------------------------------------------------------------------


def _check_training(recipe: Recipe, stage: Stage) -> None:
    place = recipe.place("training", stage)
    validated = _is_validated(stage.data) or bool(stage.validation)
    try:
        _try_arguments(training_arguments(recipe, stage, Path("unused"), validated))
    except InputError as error:
        raise InputError(str(error) if str(error).startswith(place) else f"{place}.{error}") from None
    # transformers and the libraries behind it raise many kinds of errors.
    except Exception as error:
        raise InputError(f"{place}: {' '.join(str(error).split())}") from error


def _try_arguments(arguments: RankingTrainingArguments) -> None:
    """Build what a Trainer would build later: packages may be missing, and settings may be refused."""
    kind, options = Trainer.get_optimizer_cls_and_kwargs(arguments)
    if not options.keys() & {"params", "model", "optimizer_dict"}:
        kind([nn.Parameter(torch.zeros(1))], **options)
    DataLoader(
        TensorDataset(torch.zeros(1)),
        num_workers=arguments.dataloader_num_workers,
        prefetch_factor=arguments.dataloader_prefetch_factor,
        multiprocessing_context=getattr(arguments, "dataloader_multiprocessing_context", None),
    )
    for callback in get_reporting_integration_callbacks(arguments.report_to):
        callback()
    if arguments.use_liger_kernel and not is_liger_kernel_available():
        raise ImportError("use_liger_kernel needs the package liger-kernel; install it, or leave the key out")
    if arguments.torch_compile:
        DynamoBackend(str(arguments.torch_compile_backend).upper())
        torch.compile(nn.Identity(), mode=arguments.torch_compile_mode)


def _is_validated(data: DataRecipe) -> bool:
    """Whether validation queries are taken from the data."""
    folds = data.folds
    if folds is None:
        return bool(data.validation_share)
    if folds.file is not None:
        return any(fold.dev for fold in read_named_folds(folds.file).values())
    return bool(folds.dev_share) if folds.leave_one_out else folds.dev and (folds.count or 0) > 2


# --- Data ------------------------------------------------------------------------------------------------------------


def _check_data(
    data: DataRecipe, output: OutputFolder, place: str, own: Callable[[str], OutputFolder] | None = None
) -> None:
    if data.triples:
        _check_triples(data, place)
        return
    opened = open_data(data, place)
    for collection in opened.collections:
        with errors_at(f"{place}.collection"):
            if next(iter(collection.documents()), None) is None:
                raise InputError(f"{collection.name} has no documents.")
        if data.run == SCORED_DOCUMENTS:
            with errors_at(f"{place}.run"):
                _check_scored_documents(collection)
    if data.first_stage is not None and data.first_stage.engine == "lucene":
        lists = _list_files(data, output, place, own)
        with errors_at(f"{place}.first_stage"):
            if not all(path.is_file() for path in lists):
                java_with_anserini()
    if data.run not in (None, SCORED_DOCUMENTS):
        names = fold_names(data, place) if data.varies_by_fold else [""]
        with errors_at(f"{place}.run"):
            for name in names:
                _check_not_empty(str(data.run).replace(FOLD, name))
    tune = None if data.first_stage is None else data.first_stage.tune
    if tune is not None and tune.queries == "dev" and not _is_validated(data):
        raise InputError(f"{place}.first_stage.tune.queries: the folds have no dev queries; tune on train.")
    if data.folds is not None and data.folds.file is not None:
        with errors_at(f"{place}.folds.file"):
            read_named_folds(data.folds.file)


def _list_files(
    data: DataRecipe, output: OutputFolder, place: str, own: Callable[[str], OutputFolder] | None
) -> list[Path]:
    """Where the lists that are made for a section are kept: one for all queries, or one for each fold.

    `own` gives the folder of a fold's list; by default, that of the experiment.
    """
    if not data.varies_by_fold:
        return [first_stage_file(data, output)]
    queries = load_query_set(data, output, place)  # without lists
    folds = make_folds(data, queries, place)
    names = folds if data.fold is None else [choose_fold(folds, data.fold, f"{place}.fold")]
    return [tuned_list_file(data, queries, name, folds[name], own(name) if own else output) for name in names]


def _check_scored_documents(collection: Collection) -> None:
    """Check that there is a list. Those of ir_datasets are too long to read for this."""
    if not isinstance(collection, IrDatasetsCollection):
        collection.scored_documents()
        return
    import ir_datasets

    if not ir_datasets.load(collection.name).has_scoreddocs():
        raise InputError(f"{collection.name} has no scored documents; name a run, or set first_stage.")


def _check_not_empty(path: str) -> None:
    if next(read_lines(path), None) is None:
        raise InputError(f"{path} is empty.")


def _check_triples(data: DataRecipe, place: str) -> None:
    with errors_at(f"{place}.triples"):
        if are_files(data.triples):
            for path in data.triples:
                check_file(path)
        elif data.triples[0].startswith("hf:"):
            load_hub_triples(data.triples[0])
        else:
            Triples.check_docpairs(data.triples[0])
            load_collection(data.triples[0]).queries()


# --- Models ----------------------------------------------------------------------------------------------------------


def _check_model(recipe: Recipe, stage: Stage, output: OutputFolder, fold: str | None) -> None:
    model, first = stage.model, recipe.stages[0]
    place = recipe.place("model", stage)
    named = f"{place}.{model.source_key}"
    if stage is not first and model.source != first.model.source:
        check_model(locate(model.source, named, fold), named, model.revision)
        logger.warning(f"{named}: is not used; a stage starts from the model of the previous one.")
    start = _start(recipe, stage, output)
    # A later stage continues with the encoder of the first.
    source = str(start) if start is not None else locate(first.model.source, named, fold)
    if stage is first and model.cross_encoder is not None:
        with explain_load_errors(source, named):
            check_head(source)
    found = check_model(source, named, first.model.revision)
    if stage is first:
        _check_source(stage, found, place, source)
    _check_separate(recipe, stage, found)
    settings = processor_settings(model, named, Path(source) if model.keeps_settings else None)
    _check_reading(settings, found, place)
    if stage is recipe.stages[-1] and recipe.rerank.processor:
        rerank = recipe.place("rerank.processor")
        _check_reading({**settings, **recipe.rerank.processor_options}, found, rerank)


def _start(recipe: Recipe, stage: Stage, output: OutputFolder) -> Path | None:
    """The model of the latest earlier stage that is done."""
    before = recipe.stages[: recipe.stages.index(stage)]
    done = [output.stage(one.name).model for one in before]
    return next((path for path in reversed(done) if path.is_dir()), None)


def _check_source(stage: Stage, found: Any, place: str, source: str) -> None:
    """Check that the first stage's weights are of the kind that their key names."""
    model = stage.model
    if model.checkpoint is not None:
        check_ranker(source, f"{place}.checkpoint", model.revision)
        with explain_load_errors(source, f"{place}.family"):
            check_encoder(model, found.config)
    if model.bi_encoder is not None:
        with explain_load_errors(source, f"{place}.bi_encoder"):
            _check_vectors_of(source, found, model.revision)
    if model.layers is not None:
        with errors_at(f"{place}.layers"):
            check_layers(model.layers, encoder_of(found).config.num_hidden_layers)


def _check_vectors_of(source: str, found: Any, revision: str | None) -> None:
    """Refuse a model that does not say how its vectors are made."""
    if is_ranker(found.config):
        if not found.config.reader_class.separate:
            raise ValueError("it is a ranker on a cross-encoder; name it as checkpoint or encoder.")
    elif not SentenceTransformersFiles(source, {} if revision is None else {"revision": revision}).pooling:
        raise ValueError("it does not say how its vectors are pooled; name it as encoder.")


def _check_separate(recipe: Recipe, stage: Stage, found: Any) -> None:
    """Refuse settings for bi-encoders with a model that is none."""
    if will_be_separate(stage.model, found.config):
        return
    wanted = {recipe.place(f"training.{key}", stage): stage.training[key] for key in ("vectors", "in_batch_negatives")}
    if stage is recipe.stages[-1]:
        wanted[recipe.place("rerank.vectors")] = recipe.rerank.vectors
    for place, value in wanted.items():
        if value:
            raise InputError(f"{place}: is for bi-encoders, and this model is none; name it as model.bi_encoder.")


def _check_reading(settings: dict[str, Any], found: Any, place: str) -> None:
    with errors_at(place):
        check_settings(settings)
    limit = position_limit(encoder_of(found))
    length = settings.get("max_length", 0)
    if length is None and limit is None:
        raise InputError(f"{place}.max_length: is null, and the encoder reads inputs of any length; give a number.")
    if length is not None and limit is not None and length > limit:
        raise InputError(f"{place}.max_length: is {length}, and the encoder has positions for {limit} tokens.")


def _check_scorer(recipe: Recipe, stage: Stage) -> None:
    wanted = stage.data.passage_filter
    if wanted is None:
        return
    place = recipe.place("data.passage_filter.scorer", stage)
    names = [one.name for one in recipe.stages]
    before = names[: names.index(stage.name)]
    if wanted.scorer in names and wanted.scorer not in before:
        raise InputError(f"{place}: the stage {wanted.scorer} is not trained before this one; name an earlier stage.")
    if wanted.scorer not in before:
        check_ranker(locate(wanted.scorer, place), place)
