"""Training arguments that cannot be meant are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.training import arguments

from docparade.retrieval import InputError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "hing"}, "loss is 'hing', .*hinge"),
        ({"decay": "cosine"}, "decay is 'cosine'"),
        ({"lr_scheduler_type": "cosine"}, "set decay and warmup_epochs"),
        ({"pairs_per_epoch": 0}, "pairs_per_epoch is 0"),
        ({"chunk_passages": 2.5}, "chunk_passages is 2.5"),
        ({"passage_probability": 1.5}, "from 0 to 1"),
        ({"negative_ranks": (5, 2)}, "a first and a last rank"),
        ({"negative_ranks": (500, 2000)}, "raise max_rank"),
        ({"measure": "nDGC@20"}, "'nDGC@20' is not a measure"),
    ],
)
def test_bad_arguments(options: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        arguments(tmp_path, **options)


def test_the_record_has_the_settings_of_its_own_loss(tmp_path: Path) -> None:
    of_losses = ("margin", "temperature", "teacher_temperature", "distillation_alpha")
    expected = {
        "hinge": {"margin"},
        "cross_entropy": set(),
        "listwise_softmax": {"temperature"},
        "listwise_distillation": {"temperature", "teacher_temperature", "distillation_alpha"},
    }
    for loss, own in expected.items():
        settings = arguments(tmp_path, loss=loss).settings()
        assert settings["loss"] == loss
        assert {name for name in of_losses if name in settings} == own
