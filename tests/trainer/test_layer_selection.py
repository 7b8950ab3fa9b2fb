"""Students that keep some layers of their teacher."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.project import ENCODERS
from transformers import AutoModel

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.retrieval import InputError
from docparade.trainer.layer_selection import take_layers

PAIRS = [("license", "the work and its license " * 9), ("work", "no")]


@pytest.mark.parametrize("architecture", [*sorted(set(ENCODERS) - {"albert"}), "longformer"])
def test_a_student_keeps_the_layers_it_is_given(
    architecture: str, tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    teacher = tiny_ranker(ParadeForSequenceClassification, "avg", architecture)
    before = copy.deepcopy(teacher.state_dict())
    # ModernBERT's first layer is unlike the others.
    student = take_layers(teacher, [0] if architecture == "modernbert" else [1])
    scores = student.score(PAIRS)
    assert scores != pytest.approx(teacher.score(PAIRS), abs=1e-4)
    # It is a checkpoint like any other.
    student.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert loaded.config.encoder_config.num_hidden_layers == 1
    assert loaded.score(PAIRS) == pytest.approx(scores, abs=1e-5)
    # The teacher is as it was.
    assert teacher.config.encoder_config.num_hidden_layers == 2
    assert all(torch.equal(before[name], tensor) for name, tensor in teacher.state_dict().items())


def test_all_layers_are_the_teacher_and_order_counts(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    teacher = tiny_ranker(MaxPForSequenceClassification, "max")
    assert take_layers(teacher, [0, 1]).score(PAIRS) == teacher.score(PAIRS)
    assert take_layers(teacher, [1, 0]).score(PAIRS) != pytest.approx(teacher.score(PAIRS), abs=1e-4)


def test_a_layer_is_the_teachers(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    teacher = tiny_ranker(MaxPForSequenceClassification, "max")
    student = take_layers(teacher, [1])
    theirs = teacher.encoder.bert.encoder.layer[1].state_dict()
    assert all(
        torch.equal(theirs[name], own) for name, own in student.encoder.bert.encoder.layer[0].state_dict().items()
    )


@pytest.mark.parametrize(
    ("layers", "message"),
    [([], "layers is empty"), ([0, 2], "names 2, .*0 to 1"), ([1, 1], "twice")],
)
def test_bad_layers(layers: list[int], message: str, tiny_ranker: Callable[..., DocumentRanker]) -> None:
    with pytest.raises(InputError, match=message):
        take_layers(tiny_ranker(MaxPForSequenceClassification, "max"), layers)


def test_layers_that_cannot_be_moved_are_refused(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    with pytest.raises(InputError, match="keep layer 0 first"):
        take_layers(tiny_ranker(ParadeForSequenceClassification, "avg", "modernbert"), [1])


def test_shared_layers_cannot_be_taken(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    with pytest.raises(InputError, match="no list of 2 layers"):
        take_layers(tiny_ranker(ParadeForSequenceClassification, "avg", "albert"), [0])
