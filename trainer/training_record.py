"""The training record, `measured.json`: versions, arguments and validation results, saved with every checkpoint."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from transformers import TrainerState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from docparade.hub_cards.record_files import RECORD_FILE
from docparade.retrieval.storage.files import atomic_write

from .arguments import RankingTrainingArguments

_PACKAGES = ("docparade", "torch", "transformers", "accelerate", "peft")


def find_versions() -> dict[str, str]:
    """The versions of Python and of the main packages."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def build_record(args: RankingTrainingArguments, state: TrainerState) -> dict[str, Any]:
    """Collect versions, arguments, the measure at each evaluation, and its best value."""
    key = f"eval_{args.measure}"
    history: list[dict[str, Any]] = [
        {"step": entry["step"], "epoch": entry.get("epoch"), args.measure: entry[key]}
        for entry in state.log_history
        if key in entry
    ]
    best = max(history, key=lambda entry: (entry[args.measure], -entry["step"]), default={})
    return {"versions": find_versions(), "arguments": args.settings(), "history": history, "best": best}


def write_record(folder: str | Path, args: RankingTrainingArguments, state: TrainerState) -> None:
    """Write `measured.json`. It is written last: a checkpoint that has it is complete."""
    with atomic_write(Path(folder) / RECORD_FILE) as file:
        json.dump(build_record(args, state), file, indent=2)
        file.write("\n")


def last_checkpoint(folder: str | Path) -> Path | None:
    """Find the latest complete checkpoint in an output folder; incomplete ones are skipped.

    Example:
        ```python
        last_checkpoint("outputs/run")  # PosixPath('outputs/run/checkpoint-512')
        ```
    """
    checkpoints = Path(folder).glob(f"{PREFIX_CHECKPOINT_DIR}-*/{RECORD_FILE}")
    return max((file.parent for file in checkpoints), key=lambda path: int(path.name.rpartition("-")[2]), default=None)
