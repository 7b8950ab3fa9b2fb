"""How far training is, in lines, where the output is redirected and the bar of Trainer would not be seen."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from docparade.retrieval.progress import ProgressLines


class StepLines(TrainerCallback):
    """Print a line every half minute: how many steps are done, and about how much time is left."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start to count; steps before an interruption are not done again."""
        self.lines = ProgressLines(desc="training", total=state.max_steps - state.global_step, unit=" steps")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Count a step."""
        if state.is_world_process_zero:
            self.lines.update()
