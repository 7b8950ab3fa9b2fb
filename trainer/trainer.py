"""`RankingTrainer`: transformers' Trainer for ranking, with pairs, two learning rates and ranking measures."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import torch
from accelerate.utils import DistributedType
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader
from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers.trainer_utils import seed_worker, speed_metrics

from docparade.modeling import DocumentRanker
from docparade.modeling.reading_options import EncodeDocuments
from docparade.reranking.caches.document_lookup import Documents
from docparade.reranking.caches.vector_cache import VectorCache
from docparade.reranking.query_set import QuerySet
from docparade.retrieval.errors import InputError
from docparade.trainer.data.collator import PairCollator
from docparade.trainer.data.in_batch import NONE
from docparade.trainer.data.labeled_documents import LabeledDocument, LabeledDocuments
from docparade.trainer.data.pairs import EpochSampler, PairDataset

from .arguments import RankingTrainingArguments
from .gradient_cache import CachedBackward, average_gradients
from .losses import LOSSES, PointwiseLoss
from .optimization import build_parameter_groups, build_scheduler
from .saving_trainer import SavingTrainer, unwrap_ranker
from .validation import check_validation_set, validate
from .vector_training import VectorCollator, check_vector_training, encoder_weights, freeze_encoder


class RankingTrainer(SavingTrainer):
    """Trains a ranker on pairs, and selects the checkpoint that ranks the validation queries best.

    The pairs of a step depend only on the seed and the step. One process and several, with the same number of pairs per
    step, are trained on the same pairs, and a training that was killed and continued ends with the same weights.

    Args:
        model: A ranker with its processor, or a PEFT model around one.
        args: The training arguments.
        train_dataset: Pairs by number, `PairSampler` or `Triples`; with `examples="lists"`, `LabeledDocuments`.
        queries: Query texts by id; `None` if pairs hold texts.
        documents: Documents by id; `None` if pairs hold texts.
        validation: Queries to validate on; with several sets, checkpoints are compared by the mean.
        encode_documents: Replaces the processor's own method, such as a `TokenCache`'s.
        vectors: To train only what is on top of a bi-encoder: the kept passage vectors of the pairs' documents. The
            encoder and its vector head are frozen, and no document is read.
        callbacks: As for `Trainer`.

    Example:
        ```python
        trainer = RankingTrainer(
            model, args, PairSampler(run, qrels, train_ids, pairs_per_epoch=4096, seed=42), queries, documents,
            validation=QuerySet("dev", dev_queries, run, qrels, documents),
        )
        trainer.train(resume_from_checkpoint=True)
        ```
    """

    train_dataset: Any
    data_collator: Any
    optimizer: Any
    sampler: EpochSampler
    # compute_loss already divides by the groups of the whole step, over all its batches and processes.
    loss_is_scaled_for_ga = True
    learns_from_teacher = False

    def __init__(
        self,
        model: DocumentRanker | nn.Module,
        args: RankingTrainingArguments,
        train_dataset: PairDataset | LabeledDocuments,
        queries: Mapping[str, str] | None = None,
        documents: Documents | None = None,
        validation: QuerySet | Sequence[QuerySet] | None = None,
        *,
        encode_documents: EncodeDocuments | None = None,
        vectors: VectorCache | None = None,
        callbacks: list[TrainerCallback] | None = None,
    ) -> None:
        processor = unwrap_ranker(model).require_processor()
        self.loss = LOSSES[args.loss].of(args)
        self.validation = [validation] if isinstance(validation, QuerySet) else list(validation or [])
        self.trains_on_vectors = vectors is not None
        if vectors is None:
            collator = PairCollator(
                processor,
                queries,
                documents,
                encode_documents=encode_documents,
                resample_passages=args.resample_passages,
                passage_probability=args.passage_probability if args.passage_level else None,
                in_batch_negatives=args.in_batch_negatives,
            )
        else:
            check_vector_training(model, args, queries)
            kept = vectors.for_ranker(unwrap_ranker(model))
            collator = VectorCollator(kept, queries, documents, in_batch_negatives=args.in_batch_negatives)
            freeze_encoder(kept.model)
        super().__init__(
            model=model,
            args=args,
            data_collator=collator,
            train_dataset=train_dataset,
            eval_dataset=self.validation or None,
            callbacks=[_EvaluationEpochs(), *(callbacks or [])],
        )
        self.add_callback(_SamplerEpochs(self))
        # What older versions of Trainer use instead of `loss_is_scaled_for_ga`.
        self.model_accepts_loss_kwargs = True
        self._check()

    @property
    def group_size(self) -> int:
        """Documents in a group: the relevant one and its negatives, or one document of a list."""
        return 1 if self.args.examples == "lists" else 1 + self.args.negatives

    def _check(self) -> None:
        for queries in self.validation:
            check_validation_set(queries)
            if queries.vectors is not None and any(weights.requires_grad for weights in encoder_weights(self.ranker)):
                raise InputError(
                    f"validation set {queries.name} has kept vectors, and the encoder that made them is trained: leave "
                    "them out, or train on kept vectors."
                )
        if self.validation and self.args.eval_strategy == "no":
            raise InputError("there is a validation set, and eval_strategy is 'no': set it to 'epoch' or 'steps'.")
        if self.args.passage_level and not self.ranker.config.scores_passages():
            raise InputError(
                f"passage_level is for models that score single passages (maxp), and this one is a "
                f"{self.ranker.config.model_type}: train it on whole documents."
            )
        if self.args.in_batch_negatives and not self.ranker.reader.separate:
            raise InputError(
                "in_batch_negatives are for bi-encoders, which compare every query with every document of a batch: "
                "unset it, or build the model with from_bi_encoder."
            )
        if self.args.in_batch_negatives and self.args.n_gpu > 1:
            raise InputError("in_batch_negatives need one process for each GPU: start with accelerate launch.")
        if self.loss.needs_logits and not self.ranker.config.scores_are_logits:
            raise InputError(
                f"loss={self.args.loss!r} takes the sigmoid of scores, and this model's are made of probabilities: use "
                "'hinge', or passage_score='logit'."
            )
        if self.loss.needs_teacher and not self.learns_from_teacher:
            raise InputError(f"loss={self.args.loss!r} learns from a teacher: use DistillationTrainer.")
        if self.learns_from_teacher and not self.loss.needs_teacher:
            learning = " or ".join(repr(name) for name, loss in LOSSES.items() if loss.needs_teacher)
            raise InputError(f"loss={self.args.loss!r} does not use a teacher: set {learning}.")
        if self.learns_from_teacher and self.args.passage_level:
            raise InputError("a teacher scores whole documents, and passage_level trains on single passages: unset it.")
        first = self.train_dataset[0]
        if isinstance(first, LabeledDocument) != (self.args.examples == "lists"):
            raise InputError(
                f"examples is {self.args.examples!r}, and the training data are {type(self.train_dataset).__name__}: "
                "'lists' takes LabeledDocuments, 'pairs' a PairSampler or Triples."
            )
        drawn = len(first.documents) - 1
        if drawn != self.group_size - 1:
            raise InputError(f"pairs have {drawn} negatives, and negatives={self.args.negatives}: set both the same.")
        strategy = self.accelerator.distributed_type
        for name in ("chunk_passages", "in_batch_negatives"):
            if getattr(self.args, name) and strategy in (DistributedType.FSDP, DistributedType.DEEPSPEED):
                raise InputError(f"{name} does not work with {strategy.value}: use plain data parallelism.")

    # --- Data --------------------------------------------------------------------------------------------------------

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Build the loader of the training batches, in the order of `build_sampler`."""
        self.sampler = self.build_sampler()
        workers = self.args.dataloader_num_workers
        loader = DataLoader(
            self.train_dataset,
            batch_size=self._train_batch_size,
            sampler=self.sampler,
            collate_fn=self.data_collator,
            num_workers=workers,
            prefetch_factor=self.args.dataloader_prefetch_factor,
            persistent_workers=self.args.dataloader_persistent_workers,
            multiprocessing_context=self.args.dataloader_multiprocessing_context,
            worker_init_fn=partial(seed_worker, num_workers=workers, rank=self.args.process_index),
            in_order=self.args.dataloader_in_order,
            pin_memory=self.args.dataloader_pin_memory,
        )
        return self.accelerator.prepare(loader)

    def build_sampler(self) -> EpochSampler:
        """Build the sampler, which knows how many pairs and steps an epoch has."""
        step_pairs = self._train_batch_size * self.args.gradient_accumulation_steps * self.accelerator.num_processes
        lengths = self._lengths if self.args.train_sampling_strategy == "group_by_length" else None
        return EpochSampler(self.args.pairs_per_epoch or len(self.train_dataset), step_pairs, lengths)

    def _lengths(self, numbers: range) -> list[int]:
        """The lengths of pairs, each the sum of its documents' lengths."""
        pairs = [self.train_dataset[number] for number in numbers]
        names = dict.fromkeys(name for pair in pairs for name in pair.documents)
        lengths = self.data_collator.lengths(list(names))
        return [sum(lengths[name] for name in pair.documents) for pair in pairs]

    def get_batch_samples(
        self, epoch_iterator: Iterator[dict[str, Tensor]], num_batches: int, device: torch.device
    ) -> tuple[list[dict[str, Tensor]], Tensor]:
        """Take the batches of an optimizer step, and count their groups, over all processes."""
        batches = list(islice(epoch_iterator, num_batches))
        if self.args.in_batch_negatives:
            groups = sum(len(batch["candidates"]) for batch in batches)
        else:
            groups = sum(len(batch["passage_mask"]) for batch in batches) // self.group_size
        count = torch.tensor(groups, device=device)
        return batches, self.accelerator.reduce(count, "sum") if self.accelerator.num_processes > 1 else count

    # --- Loss --------------------------------------------------------------------------------------------------------

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Compute this batch's part of the step's loss, scaled so that the parts add up to the mean over all groups."""
        inputs, targets = _split_targets(inputs)
        if self.args.in_batch_negatives:
            # Not through a distributed wrapper, which only knows forward: training_step averages the gradients.
            with self.accelerator.autocast():
                scores = self.ranker.score_all(**inputs)
            outputs: Any = {"scores": scores}
            loss = self._loss(scores, targets, num_items_in_batch)
        else:
            outputs = model(**inputs)
            loss = self._loss(outputs.logits[:, 0], targets, num_items_in_batch)
        return (loss, outputs) if return_outputs else loss

    def _loss(self, scores: Tensor, targets: _Targets, items: Tensor | int | None) -> Tensor:
        if targets.labels is not None:
            assert isinstance(self.loss, PointwiseLoss)
            values = self.loss(scores.float()[:, None], targets.teacher, targets.labels[:, None])
        elif targets.candidates is None:
            values = self.loss(scores.float().view(-1, self.group_size), targets.teacher)
        else:
            # Query by query, because they have different numbers of negatives.
            rows = zip(scores.float(), targets.candidates, strict=True)
            values = torch.cat([self.loss(row[chosen[chosen != NONE]][None]) for row, chosen in rows])
        return values.mean() if items is None else values.sum() * self.accelerator.num_processes / items

    def training_step(
        self, model: nn.Module, inputs: dict[str, Tensor], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Run forward and backward; with `chunk_passages`, chunk by chunk in bounded memory."""
        if self.args.chunk_passages is None:
            loss = super().training_step(model, inputs, num_items_in_batch)
            if not self.args.in_batch_negatives:
                return loss
        else:
            loss = self._train_in_chunks(model, inputs, self.args.chunk_passages, num_items_in_batch)
        if self.accelerator.sync_gradients and self.accelerator.num_processes > 1:
            average_gradients(self.model)
        return loss

    def _train_in_chunks(
        self, model: nn.Module, inputs: dict[str, Tensor], chunk: int, items: Tensor | int | None
    ) -> Tensor:
        model.train()
        inputs, targets = _split_targets(self._prepare_inputs(inputs))
        step = CachedBackward(
            self.ranker,
            chunk,
            self.accelerator.backward,
            self.accelerator.autocast,
            compare_all=self.args.in_batch_negatives,
        )
        return step(inputs, lambda scores: self._loss(scores, targets, items))

    def floating_point_ops(self, inputs: dict[str, Tensor]) -> int:
        """Estimate the operations of the encoder for a batch; there are none if kept vectors are read."""
        return 0 if self.trains_on_vectors else super().floating_point_ops(inputs)

    # --- Optimizer ---------------------------------------------------------------------------------------------------

    def create_optimizer(self, model: nn.Module | None = None) -> Optimizer:
        """Create the optimizer, with one learning rate for the encoder and one for head and aggregator."""
        if self.optimizer is None and self.args.head_learning_rate is not None:
            trained = self.model if model is None else model
            groups = build_parameter_groups(trained, self.ranker, self.args, self.get_decay_parameter_names(trained))
            kind, options = self.get_optimizer_cls_and_kwargs(self.args, self.ranker)
            if "params" in options or "model" in options or "optimizer_dict" in options:
                raise InputError(
                    f"optim={self.args.optim} makes parameter groups of its own: unset head_learning_rate."
                )
            self.optimizer = kind(groups, **options)
        return super().create_optimizer(model)

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> LRScheduler:
        """Create the scheduler: warm-up, then the decay set in the arguments."""
        if self.lr_scheduler is None:
            epoch_steps = self.build_sampler().steps
            self.lr_scheduler = build_scheduler(optimizer or self.optimizer, self.args, num_training_steps, epoch_steps)
            self._created_lr_scheduler = True
        return self.lr_scheduler

    # --- Evaluation --------------------------------------------------------------------------------------------------

    def evaluate(  # type: ignore[override]
        self,
        eval_dataset: QuerySet | Sequence[QuerySet] | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Rerank and measure the validation queries: `eval_<measure>`, and each set's value if there are several."""
        given = [eval_dataset] if isinstance(eval_dataset, QuerySet) else eval_dataset
        validation = list(given or self.validation)
        if not validation:
            raise InputError("there is no validation set to evaluate on.")
        start = time.time()
        metrics = validate(self.ranker, validation, self.args.measure, self.args.rerank_depth, metric_key_prefix)
        metrics |= speed_metrics(metric_key_prefix, start)
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


class _SamplerEpochs(TrainerCallback):
    """Tells the sampler its epoch: accelerate does not when several processes continue within one."""

    def __init__(self, trainer: RankingTrainer) -> None:
        self.trainer = trainer

    def on_epoch_begin(  # type: ignore[override]
        self, args: RankingTrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        sampler = self.trainer.sampler
        sampler.set_epoch(state.global_step // sampler.steps)


class _EvaluationEpochs(TrainerCallback):
    """Evaluates after every `evaluation_epochs` epochs, and after the last."""

    def on_epoch_end(  # type: ignore[override]
        self, args: RankingTrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if round(state.epoch or 0) % args.evaluation_epochs and state.global_step < state.max_steps:
            control.should_evaluate = False


class _Targets(NamedTuple):
    """What a batch holds for the loss."""

    teacher: Tensor | None
    """The teacher's scores, `(groups, documents)`."""
    candidates: Tensor | None
    """With in-batch negatives: the documents that each query is compared with (see `list_candidates`)."""
    labels: Tensor | None
    """Of documents of lists: 1 for relevant ones, 0 for others."""


def _split_targets(inputs: dict[str, Any]) -> tuple[dict[str, Any], _Targets]:
    """Separate what is for the loss from the model's inputs."""
    inputs = dict(inputs)
    names = ("teacher_scores", "candidates", "labels")
    return inputs, _Targets(*(inputs.pop(name, None) for name in names))
