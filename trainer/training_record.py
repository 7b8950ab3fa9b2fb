"""The training record, `measured.json`: versions, arguments and validation results, saved with every checkpoint."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from transformers import TrainerState

from docparade.hub_cards.record_files import RECORD_FILE
from docparade.retrieval.storage.files import atomic_write

from .arguments import RankingTrainingArguments

RECORD_KEYS = ("versions", "arguments", "history", "best")
"""What a training writes down; tests of the model may add more."""
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
    return dict(zip(RECORD_KEYS, (find_versions(), args.settings(), history, best), strict=True))


def write_record(folder: str | Path, args: RankingTrainingArguments, state: TrainerState) -> None:
    """Write `measured.json`. It is written last: a checkpoint that has it is complete."""
    with atomic_write(Path(folder) / RECORD_FILE) as file:
        json.dump(build_record(args, state), file, indent=2)
        file.write("\n")
