"""What a model learns from: losses over the scores of a query's candidates.

Every loss takes `scores` of shape `(groups, candidates)`: a group is one query with the candidates that were drawn for
it, of which the first is relevant and the others are not. It returns one value a group; the training loss is their
mean. Losses that learn from a teacher also take the teacher's scores of the same documents, of the same shape.

A new loss is one class and one line in `LOSSES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from docparade.retrieval.errors import InputError

if TYPE_CHECKING:
    from .arguments import RankingTrainingArguments


@dataclass(frozen=True)
class RankingLoss:
    """Turns scores into one value a group.

    Example:
        >>> HingeLoss(margin=1.0)(torch.tensor([[0.5, 0.2]]))
        tensor([0.7000])
    """

    needs_teacher: ClassVar[bool] = False

    @classmethod
    def of(cls, args: RankingTrainingArguments) -> RankingLoss:
        """The loss with its settings out of the training arguments."""
        return cls()

    def __call__(self, scores: Tensor, teacher: Tensor | None = None) -> Tensor:
        """One value for each row of `scores`, whose first column is the relevant document."""
        raise NotImplementedError


@dataclass(frozen=True)
class HingeLoss(RankingLoss):
    """Pairwise hinge: `max(0, margin - (s+ - s-))`, the mean over a group's negatives.

    Used with margin 1 by Zhang et al. (2021), Chen et al. (TREC 2021) and Li et al. (2023).
    """

    margin: float = 1.0

    @classmethod
    def of(cls, args: RankingTrainingArguments) -> HingeLoss:
        return cls(args.margin)

    def __call__(self, scores: Tensor, teacher: Tensor | None = None) -> Tensor:
        return F.relu(self.margin - _margins(scores)).mean(dim=1)


@dataclass(frozen=True)
class PairwiseSoftmaxLoss(RankingLoss):
    """Pairwise softmax: `-log(exp(s+) / (exp(s+) + exp(s-)))`, the mean over a group's negatives (RankNet)."""

    def __call__(self, scores: Tensor, teacher: Tensor | None = None) -> Tensor:
        return F.softplus(-_margins(scores)).mean(dim=1)


@dataclass(frozen=True)
class CrossEntropyLoss(RankingLoss):
    """Pointwise cross-entropy: `-log(sigmoid(s+))` and `-log(1 - sigmoid(s-))`, the mean over a group's documents.

    Used by Yang et al. (2019), Ghasemi and Hiemstra (2021) and Li et al. (2023, Table 9). With two classes, theirs is
    a softmax over two logits, which is the sigmoid of their difference.
    """

    def __call__(self, scores: Tensor, teacher: Tensor | None = None) -> Tensor:
        return F.binary_cross_entropy_with_logits(scores, _labels(scores), reduction="none").mean(dim=1)


@dataclass(frozen=True)
class ListwiseSoftmaxLoss(RankingLoss):
    """Listwise softmax: `-log(exp(s+) / sum(exp(s)))` over all candidates of the group (ListNet with one relevant)."""

    def __call__(self, scores: Tensor, teacher: Tensor | None = None) -> Tensor:
        return -scores.log_softmax(dim=1)[:, 0]


@dataclass(frozen=True)
class DistillationLoss(RankingLoss):
    """Distillation: `alpha * CE + (1 - alpha) * (z_teacher - z_student)^2`, the mean over a group's documents.

    Li et al. (2023), equation 12; CE is the pointwise cross-entropy, z a document's score before the sigmoid. Their
    released code has alpha 0.75.
    """

    needs_teacher: ClassVar[bool] = True
    alpha: float = 0.75

    @classmethod
    def of(cls, args: RankingTrainingArguments) -> DistillationLoss:
        return cls(args.distillation_alpha)

    def __call__(self, scores: Tensor, teacher: Tensor | None = None) -> Tensor:
        squares = (_required(teacher, scores) - scores).square().mean(dim=1)
        return self.alpha * CrossEntropyLoss()(scores) + (1 - self.alpha) * squares


@dataclass(frozen=True)
class MarginMSELoss(RankingLoss):
    """Margin-MSE: `((s+ - s-) - (t+ - t-))^2`, the mean over a group's negatives (Hofstätter et al., 2020)."""

    needs_teacher: ClassVar[bool] = True

    def __call__(self, scores: Tensor, teacher: Tensor | None = None) -> Tensor:
        return (_margins(scores) - _margins(_required(teacher, scores))).square().mean(dim=1)


LOSSES: dict[str, type[RankingLoss]] = {
    "hinge": HingeLoss,
    "pairwise_softmax": PairwiseSoftmaxLoss,
    "cross_entropy": CrossEntropyLoss,
    "listwise_softmax": ListwiseSoftmaxLoss,
    "distillation": DistillationLoss,
    "margin_mse": MarginMSELoss,
}
"""The losses by the name that `RankingTrainingArguments.loss` has."""


def _margins(scores: Tensor) -> Tensor:
    """By how much the relevant document leads each of the others."""
    return scores[:, :1] - scores[:, 1:]


def _labels(scores: Tensor) -> Tensor:
    labels = torch.zeros_like(scores)
    labels[:, 0] = 1
    return labels


def _required(teacher: Tensor | None, scores: Tensor) -> Tensor:
    if teacher is None:
        raise InputError("this loss learns from a teacher's scores, and there is no teacher: use DistillationTrainer.")
    return teacher.to(scores)
