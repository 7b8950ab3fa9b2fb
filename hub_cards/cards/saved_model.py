"""`SavedModel`: what a checkpoint's folder says about its model."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from docparade.hub_cards.record_files import (
    EVALUATIONS_FOLDER,
    LOG_FILE,
    RECIPE_FILE,
    RECORD_FILE,
    SPEED_FILE,
    read_json,
)
from docparade.modeling import FAMILIES, READERS, Reader
from docparade.retrieval.errors import InputError


@dataclass(frozen=True)
class SavedModel:
    """What the files of a checkpoint say; a file that is not there is an empty dictionary."""

    folder: Path
    config: dict[str, Any]
    processor: dict[str, Any]
    record: dict[str, Any]
    log: dict[str, Any]
    speed: dict[str, Any]
    tests: list[dict[str, Any]]
    """Results on test sets: first the recipe's, then what `docparade evaluate --json` wrote into `evaluations/`."""
    parameters: int | None

    @classmethod
    def read(cls, folder: str | Path) -> SavedModel:
        """Read a checkpoint.

        Example:
            ```python
            SavedModel.read("outputs/quickstart/model").config["aggregation"]  # 'max'
            ```
        """
        folder = Path(folder)
        config = _read_config(folder)
        record = read_json(folder / RECORD_FILE)
        tests = record.get("test", [])
        if not isinstance(tests, list):
            raise InputError(
                f"{folder / RECORD_FILE} has test results in an old form; run the recipe again, which only measures."
            )
        return cls(
            folder=folder,
            config=config,
            processor=read_json(folder / "processor_config.json"),
            record=record,
            log=read_json(folder / LOG_FILE),
            speed=_read_speed(folder / SPEED_FILE),
            tests=[*tests, *_read_evaluations(folder / EVALUATIONS_FOLDER)],
            parameters=None if config.get("int8") else _count_parameters(folder),
        )

    @property
    def family(self) -> str:
        """A key of `FAMILIES`."""
        return str(self.config["model_type"])

    @property
    def aggregation(self) -> str:
        """How passages are combined."""
        return str(self.config["aggregation"])

    @property
    def reader(self) -> type[Reader]:
        """What reads passages."""
        return READERS[self.config["reader"]["kind"]]

    @property
    def feature(self) -> str:
        """What the family takes of a passage."""
        return FAMILIES[self.family].config_class.feature

    @property
    def encoder(self) -> dict[str, Any]:
        """The encoder's source and license, as far as they were recorded."""
        return self.record.get("encoder", {})

    @property
    def has_recipe(self) -> bool:
        """Whether the complete recipe is in the folder."""
        return (self.folder / RECIPE_FILE).is_file()


def find_checkpoint(folder: Path) -> Path:
    """A checkpoint's own folder: the given one, or the `model/` of a recipe's output folder."""
    for place in (folder, folder / "model"):
        if (place / "config.json").is_file():
            return place
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; name a checkpoint, or the output folder of a recipe.")
    folds = sorted(place.parent.name for place in folder.glob("fold-*/model"))
    if folds:
        raise InputError(f"{folder} has a model for each fold; name one of them, such as {folder / folds[0]}.")
    raise InputError(f"{folder} has no checkpoint: neither config.json nor model/config.json.")


def _read_config(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; name that of a checkpoint.")
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} has no config.json; name the folder of a checkpoint, or of a recipe's output.")
    config = read_json(folder / "config.json")
    if config.get("model_type") not in FAMILIES or "aggregation" not in config:
        raise InputError(
            f"{folder / 'config.json'}: model_type is {config.get('model_type')!r}; cards are for rankers of docparade "
            f"({', '.join(FAMILIES)})."
        )
    return config


def _read_speed(path: Path) -> dict[str, Any]:
    speed = read_json(path)
    if speed and not isinstance(speed.get("docparade"), dict):
        raise InputError(f"{path} has no times of docparade; write it with docparade benchmark --json.")
    return speed


def _read_evaluations(folder: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        content = read_json(path)
        runs = content.get("runs")
        if not isinstance(runs, dict) or not all(isinstance(run, dict) and run.get("means") for run in runs.values()):
            raise InputError(f"{path} has no measures of runs; write it with docparade evaluate --json.")
        queries = next((run["queries"] for run in runs.values() if "queries" in run), None)
        found.append({"name": path.stem, "queries": queries, **content})
    return found


def _count_parameters(folder: Path) -> int | None:
    files = sorted(folder.glob("*.safetensors"))
    try:
        return sum(_count(path) for path in files) or None
    except (OSError, SafetensorError) as error:
        raise InputError(f"{folder}: its weights cannot be read ({error}); save or fetch them again.") from None


def _count(path: Path) -> int:
    with safe_open(path, "np") as file:
        return sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 (not a dictionary)
