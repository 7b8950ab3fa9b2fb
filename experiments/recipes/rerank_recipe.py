"""The sections `rerank` and `significance` of a recipe: how test queries are reranked, and how runs are compared."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from docparade.modeling import PRESETS, DocumentProcessor
from docparade.modeling.readers import INPUT_SETTINGS
from docparade.reranking.caches.vector_types import VectorType
from docparade.retrieval.evaluation.significance import Correction

from .model_recipe import parameters, preset_settings
from .typed_values import build, check_keys, check_lowest, inside, typed


@dataclass(frozen=True)
class RerankRecipe:
    """How test queries are reranked."""

    depth: int = 100
    untrained: bool = False
    """Whether the ranker is also measured as it is before the training (zero-shot)."""
    candidates: Literal["first_stage", "all"] = "first_stage"
    """`all`: every document of the collection, whatever the first stage found."""
    hits: int = 1000
    """With `candidates: all`: how many documents of each query are kept."""
    processor: dict[str, Any] = field(default_factory=dict)
    """Passage settings that replace those of training: a `preset`, or fields of `DocumentProcessor`."""
    vectors: VectorType | None = None
    """For bi-encoders: rerank with kept passage vectors, stored as this type, instead of reading documents."""

    def __post_init__(self) -> None:
        check_lowest(self, "depth", 1)
        check_lowest(self, "hits", 1)

    @classmethod
    def of(cls, content: Any, place: str) -> RerankRecipe:
        """Read the section, and check the processor's settings as the model's are."""
        recipe = build(cls, content, place)
        hints = parameters(DocumentProcessor) | {"preset": Literal[tuple(PRESETS)]}
        inner = inside(place, "processor")
        check_keys(recipe.processor, hints, inner)
        return replace(
            recipe, processor={name: typed(v, hints[name], inside(inner, name)) for name, v in recipe.processor.items()}
        )

    @property
    def processor_options(self) -> dict[str, Any]:
        """The processor's settings that are not those of training."""
        own = {name: value for name, value in self.processor.items() if name != "preset"}
        preset = self.processor.get("preset")
        if preset is None:
            return own
        # A preset says how passages are cut; whether they are read apart from the query is up to the model.
        return {name: v for name, v in preset_settings(preset).items() if name not in INPUT_SETTINGS} | own


@dataclass(frozen=True)
class SignificanceRecipe:
    """How the runs of a test set are tested against its first stage: the paired t-test, corrected or not."""

    correction: Correction = "bonferroni"
    interpolated: bool = False
    """Whether the run that is interpolated with the first stage is tested, and counted, too."""
