"""Two processes learn what one does; so do batches that are accumulated, and passages that are encoded in chunks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.training import Job, run_job

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification

pytestmark = pytest.mark.slow

OPTIONS = {
    "num_train_epochs": 2,
    # Not a multiple of the batch: an epoch is filled up to whole steps.
    "pairs_per_epoch": 11,
    "eval_strategy": "epoch",
    "measure": "nDCG@5",
    "rerank_depth": 5,
    # Not so fast that what differs in the last digit grows.
    "learning_rate": 1e-4,
}
WAYS: dict[str, tuple[int, dict[str, Any]]] = {
    "two processes": (2, {"per_device_train_batch_size": 2}),
    "two processes, chunks": (2, {"per_device_train_batch_size": 2, "chunk_passages": 3}),
    "two processes, accumulation, chunks": (
        2,
        {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 2, "chunk_passages": 3},
    ),
    "accumulation": (1, {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}),
    "chunks": (1, {"per_device_train_batch_size": 4, "chunk_passages": 3}),
}


def save_without_dropout(model: DocumentRanker, folder: Path) -> str:
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["encoder_config"] |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.fixture(scope="module")
def start(tiny_ranker: Callable[..., DocumentRanker], tmp_path_factory: pytest.TempPathFactory) -> str:
    model = tiny_ranker(ParadeForSequenceClassification, "transformer")
    return save_without_dropout(model, tmp_path_factory.mktemp("start"))


@pytest.fixture(scope="module")
def alone(start: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    folder = tmp_path_factory.mktemp("alone")
    (report,) = run_job(Job(start, str(folder), OPTIONS))
    return report, torch.load(folder / "weights.pt")


@pytest.mark.parametrize("way", WAYS)
def test_every_way_learns_the_same(
    way: str, start: str, alone: tuple[dict[str, Any], dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    processes, options = WAYS[way]
    reports = run_job(Job(start, str(tmp_path), {**OPTIONS, **options}), processes)
    expected, weights = alone
    assert [report["processes"] for report in reports] == [processes] * processes
    # Each pair once, filled up from 11 to 12 in both epochs.
    numbers = [number for report in reports for number in report["numbers"]]
    assert sorted(numbers) == sorted(expected["numbers"]) == list(range(24))
    assert reports[0]["losses"] == pytest.approx(expected["losses"], abs=1e-5)
    assert reports[0]["norms"] == pytest.approx(expected["norms"], rel=1e-4)
    assert reports[0]["measures"] == expected["measures"]
    assert len(expected["losses"]) == 6 and len(set(expected["losses"].values())) == 6
    found = torch.load(tmp_path / "weights.pt")
    # Adam turns differences in the last digit of tiny gradients into steps.
    assert all(torch.allclose(found[name], weights[name], atol=2e-4) for name in weights)


def test_passage_level_pairs_weigh_the_same_on_two_processes(
    tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    """Batches have different numbers of passages, and still every passage counts alike."""
    model = tiny_ranker(MaxPForSequenceClassification, "max")
    start = save_without_dropout(model, tmp_path / "start")
    options = {**OPTIONS, "passage_level": True, "passage_probability": 0.5, "num_train_epochs": 1}
    reports = {
        processes: run_job(
            Job(start, str(tmp_path / str(processes)), {**options, "per_device_train_batch_size": 4 // processes}),
            processes,
        )
        for processes in (1, 2)
    }
    assert [report["processes"] for report in reports[2]] == [2, 2]
    assert reports[2][0]["losses"] == pytest.approx(reports[1][0]["losses"], abs=1e-5)
    assert reports[2][0]["norms"] == pytest.approx(reports[1][0]["norms"], rel=1e-4)


def test_two_processes_learn_the_same_from_a_teacher(
    start: str, tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    tiny_ranker(MaxPForSequenceClassification, "max").save_pretrained(tmp_path / "teacher")
    options = {**OPTIONS, "loss": "distillation"}
    reports = {
        processes: run_job(
            Job(
                start,
                str(tmp_path / str(processes)),
                {**options, "per_device_train_batch_size": 4 // processes},
                teacher=str(tmp_path / "teacher"),
            ),
            processes,
        )
        for processes in (1, 2)
    }
    assert [report["processes"] for report in reports[2]] == [2, 2]
    assert reports[2][0]["losses"] == pytest.approx(reports[1][0]["losses"], abs=1e-5)
    assert len(set(reports[1][0]["losses"].values())) == 6
    assert reports[2][0]["measures"] == reports[1][0]["measures"]
