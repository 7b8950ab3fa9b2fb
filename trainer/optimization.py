"""Parameter groups with two learning rates (encoder and head), and the learning-rate schedule."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from docparade.modeling import DocumentRanker

from .arguments import Decay, RankingTrainingArguments


def build_parameter_groups(
    model: nn.Module, ranker: DocumentRanker, args: RankingTrainingArguments, decayed: Collection[str]
) -> list[dict[str, Any]]:
    """Group the trainable parameters by learning rate and weight decay, the encoder's first.

    Args:
        model: The model to train: the ranker, or a wrapper around it.
        ranker: The ranker itself, which tells the encoder's parameters from the head's and the aggregator's.
        args: The learning rates and the weight decay.
        decayed: Names of the parameters that get weight decay.
    """
    encoder = {id(parameter) for parameter in ranker.encoder.base_model.parameters()}
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups.setdefault((id(parameter) not in encoder, name not in decayed), []).append(parameter)
    return [
        {
            "params": groups[is_head, is_undecayed],
            "lr": args.head_learning_rate if is_head else args.learning_rate,
            "weight_decay": 0.0 if is_undecayed else args.weight_decay,
        }
        for is_head, is_undecayed in sorted(groups)
    ]


def rate_factor(
    step: int, *, total_steps: int, warmup_steps: float, decay: Decay, decay_rate: float, epoch_steps: float
) -> float:
    """The factor that multiplies the learning rates at an optimizer step.

    It rises from 0 to 1 over `warmup_steps`. Then it stays (`constant`), falls to 0 at the end of training (`linear`),
    or falls as `1 / (1 + decay_rate * epochs since warm-up)` (`inverse_time`, as in Capreolus).

    Example:
        >>> rate_factor(30, total_steps=50, warmup_steps=10, decay="linear", decay_rate=0.1, epoch_steps=10)
        0.5
    """
    if step < warmup_steps:
        return step / warmup_steps
    if decay == "constant":
        return 1.0
    if decay == "inverse_time":
        return 1 / (1 + decay_rate * (step - warmup_steps) / epoch_steps)
    return max(0.0, (total_steps - step) / max(1, total_steps - warmup_steps))


def build_scheduler(
    optimizer: Optimizer, args: RankingTrainingArguments, total_steps: int, epoch_steps: float
) -> LambdaLR:
    """Build the learning-rate scheduler that the arguments describe."""
    warmup = args.warmup_epochs * epoch_steps if args.warmup_epochs else args.get_warmup_steps(total_steps)
    factor = partial(
        rate_factor,
        total_steps=total_steps,
        warmup_steps=warmup,
        decay=args.decay,
        decay_rate=args.decay_rate,
        epoch_steps=epoch_steps,
    )
    return LambdaLR(optimizer, factor)
