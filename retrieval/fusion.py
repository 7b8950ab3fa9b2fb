"""Combine runs by weighted sums of normalized scores, or by reciprocal ranks."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, get_args

from .errors import InputError, check_choice
from .runs import Run, ranking

Normalization: TypeAlias = Literal["none", "minmax", "zscore"]
NORMALIZATIONS: tuple[Normalization, ...] = get_args(Normalization)
CenterAndScale: TypeAlias = Callable[[list[float]], tuple[float, float]]


def interpolate(runs: Sequence[Run], weights: Sequence[float], normalization: Normalization = "minmax") -> Run:
    """The weighted sum of several runs' scores, each normalized query by query first.

    A document that a run does not have gets the run's lowest score for the query. A run that does not have the query
    adds nothing.

    >>> bm25, reranked = {"1": {"a": 3.0, "b": 1.0}}, {"1": {"a": 0.0, "b": 4.0}}
    >>> interpolate([bm25, reranked], weights=[0.25, 0.75])
    {'1': {'a': 0.25, 'b': 0.75}}
    """
    if len(runs) != len(weights):
        raise InputError(f"there must be a weight for each run (runs: {len(runs)}, weights: {len(weights)}).")
    if not any(weights) or not all(map(math.isfinite, weights)):
        raise InputError(f"weights are {', '.join(map(str, weights))}; they must be finite numbers, and not all 0.")
    normalized = [normalize(run, normalization) for run in runs]
    fused: Run = {}
    for query in _all_queries(runs):
        parts = [(run[query], weight) for run, weight in zip(normalized, weights, strict=True) if run.get(query)]
        lowest = [min(scores.values()) for scores, _ in parts]
        fused[query] = {
            document: sum(
                weight * scores.get(document, low) for (scores, weight), low in zip(parts, lowest, strict=True)
            )
            for document in _all_documents(scores for scores, _ in parts)
        }
    return fused


def reciprocal_rank_fusion(runs: Sequence[Run], k: int = 60) -> Run:
    """The sum of 1 / (k + rank) over the runs that have the document.

    >>> reciprocal_rank_fusion([{"1": {"a": 3.0, "b": 1.0}}, {"1": {"b": 9.0}}], k=1)
    {'1': {'a': 0.5, 'b': 0.8333333333333333}}
    """
    if k < 0:
        raise InputError(f"k must not be negative, and is {k}.")
    fused: Run = {query: {} for query in _all_queries(runs)}
    for run in runs:
        for query, scores in run.items():
            for rank, document in enumerate(ranking(scores), start=1):
                fused[query][document] = fused[query].get(document, 0.0) + 1 / (k + rank)
    return fused


def normalize(run: Run, normalization: Normalization) -> Run:
    """Bring scores to one scale, query by query.

    `minmax`: the lowest score becomes 0, the highest 1. `zscore`: mean 0, standard deviation 1. `none`: unchanged. If
    all scores of a query are equal, `minmax` and `zscore` make them 0.

    >>> normalize({"1": {"a": 10.0, "b": 20.0, "c": 15.0}}, "minmax")
    {'1': {'a': 0.0, 'b': 1.0, 'c': 0.5}}
    """
    if check_choice(normalization, NORMALIZATIONS, "normalization") == "none":
        return run
    center_and_scale = _minmax if normalization == "minmax" else _zscore
    return {query: _rescale(scores, center_and_scale) for query, scores in run.items()}


def _rescale(scores: Mapping[str, float], center_and_scale: CenterAndScale) -> dict[str, float]:
    values = list(scores.values())
    if min(values, default=0.0) == max(values, default=0.0):
        return dict.fromkeys(scores, 0.0)
    center, scale = center_and_scale(values)
    return {document: (score - center) / scale for document, score in scores.items()}


def _minmax(values: list[float]) -> tuple[float, float]:
    return min(values), max(values) - min(values)


def _zscore(values: list[float]) -> tuple[float, float]:
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def _all_queries(runs: Iterable[Run]) -> list[str]:
    return list(dict.fromkeys(query for run in runs for query in run))


def _all_documents(lists: Iterable[Mapping[str, float]]) -> list[str]:
    return list(dict.fromkeys(document for scores in lists for document in scores))
