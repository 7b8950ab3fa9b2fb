"""Stages: one training after another, each from the best model of the previous one.

A stage with a finished model is not repeated; an interrupted one continues from its last checkpoint.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from accelerate import PartialState
from accelerate.utils import set_seed
from torch import nn
from transformers.utils import logging

from docparade.experiments.recipes.recipe import Recipe, Stage
from docparade.modeling import DocumentProcessor, DocumentRanker
from docparade.modeling.engine import EncodeDocuments
from docparade.modeling.passages import EncodedDocument
from docparade.reranking.caches.document_lookup import Documents
from docparade.reranking.caches.token_cache import TokenCache
from docparade.reranking.caches.vector_cache import VectorCache
from docparade.reranking.loading import load_ranker
from docparade.reranking.query_set import QuerySet
from docparade.retrieval.errors import InputError, errors_at
from docparade.retrieval.runs import top_documents
from docparade.retrieval.storage.files import make_folder
from docparade.trainer.arguments import RankingTrainingArguments
from docparade.trainer.checkpoints import explain_write_errors
from docparade.trainer.distillation import DistillationTrainer
from docparade.trainer.step_lines import StepLines
from docparade.trainer.trainer import RankingTrainer
from docparade.trainer.validation import check_validation_set

from .model_building import build_model, locate, merged, with_lora
from .output_folder import OutputFolder
from .training_data import TrainingData

logger = logging.get_logger(__name__)

Cache = TypeVar("Cache")


def train_stage(
    recipe: Recipe,
    stage: Stage,
    output: OutputFolder,
    data: TrainingData,
    fold: str | None = None,
    start: Path | None = None,
) -> Path:
    """Train one stage, or continue it, and return its best model. In a process group, all processes call this.

    Args:
        recipe: The experiment.
        stage: One of its stages.
        output: Where the stage's files go.
        data: What it learns from.
        fold: The fold's name, if there are folds.
        start: The previous stage's model.
    """
    if output.model.is_dir():
        return output.model
    # Before the model is built: its new weights are drawn at random.
    set_seed(recipe.seed)
    ranker = build_model(stage.model, recipe.place("model", stage), fold, start)
    arguments = training_arguments(recipe, stage, output.checkpoints, bool(data.validation))
    make_folder(output.checkpoints)
    trainer = _trainer(recipe, stage, arguments, ranker, data, fold)
    if arguments.disable_tqdm:
        trainer.add_callback(StepLines())
    if stage.is_trained:
        trainer.train(resume_from_checkpoint=True)
    else:
        logger.warning(f"{stage.name} has num_train_epochs 0: the model is not trained, and measured as it is.")
    _save(trainer, output)
    return output.model


def training_arguments(recipe: Recipe, stage: Stage, folder: Path, validated: bool) -> RankingTrainingArguments:
    """The stage's settings as Trainer's arguments, for the number of processes that there are."""
    given = {name: value for name, value in stage.training.items() if name != "vectors"}
    state = PartialState()
    processes, on_cpu = state.num_processes, state.device.type == "cpu"
    accumulated = given.get("gradient_accumulation_steps", 1)
    batch = given.pop("batch_size")
    if batch % (processes * accumulated):
        place = recipe.place("training.batch_size", stage)
        raise InputError(
            f"{place}: {batch} pairs cannot be divided evenly among {processes} processes with "
            f"gradient_accumulation_steps {accumulated}; change one of them."
        )
    evaluation = given.get("eval_strategy", "epoch") if validated else "no"
    steps = {"save_steps": given["eval_steps"]} if "eval_steps" in given and evaluation == "steps" else {}
    defaults: dict[str, Any] = {
        "per_device_train_batch_size": batch // (processes * accumulated),
        "save_strategy": evaluation if validated else "epoch",
        "save_total_limit": 2,
        "logging_steps": 10,
        "disable_tqdm": not sys.stderr.isatty(),
        "report_to": "none",
        # Pinned memory is for accelerators; without one, torch warns in every epoch.
        "dataloader_pin_memory": not on_cpu,
        "use_cpu": on_cpu,
        **steps,
    }
    decided = {
        "output_dir": str(folder),
        "seed": recipe.seed,
        "eval_strategy": evaluation,
        "load_best_model_at_end": validated,
    }
    return RankingTrainingArguments(**{**defaults, **given, **decided})


def _trainer(
    recipe: Recipe,
    stage: Stage,
    arguments: RankingTrainingArguments,
    ranker: DocumentRanker,
    data: TrainingData,
    fold: str | None,
) -> RankingTrainer:
    encode, vectors = None, None
    if stage.training["vectors"] is None:
        encode, validation = _with_token_caches(recipe, stage, ranker.require_processor(), data, arguments.rerank_depth)
    else:
        vectors, validation = _with_vectors(recipe, stage, ranker, data, arguments.rerank_depth)
    if not validation:
        logger.warning(f"{stage.name} has no validation queries to choose a model by: the last one is used.")
    with errors_at(recipe.place("lora")):
        model: nn.Module = with_lora(ranker) if recipe.lora else ranker
    given = (model, arguments, data.examples, data.queries, data.documents, validation or None)
    if stage.teacher is None:
        return RankingTrainer(*given, encode_documents=encode, vectors=vectors)
    place = recipe.place("teacher", stage)
    teacher = load_ranker(locate(stage.teacher, place, fold), place)
    return DistillationTrainer(*given, encode_documents=encode, vectors=vectors, teacher=teacher)


def _with_token_caches(
    recipe: Recipe, stage: Stage, processor: DocumentProcessor, data: TrainingData, depth: int
) -> tuple[EncodeDocuments | None, list[QuerySet]]:
    """How training documents are encoded, and the validation sets with how theirs are: from token caches."""

    def open_cache(documents: Documents, ids: Iterable[str]) -> EncodeDocuments:
        return TokenCache.open(None, processor, documents, ids).encode_documents

    encode, of_validation = _open_caches(recipe, stage, data, depth, open_cache)
    sets = zip(data.validation, of_validation, strict=True)
    validation = [replace(queries, encode_documents=own) for queries, own in sets]
    return partial(encode_whole, processor) if data.are_passages else encode, validation


def _with_vectors(
    recipe: Recipe, stage: Stage, ranker: DocumentRanker, data: TrainingData, depth: int
) -> tuple[VectorCache | None, list[QuerySet]]:
    """The kept vectors of the training documents, and the validation sets with theirs."""
    ranker.to(PartialState().device)

    def open_cache(documents: Documents, ids: Iterable[str]) -> VectorCache:
        return VectorCache.open(None, ranker, documents, ids, stage.training["vectors"])

    vectors, of_validation = _open_caches(recipe, stage, data, depth, open_cache)
    sets = zip(data.validation, of_validation, strict=True)
    return vectors, [replace(queries, vectors=own) for queries, own in sets]


def _open_caches(
    recipe: Recipe,
    stage: Stage,
    data: TrainingData,
    depth: int,
    open_cache: Callable[[Documents, Iterable[str]], Cache],
) -> tuple[Cache | None, list[Cache | None]]:
    """The cache of the training documents, and those of the validation sets; sets of the same documents share one."""
    read = [top_documents(one.run, depth) for one in data.validation]
    shared = [one.documents is data.documents for one in data.validation]
    cache: Cache | None = None
    if data.read and data.documents is not None:
        # One cache for all that is read of the same documents.
        wanted = data.read.union(*(ids for ids, same in zip(read, shared, strict=True) if same))
        with errors_at(recipe.place("data", stage)):
            cache = open_cache(data.documents, wanted)
    of_validation = []
    for queries, ids, same in zip(data.validation, read, shared, strict=True):
        with errors_at(recipe.place("validation", stage)):
            of_validation.append(cache if same else open_cache(queries.documents, ids))
            check_validation_set(queries)
    return cache, of_validation


def _save(trainer: RankingTrainer, output: OutputFolder) -> None:
    """Save the best model, and its adapter if it has one; the model's folder appears last, and whole."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    if hasattr(model, "merge_and_unload"):
        trainer.save_model(str(output.adapter))
        trainer.model = trainer.model_wrapped = merged(model)
    if trainer.args.should_save:
        shutil.rmtree(output.unfinished_model, ignore_errors=True)  # of a process that was killed here
    trainer.accelerator.wait_for_everyone()
    trainer.save_model(str(output.unfinished_model))
    trainer.accelerator.wait_for_everyone()
    if trainer.args.should_save:
        with explain_write_errors(output.path):
            output.unfinished_model.rename(output.model)
    trainer.accelerator.wait_for_everyone()


def encode_whole(processor: DocumentProcessor, documents: Sequence[Any]) -> list[EncodedDocument]:
    """Documents as one passage each, even if the processor would cut them."""
    return [
        replace(encoded, bounds=encoded.bounds[[0, -1]]) if len(encoded.bounds) else encoded
        for encoded in processor.encode_documents(documents)
    ]
