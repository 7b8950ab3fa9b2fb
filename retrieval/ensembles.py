"""Ensembles: linear fusion of any number of runs, with weights that each fold chooses on its own queries.

Weights are shares of the normalized scores: multiples of a step that add up to 1. Every combination is measured once
for every query; each fold takes the one with the best mean over its training or dev queries, and applies it to its test
queries.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from .errors import InputError, check_choice
from .folds import DECIDING, Deciding, Folds, deciding_queries
from .fusion import Normalization, interpolate, normalize
from .runs import Qrels, Run, merge

Weights: TypeAlias = tuple[float, ...]
"""a share for each run; together 1"""
MOST_COMBINATIONS = 5000


def tune_weights(
    runs: Sequence[Run],
    qrels: Qrels,
    queries: Collection[str],
    measure: str = "nDCG@20",
    normalization: Normalization = "minmax",
    step: float = 0.1,
) -> Weights:
    """The weights of `interpolate` with the best mean on the given queries; among equal ones, the first run's smallest.

    >>> bm25, ranker = {"1": {"a": 3.0, "b": 1.0}}, {"1": {"a": 0.0, "b": 4.0}}
    >>> tune_weights([bm25, ranker], {"1": {"a": 1}}, ["1"], measure="RR", step=0.25)
    (0.75, 0.25)
    """
    return _Tuner(runs, qrels, queries, measure, normalization, step).best(queries)


def cross_validate_weights(
    runs: Sequence[Run],
    qrels: Qrels,
    folds: Folds,
    measure: str = "nDCG@20",
    normalization: Normalization = "minmax",
    deciding: Deciding = "train+dev",
    step: float = 0.1,
) -> tuple[Run, dict[str, Weights]]:
    """Choose weights on each fold's own queries and fuse its test queries: the merged run, and each fold's weights.

    ```python
    run, weights = cross_validate_weights([bm25, parade_max, parade_transformer], qrels, read_folds("folds.json"))
    ```
    """
    check_choice(deciding, DECIDING, "deciding")
    chosen = {name: deciding_queries(fold, deciding) for name, fold in folds.items()}
    tuner = _Tuner(runs, qrels, {query for ids in chosen.values() for query in ids}, measure, normalization, step)
    weights = {}
    for name, queries in chosen.items():
        try:
            weights[name] = tuner.best(queries)
        except InputError as error:
            raise InputError(f"fold {name}, {deciding} queries: {error}") from None
    tests = [
        interpolate([_only(run, fold.test) for run in tuner.normalized], weights[name], "none")
        for name, fold in folds.items()
    ]
    return merge(tests), weights


def weight_grid(runs: int, step: float = 0.1) -> list[Weights]:
    """Every combination of shares for a number of runs; the first run's share grows.

    >>> weight_grid(2, step=0.5)
    [(0.0, 1.0), (0.5, 0.5), (1.0, 0.0)]
    """
    steps = round(1 / step) if 0 < step <= 1 else 0
    if not steps or abs(steps * step - 1) > 1e-9:
        raise InputError(f"step is {step}, and must divide 1, such as 0.1 or 0.05.")
    count = math.comb(steps + runs - 1, runs - 1)
    if count > MOST_COMBINATIONS:
        raise InputError(
            f"step {step} gives {count} combinations of weights for {runs} runs, and at most {MOST_COMBINATIONS} are "
            "tried; take a larger step, or fewer runs."
        )
    return [tuple(part / steps for part in parts) for parts in _compositions(steps, runs)]


def _compositions(total: int, count: int) -> Iterable[tuple[int, ...]]:
    """Every way to write a total as a sum of whole numbers from 0."""
    if count == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _compositions(total - first, count - 1):
            yield (first, *rest)


class _Tuner:
    """Measures every query at every point of the grid once; each fold only averages."""

    def __init__(
        self,
        runs: Sequence[Run],
        qrels: Qrels,
        queries: Collection[str],
        measure: str,
        normalization: Normalization,
        step: float,
    ) -> None:
        from .evaluation.measures import evaluate, one_measure

        name = one_measure(measure)
        self.grid = weight_grid(len(runs), step)
        self.normalized = [normalize(run, normalization) for run in runs]
        self.judged = {query: qrels[query] for query in queries if qrels.get(query)}
        needed = [_only(run, self.judged) for run in self.normalized]
        self.values = [
            evaluate(self.judged, interpolate(needed, weights, "none"), name).per_query[name]
            for weights in (self.grid if self.judged else [])
        ]

    def best(self, queries: Iterable[str]) -> Weights:
        known = [query for query in queries if query in self.judged]
        if not known:
            raise InputError("none of them has judgments; weights are chosen by them.")
        # An exact sum: the order of queries must not choose the weights. `max` keeps the first of equal ones.
        means = [math.fsum(values[query] for query in known) for values in self.values]
        return self.grid[means.index(max(means))]


def _only(run: Run, queries: Iterable[str]) -> Run:
    return {query: run[query] for query in queries if query in run}
