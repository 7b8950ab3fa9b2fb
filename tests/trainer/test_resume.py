"""A training that is killed and continued ends as one that was not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.training import Job, run_job

from docparade import DocumentRanker, ParadeForSequenceClassification
from docparade.trainer.checkpoints import last_checkpoint

pytestmark = pytest.mark.slow

OPTIONS = {
    "num_train_epochs": 3,
    "pairs_per_epoch": 12,
    "eval_strategy": "steps",
    "eval_steps": 2,
    "save_strategy": "steps",
    "save_steps": 2,
    "measure": "nDCG@5",
    "rerank_depth": 5,
    "load_best_model_at_end": False,
    "head_learning_rate": 2e-3,
    "warmup_epochs": 1,
}
STEPS = 9


@pytest.fixture(scope="module")
def checkpoint(tiny_ranker: Callable[..., DocumentRanker], tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("start")
    tiny_ranker(ParadeForSequenceClassification, "transformer").save_pretrained(folder)
    return str(folder)


def options(processes: int) -> dict[str, Any]:
    return {**OPTIONS, "per_device_train_batch_size": 4 // processes}


@pytest.fixture(scope="module")
def whole(checkpoint: str, tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[list[dict], Path]]:
    """The training that nobody killed, with one process and with two."""
    made = {}
    for processes in (1, 2):
        folder = tmp_path_factory.mktemp(f"whole{processes}")
        made[processes] = run_job(Job(checkpoint, str(folder), options(processes)), processes), folder
    return made


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "weights.pt")


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    "death",
    # Step 5 is in the middle of the second epoch. An evaluation reads 5 documents of each of 5 queries: the third one
    # is cut short after its second document, at step 6, where two processes read 3 and 2 queries.
    [{"kill_at_step": 5}, {"kill_in_evaluation": "third"}],
    ids=["in an epoch", "in an evaluation"],
)
def test_a_killed_training_continues_to_the_same_weights(
    death: dict[str, Any], processes: int, checkpoint: str, whole: dict, tmp_path: Path
) -> None:
    if "kill_in_evaluation" in death:
        death = {"kill_in_evaluation": 2 * (25 if processes == 1 else 10) + 2}
    run_job(Job(checkpoint, str(tmp_path), options(processes), **death), processes)
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-4"
    # A checkpoint that was cut short is passed over.
    (tmp_path / "checkpoint-5").mkdir()
    reports = run_job(Job(checkpoint, str(tmp_path), options(processes), resume=True), processes)
    expected, folder = whole[processes]
    assert reports[0]["processes"] == processes
    assert reports[0]["losses"] == expected[0]["losses"]
    assert reports[0]["norms"] == expected[0]["norms"]
    assert reports[0]["measures"] == expected[0]["measures"]
    assert len(reports[0]["losses"]) == STEPS
    found, uninterrupted = weights(tmp_path), weights(folder)
    assert all(torch.equal(found[name], uninterrupted[name]) for name in uninterrupted)


def test_a_killed_training_of_adapters_continues_to_the_same_weights(checkpoint: str, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    (expected,) = run_job(Job(checkpoint, str(whole), options(1), lora=True))
    run_job(Job(checkpoint, str(cut), options(1), lora=True, kill_at_step=5))
    assert last_checkpoint(cut) == cut / "checkpoint-4"
    (report,) = run_job(Job(checkpoint, str(cut), options(1), lora=True, resume=True))
    assert report["losses"] == expected["losses"] and len(report["losses"]) == STEPS
    found, uninterrupted = weights(cut), weights(whole)
    assert any("lora_B" in name and bool(tensor.any()) for name, tensor in found.items())
    assert all(torch.equal(found[name], uninterrupted[name]) for name in uninterrupted)
