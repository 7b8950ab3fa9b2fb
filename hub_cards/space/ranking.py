"""The documents of the page, ranked by one or two methods."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from docparade.modeling import DocumentRanker
from docparade.modeling.documents import DocumentLike
from docparade.modeling.engine_results import RankedDocument
from docparade.modeling.passages import EncodedDocument

from .sources import SourceDocument

METHOD_NAMES = {
    "max": "MaxP, the best passage",
    "first": "FirstP, only the first passage",
    "kmax_avg": "K-Max-AvgP, the mean of the 4 best passages",
    "avg": "AvgP, the mean of all passages",
    "sum": "SumP, the sum of all passages",
}
"""The methods that need no training: any model of passage scores can use them."""


@dataclass(frozen=True)
class Method:
    """A model with one of the aggregations it can use."""

    label: str
    model: DocumentRanker
    aggregation: str

    @property
    def is_own(self) -> bool:
        """Whether it is the aggregation that the model was made with."""
        return self.aggregation == self.model.config.aggregation


@dataclass(frozen=True)
class Ranking:
    """Documents ranked by a method, best first."""

    label: str
    documents: list[RankedDocument]
    sources: Sequence[SourceDocument]
    """The ranked documents; `RankedDocument.index` is a position among them."""
    weight_means: str
    tokens: int
    """Tokens of the documents' texts."""
    seconds: float


def list_methods(models: dict[str, DocumentRanker]) -> dict[str, Method]:
    """All methods of some models by their labels; the first is the first model's own.

    Args:
        models: Name -> model. If there are several, labels begin with the name.
    """
    methods = {}
    for name, model in models.items():
        own = model.config.aggregation
        is_score_model = model.config.scores_passages()
        for aggregation in dict.fromkeys([own, *(METHOD_NAMES if is_score_model else ())]):
            family = model.config.model_type.upper()
            label = METHOD_NAMES.get(aggregation, aggregation) if is_score_model else f"{family}, {aggregation}"
            label = label if len(models) == 1 else f"{name}: {label}"
            methods[label] = Method(label, model, aggregation)
    return methods


def rank_documents(methods: Sequence[Method], query: str, documents: Sequence[SourceDocument]) -> list[Ranking]:
    """Rank documents by each method; methods of the same model share one reading."""
    readings: dict[int, Ranking] = {}
    for method in methods:
        if id(method.model) not in readings:
            readings[id(method.model)] = _read(method.model, query, documents)
    return [_rank_by(method, readings[id(method.model)]) for method in methods]


def _read(model: DocumentRanker, query: str, documents: Sequence[SourceDocument]) -> Ranking:
    tokens = 0

    def encode_documents(block: Sequence[DocumentLike]) -> list[EncodedDocument]:
        nonlocal tokens
        encoded = model.require_processor().encode_documents(block)
        tokens += sum(len(document.token_ids) for document in encoded)
        return encoded

    start = time.perf_counter()
    ranked = model.rank(query, documents, encode_documents=encode_documents, progress=False)
    seconds = time.perf_counter() - start
    return Ranking("", ranked, documents, model.config.weight_means, tokens, seconds)


def _rank_by(method: Method, reading: Ranking) -> Ranking:
    if method.is_own:
        return replace(reading, label=method.label)
    settings = type(method.model.config)(aggregation=method.aggregation)
    aggregator = settings.aggregators[method.aggregation](settings)
    documents = aggregate_again(aggregator, reading.documents)
    return replace(reading, label=method.label, documents=documents, weight_means=aggregator.weight_means)


def aggregate_again(aggregator: torch.nn.Module, documents: Iterable[RankedDocument]) -> list[RankedDocument]:
    """The documents with the scores and weights that another aggregator gives their passage scores."""
    changed = []
    for document in documents:
        scores = torch.tensor([[passage.score for passage in document.passages]])
        result = aggregator(scores, torch.ones_like(scores, dtype=torch.bool))
        weights = result.weights[0].tolist()
        passages = [replace(passage, weight=weight) for passage, weight in zip(document.passages, weights, strict=True)]
        score = document.score if document.empty else result.score.item()
        changed.append(replace(document, score=score, passages=passages))
    # Documents with equal scores keep the order of the input, as in `model.rank`.
    return sorted(changed, key=lambda document: (-document.score, document.index))
