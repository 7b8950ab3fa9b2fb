"""Models that are not trained again: a variant that differs only in its tests takes the model of the other one.

Passages at inference, depth, test sets, measures and significance are for the tests; every other key of a recipe
decides on the model. `trained.json` beside each model says what it was trained on, as a fingerprint, and which files
the training wrote. An experiment that is about to train looks through the folders beside its own, and takes a finished
model with the same fingerprint if its files are as they were written. The same recipe in another folder is a
repetition, and trains again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers.utils import logging

from docparade.hub_cards.saved_files import CARD_FILE, RECIPE_FILE, RECORD_FILE
from docparade.reranking.caches.fingerprints import fingerprint_values
from docparade.retrieval.collections.loading import load_collection
from docparade.retrieval.storage.files import atomic_path, atomic_write, make_folder
from docparade.trainer.checkpoints import explain_write_errors
from docparade.trainer.training_record import find_versions

from .layout import OutputFolder
from .model_building import locate
from .recipe import Recipe, Stage

logger = logging.get_logger(__name__)

# What a recipe says of its tests, and of itself. Any other key decides on the model.
_NOT_FOR_TRAINING = ("name", "paper", "reproduces", "test", "rerank", "measures", "significance")
# Files of a model that may change when it is tested or published.
_WRITTEN_LATER = (RECORD_FILE, CARD_FILE, RECIPE_FILE)
_CHUNK = 2**20


def fingerprint_training(recipe: Recipe, stage: Stage, fold: str | None = None) -> str:
    """Fingerprint all that a stage's model depends on.

    This is what the recipe says of this stage and those before it, the contents of the local files that it names, and
    the versions of the libraries. What stands behind the name of a model or dataset elsewhere is taken as unchanged.

    Args:
        recipe: The experiment.
        stage: One of its stages.
        fold: The fold's name, if there are folds.
    """
    stages = recipe.stages[: recipe.stages.index(stage) + 1]
    named = {name for one in stages for name in _inputs(recipe, one, fold if one is stage else None)}
    content = replace(recipe, stages=stages).to_dict()
    return fingerprint_values(
        {
            "recipe": {key: value for key, value in content.items() if key not in _NOT_FOR_TRAINING},
            "fold": fold,
            "inputs": {name: _contents(name) for name in sorted(named)},
            "versions": find_versions(),
        }
    )


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
            training = fingerprint_training(recipe, stage, fold)
            taken = next((found for found in _siblings(output) if _take(found, training, output)), None)
            if taken is not None:
                logger.warning(f"{stage.name} is not trained again: {taken.model} was trained the same, and is taken.")
    PartialState().wait_for_everyone()


def record_start(output: OutputFolder, training: str) -> None:
    """Write down what a training starts with; if that is no longer the same when it continues, nobody takes its model.

    Args:
        output: Where the stage's files go.
        training: The fingerprint.
    """
    known = _read(output.trained)
    starts = known is None and not output.checkpoints.exists()
    same = known is not None and known.get("training") == training
    make_folder(output.path)
    _write(output, {"training": training if starts or same else None})


def record_end(output: OutputFolder) -> None:
    """Add to `trained.json` the files that a training wrote, while its model is still unfinished."""
    record = output.unfinished_model / RECORD_FILE
    files = [*output.unfinished_model.rglob("*"), *output.adapter.rglob("*"), output.passages]
    names = {file: file.relative_to(output.path).as_posix() for file in files if file.is_file() and file != record}
    content = {
        **(_read(output.trained) or {}),
        "files": {name: hash_file(file) for file, name in sorted(names.items())},
        "record": json.loads(record.read_text(encoding="utf-8")),
    }
    _write(output, content)


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


def _take(found: OutputFolder, training: str, output: OutputFolder) -> bool:
    """Take the model if it has this fingerprint and is undamaged; its folder appears last, and whole."""
    known = _read(found.trained) or {}
    if known.get("training") != training or "files" not in known or not found.model.is_dir():
        return False
    with explain_write_errors(output.path):
        for rest in (output.unfinished_model, output.adapter):  # of a process that was killed
            shutil.rmtree(rest, ignore_errors=True)
        for name, expected in known["files"].items():
            # The files are listed as they were before the model was finished.
            source = found.path / name.replace(found.unfinished_model.name, found.model.name, 1)
            if not _is_as_written(source, expected):
                logger.warning(f"{source} is missing or not as it was written: this model is not taken.")
                return False
            make_folder((output.path / name).parent)
            _link_or_copy(source, output.path / name)
        with atomic_write(output.unfinished_model / RECORD_FILE) as file:
            json.dump(known["record"], file, indent=2)
            file.write("\n")
        _write(output, known | {"taken_from": found.experiment.path.name})
        output.unfinished_model.rename(output.model)
    return True


def _is_as_written(file: Path, expected: str) -> bool:
    try:
        return hash_file(file) == expected
    except OSError:
        return False


def _link_or_copy(source: Path, target: Path) -> None:
    """Weights are linked, where the file system can, so that variants share the space; other files are copied."""
    target.unlink(missing_ok=True)
    if source.suffix == ".safetensors":
        with suppress(OSError):
            os.link(source, target)
            return
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)


def _inputs(recipe: Recipe, stage: Stage, fold: str | None) -> Iterator[str]:
    """The names of what a stage reads: models, collections and files."""
    models = {"teacher": stage.teacher}
    if stage is recipe.stages[0]:  # a later one starts from the model of the one before
        models["model"] = stage.model.source
    if stage.data.passage_filter is not None:
        models["data.passage_filter.scorer"] = stage.data.passage_filter.scorer
    for key, name in models.items():
        if name is not None:
            yield locate(name, recipe.place(key, stage), fold)
    for data in (stage.data, *stage.validation):
        files = (data.run, data.qrels, data.folds and data.folds.file)
        yield from (*data.collection, *data.triples, *(name.replace("{fold}", fold or "") for name in files if name))
        # The judgments of a collection in BEIR's form name it; its documents and queries are in the folder above them.
        for judgments in (Path(name) for name in data.collection if name.endswith(".tsv") and Path(name).is_file()):
            yield from map(str, judgments.parent.parent.glob("*.jsonl*"))


def _contents(name: str) -> Any:
    """What stands behind a name on this machine, as JSON values; nothing for what is named by an id."""
    if name.startswith("docparade:"):
        return load_collection(name).version()
    path = Path(name)
    if path.is_file():
        return _hash_once(path)
    if not path.is_dir():
        return None
    found = (file for file in path.rglob("*") if file.name not in _WRITTEN_LATER)
    return {file.relative_to(path).as_posix(): _hash_once(file) for file in sorted(found) if file.is_file()}


def _hash_once(file: Path) -> str:
    status = file.stat()
    return _hash_version(file.resolve(), status.st_size, status.st_mtime_ns)


@cache
def _hash_version(file: Path, size: int, changed: int) -> str:
    """The hash of a file in a version of it; every fold asks for it."""
    return hash_file(file)


def hash_file(path: Path) -> str:
    """Hash the contents of a file."""
    hashed = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            hashed.update(chunk)
    return hashed.hexdigest()


def _read(path: Path) -> dict[str, Any] | None:
    """What `trained.json` holds; nothing if it is missing or damaged, and its model is then not taken."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _write(output: OutputFolder, content: dict[str, Any]) -> None:
    with atomic_write(output.trained) as file:
        json.dump(content, file, indent=1)
        file.write("\n")
