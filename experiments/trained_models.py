"""Models that are not trained again: a variant that differs only in its tests takes the model of the other one.

Passages at inference, depth, test sets, measures and significance are for the tests; every other key of a recipe
decides on the model. An experiment that is about to train looks through the folders beside its own for a finished model
whose recipe says the same of its training, that was trained with the same versions of the libraries, and since when no
local file has changed that the recipe names. The same recipe in another folder is a repetition, and trains again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from accelerate import PartialState
from transformers.utils import logging

from docparade.experiments.recipes.recipe import Recipe, Stage
from docparade.hub_cards.record_files import (
    CARD_FILE,
    CURVE_FILE,
    EVALUATIONS_FOLDER,
    RECIPE_FILE,
    RECORD_FILE,
    SPEED_FILE,
)
from docparade.retrieval.storage.files import atomic_path, atomic_write, make_folder
from docparade.trainer.checkpoints import explain_write_errors
from docparade.trainer.training_record import RECORD_KEYS, find_versions

from .model_building import locate
from .output_folder import OutputFolder

logger = logging.get_logger(__name__)

# What a recipe says of its tests, and of itself. Any other key decides on the model.
_NOT_FOR_TRAINING = ("name", "paper", "reproduces", "test", "rerank", "measures", "significance")
# What is added to a model when it is tested or published; to its record, too.
_WRITTEN_LATER = (CARD_FILE, CURVE_FILE, EVALUATIONS_FOLDER, RECIPE_FILE, SPEED_FILE)


def take_trained(recipe: Recipe, stage: Stage, output: OutputFolder, fold: str | None = None) -> None:
    """Take the model of an experiment beside this one, if the stage would train the same. All processes call this.

    Args:
        recipe: The experiment.
        stage: One of its stages.
        output: Where the stage's files go; if its model is there, none is looked for.
        fold: The fold's name, if there are folds.
    """
    if PartialState().is_main_process:
        if output.model.is_dir():
            logger.warning(f"{output.model} exists: {stage.name} is not trained again.")
        else:
            training = training_of(yaml.safe_load(recipe.to_yaml()), stage.name)
            taken = next((found for found in _siblings(output) if _is_same(found, training, stage.name, fold)), None)
            if taken is not None:
                _take(taken, output)
                logger.warning(f"{stage.name} is not trained again: {taken.model} was trained the same, and is taken.")
    PartialState().wait_for_everyone()


def training_of(content: Mapping[str, Any], stage: str) -> dict[str, Any] | None:
    """What a complete recipe, as its file has it, says of the training of a stage; `None` if it has no such stage."""
    if stage not in content["stages"]:
        return None
    stages = list(content["stages"].items())
    used = stages[: [name for name, _ in stages].index(stage) + 1]
    return {key: value for key, value in content.items() if key not in _NOT_FOR_TRAINING} | {"stages": used}


def _siblings(output: OutputFolder) -> list[OutputFolder]:
    """The same stage or fold of the experiments beside this one; none, if this one repeats one of them."""
    top = output.experiment
    recipe, found = top.resolved.read_bytes(), []
    for resolved in sorted(top.path.resolve().parent.glob(f"*/{top.resolved.name}")):
        sibling = OutputFolder(resolved.parent)
        with suppress(OSError):  # it may just be moved away
            if sibling.path.samefile(top.path):
                continue
            if resolved.read_bytes() == recipe:
                return []
            found.append(OutputFolder(sibling.path / output.path.relative_to(top.path), sibling))
    return found


def _is_same(found: OutputFolder, training: dict[str, Any] | None, stage: str, fold: str | None) -> bool:
    """Whether a finished model was trained as the recipe says, on what its files hold now."""
    resolved = found.experiment.resolved
    try:
        versions = json.loads((found.model / RECORD_FILE).read_text(encoding="utf-8"))["versions"]
        same = training_of(yaml.safe_load(resolved.read_text(encoding="utf-8")), stage) == training
        began = resolved.stat().st_mtime
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):  # not finished, or not an experiment's
        return False
    return same and versions == find_versions() and not _changed_since(began, training, fold or "")


def _changed_since(moment: float, content: Any, fold: str) -> bool:
    """Whether a file, or one in a folder, has changed whose name stands in a recipe."""
    if isinstance(content, (dict, list, tuple)):
        inner = content.values() if isinstance(content, dict) else content
        return any(_changed_since(moment, one, fold) for one in inner)
    if not isinstance(content, str) or not content:
        return False
    files = _files(Path(locate(content, "model", fold)))
    # The second time also tells when another file took its place that is older.
    return any(max(status.st_mtime, status.st_ctime) > moment for status in map(Path.stat, files))


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        if path.suffix == ".tsv":  # judgments in BEIR's form name their collection, in the folder above
            yield from path.parent.parent.glob("*.jsonl*")
    elif path.is_dir():
        written_later = (*_WRITTEN_LATER, RECORD_FILE)
        yield from (file for file in path.rglob("*") if file.is_file() and file.name not in written_later)


def _take(found: OutputFolder, output: OutputFolder) -> None:
    """Copy a model and what its training left beside it; the model's folder appears last, and whole."""
    with explain_write_errors(output.path):
        for rest in (output.unfinished_model, output.adapter):  # of a process that was killed
            shutil.rmtree(rest, ignore_errors=True)
        make_folder(output.path)
        later = shutil.ignore_patterns(*_WRITTEN_LATER)
        shutil.copytree(found.model, output.unfinished_model, ignore=later, copy_function=_link_or_copy)
        if found.adapter.is_dir():
            shutil.copytree(found.adapter, output.adapter, copy_function=_link_or_copy)
        if found.passages.is_file():
            with atomic_path(output.passages) as temporary:
                shutil.copyfile(found.passages, temporary)
        record = json.loads((found.model / RECORD_FILE).read_text(encoding="utf-8"))
        with atomic_write(output.unfinished_model / RECORD_FILE) as file:
            json.dump({key: record[key] for key in RECORD_KEYS}, file, indent=2)
            file.write("\n")
        output.unfinished_model.rename(output.model)
        with atomic_write(output.trained) as file:
            json.dump({"taken_from": found.experiment.path.name}, file, indent=1)
            file.write("\n")


def _link_or_copy(source: str, target: str) -> None:
    """Weights are linked, where the file system can, so that variants share the space; other files are copied."""
    if source.endswith(".safetensors"):
        with suppress(OSError):
            os.link(source, target)
            return
    shutil.copyfile(source, target)
