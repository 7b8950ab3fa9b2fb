"""The training log, `training_log.json`: hardware, time and losses, saved with every checkpoint.

They are not in the training record, which is the same whenever the same training is run.
"""

from __future__ import annotations

import csv
import json
import platform
import time
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerState

from docparade.hub_cards.record_files import LOG_FILE
from docparade.retrieval.storage.files import atomic_write


class TrainingClock:
    """Seconds of training, also over interruptions."""

    def __init__(self) -> None:
        self._before = 0.0
        self._started: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds so far."""
        return self._before + (0.0 if self._started is None else time.monotonic() - self._started)

    def start(self, checkpoint: str | Path | None = None) -> None:
        """Start at zero, or at the time that a checkpoint took."""
        self._before = read_seconds(checkpoint) if checkpoint else 0.0
        self._started = time.monotonic()

    def stop(self) -> None:
        """Stop; what follows is not training."""
        self._before, self._started = self.seconds, None


def read_seconds(checkpoint: str | Path) -> float:
    """The seconds that a checkpoint took; zero if it does not say."""
    try:
        return float(json.loads((Path(checkpoint) / LOG_FILE).read_text(encoding="utf-8"))["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0


def write_log(
    folder: str | Path, state: TrainerState, seconds: float, device: torch.device, processes: int, output: Path
) -> None:
    """Write `training_log.json`.

    Args:
        folder: The checkpoint.
        state: The Trainer's state.
        seconds: How long the training has taken.
        device: Where it ran.
        processes: How many processes.
        output: The Trainer's output folder, where CodeCarbon writes its `emissions.csv`.
    """
    losses = [
        {"step": entry["step"], "epoch": entry.get("epoch"), "loss": entry["loss"]}
        for entry in state.log_history
        if "loss" in entry
    ]
    content: dict[str, Any] = {
        "hardware": {"device": device.type, "name": find_hardware(device), "processes": processes},
        "seconds": round(seconds, 1),
        "losses": losses,
    }
    emissions = read_emissions(output)
    if emissions is not None:
        content["emissions_kg"] = emissions
    with atomic_write(Path(folder) / LOG_FILE) as file:
        json.dump(content, file, indent=2)
        file.write("\n")


def find_hardware(device: torch.device) -> str:
    """The name of a GPU's or processor's model."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def read_emissions(output: Path) -> float | None:
    """Kilograms of CO2 that CodeCarbon measured, with one line for each start of the training; `None` without it."""
    try:
        with (output / "emissions.csv").open(encoding="utf-8", newline="") as file:
            return sum(float(row["emissions"]) for row in csv.DictReader(file))
    except (OSError, ValueError, KeyError, TypeError):
        return None
