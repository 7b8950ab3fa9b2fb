"""docparade re-ranks long documents: it reads them whole, passage by passage.

Importing it makes its models known to transformers, so that AutoModel loads them:

    >>> import docparade
    >>> from transformers import AutoModel
    >>> model = AutoModel.from_pretrained("org/parade-electra")  # doctest: +SKIP
    >>> model.rank("why is the sky blue", long_documents)  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from docparade._with_transformers import load_models_with_transformers

if TYPE_CHECKING:
    from docparade.modeling import (
        PRESETS,
        DocumentProcessor,
        DocumentRanker,
        MaxPConfig,
        MaxPForSequenceClassification,
        ParadeConfig,
        ParadeForSequenceClassification,
        RankedDocument,
        RankedPassage,
        RankerOutput,
        TextRankingPipeline,
        to_int8,
    )
    from docparade.trainer.arguments import RankingTrainingArguments
    from docparade.trainer.distillation import DistillationTrainer
    from docparade.trainer.trainer import RankingTrainer

__version__ = "0.1.0"

__all__ = [
    "PRESETS",
    "DistillationTrainer",
    "DocumentProcessor",
    "DocumentRanker",
    "MaxPConfig",
    "MaxPForSequenceClassification",
    "ParadeConfig",
    "ParadeForSequenceClassification",
    "RankedDocument",
    "RankedPassage",
    "RankerOutput",
    "RankingTrainer",
    "RankingTrainingArguments",
    "TextRankingPipeline",
    "to_int8",
]
_OF_TRAINER = ("DistillationTrainer", "RankingTrainer", "RankingTrainingArguments")


def __getattr__(name: str) -> Any:
    # Loaded when first used: these names need torch, and `import docparade.retrieval` does not.
    if name in __all__:
        return getattr(import_module("docparade.trainer" if name in _OF_TRAINER else "docparade.modeling"), name)
    raise AttributeError(f"module 'docparade' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


load_models_with_transformers()
