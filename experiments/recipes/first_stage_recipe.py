"""The section `first_stage` of a recipe's data: a method, its parameters, and a grid to tune them on."""

from __future__ import annotations

from dataclasses import dataclass, fields

from docparade.retrieval.errors import InputError, errors_at
from docparade.retrieval.evaluation.measures import one_measure
from docparade.retrieval.folds import Deciding
from docparade.retrieval.index.first_stage import PARAMETERS, Engine, FirstStage
from docparade.retrieval.index.tuning import combine


@dataclass(frozen=True)
class TuneRecipe:
    """A grid of the first stage's parameters: each fold uses the combination that is best on its own queries."""

    k1: tuple[float, ...] | None = None
    b: tuple[float, ...] | None = None
    mu: tuple[float, ...] | None = None
    feedback_documents: tuple[int, ...] | None = None
    feedback_terms: tuple[int, ...] | None = None
    original_weight: tuple[float, ...] | None = None
    queries: Deciding = "train"
    """Which of a fold's queries decide."""
    measure: str = "nDCG@20"

    def __post_init__(self) -> None:
        one_measure(self.measure)

    @property
    def grid(self) -> dict[str, tuple[float, ...]]:
        """The parameters with the values to try."""
        return {name: values for name in PARAMETERS if (values := getattr(self, name)) is not None}


@dataclass(frozen=True)
class FirstStageRecipe(FirstStage):
    """First-stage retrieval: the method with its parameters, how many documents, and by which engine."""

    hits: int = 1000
    engine: Engine = "embedded"
    tune: TuneRecipe | None = None
    """With folds: parameters that each fold chooses; they replace the values above."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hits < 1:
            raise InputError(f"hits is {self.hits}, and has to be at least 1.")
        if self.tune is not None:
            with errors_at("tune"):
                self.combinations()

    def combinations(self) -> list[FirstStage]:
        """The parameters to choose from."""
        assert self.tune is not None
        return combine(self.tune.grid, FirstStage(**{one.name: getattr(self, one.name) for one in fields(FirstStage)}))
