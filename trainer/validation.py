"""Validation during training: rerank validation queries and compute the measure, as a metric of `evaluate`."""

from __future__ import annotations

from collections.abc import Sequence

from docparade.modeling import DocumentRanker
from docparade.reranking.query_set import QuerySet
from docparade.reranking.rerank_run import rerank
from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.metric import compute_metric


def check_validation_set(queries: QuerySet) -> None:
    """Refuse a query set on which nothing can be measured."""
    if not queries.to_rerank():
        raise InputError(f"validation set {queries.name} has no query with both judgments and documents to rerank.")


def validate(
    model: DocumentRanker, validation: Sequence[QuerySet], measure: str, depth: int, prefix: str = "eval"
) -> dict[str, float]:
    """Rerank and measure. Returns the mean over the validation sets, and each set's value if there are several.

    In a process group, all processes must call this; all get the values.

    Example:
        ```python
        validate(model, [dev], "nDCG@20", depth=100)  # {'eval_nDCG@20': 0.41}
        ```
    """
    values = {queries.name: _measure(model, queries, measure, depth) for queries in validation}
    metrics = {f"{prefix}_{measure}": sum(values.values()) / len(values)}
    if len(values) > 1:
        metrics |= {f"{prefix}_{name}_{measure}": value for name, value in values.items()}
    return metrics


def _measure(model: DocumentRanker, queries: QuerySet, measure: str, depth: int) -> float:
    try:
        reranked = rerank(
            model,
            queries.to_rerank(),
            queries.queries,
            queries.documents,
            depth,
            encode_documents=queries.encode_documents,
            vectors=queries.vectors,
        )
    except FloatingPointError as error:
        raise InputError(
            f"validation set {queries.name}: {error} Training has diverged: lower learning_rate."
        ) from error
    return compute_metric(queries.judged(), reranked, measure)[measure]
