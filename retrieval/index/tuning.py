"""Choose the parameters of the first stage: every combination of a grid is measured on training queries."""

import math
from collections.abc import Collection as Ids, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeAlias

from docparade.retrieval.collections.collection import Collection
from docparade.retrieval.errors import InputError
from docparade.retrieval.progress import show_progress
from docparade.retrieval.runs import Qrels

from .first_stage import PARAMETERS, Engine, FirstStage, check_parameters, retrieve

Grid: TypeAlias = Mapping[str, Sequence[float]]
"""parameter -> the values to try"""


@dataclass(frozen=True)
class Tuning:
    """The result of a grid search."""

    best: FirstStage
    measure: str
    trials: tuple[tuple[FirstStage, float], ...]
    """every combination, in the order of the grid, with its mean over the training queries"""


def tune(
    collection: Collection,
    grid: Grid,
    start: FirstStage | None = None,
    training_queries: Ids[str] | None = None,
    qrels: Qrels | None = None,
    measure: str = "nDCG@20",
    hits: int = 1000,
    field: str | None = None,
    engine: Engine = "embedded",
    progress: bool = True,
) -> Tuning:
    """Try every combination of the parameters in `grid`; all other parameters are as in `start`.

    Only `training_queries` are used (by default, all with judgments). The default `qrels` are the collection's. Among
    equally good combinations, the first one in the grid wins.

    ```python
    tune(collection, {"k1": [0.9, 1.2, 1.5], "b": [0.4, 0.75]}, training_queries=fold.train).best
    ```
    """
    from docparade.retrieval.evaluation.measures import evaluate, one_measure

    name = one_measure(measure)
    stages = combine(grid, start or FirstStage())
    qrels = collection.qrels() if qrels is None else qrels
    chosen = _training_queries(collection.queries(field), qrels, training_queries)
    judged = {query_id: qrels[query_id] for query_id in chosen}
    trials = []
    for stage in show_progress(stages, desc="tuning", unit=" settings", hide=None if progress else True):
        run = retrieve(collection, stage, chosen, hits, engine, progress=False)
        trials.append((stage, evaluate(judged, run, name).per_query[name]))
    return choose(trials, name)


def choose(
    trials: Iterable[tuple[FirstStage, Mapping[str, float]]], measure: str, queries: Ids[str] | None = None
) -> Tuning:
    """Choose among combinations that were measured already; among equally good ones, the first.

    Args:
        trials: Each combination with the measure's value for every query.
        measure: The measure's name.
        queries: The queries that decide; by default, all.

    >>> trials = [(FirstStage(k1=0.9), {"1": 0.2, "2": 0.9}), (FirstStage(k1=1.5), {"1": 0.3, "2": 0.1})]
    >>> choose(trials, "AP").best.k1, choose(trials, "AP", queries=["1"]).best.k1
    (0.9, 1.5)
    """
    means = tuple(
        (stage, _mean([values[query] for query in (values if queries is None else queries)]))
        for stage, values in trials
    )
    best, _ = max(means, key=lambda trial: trial[1])
    return Tuning(best, measure, means)


def combine(grid: Grid, start: FirstStage) -> list[FirstStage]:
    """Every combination of the grid's values, in its order; all other parameters are as in `start`.

    >>> [stage.k1 for stage in combine({"k1": [0.9, 1.5]}, FirstStage())]
    [0.9, 1.5]
    """
    if not grid or not all(grid.values()):
        raise InputError("the grid is empty; it names parameters with values, such as 'k1=0.9,1.2 b=0.4,0.75'.")
    for name in grid:
        if name not in PARAMETERS:
            raise InputError(f"{name} in the grid is not a parameter; the parameters are {', '.join(PARAMETERS)}.")
    check_parameters(start.method, {name: f"{name} in the grid" for name in grid})
    return [
        replace(start, **{name: _as_in(start, name, value) for name, value in zip(grid, values, strict=True)})
        for values in product(*grid.values())
    ]


def parse_grid(text: str) -> dict[str, list[float]]:
    """A grid written as `k1=0.9,1.2,1.5 b=0.4,0.75`.

    >>> parse_grid("k1=0.9,1.5 b=0.4")
    {'k1': [0.9, 1.5], 'b': [0.4]}
    """
    grid: dict[str, list[float]] = {}
    for part in text.split():
        name, _, values = part.partition("=")
        if name in grid:
            raise InputError(f"the grid '{text}' has {name} twice.")
        try:
            grid[name] = [float(value) for value in values.split(",")]
        except ValueError:
            raise InputError(
                f"the grid '{text}' must look like 'k1=0.9,1.2 b=0.4,0.75', and {part} does not."
            ) from None
    return grid


def _as_in(start: FirstStage, name: str, value: float) -> Any:
    """A value in the parameter's type: numbers of documents and terms are whole."""
    if not isinstance(getattr(start, name), int):
        return float(value)
    if not float(value).is_integer():
        raise InputError(f"{name} must be a whole number, and is {value} in the grid.")
    return int(value)


def _mean(values: Sequence[float]) -> float:
    # An exact sum: the order of queries must not choose the parameters.
    return math.fsum(values) / len(values)


def _training_queries(queries: Mapping[str, str], qrels: Qrels, wanted: Ids[str] | None) -> dict[str, str]:
    for query_id in wanted or ():
        if query_id not in queries:
            raise InputError(f"the training query {query_id} is not a query of the collection.")
    chosen = {
        query_id: text
        for query_id, text in queries.items()
        if query_id in qrels and (wanted is None or query_id in wanted)
    }
    if not chosen:
        raise InputError("none of the training queries has judgments; tuning needs some.")
    return chosen
