"""The course of the learning rates; which parameter has which rate is in test_trainer.py."""

from __future__ import annotations

from typing import Any

import pytest

from docparade.trainer.optimization import rate_factor


def factors(steps: int, **options: Any) -> list[float]:
    settings = {"total_steps": steps, "warmup_steps": 0, "decay_rate": 0.5, "epoch_steps": 2, **options}
    return [rate_factor(step, **settings) for step in range(steps)]


@pytest.mark.parametrize(
    ("decay", "expected"),
    [
        ("constant", [1, 1, 1, 1]),
        ("linear", [1, 3 / 4, 2 / 4, 1 / 4]),
        ("inverse_time", [1, 1 / 1.25, 1 / 1.5, 1 / 1.75]),
    ],
)
def test_without_warmup_the_first_step_has_the_full_rate(decay: str, expected: list[float]) -> None:
    assert factors(4, decay=decay) == pytest.approx(expected)


def test_the_rate_rises_over_the_warmup_and_then_falls() -> None:
    assert factors(5, decay="linear", warmup_steps=2) == pytest.approx([0, 1 / 2, 1, 2 / 3, 1 / 3])
    assert factors(5, decay="inverse_time", warmup_steps=2) == pytest.approx([0, 1 / 2, 1, 1 / 1.25, 1 / 1.5])
    # A warm-up may be a fraction of an epoch, so that it ends between two steps.
    assert factors(3, decay="constant", warmup_steps=1.5) == pytest.approx([0, 1 / 1.5, 1])


def test_the_last_step_may_be_the_only_one_after_the_warmup() -> None:
    assert factors(3, decay="linear", warmup_steps=2) == pytest.approx([0, 1 / 2, 1])


def test_the_rate_is_never_negative() -> None:
    """Trainer asks for the rate after the last step, too."""
    options = {"total_steps": 4, "warmup_steps": 0, "decay": "linear", "decay_rate": 0.0, "epoch_steps": 1}
    assert [rate_factor(step, **options) for step in (4, 5)] == [0, 0]
    assert rate_factor(9, **{**options, "warmup_steps": 9}) == 0
