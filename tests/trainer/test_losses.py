"""Each loss against values worked out by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from support.training import arguments
from transformers import HfArgumentParser

from docparade.experiments.recipes.training_recipe import read_training
from docparade.retrieval import InputError
from docparade.trainer.arguments import RankingTrainingArguments
from docparade.trainer.losses import LOSSES, DistillationLoss, HingeLoss, RankingLoss

# Two groups of one relevant document and two others.
SCORES = torch.tensor([[2.0, 1.5, -1.0], [0.0, 0.5, 0.0]])
TEACHER = torch.tensor([[3.0, 1.0, 0.0], [1.0, -1.0, 0.5]])


def loss_of(name: str, **options: object) -> torch.Tensor:
    """The loss of each group."""
    return LOSSES[name](**options)(SCORES, TEACHER)


def test_hinge() -> None:
    # 1 - 0.5 and max(0, 1 - 3); 1 + 0.5 and 1 - 0.
    assert loss_of("hinge").tolist() == [0.25, 1.25]
    # 2 - 0.5 and max(0, 2 - 3); 2 + 0.5 and 2.
    assert loss_of("hinge", margin=2.0).tolist() == [0.75, 2.25]


def test_pairwise_softmax() -> None:
    first = (math.log(1 + math.exp(-0.5)) + math.log(1 + math.exp(-3))) / 2
    second = (math.log(1 + math.exp(0.5)) + math.log(2)) / 2
    assert loss_of("pairwise_softmax").tolist() == pytest.approx([first, second], abs=1e-6)


def softplus(x: float) -> float:
    return math.log(1 + math.exp(x))


CROSS_ENTROPY = [
    (softplus(-2) + softplus(1.5) + softplus(-1)) / 3,
    (softplus(0) + softplus(0.5) + softplus(0)) / 3,
]


def test_cross_entropy() -> None:
    assert loss_of("cross_entropy").tolist() == pytest.approx(CROSS_ENTROPY, abs=1e-6)


def test_listwise_softmax() -> None:
    first = -math.log(math.exp(2) / (math.exp(2) + math.exp(1.5) + math.exp(-1)))
    second = -math.log(1 / (2 + math.exp(0.5)))
    assert loss_of("listwise_softmax").tolist() == pytest.approx([first, second], abs=1e-6)


def test_listwise_softmax_with_a_temperature(tmp_path: Path) -> None:
    found = LOSSES["listwise_softmax"].of(arguments(tmp_path, temperature=0.05))(torch.tensor([[0.5, 0.45, 0.3]]))
    expected = -math.log(math.exp(10) / (math.exp(10) + math.exp(9) + math.exp(6)))
    assert found.tolist() == pytest.approx([expected], abs=1e-5)


def test_listwise_softmax_of_two_is_the_pairwise_one() -> None:
    pairs = SCORES[:, :2]
    torch.testing.assert_close(LOSSES["listwise_softmax"]()(pairs), LOSSES["pairwise_softmax"]()(pairs))


def test_distillation() -> None:
    # Squares of 1, -0.5, 1 and of 1, -1.5, 0.5.
    squares = [(1 + 0.25 + 1) / 3, (1 + 2.25 + 0.25) / 3]
    expected = [0.75 * ce + 0.25 * square for ce, square in zip(CROSS_ENTROPY, squares, strict=True)]
    assert loss_of("distillation").tolist() == pytest.approx(expected, abs=1e-6)
    assert loss_of("distillation", distillation_alpha=0.0).tolist() == pytest.approx(squares, abs=1e-6)


def test_margin_mse() -> None:
    # Margins 0.5 and 3 against 2 and 3; -0.5 and 0 against 2 and 0.5.
    assert loss_of("margin_mse").tolist() == pytest.approx([(2.25 + 0) / 2, (6.25 + 0.25) / 2], abs=1e-6)


def test_listwise_distillation(tmp_path: Path) -> None:
    def softmax(scores: list[float]) -> list[float]:
        powers = [math.exp(score) for score in scores]
        return [power / sum(powers) for power in powers]

    args = arguments(tmp_path, temperature=0.5, teacher_temperature=2.0, distillation_alpha=0.3)
    found = LOSSES["listwise_distillation"].of(args)(SCORES, TEACHER)
    expected = []
    for scores, teacher in zip(SCORES.tolist(), TEACHER.tolist(), strict=True):
        own, theirs = softmax([score / 0.5 for score in scores]), softmax([score / 2 for score in teacher])
        divergence = sum(t * math.log(t / o) for t, o in zip(theirs, own, strict=True))
        expected.append(-0.3 * math.log(own[0]) + 0.7 * divergence)
    assert found.tolist() == pytest.approx(expected, abs=1e-5)
    # Without a temperature of its own, the teacher has the student's, and a student that equals it loses nothing.
    same = LOSSES["listwise_distillation"].of(arguments(tmp_path, temperature=0.5, distillation_alpha=0.0))
    assert same(TEACHER, TEACHER).tolist() == pytest.approx([0, 0], abs=1e-6)


def test_settings_come_from_the_arguments(tmp_path: Path) -> None:
    args = arguments(tmp_path, margin=0.3, distillation_alpha=0.2)
    assert LOSSES["hinge"].of(args) == HingeLoss(0.3)
    assert LOSSES["distillation"].of(args) == DistillationLoss(0.2)
    assert all(LOSSES[name].of(args)(SCORES, TEACHER).shape == (2,) for name in LOSSES)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_that_need_a_teacher_are_refused_without_one(name: str) -> None:
    loss = LOSSES[name]()
    if loss.needs_teacher:
        with pytest.raises(InputError, match="DistillationTrainer"):
            loss(SCORES)
    else:
        assert torch.equal(loss(SCORES), loss(SCORES, TEACHER))


@dataclass(frozen=True)
class SquaredHingeLoss(RankingLoss):
    """A loss of one's own."""

    margin: float = 1.0

    def __call__(self, scores: torch.Tensor, teacher: torch.Tensor | None = None) -> torch.Tensor:
        return HingeLoss(self.margin)(scores, teacher).square()


def test_a_line_in_the_table_is_all_that_a_loss_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"training\.loss: is 'mine', and has to be one of hinge"):
        read_training({"loss": "mine"}, "recipe.yaml, training")
    monkeypatch.setitem(LOSSES, "mine", SquaredHingeLoss)
    assert LOSSES["mine"].of(arguments(tmp_path, loss="mine", margin=2.0)) == SquaredHingeLoss(2.0)
    assert read_training({"loss": "mine"}, "recipe.yaml, training")["loss"] == "mine"
    (parsed,) = HfArgumentParser([RankingTrainingArguments]).parse_args_into_dataclasses(
        ["--output_dir", str(tmp_path), "--loss", "mine"]
    )
    assert parsed.loss == "mine"
    with pytest.raises(InputError, match=r"loss is 'no', and has to be one of .*, mine"):
        arguments(tmp_path, loss="no")
