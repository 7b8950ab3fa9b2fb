"""What was measured while a model learned: written beside every checkpoint, for its card."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from transformers import TrainerState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from docparade.retrieval.storage.files import atomic_write

from .arguments import RankingTrainingArguments

MEASURED = "measured.json"
_PACKAGES = ("docparade", "torch", "transformers", "accelerate", "peft")


def versions() -> dict[str, str]:
    """Versions of what training runs on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def measured(args: RankingTrainingArguments, state: TrainerState) -> dict[str, Any]:
    """Versions, arguments, the course of the measure, and its best value."""
    key = f"eval_{args.measure}"
    history: list[dict[str, Any]] = [
        {"step": entry["step"], "epoch": entry.get("epoch"), args.measure: entry[key]}
        for entry in state.log_history
        if key in entry
    ]
    best = max(history, key=lambda entry: (entry[args.measure], -entry["step"]), default={})
    return {"versions": versions(), "arguments": args.settings(), "history": history, "best": best}


def write_measured(folder: str | Path, args: RankingTrainingArguments, state: TrainerState) -> None:
    """Write `measured.json`. It is the last file of a checkpoint: one that has it is whole."""
    with atomic_write(Path(folder) / MEASURED) as file:
        json.dump(measured(args, state), file, indent=2)
        file.write("\n")


def last_checkpoint(folder: str | Path) -> Path | None:
    """The latest whole checkpoint in a training's folder; one that a kill cut short is passed over.

    Example:
        ```python
        last_checkpoint("outputs/run")  # PosixPath('outputs/run/checkpoint-512')
        ```
    """
    checkpoints = Path(folder).glob(f"{PREFIX_CHECKPOINT_DIR}-*/{MEASURED}")
    return max((file.parent for file in checkpoints), key=lambda path: int(path.name.rpartition("-")[2]), default=None)
