"""How a model learns, and how a learned model reranks.

Names are imported when they are first used:

    from docparade.trainer import PairSampler, RankingTrainer, RankingTrainingArguments
"""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "arguments": "RankingTrainingArguments",
    "crossval": "cross_validate",
    "distillation": "DistillationTrainer",
    "documents": "CollectionDocuments",
    "evaluation": "Validation",
    "layers": "take_layers",
    "losses": "LOSSES",
    "measured": "last_checkpoint",
    "pairs": "PairSampler TrainingPair",
    "recipes": "Recipe load_recipe",
    "run": "run_recipe",
    "token_cache": "TokenCache",
    "trainer": "RankingTrainer",
    "triples": "Triples",
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names.split()}

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
