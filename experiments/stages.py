"""Stages: one training after another, each from the last one's best checkpoint.

A stage's folder holds the Trainer's checkpoints while it runs, and `model` when it is done: that folder appears whole,
so a stage that has it is not repeated, and one that has not goes on after its last checkpoint.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import set_seed
from torch import nn
from transformers.utils import logging

from docparade.modeling import DocumentProcessor, DocumentRanker
from docparade.modeling.processing_document import EncodedDocument
from docparade.reranking.loading import load_ranker
from docparade.reranking.token_cache import TokenCache
from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import cut
from docparade.trainer.arguments import RankingTrainingArguments
from docparade.trainer.checkpoints import make_folder, saving
from docparade.trainer.distillation import DistillationTrainer
from docparade.trainer.trainer import RankingTrainer
from docparade.trainer.validation import Validation

from .models import build_model, locate, merged, with_lora
from .query_sets import Material, told_as
from .recipe import Recipe, Stage
from .training_data import MODEL_FOLDER, Lesson

logger = logging.get_logger(__name__)

ADAPTER_FOLDER = "adapter"
CHECKPOINTS_FOLDER = "checkpoints"


def train_stage(
    recipe: Recipe, stage: Stage, folder: Path, lesson: Lesson, fold: str | None = None, start: Path | None = None
) -> Path:
    """Train one stage, or go on with it, and return its checkpoint. In a process group, all processes call this.

    Args:
        recipe: The experiment.
        stage: One of its stages.
        folder: Where the stage's files go.
        lesson: What it learns from.
        fold: The fold's name, where there is one.
        start: The last stage's checkpoint.
    """
    done, checkpoints = folder / MODEL_FOLDER, folder / CHECKPOINTS_FOLDER
    if done.is_dir():
        logger.warning(f"{done} exists: {stage.name} is not trained again.")
        return done
    # Before the model is built: its new weights are drawn at random.
    set_seed(recipe.seed)
    ranker = build_model(stage.model, recipe.place("model", stage), fold, start)
    arguments = training_arguments(recipe, stage, checkpoints, bool(lesson.validation))
    make_folder(checkpoints)
    trainer = _trainer(recipe, stage, arguments, ranker, lesson, fold)
    trainer.train(resume_from_checkpoint=True)
    _save(trainer, folder)
    return done


def training_arguments(recipe: Recipe, stage: Stage, folder: Path, validated: bool) -> RankingTrainingArguments:
    """The stage's settings as the Trainer takes them, on as many processes as there are."""
    given = dict(stage.training)
    state = PartialState()
    processes, on_cpu = state.num_processes, state.device.type == "cpu"
    accumulated = given.get("gradient_accumulation_steps", 1)
    batch = given.pop("batch_size")
    if batch % (processes * accumulated):
        place = recipe.place("training.batch_size", stage)
        raise InputError(
            f"{place}: {batch} pairs cannot be shared evenly by {processes} processes with gradient_accumulation_steps "
            f"{accumulated}; change one of them."
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
        # Pinned memory is for accelerators; without one, torch warns each epoch.
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
    lesson: Lesson,
    fold: str | None,
) -> RankingTrainer:
    processor = ranker.require_processor()
    validated = [_read(one, arguments.rerank_depth) for one in lesson.validation]
    encode = None
    if lesson.read and lesson.documents is not None:
        # One cache for all that is read of the same documents.
        alike = [read for one, read in zip(lesson.validation, validated, strict=True) if _same(one, lesson)]
        with told_as(recipe.place("data", stage)):
            encode = TokenCache.open(None, processor, lesson.documents, lesson.read.union(*alike)).encode_documents
    validation = []
    for one, read in zip(lesson.validation, validated, strict=True):
        with told_as(recipe.place("validation", stage)):
            own = (
                encode if _same(one, lesson) else TokenCache.open(None, processor, one.documents, read).encode_documents
            )
            validation.append(Validation(one.name, one.queries, one.run, one.qrels, one.documents, own))
    if lesson.are_passages:
        encode = partial(encode_whole, processor)
    if not validation:
        logger.warning(f"{stage.name} has nothing to choose a model by: the last one is taken.")
    with told_as(recipe.place("lora")):
        model: nn.Module = with_lora(ranker) if recipe.lora else ranker
    data = (model, arguments, lesson.pairs, lesson.queries, lesson.documents, validation or None)
    if stage.teacher is None:
        return RankingTrainer(*data, encode_documents=encode)
    place = recipe.place("teacher", stage)
    teacher = load_ranker(locate(stage.teacher, place, fold), place)
    return DistillationTrainer(*data, encode_documents=encode, teacher=teacher)


def _read(material: Material, depth: int) -> set[str]:
    """The documents that are read to measure a model."""
    return {document for found in cut(material.run, depth).values() for document in found}


def _same(material: Material, lesson: Lesson) -> bool:
    return material.documents is lesson.documents


def _save(trainer: RankingTrainer, folder: Path) -> None:
    """Save the best model, and its adapter if it has one; the folder `model` appears last, and whole."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    adapted = hasattr(model, "merge_and_unload")
    unfinished = folder / f"{MODEL_FOLDER}.unfinished"
    if adapted:
        trainer.save_model(str(folder / ADAPTER_FOLDER))
        trainer.model = trainer.model_wrapped = merged(model)
    if trainer.args.should_save:
        shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed here
    trainer.accelerator.wait_for_everyone()
    trainer.save_model(str(unfinished))
    trainer.accelerator.wait_for_everyone()
    if trainer.args.should_save:
        with saving(folder):
            unfinished.rename(folder / MODEL_FOLDER)
    trainer.accelerator.wait_for_everyone()


def encode_whole(processor: DocumentProcessor, documents: Sequence[Any]) -> list[EncodedDocument]:
    """Documents that are one passage each, however the processor would cut them."""
    return [
        replace(encoded, bounds=encoded.bounds[[0, -1]]) if len(encoded.bounds) else encoded
        for encoded in processor.encode_documents(documents)
    ]
