"""`SavingTrainer`: what a training leaves, and continues from: checkpoints, records, the model's card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peft import PeftModel
from torch import nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, TrainOutput, rotate_checkpoints
from transformers.utils import CONFIG_NAME, logging

from docparade.hub_cards.cards.fields import CardFields
from docparade.hub_cards.cards.model_card import EditedCardError, write_card
from docparade.hub_cards.publishing.hub_push import Publication, push_folder
from docparade.hub_cards.record_files import RECORD_FILE
from docparade.modeling import DocumentRanker
from docparade.modeling.engine_batching import default_budget
from docparade.retrieval.errors import InputError

from .arguments import RankingTrainingArguments
from .checkpoints import check_checkpoint, check_weights, explain_write_errors, last_checkpoint
from .training_log import TrainingClock, write_log
from .training_record import write_record

logger = logging.get_logger(__name__)


class SavingTrainer(Trainer):
    """What `RankingTrainer` keeps of a training: checkpoints to continue from, and a model to publish.

    A checkpoint is complete before older ones are removed.

    Args:
        **options: As for `Trainer`.
    """

    args: RankingTrainingArguments
    model: nn.Module
    hub_model_id: Any

    def __init__(self, **options: Any) -> None:
        self._clock = TrainingClock()
        super().__init__(**options)
        self.add_callback(_BestCheckpoint())

    @property
    def ranker(self) -> DocumentRanker:
        """The ranker itself, without wrappers."""
        return unwrap_ranker(self.accelerator.unwrap_model(self.model))

    @property
    def folder(self) -> Path:
        """The folder for checkpoints."""
        return Path(str(self.args.output_dir))

    # --- Checkpoints -------------------------------------------------------------------------------------------------

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

    # Two private methods of Trainer are overridden, because nothing public takes their place.

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Warn of weights that a checkpoint lacks, as Trainer does, but for those that share the values of others.

        Overridden because Trainer cannot be told that such weights, as in T5, are in the file once.
        """
        tied = self.ranker.all_tied_weights_keys
        missing = [name for name in load_result.missing_keys if name not in tied]
        super()._issue_warnings_after_load(load_result._replace(missing_keys=missing))

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Save a checkpoint, and remove older ones only once it is complete, with its records.

        Overridden because Trainer removes them before it calls a callback (`on_save`), without waiting for the files of
        other processes.
        """
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

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model, its processor and, except within a checkpoint, the training record."""
        folder = Path(output_dir or self.folder)
        with explain_write_errors(folder):
            super().save_model(output_dir, _internal_call)
            if self.args.should_save:
                # A pickle with this machine's paths and tokens, which nothing reads; measured.json has the arguments.
                (folder / TRAINING_ARGS_NAME).unlink(missing_ok=True)
                # A ranker saves its processor itself; a PEFT adapter does not.
                self.ranker.require_processor().save_pretrained(folder)
        if self.args.should_save and not _internal_call:
            self._write_records(folder)

    # --- Publishing --------------------------------------------------------------------------------------------------

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


class _BestCheckpoint(TrainerCallback):
    """Finds the best checkpoint of a training that is continued."""

    def on_train_begin(  # type: ignore[override]
        self, args: RankingTrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if not args.load_best_model_at_end or not state.best_global_step:
            return
        # The saved path is wrong if the output folder was moved; Trainer would then keep the last model instead.
        best = Path(str(args.output_dir), f"{PREFIX_CHECKPOINT_DIR}-{state.best_global_step}")
        if not best.is_dir():
            raise InputError(f"{best}, the best checkpoint, is missing; remove {args.output_dir} to train again.")
        check_weights(best)
        state.best_model_checkpoint = str(best)


def unwrap_ranker(model: nn.Module) -> DocumentRanker:
    """Return the model itself, or the ranker inside a PEFT model; refuse any other model."""
    ranker = model.get_base_model() if isinstance(model, PeftModel) else model
    if type(ranker).__module__.startswith("transformers_modules."):
        raise InputError("the model runs the code of its checkpoint: import docparade before loading it.")
    if not isinstance(ranker, DocumentRanker):
        raise InputError(f"the model is a {type(ranker).__name__}, not a ranker: load a checkpoint of one.")
    return ranker
