"""Ranking losses.

A loss takes `scores` of shape `(groups, documents)`. A group is one query with the documents drawn for it: the first is
relevant, the others are negatives. Pointwise losses also take groups of one document with its label. The loss returns
one value per group; the training loss is their mean. Distillation losses also take the teacher's scores, of the same
shape.

To add a loss, write a class, and add a line to `LOSSES`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from docparade.retrieval.errors import InputError

if TYPE_CHECKING:
    from .arguments import RankingTrainingArguments


@dataclass(frozen=True)
class RankingLoss:
    """Computes one loss value per group. Its fields are its settings: training arguments of the same names.

    Example:
        >>> HingeLoss(margin=1.0)(torch.tensor([[0.5, 0.2]]))
        tensor([0.7000])
    """

    needs_teacher: ClassVar[bool] = False
    needs_logits: ClassVar[bool] = False
    """Whether the loss takes the sigmoid of scores."""

    @classmethod
    def of(cls, args: RankingTrainingArguments) -> RankingLoss:
        """Create the loss with the settings that training arguments have."""
        return cls(**{one.name: getattr(args, one.name) for one in fields(cls)})

    def __call__(self, scores: Tensor, teacher: Tensor | None = None) -> Tensor:
        """Return one value for each row of `scores`; the first column is the relevant document's."""
        raise NotImplementedError


@dataclass(frozen=True)
class HingeLoss(RankingLoss):
    """Pairwise hinge: `max(0, margin - (s+ - s-))`, averaged over a group's negatives.

    Used with margin 1 by Zhang et al. (2021), Chen et al. (TREC 2021) and Li et al. (2023).
    """

    margin: float = 1.0

    def __call__(self, scores: Tensor, teacher: Tensor | None = None) -> Tensor:
        return F.relu(self.margin - _margins(scores)).mean(dim=1)


@dataclass(frozen=True)
class PairwiseSoftmaxLoss(RankingLoss):
    """Pairwise softmax: `-log(exp(s+) / (exp(s+) + exp(s-)))`, averaged over a group's negatives (RankNet)."""

    def __call__(self, scores: Tensor, teacher: Tensor | None = None) -> Tensor:
        return F.softplus(-_margins(scores)).mean(dim=1)


@dataclass(frozen=True)
class PointwiseLoss(RankingLoss):
    """A loss that looks at each document alone, so that a group may be one document with its label."""

    needs_logits: ClassVar[bool] = True

    def __call__(self, scores: Tensor, teacher: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        """As for every loss; `labels` are 1 for relevant documents and 0 for others, by default 1 in column one."""
        raise NotImplementedError


@dataclass(frozen=True)
class CrossEntropyLoss(PointwiseLoss):
    """Pointwise cross-entropy: `-log(sigmoid(s+))` and `-log(1 - sigmoid(s-))`, averaged over a group's documents.

    Used by Yang et al. (2019), Ghasemi and Hiemstra (2021) and Li et al. (2023, Table 9). They use a softmax over two
    logits, which equals the sigmoid of the logits' difference.
    """

    def __call__(self, scores: Tensor, teacher: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        expected = _labels(scores) if labels is None else labels.to(scores)
        return F.binary_cross_entropy_with_logits(scores, expected, reduction="none").mean(dim=1)


@dataclass(frozen=True)
class ListwiseSoftmaxLoss(RankingLoss):
    """Listwise softmax: `-log(exp(s+) / sum(exp(s)))` over a group's documents (ListNet with one relevant document).

    Scores are divided by a temperature first. Bi-encoders' scores are close together, and need a low temperature.
    """

    temperature: float = 1.0

    def __call__(self, scores: Tensor, teacher: Tensor | None = None) -> Tensor:
        return -(scores / self.temperature).log_softmax(dim=1)[:, 0]


@dataclass(frozen=True)
class DistillationLoss(PointwiseLoss):
    """Distillation: `alpha * CE + (1 - alpha) * (z_teacher - z_student)^2`, averaged over a group's documents.

    Li et al. (2023), equation 12. CE is the pointwise cross-entropy, z a document's score before the sigmoid. Their
    released code uses alpha 0.75.
    """

    needs_teacher: ClassVar[bool] = True
    distillation_alpha: float = 0.75

    def __call__(self, scores: Tensor, teacher: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        squares = (_require_teacher(teacher, scores) - scores).square().mean(dim=1)
        alpha = self.distillation_alpha
        return alpha * CrossEntropyLoss()(scores, labels=labels) + (1 - alpha) * squares


@dataclass(frozen=True)
class MarginMSELoss(RankingLoss):
    """Margin-MSE: `((s+ - s-) - (t+ - t-))^2`, averaged over a group's negatives (Hofstätter et al., 2020)."""

    needs_teacher: ClassVar[bool] = True

    def __call__(self, scores: Tensor, teacher: Tensor | None = None) -> Tensor:
        return (_margins(scores) - _margins(_require_teacher(teacher, scores))).square().mean(dim=1)


@dataclass(frozen=True)
class ListwiseDistillationLoss(RankingLoss):
    """Listwise distillation: `alpha * L + (1 - alpha) * KL(p_teacher || p_student)`.

    L is the listwise softmax loss; p is the softmax of a group's scores, divided by a temperature of the student's and
    one of the teacher's, by default the same. The divergence compares orders and distances, not scores, so teacher and
    student may be of different kinds. A ranker that learns from its own start as the teacher forgets less.
    """

    needs_teacher: ClassVar[bool] = True
    distillation_alpha: float = 0.75
    temperature: float = 1.0
    teacher_temperature: float | None = None

    def __call__(self, scores: Tensor, teacher: Tensor | None = None) -> Tensor:
        of_student = (scores / self.temperature).log_softmax(dim=1)
        divisor = self.temperature if self.teacher_temperature is None else self.teacher_temperature
        of_teacher = (_require_teacher(teacher, scores) / divisor).log_softmax(dim=1)
        divergence = (of_teacher.exp() * (of_teacher - of_student)).sum(dim=1)
        return -self.distillation_alpha * of_student[:, 0] + (1 - self.distillation_alpha) * divergence


LOSSES: dict[str, type[RankingLoss]] = {
    "hinge": HingeLoss,
    "pairwise_softmax": PairwiseSoftmaxLoss,
    "cross_entropy": CrossEntropyLoss,
    "listwise_softmax": ListwiseSoftmaxLoss,
    "distillation": DistillationLoss,
    "margin_mse": MarginMSELoss,
    "listwise_distillation": ListwiseDistillationLoss,
}
"""Loss classes by the name used in `RankingTrainingArguments.loss`."""


def settings_of_others(loss: str) -> set[str]:
    """The settings of all losses that this one does not have.

    Example:
        >>> sorted(settings_of_others("listwise_softmax"))
        ['distillation_alpha', 'margin', 'teacher_temperature']
    """
    settings = {name: {field.name for field in fields(kind)} for name, kind in LOSSES.items()}
    return set().union(*settings.values()) - settings[loss]


def _margins(scores: Tensor) -> Tensor:
    """The relevant document's score minus each negative's score."""
    return scores[:, :1] - scores[:, 1:]


def _labels(scores: Tensor) -> Tensor:
    labels = torch.zeros_like(scores)
    labels[:, 0] = 1
    return labels


def _require_teacher(teacher: Tensor | None, scores: Tensor) -> Tensor:
    if teacher is None:
        raise InputError("this loss needs a teacher's scores, and there are none; use DistillationTrainer.")
    return teacher.to(scores)
