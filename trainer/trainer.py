"""`RankingTrainer`: transformers' Trainer for ranking, with pairs, two learning rates and ranking measures."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate.utils import DistributedType
from peft import PeftModel
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, TrainOutput, rotate_checkpoints, speed_metrics
from transformers.utils import CONFIG_NAME, logging

from docparade.hub_cards.card import EditedCardError, write_card
from docparade.hub_cards.fields import CardFields
from docparade.hub_cards.publishing import Publication, push_folder
from docparade.hub_cards.saved_files import RECORD_FILE
from docparade.modeling import DocumentRanker
from docparade.modeling.engine import EncodeDocuments
from docparade.modeling.engine_batching import default_budget
from docparade.reranking.documents import Documents
from docparade.reranking.query_set import QuerySet
from docparade.reranking.vector_cache import VectorCache
from docparade.retrieval.errors import InputError

from .arguments import RankingTrainingArguments
from .checkpoints import check_checkpoint, explain_read_errors, explain_write_errors
from .collator import PairCollator
from .gradient_cache import CachedBackward, average_gradients
from .in_batch import NONE
from .labeled_documents import LabeledDocument, LabeledDocuments
from .losses import LOSSES, PointwiseLoss
from .optimization import build_parameter_groups, build_scheduler
from .pairs import EpochSampler, PairDataset
from .training_log import TrainingClock, write_log
from .training_record import last_checkpoint, write_record
from .validation import check_validation_set, validate
from .vector_training import VectorCollator, check_vector_training, encoder_weights, freeze_encoder

logger = logging.get_logger(__name__)


class RankingTrainer(Trainer):
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
        vectors: To train what is on top of a bi-encoder alone: the kept passage vectors of the pairs' documents. The
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

    args: RankingTrainingArguments
    model: nn.Module
    train_dataset: Any
    data_collator: Any
    optimizer: Any
    hub_model_id: Any
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
        self._epoch_sampler: EpochSampler | None = None
        self._clock = TrainingClock()
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
        # What older versions of Trainer use instead of `loss_is_scaled_for_ga`.
        self.model_accepts_loss_kwargs = True
        self._check()

    @property
    def ranker(self) -> DocumentRanker:
        """The ranker itself, without wrappers."""
        return unwrap_ranker(self.accelerator.unwrap_model(self.model))

    @property
    def folder(self) -> Path:
        """The folder for checkpoints."""
        return Path(str(self.args.output_dir))

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
        if self.args.passage_level and self.ranker.config.model_type != "maxp":
            raise InputError(
                f"passage_level is for models that score single passages (maxp), and this one is a "
                f"{self.ranker.config.model_type}: train it on whole documents."
            )
        if self.args.in_batch_negatives and self.ranker.config.bi_encoder is None:
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
        if self.args.chunk_passages and strategy in (DistributedType.FSDP, DistributedType.DEEPSPEED):
            raise InputError(f"chunk_passages does not work with {strategy.value}: use plain data parallelism.")

    # --- Data --------------------------------------------------------------------------------------------------------

    def _get_train_sampler(self, train_dataset: Any = None) -> EpochSampler:
        dataset = train_dataset if train_dataset is not None else self.train_dataset
        step_pairs = self._train_batch_size * self.args.gradient_accumulation_steps * self.accelerator.num_processes
        lengths = self._lengths if self.args.train_sampling_strategy == "group_by_length" else None
        self._epoch_sampler = EpochSampler(self.args.pairs_per_epoch or len(dataset), step_pairs, lengths)
        return self._epoch_sampler

    def _lengths(self, numbers: range) -> list[int]:
        """The lengths of pairs: those of all their documents together."""
        pairs = [self.train_dataset[number] for number in numbers]
        names = dict.fromkeys(name for pair in pairs for name in pair.documents)
        lengths = self.data_collator.lengths(list(names))
        return [sum(lengths[name] for name in pair.documents) for pair in pairs]

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # Accelerate does not set the sampler's epoch when several processes resume within an epoch.
        if self._epoch_sampler is not None:
            self._epoch_sampler.set_epoch(kwargs["epoch"])
        super()._run_epoch(*args, **kwargs)

    # --- Loss --------------------------------------------------------------------------------------------------------

    def _get_num_items_in_batch(self, batch_samples: list[dict[str, Tensor]], device: torch.device) -> Tensor:
        """Count the groups in all batches of an optimizer step, over all processes."""
        if self.args.in_batch_negatives:
            groups = sum(len(batch["candidates"]) for batch in batch_samples)
        else:
            groups = sum(len(batch["passage_mask"]) for batch in batch_samples) // self.group_size
        count = torch.tensor(groups, device=device)
        return self.accelerator.reduce(count, "sum") if self.accelerator.num_processes > 1 else count

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
            outputs = model(**inputs, compare_all=True)
            loss = self._loss(outputs.logits, targets, num_items_in_batch)
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
            return super().training_step(model, inputs, num_items_in_batch)
        model.train()
        inputs, targets = _split_targets(self._prepare_inputs(inputs))
        step = CachedBackward(
            self.ranker,
            self.args.chunk_passages,
            self.accelerator.backward,
            self.accelerator.autocast,
            compare_all=self.args.in_batch_negatives,
        )
        loss = step(inputs, lambda scores: self._loss(scores, targets, num_items_in_batch))
        if self.accelerator.sync_gradients and self.accelerator.num_processes > 1:
            average_gradients(self.model)
        return loss

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
            sampler = self._epoch_sampler or self._get_train_sampler()
            self.lr_scheduler = build_scheduler(
                optimizer or self.optimizer, self.args, num_training_steps, len(sampler) / sampler.step_pairs
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    # --- Evaluation and checkpoints ----------------------------------------------------------------------------------

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        """Train. `resume_from_checkpoint=True` continues from the last complete checkpoint, if there is one."""
        if resume_from_checkpoint is True:
            found = last_checkpoint(self.folder)
            resume_from_checkpoint = None if found is None else str(found)
        if resume_from_checkpoint:
            self._check_checkpoint(resume_from_checkpoint)
        self._prepare_training()
        # Dropout depends on what is encoded together, so the batch size must not depend on free memory.
        self.ranker.batch_tokens = default_budget(self.ranker)
        self._clock.start(resume_from_checkpoint or None)
        try:
            return super().train(resume_from_checkpoint, trial, ignore_keys_for_eval)
        finally:
            self._clock.stop()

    def _prepare_training(self) -> None:
        """Work to do once before the first step; nothing here, for subclasses to override."""

    def _check_checkpoint(self, checkpoint: str) -> None:
        """Refuse a checkpoint from which training cannot continue exactly; FSDP and DeepSpeed have other files."""
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            check_checkpoint(checkpoint, files=())
        else:
            check_checkpoint(checkpoint)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        with explain_read_errors(resume_from_checkpoint):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        # Weights that share the values of others, as in T5, are in the file once.
        tied = self.ranker.all_tied_weights_keys
        missing = [name for name in load_result.missing_keys if name not in tied]
        super()._issue_warnings_after_load(load_result._replace(missing_keys=missing))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with explain_read_errors(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with explain_read_errors(checkpoint):
            super()._load_rng_state(checkpoint)

    def _finalize_training(self, *args: Any, **kwargs: Any) -> TrainOutput:
        if self.args.load_best_model_at_end and self.state.best_global_step:
            # The saved path is wrong if the output folder was moved; Trainer would then keep the last model instead.
            best = self.folder / f"{PREFIX_CHECKPOINT_DIR}-{self.state.best_global_step}"
            if not best.is_dir():
                raise InputError(f"{best}, the best checkpoint, is missing; remove {self.folder} to train again.")
            self.state.best_model_checkpoint = str(best)
        return super()._finalize_training(*args, **kwargs)

    def _load_best_model(self) -> None:
        with explain_read_errors(self.state.best_model_checkpoint):
            super()._load_best_model()

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

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        # Older checkpoints are removed only once this one is complete.
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        folder = Path(self._get_output_dir(trial=trial))
        try:
            with explain_write_errors(folder):
                super()._save_checkpoint(model, trial)
        finally:
            self.args.save_total_limit = limit
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            self._write_records(folder / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
            with explain_write_errors(folder):
                rotate_checkpoints(str(folder), limit, self.state.best_model_checkpoint)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        super()._save(output_dir, state_dict)
        if self.args.should_save:
            folder = Path(output_dir or self.folder)
            # A pickle with this machine's paths and tokens, which nothing reads; measured.json has the arguments.
            (folder / TRAINING_ARGS_NAME).unlink(missing_ok=True)
            # A ranker saves its processor itself; a PEFT adapter does not.
            self.ranker.require_processor().save_pretrained(folder)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model, its processor and the training record."""
        with explain_write_errors(output_dir or self.folder):
            super().save_model(output_dir, _internal_call)
        if self.args.should_save and not _internal_call:
            self._write_records(Path(output_dir or self.folder))

    def push_to_hub(  # type: ignore[override]
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        *,
        license: str | None = None,
        language: str | None = None,
        **options: Any,
    ) -> Publication | None:
        """Save the model with its records and card, and publish it as `hub_model_id` of the arguments.

        Checkpoints and the state of the training are not published. Only the first process publishes; the others get
        `None`.

        Args:
            commit_message: The first line of the commit.
            blocking: Has to be true: the call returns when the model is published.
            token: The access token; by default `hub_token` of the arguments, or that of `hf auth login`.
            revision: The branch; by default `hub_revision` of the arguments, or `main`.
            license: The license of the weights, for the card: `apache-2.0`.
            language: The code of the language, for the card: `en`.
            **options: `create_pr` and `base_model`, as in `docparade.hub_cards.push_folder`.
        """
        if not blocking:
            raise InputError("blocking=False is not supported: a model is published when push_to_hub returns.")
        repo_id = self.args.hub_model_id
        if not repo_id:
            raise InputError("hub_model_id is not set: name the model on the Hub in the training arguments, user/name.")
        self.hub_model_id = repo_id
        self.save_model()
        if not self.is_world_process_zero():
            return None
        if (self.folder / CONFIG_NAME).is_file():
            self.create_model_card(language=language, license=license)
        return push_folder(
            self.folder,
            repo_id,
            private=self.args.hub_private_repo,
            token=token or self.args.hub_token,
            revision=revision or self.args.hub_revision,
            commit_message=commit_message,
            license=license,
            language=language or (),
            **options,
        )

    def create_model_card(
        self,
        language: str | None = None,
        license: str | None = None,
        tags: str | list[str] | None = None,
        model_name: str | None = None,
        finetuned_from: str | None = None,
        tasks: str | list[str] | None = None,
        dataset_tags: str | list[str] | None = None,
        dataset: str | list[str] | None = None,
        dataset_args: str | list[str] | None = None,
    ) -> None:
        """Write the model's card from what was measured; `push_to_hub` calls this.

        A card that was edited by hand outside its notes is kept, with a warning. The other arguments are Trainer's own,
        and not used: what they say is known.

        Args:
            language: The code of the language: `en`.
            license: The license of the weights: `apache-2.0`.
            tags: Not used.
            model_name: The card's title; by default the name on the Hub.
            finetuned_from: The encoder's name on the Hub.
            tasks: Not used.
            dataset_tags: Names of the training data on the Hub.
            dataset: Not used.
            dataset_args: Not used.
        """
        if not self.is_world_process_zero():
            return
        if not (self.folder / RECORD_FILE).is_file():
            self._write_records(self.folder)
        datasets = [dataset_tags] if isinstance(dataset_tags, str) else dataset_tags or []
        fields = CardFields(
            repo_id=self.hub_model_id,
            title=model_name,
            license=license,
            language=(language,) if language else (),
            base_model=finetuned_from,
            datasets=tuple(datasets),
        )
        try:
            write_card(self.folder, fields)
        except EditedCardError as error:
            logger.warning(f"The model card is not written: {error}")

    def _write_records(self, folder: Path) -> None:
        processes = self.accelerator.num_processes
        write_log(folder, self.state, self._clock.seconds, self.args.device, processes, self.folder)
        write_record(folder, self.args, self.state)


class _EvaluationEpochs(TrainerCallback):
    """Evaluates after every `evaluation_epochs` epochs, and after the last."""

    def on_epoch_end(  # type: ignore[override]
        self, args: RankingTrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if round(state.epoch or 0) % args.evaluation_epochs and state.global_step < state.max_steps:
            control.should_evaluate = False


def unwrap_ranker(model: nn.Module) -> DocumentRanker:
    """Return the model itself, or the ranker inside a PEFT model; refuse any other model."""
    ranker = model.get_base_model() if isinstance(model, PeftModel) else model
    if type(ranker).__module__.startswith("transformers_modules."):
        raise InputError("the model runs the code of its checkpoint: import docparade before loading it.")
    if not isinstance(ranker, DocumentRanker):
        raise InputError(f"the model is a {type(ranker).__name__}, not a ranker: load a checkpoint of one.")
    return ranker


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
