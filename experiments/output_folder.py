"""Where the files of an experiment are.

    outputs/NAME/
        resolved.yaml, versions.json    the complete recipe, and the versions of the libraries
        first-stage/                    the first stage's runs
        stages/NAME/                    of each earlier stage: checkpoints/, and model/ when it is done
        checkpoints/                    of the last stage, while it is trained
        passages.jsonl.gz               the passages that it trains on, if a scorer chooses them
        model/                          the last stage's best model, with measured.json
        trained.json                    which experiment's model that is, if it was not trained here
        adapter/                        its LoRA adapter, if it has one
        runs/                           validation and test queries, reranked and interpolated
        measures.json, measures.md      how good these runs are, compared with the first stage
        folds.json, fold-NAME/          cross-validation: the folds, and the same files for each of them, with its own
                                        first-stage/ if each fold has lists of its own

Files and folders are written atomically: they are complete or absent. The same command continues where an experiment
was stopped, repeats nothing that is done, and ends with the same numbers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from docparade.experiments.recipes.recipe import Recipe
from docparade.reranking.processes.process_group import join_process_group
from docparade.retrieval.errors import InputError
from docparade.retrieval.storage.files import TEMPORARY, atomic_write, sweep
from docparade.trainer.training_record import find_versions

_FOLD = "fold-"


@dataclass(frozen=True)
class OutputFolder:
    """The folder of an experiment, of one of its stages, or of one of its folds."""

    path: Path
    within: OutputFolder | None = None
    """The experiment's folder, if this is that of a stage or a fold."""

    @property
    def experiment(self) -> OutputFolder:
        """The experiment's folder."""
        return self.within or self

    @property
    def resolved(self) -> Path:
        """The complete recipe."""
        return self.path / "resolved.yaml"

    @property
    def versions(self) -> Path:
        """The versions of the libraries."""
        return self.path / "versions.json"

    @property
    def first_stage(self) -> Path:
        """The folder of the first stage's runs."""
        return self.path / "first-stage"

    @property
    def checkpoints(self) -> Path:
        """The folder of the Trainer's checkpoints."""
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        """The best model. It is there if, and only if, the training is done."""
        return self.path / "model"

    @property
    def unfinished_model(self) -> Path:
        """The best model while it is written."""
        return self.path / "model.unfinished"

    @property
    def trained(self) -> Path:
        """Where the model comes from, if it was not trained here (see `trained_models`)."""
        return self.path / "trained.json"

    @property
    def adapter(self) -> Path:
        """The best model's LoRA adapter."""
        return self.path / "adapter"

    @property
    def passages(self) -> Path:
        """The passages that a passage filter chose to train on."""
        return self.path / "passages.jsonl.gz"

    @property
    def runs(self) -> Path:
        """The folder of the runs that were made with the model."""
        return self.path / "runs"

    @property
    def measures(self) -> Path:
        """Everything that was measured, as JSON."""
        return self.path / "measures.json"

    @property
    def measures_table(self) -> Path:
        """The means, as a Markdown table."""
        return self.path / "measures.md"

    @property
    def folds(self) -> Path:
        """Which queries each fold trains, validates and tests on."""
        return self.path / "folds.json"

    def stage(self, name: str) -> OutputFolder:
        """The folder of an earlier stage; the last stage's files are in the experiment's own folder."""
        return OutputFolder(self.path / "stages" / name, self.experiment)

    def fold(self, name: str) -> OutputFolder:
        """The folder of a fold."""
        return OutputFolder(self.path / f"{_FOLD}{name}", self.experiment)


def open_folder(recipe: Recipe, output: OutputFolder) -> None:
    """Make an experiment's folder, or check that the existing one belongs to the same recipe.

    In a process group, all processes must call this. Only the first one acts, while the others wait: it must not remove
    temporary files once another process may be writing.
    """
    state = join_process_group()
    with state.main_process_first():
        if state.is_main_process:
            _prepare(recipe, output)


def _prepare(recipe: Recipe, output: OutputFolder) -> None:
    content = recipe.to_yaml()
    _make(output.path)
    _remove_temporary_files(output.path)
    check_folder(recipe, output)
    if output.resolved.is_file() and find_difference(recipe, output) is None:
        return
    with atomic_write(output.versions) as file:
        json.dump(find_versions(), file, indent=1)
    with atomic_write(output.resolved) as file:
        file.write(content)


def check_folder(recipe: Recipe, output: OutputFolder) -> None:
    """Refuse a folder that holds anything but what the same recipe left there; there may be none."""
    if not output.path.is_dir():
        return
    present = {entry.name for entry in output.path.iterdir() if not entry.name.startswith(TEMPORARY)}
    if output.resolved.name in present:
        difference = find_difference(recipe, output)
        # Before anything was trained, the recipe may still change.
        before = {output.resolved.name, output.versions.name, output.first_stage.name}
        if difference is not None and present - before:
            raise InputError(
                f"{output.path} holds the results of another recipe ({difference}); choose another "
                "folder with --output, or move this one away."
            )
    elif present - {output.versions.name}:
        raise InputError(
            f"{output.path} is not empty, and holds no results of a recipe; choose another folder with --output."
        )


def find_difference(recipe: Recipe, output: OutputFolder) -> str | None:
    """What a recipe says otherwise than the one whose results a folder holds; `None` if they are the same."""
    before, now = _read_resolved(output.resolved), yaml.safe_load(recipe.to_yaml())
    return None if before == now else _difference(before, now)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made ({error.strerror}); choose another folder with --output.") from None


def _remove_temporary_files(folder: Path) -> None:
    """Remove what a killed process was writing. The folder is locked, but its folds may be in use."""
    for place in folder.iterdir():
        if place.is_dir() and not place.name.startswith(_FOLD):
            sweep(place)
        elif place.name.startswith(TEMPORARY):
            place.unlink()


def _read_resolved(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        raise InputError(
            f"{path} cannot be read; restore it from a copy, or choose another folder with --output."
        ) from None


def _difference(before: Any, now: Any, place: str = "") -> str:
    """The first key at which two resolved recipes differ, with both values."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*before, *now]):
            if before.get(key) != now.get(key):
                return _difference(before.get(key), now.get(key), f"{place}.{key}".lstrip("."))
    return f"{place or 'all of it'} is {now!r}, and was {before!r}"
