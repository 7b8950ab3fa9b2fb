"""How a ranker is trained: what `TrainingArguments` has, and what ranking needs beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import TrainingArguments

from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.measures import one_measure, parse_measures

from .losses import LOSSES

SAMPLING = ("random", "group_by_length")
DECAYS = ("linear", "constant", "inverse_time")
SEEDS = 2**32
"""how many seeds there are: numpy takes no others"""
# What of `TrainingArguments` a card reports, beside our own.
_REPORTED = (
    "learning_rate",
    "num_train_epochs",
    "max_steps",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "weight_decay",
    "max_grad_norm",
    "warmup_steps",
    "optim",
    "bf16",
    "fp16",
    "gradient_checkpointing",
    "seed",
)


@dataclass
class RankingTrainingArguments(TrainingArguments):
    """Arguments of `RankingTrainer`; those of `TrainingArguments` mean what they mean there.

    `learning_rate` is that of the encoder's body. `per_device_train_batch_size` counts pairs. With `eval_strategy`, the
    validation queries are reranked; `load_best_model_at_end` keeps the best checkpoint by `measure`.

    Example:
        ```python
        RankingTrainingArguments("out", learning_rate=3e-6, head_learning_rate=1e-3, pairs_per_epoch=4096,
            num_train_epochs=36, warmup_epochs=10, decay="inverse_time", eval_strategy="epoch")
        ```
    """

    head_learning_rate: float | None = field(
        default=None, metadata={"help": "Learning rate of all that is not the encoder's body; none: the same."}
    )
    pairs_per_epoch: int | None = field(
        default=None, metadata={"help": "An epoch is this many pairs; none: as many as the training data has."}
    )
    warmup_epochs: float = field(
        default=0, metadata={"help": "Epochs over which the learning rates rise from zero; 0: warmup_steps decides."}
    )
    decay: str = field(
        default="linear", metadata={"help": "What learning rates do after warm-up.", "choices": list(DECAYS)}
    )
    decay_rate: float = field(
        default=0.1, metadata={"help": "Of inverse_time decay: 1 / (1 + decay_rate * epochs since warm-up)."}
    )
    loss: str = field(default="hinge", metadata={"help": "What is minimized.", "choices": list(LOSSES)})
    margin: float = field(default=1.0, metadata={"help": "Margin of the hinge loss."})
    distillation_alpha: float = field(
        default=0.75, metadata={"help": "Share of the cross-entropy in the distillation loss."}
    )
    negatives: int = field(default=1, metadata={"help": "Documents that are drawn against each relevant one."})
    negative_ranks: tuple[int, int] | None = field(
        default=None, metadata={"help": "First and last rank from which negatives are drawn; none: any up to max_rank."}
    )
    max_rank: int = field(default=1000, metadata={"help": "Pairs come from this many first documents of the run."})
    resample_passages: bool = field(
        default=False, metadata={"help": "Draw the passages of long documents anew each time they are read."}
    )
    passage_level: bool = field(
        default=False, metadata={"help": "Train on single passages that carry their document's label (MaxP family)."}
    )
    passage_probability: float = field(
        default=0.1, metadata={"help": "Passage level: with which probability passages after the first are used."}
    )
    chunk_passages: int | None = field(
        default=None,
        metadata={"help": "Encode this many passages at once, in bounded memory, with exact gradients; none: all."},
    )
    measure: str = field(default="nDCG@20", metadata={"help": "Chooses the best checkpoint."})
    rerank_depth: int = field(default=100, metadata={"help": "How many documents are reranked for validation."})
    evaluation_epochs: int = field(
        default=1, metadata={"help": "Epochs from one evaluation to the next, where eval_strategy is 'epoch'."}
    )

    def __post_init__(self) -> None:
        self._check()
        if self.metric_for_best_model is None:
            self.metric_for_best_model = f"eval_{self.measure}"
        if self.greater_is_better is None:
            self.greater_is_better = True
        # Pairs have no columns to look at; and there is nothing to pin memory for where there is no accelerator.
        self.remove_unused_columns = False
        self.dataloader_pin_memory = self.dataloader_pin_memory and torch.accelerator.is_available()
        # A process that is forked after torch has computed with several threads hangs as soon as it computes itself.
        if self.dataloader_num_workers and self.dataloader_multiprocessing_context is None:
            self.dataloader_multiprocessing_context = "spawn"
        super().__post_init__()
        if self.lr_scheduler_type != "linear":
            raise InputError(f"lr_scheduler_type is {self.lr_scheduler_type!r}: set decay and warmup_epochs instead.")
        if self.train_sampling_strategy not in SAMPLING:
            raise InputError(
                f"train_sampling_strategy is {self.train_sampling_strategy!r}, and has to be one of "
                f"{', '.join(SAMPLING)}."
            )

    def _check(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"{name} is {value}, and has to be a finite number.")
            if name in ("seed", "data_seed") and value is not None and not 0 <= value < SEEDS:
                raise InputError(f"{name} is {value}, and has to be from 0 to {SEEDS - 1}.")
        for name, choices in (("decay", DECAYS), ("loss", tuple(LOSSES))):
            if getattr(self, name) not in choices:
                raise InputError(f"{name} is {getattr(self, name)!r}, and has to be one of {', '.join(choices)}.")
        for name in ("pairs_per_epoch", "chunk_passages", "negatives", "max_rank", "rerank_depth", "evaluation_epochs"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise InputError(f"{name} is {value!r}, and has to be a whole number from 1.")
        for name in ("passage_probability", "distillation_alpha"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name)}, and has to be from 0 to 1.")
        if self.negative_ranks is not None:
            self.negative_ranks = _rank_window(self.negative_ranks, self.max_rank)
        self.measure = str(parse_measures(self.measure)[one_measure(self.measure)])

    def settings(self) -> dict[str, Any]:
        """What a card reports: everything that decides how the model learned, as JSON values and without paths."""
        names = [*_REPORTED, *(name for name in RankingTrainingArguments.__annotations__ if name not in _REPORTED)]
        values = self.to_dict()
        return {name: list(values[name]) if isinstance(values[name], tuple) else values[name] for name in names}


def _rank_window(given: Any, max_rank: int) -> tuple[int, int]:
    window = tuple(given)
    if len(window) != 2 or not all(isinstance(rank, int) for rank in window) or not 1 <= window[0] <= window[1]:
        raise InputError(f"negative_ranks is {given!r}, and has to be a first and a last rank, such as (500, 1000).")
    if window[1] > max_rank:
        raise InputError(f"negative_ranks ends at {window[1]}, after max_rank={max_rank}: raise max_rank.")
    return (window[0], window[1])
