"""`Recipe`: an experiment, complete: what is trained, on what, how, and how it is tested."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import yaml

from .data_recipe import DataRecipe
from .model_recipe import ModelRecipe
from .rerank_recipe import RerankRecipe, SignificanceRecipe
from .typed_values import plain

ONLY_STAGE = "training"
"""The name of the stage of a recipe that has no stages."""


@dataclass(frozen=True)
class Stage:
    """One training: from weights and data to a checkpoint."""

    name: str
    model: ModelRecipe
    data: DataRecipe
    training: dict[str, Any]
    """Fields of `RankingTrainingArguments`; `batch_size`: pairs of all processes together; and `vectors`: to train what
    is on top of a bi-encoder on kept passage vectors, the type in which they are stored."""
    validation: tuple[DataRecipe, ...] = ()
    teacher: str | None = None
    """A checkpoint to learn from (distillation)."""

    @property
    def is_trained(self) -> bool:
        """Whether there is anything to train; without epochs, the model is measured as it is (zero-shot)."""
        return self.training["num_train_epochs"] > 0 or self.training.get("max_steps", -1) > 0

    def to_dict(self) -> dict[str, Any]:
        """The stage as a file has it."""
        return plain(
            {"model": self.model.to_dict(), "data": self.data.to_dict(), "training": self.training}
            | ({"validation": [one.to_dict() for one in self.validation]} if self.validation else {})
            | ({"teacher": self.teacher} if self.teacher else {})
        )


@dataclass(frozen=True)
class Recipe:
    """An experiment, complete: what is trained, on what, how, and how it is tested.

    Example:
        >>> from docparade.experiments import load_recipe
        >>> recipe = load_recipe("cranfield-minilm")
        >>> recipe.stages[0].training["learning_rate"]
        5e-05
    """

    name: str
    stages: tuple[Stage, ...]
    seed: int = 42
    paper: str = ""
    reproduces: str = ""
    lora: bool = False
    test: tuple[DataRecipe, ...] = ()
    rerank: RerankRecipe = field(default_factory=RerankRecipe)
    measures: str = "nDCG@20 AP@100 P@20"
    significance: SignificanceRecipe = field(default_factory=SignificanceRecipe)
    file: str = ""
    """Where it was read; no part of the experiment."""

    @property
    def data(self) -> DataRecipe:
        """What the last stage trains on; its folds are the experiment's."""
        return self.stages[-1].data

    def place(self, key: str, stage: Stage | None = None) -> str:
        """Where a key stands, for what is wrong there: `recipe.yaml, stages.documents.model`."""
        alone = len(self.stages) == 1 and self.stages[0].name == ONLY_STAGE
        return f"{self.file}, {key}" if stage is None or alone else f"{self.file}, stages.{stage.name}.{key}"

    def to_dict(self) -> dict[str, Any]:
        """The content of a recipe file that needs no other, and means the same."""
        return {
            "name": self.name,
            "paper": self.paper,
            "reproduces": self.reproduces,
            "seed": self.seed,
            "lora": self.lora,
            "stages": {stage.name: stage.to_dict() for stage in self.stages},
            "test": [data.to_dict() for data in self.test],
            "rerank": asdict(self.rerank),
            "measures": self.measures,
            "significance": asdict(self.significance),
        }

    def to_yaml(self) -> str:
        """A recipe file that needs no other, and means the same."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True, width=120)
