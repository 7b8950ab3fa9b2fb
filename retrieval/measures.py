"""Evaluate runs: any measure of ir_measures by its name, plus nERR and Q; means and per-query values.

Means are over all judged queries, as `trec_eval -c` has it: a judged query that the run leaves out scores 0, a query
without judgments takes no part. A grade below 0 counts as no judgment, also as trec_eval has it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import ir_measures
from ir_measures import Measure

from .errors import InputError
from .graded import PROVIDER
from .runs import Qrels, Run, ranking

# In this order: where two can compute a measure, the first does. cwl_eval, ranx and pyndeval serve where installed.
PROVIDERS = ir_measures.providers.FallbackProvider([PROVIDER, *ir_measures.DefaultPipeline.providers])

# Splits at spaces and commas, but not inside brackets: "P(rel=2)@20 nDCG(gains={1: 4, 2: 1})@20" is two measures.
_BETWEEN_MEASURES = re.compile(r"[\s,]+(?![^({]*[)}])")


@dataclass(frozen=True)
class Evaluation:
    """What the measures say of one run, by the measure's name."""

    means: dict[str, float]
    per_query: dict[str, dict[str, float]]
    """measure -> query id -> value, for every judged query"""
    not_retrieved: tuple[str, ...]
    """judged queries of which the run has no document: they score 0"""
    not_judged: tuple[str, ...]
    """queries of the run without judgments: they take no part"""


def parse_measures(names: str | Iterable[str]) -> list[Measure]:
    """Read measures by name, such as `"nDCG@20 AP@100 P@20 R@1000 RR@10 ERR@20 nERR@10 Q@10 nDCG(dcg='exp-log2')@20"`.

    >>> parse_measures("nDCG@20 AP@100")
    [nDCG@20, AP@100]
    """
    texts = _BETWEEN_MEASURES.split(names.strip()) if isinstance(names, str) else list(names)
    measures = [_parse_measure(text) for text in texts if text]
    if not measures:
        raise InputError("no measure is named; name some, such as 'nDCG@20 AP@100'.")
    return list(dict.fromkeys(measures))


def evaluate(qrels: Qrels, run: Run, measures: str | Iterable[str]) -> Evaluation:
    """Measure a run against judgments.

    >>> evaluation = evaluate(read_qrels("qrels.txt"), read_run("bm25.txt"), "nDCG@20 AP@100")
    >>> evaluation.means["nDCG@20"]
    """
    parsed = parse_measures(measures)
    judged = {query: grades for query, grades in qrels.items() if grades}
    if not judged:
        raise InputError("there are no judgments to evaluate against.")
    ranked = _without_ties(run)
    per_query = {str(measure): dict.fromkeys(judged, 0.0) for measure in parsed}
    for together in _computed_together(parsed):
        for metric in PROVIDERS.evaluator(together, _without_negative(judged)).iter_calc(ranked):
            per_query[str(metric.measure)][metric.query_id] = float(metric.value)
    return Evaluation(
        means={str(measure): _aggregate(measure, per_query[str(measure)].values()) for measure in parsed},
        per_query=per_query,
        not_retrieved=tuple(query for query in judged if not run.get(query)),
        not_judged=tuple(query for query in run if query not in judged),
    )


def binary(qrels: Qrels) -> Qrels:
    """Every grade above 0 becomes 1, every other 0.

    >>> binary({"1": {"a": 4, "b": -1}})
    {'1': {'a': 1, 'b': 0}}
    """
    return {query: {document: int(grade > 0) for document, grade in grades.items()} for query, grades in qrels.items()}


def _without_ties(run: Run) -> Run:
    """Scores that say the ranking and nothing else: providers break ties in their own ways, and here none is left."""
    return {
        query: {document: float(-rank) for rank, document in enumerate(ranking(scores))}
        for query, scores in run.items()
        if scores
    }


def _without_negative(qrels: Qrels) -> Qrels:
    """trec_eval takes a grade of -1 for no judgment; its Python port crashes where a query has only lower ones."""
    counted = {
        query: {document: grade for document, grade in grades.items() if grade >= 0} for query, grades in qrels.items()
    }
    return {query: grades for query, grades in counted.items() if grades}


def _aggregate(measure: Measure, values: Iterable[float]) -> float:
    aggregator = measure.aggregator()
    for value in values:
        aggregator.add(value)
    return float(aggregator.result())


def _computed_together(measures: list[Measure]) -> list[list[Measure]]:
    """Each measure with gains of its own goes alone: beside it, ir_measures gives its gains to plain nDCG as well."""
    plain = [measure for measure in measures if "gains" not in measure.params]
    return [group for group in [plain, *([measure] for measure in measures if measure not in plain)] if group]


def _parse_measure(text: str) -> Measure:
    try:
        measure = ir_measures.parse_measure(text)
    except (NameError, ValueError, TypeError, AttributeError):
        raise InputError(f"'{text}' is not a measure; they are written as nDCG@20, AP@100 or P(rel=2)@10.") from None
    try:
        measure.validate_params()
    except AssertionError:
        raise InputError(f"'{text}' has a parameter missing or wrong; P and R, for one, need a cutoff: P@20.") from None
    if measure.params.get("cutoff", 1) < 1:
        raise InputError(f"'{text}': the cutoff must be at least 1.")
    if not PROVIDERS.supports(measure):
        raise InputError(f"'{text}' cannot be computed: no installed package provides it.")
    return measure
