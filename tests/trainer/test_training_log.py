"""Hardware, time, losses and emissions of a training."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.training import World, arguments

from docparade import MaxPForSequenceClassification
from docparade.trainer.trainer import RankingTrainer
from docparade.trainer.training_log import TrainingClock, read_emissions, read_seconds


def test_every_checkpoint_has_its_log(small: World, tiny_ranker: Callable[..., Any], tmp_path: Path) -> None:
    model = copy.deepcopy(tiny_ranker(MaxPForSequenceClassification, "sum"))
    settings = {"num_train_epochs": 2, "pairs_per_epoch": 8, "save_strategy": "epoch"}
    trainer = RankingTrainer(model, arguments(tmp_path, **settings), small.sampler(8), small.queries, small.documents)
    trainer.train()
    trainer.save_model(str(tmp_path / "best"))
    first, second, best = (
        json.loads((tmp_path / name / "training_log.json").read_text())
        for name in ("checkpoint-2", "checkpoint-4", "best")
    )
    assert [entry["step"] for entry in best["losses"]] == [1, 2, 3, 4]
    assert best["hardware"]["device"] == "cpu" and best["hardware"]["processes"] == 1
    assert best["hardware"]["name"]
    assert first["seconds"] <= second["seconds"] <= best["seconds"]
    assert "emissions_kg" not in best


def test_time_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "training_log.json").write_text('{"seconds": 100.0}')
    clock = TrainingClock()
    clock.start(tmp_path)
    assert clock.seconds >= 100
    clock.stop()
    stopped = clock.seconds
    assert clock.seconds == stopped
    clock.start()
    assert clock.seconds < 100


def test_a_checkpoint_without_a_log_counts_as_zero(tmp_path: Path) -> None:
    assert read_seconds(tmp_path) == 0
    (tmp_path / "training_log.json").write_text("[]")
    assert read_seconds(tmp_path) == 0


def test_emissions_are_those_of_all_starts(tmp_path: Path) -> None:
    assert read_emissions(tmp_path) is None
    (tmp_path / "emissions.csv").write_text("timestamp,duration,emissions\na,1,0.25\nb,2,0.5\n")
    assert read_emissions(tmp_path) == 0.75
    (tmp_path / "emissions.csv").write_text("timestamp\na\n")
    assert read_emissions(tmp_path) is None
