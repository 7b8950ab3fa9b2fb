"""`RankingTrainingArguments`: the arguments of transformers' Trainer, and more for ranking."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from transformers import TrainingArguments

from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.measures import one_measure, parse_measures

from .losses import LOSSES, PointwiseLoss, settings_of_others

Decay = Literal["linear", "constant", "inverse_time"]
"""How the learning rates fall after warm-up; see `optimization.rate_factor`."""

Examples = Literal["pairs", "lists"]
"""What a model is trained on: pairs drawn from the lists (`PairSampler`), or all their documents, one at a time
(`LabeledDocuments`)."""

SAMPLING = ("random", "group_by_length")
SEEDS = 2**32
"""Seeds are below this: numpy's limit."""
# Arguments of `TrainingArguments` that a model card reports; it reports all of our own.
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
    """Arguments of `RankingTrainer`. The inherited ones mean what they mean in `TrainingArguments`.

    `learning_rate` applies to the encoder without its head. `per_device_train_batch_size` counts pairs, or documents
    with `examples="lists"`. With `eval_strategy`, the validation queries are reranked; `load_best_model_at_end` loads
    the best checkpoint by `measure`.

    Example:
        ```python
        RankingTrainingArguments("out", learning_rate=3e-6, head_learning_rate=1e-3, pairs_per_epoch=4096,
            num_train_epochs=36, warmup_epochs=10, decay="inverse_time", eval_strategy="epoch")
        ```
    """

    head_learning_rate: float | None = field(
        default=None,
        metadata={"help": "Learning rate of the head and the aggregator; none: the same as learning_rate."},
    )
    examples: Examples = field(
        default="pairs",
        metadata={"help": "Train on pairs drawn from the lists, or on all documents of the lists with their labels."},
    )
    pairs_per_epoch: int | None = field(
        default=None,
        metadata={"help": "Pairs (of lists: documents) in an epoch; none: as many as the training data has."},
    )
    warmup_epochs: float = field(
        default=0, metadata={"help": "Epochs over which the learning rates rise from zero; 0: use warmup_steps."}
    )
    decay: Decay = field(default="linear", metadata={"help": "How the learning rates fall after warm-up."})
    decay_rate: float = field(
        default=0.1, metadata={"help": "For inverse_time decay: 1 / (1 + decay_rate * epochs since warm-up)."}
    )
    loss: str = field(default="hinge", metadata={"help": "The training loss.", "choices": LOSSES})
    margin: float = field(default=1.0, metadata={"help": "Margin of the hinge loss."})
    temperature: float = field(
        default=1.0, metadata={"help": "Divides the scores in the listwise losses; 0.05 suits cosines."}
    )
    teacher_temperature: float | None = field(
        default=None,
        metadata={"help": "Divides the teacher's scores in listwise distillation; none: the same as temperature."},
    )
    distillation_alpha: float = field(
        default=0.75, metadata={"help": "Weight of the judgments in the distillation losses, from 0 to 1."}
    )
    negatives: int = field(default=1, metadata={"help": "Negatives drawn for each relevant document."})
    negative_ranks: tuple[int, int] | None = field(
        default=None, metadata={"help": "First and last rank from which negatives are drawn; none: any up to max_rank."}
    )
    in_batch_negatives: bool = field(
        default=False,
        metadata={"help": "Use the documents of a batch's other queries as further negatives (bi-encoders)."},
    )
    max_rank: int = field(default=1000, metadata={"help": "Train on this many top documents of each query."})
    unretrieved_positives: bool = field(
        default=False,
        metadata={"help": "Also train on documents that were judged relevant, but are not among those of max_rank."},
    )
    resample_passages: bool = field(
        default=False, metadata={"help": "Sample the passages of long documents again each time they are read."}
    )
    passage_level: bool = field(
        default=False, metadata={"help": "Train on single passages, labeled like their document (MaxP family)."}
    )
    passage_probability: float = field(
        default=0.1, metadata={"help": "With passage_level: probability that a passage after the first is used."}
    )
    chunk_passages: int | None = field(
        default=None,
        metadata={"help": "Encode this many passages at a time to save memory; gradients stay exact. None: all."},
    )
    measure: str = field(default="nDCG@20", metadata={"help": "The measure that selects the best checkpoint."})
    rerank_depth: int = field(default=100, metadata={"help": "Documents of each query reranked for validation."})
    evaluation_epochs: int = field(
        default=1, metadata={"help": "With eval_strategy 'epoch': evaluate after every this many epochs."}
    )

    def __post_init__(self) -> None:
        self._check()
        if self.metric_for_best_model is None:
            self.metric_for_best_model = f"eval_{self.measure}"
        if self.greater_is_better is None:
            self.greater_is_better = True
        # Pairs have no columns to remove; without an accelerator, pinned memory is of no use.
        self.remove_unused_columns = False
        self.dataloader_pin_memory = self.dataloader_pin_memory and torch.accelerator.is_available()
        # A worker forked after torch has used several threads hangs as soon as it computes.
        if self.dataloader_num_workers and self.dataloader_multiprocessing_context is None:
            self.dataloader_multiprocessing_context = "spawn"
        super().__post_init__()
        if self.push_to_hub:
            raise InputError("push_to_hub would publish every checkpoint: unset it, and call trainer.push_to_hub().")
        if self.lr_scheduler_type != "linear":
            raise InputError(
                f"lr_scheduler_type is {self.lr_scheduler_type!r}, which is not supported; set decay and warmup_epochs "
                "instead."
            )
        if self.in_batch_negatives and self.per_device_train_batch_size < 2:
            raise InputError("in_batch_negatives need at least 2 pairs in a batch: raise the batch size.")
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
        for name, choices in (("decay", get_args(Decay)), ("loss", LOSSES), ("examples", get_args(Examples))):
            if getattr(self, name) not in choices:
                raise InputError(f"{name} is {getattr(self, name)!r}, and has to be one of {', '.join(choices)}.")
        for name in ("pairs_per_epoch", "chunk_passages", "negatives", "max_rank", "rerank_depth", "evaluation_epochs"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise InputError(f"{name} is {value!r}, and has to be a whole number from 1.")
        for name in ("temperature", "teacher_temperature"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise InputError(f"{name} is {value}, and has to be above 0.")
        for name in ("passage_probability", "distillation_alpha"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name)}, and has to be from 0 to 1.")
        if self.in_batch_negatives:
            if LOSSES[self.loss].needs_teacher:
                raise InputError(
                    f"in_batch_negatives: the teacher of loss={self.loss!r} does not score them; unset it."
                )
            if self.passage_level:
                raise InputError("in_batch_negatives are whole documents: unset it, or passage_level.")
        if self.examples == "lists":
            _check_lists(self)
        if self.negative_ranks is not None:
            self.negative_ranks = _check_rank_window(self.negative_ranks, self.max_rank)
        self.measure = str(parse_measures(self.measure)[one_measure(self.measure)])

    def settings(self) -> dict[str, Any]:
        """The settings a model card reports: all that affect training, as JSON values, without paths."""
        without = {*_REPORTED, *settings_of_others(self.loss)}
        names = [*_REPORTED, *(name for name in RankingTrainingArguments.__annotations__ if name not in without)]
        values = self.to_dict()
        return {name: list(values[name]) if isinstance(values[name], tuple) else values[name] for name in names}


def check_vector_settings(settings: Mapping[str, Any]) -> None:
    """Refuse training arguments that do not go with training on kept vectors."""
    reasons = {
        "chunk_passages": "no passage is encoded",
        "resample_passages": "the passages are those whose vectors are kept",
        "passage_level": "kept vectors are aggregated to whole documents",
        "dataloader_num_workers": "reading vectors needs no further processes",
    }
    for name, reason in reasons.items():
        if settings.get(name):
            raise InputError(f"{name} does not go with training on kept vectors: {reason}.")


def _check_lists(args: RankingTrainingArguments) -> None:
    """Refuse what does not go with examples of one document each."""
    if not issubclass(LOSSES[args.loss], PointwiseLoss):
        known = " or ".join(name for name, loss in LOSSES.items() if issubclass(loss, PointwiseLoss))
        raise InputError(
            f"examples is 'lists', whose documents come one at a time, and loss={args.loss!r} compares documents: use "
            f"{known}, or examples='pairs'."
        )
    for name, usual in (("negatives", 1), ("negative_ranks", None), ("in_batch_negatives", False)):
        if getattr(args, name) != usual:
            raise InputError(f"{name} is for pairs, and examples is 'lists': leave one of them out.")


def _check_rank_window(given: Any, max_rank: int) -> tuple[int, int]:
    window = tuple(given)
    if len(window) != 2 or not all(isinstance(rank, int) for rank in window) or not 1 <= window[0] <= window[1]:
        raise InputError(f"negative_ranks is {given!r}, and has to be a first and a last rank, such as (500, 1000).")
    if window[1] > max_rank:
        raise InputError(f"negative_ranks ends at {window[1]}, after max_rank={max_rank}: raise max_rank.")
    return (window[0], window[1])
