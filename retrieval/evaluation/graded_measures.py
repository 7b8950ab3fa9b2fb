"""Measures for graded judgments that trec_eval does not have: ERR, nERR, Q and exponential nDCG.

Importing this module registers `nERR@10` and `Q@10` with ir_measures; `PROVIDER` computes them. Negative grades and
unjudged documents count as 0.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ir_measures import ERR, Evaluator, Measure, Metric, Provider, measures, nDCG
from ir_measures.measures import ParamInfo
from ir_measures.providers.base import Any as Anything, Choices
from ir_measures.util import QrelsConverter, RunConverter

from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import Qrels, Run, ranking

GDEVAL_HIGHEST_GRADE = 4
"""Published values of ERR were computed with gdeval, which takes grades 0 to 4 and a scale of 4."""

GAIN_PARAMETERS = {
    "cutoff": ParamInfo(dtype=int, required=False, desc="ranking cutoff threshold"),
    "gain": ParamInfo(dtype=str, choices=["linear", "exponential"], default="linear", desc="grade, or 2^grade - 1"),
}


class _NormalizedERR(Measure):
    """ERR divided by the ideal ranking's ERR, as NTCIREVAL defines it: a document of gain g stops the reader with
    probability g / (highest gain + 1). The highest grade is `max_rel`, or the highest in the judgments."""

    __name__ = "nERR"
    NAME = "nERR"
    PRETTY_NAME = "Normalized Expected Reciprocal Rank"
    SHORT_DESC = "Expected Reciprocal Rank divided by that of the ideal ranking."
    SUPPORTED_PARAMS = GAIN_PARAMETERS | {"max_rel": ParamInfo(dtype=int, required=False, desc="highest grade")}


class _QMeasure(Measure):
    """Sakai's Q-measure with beta = 1, as NTCIREVAL defines it: average precision, where precision at a relevant
    document is the blended ratio (relevant + gain so far) / (rank + ideal gain so far). Q@k divides by min(k, R)."""

    __name__ = "Q"
    NAME = "Q"
    PRETTY_NAME = "Q-measure"
    SHORT_DESC = "Average precision with graded relevance blended in."
    SUPPORTED_PARAMS = GAIN_PARAMETERS


nERR = _NormalizedERR()
Q = _QMeasure()
for measure in (nERR, Q):
    measures.register(measure)


def expected_reciprocal_rank(stop_probabilities: Sequence[float]) -> float:
    """The reader goes down the ranking and stops at each document with its probability.

    >>> expected_reciprocal_rank([0.5, 0.5])
    0.625
    """
    expectation, still_reading = 0.0, 1.0
    for rank, stop in enumerate(stop_probabilities, start=1):
        expectation += still_reading * stop / rank
        still_reading *= 1 - stop
    return expectation


def discounted_gain(gains: Sequence[float]) -> float:
    """Sum of gain / log2(rank + 1).

    >>> discounted_gain([3.0, 0.0, 1.0])
    3.5
    """
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


def q_measure(gains: Sequence[float], ideal_gains: Sequence[float], cutoff: int) -> float:
    """Q-measure at a cutoff of a ranking's gains; `ideal_gains` has the gains of all relevant documents, highest first.

    >>> q_measure([0.0, 1.0], [1.0], cutoff=10)  # (1 + 1) / (2 + 1)
    0.6666666666666666
    """
    total = relevant = gained = ideal = 0.0
    for rank, gain in enumerate(gains[:cutoff], start=1):
        gained += gain
        ideal += ideal_gains[rank - 1] if rank <= len(ideal_gains) else 0.0
        if gain > 0:
            relevant += 1
            total += (relevant + gained) / (rank + ideal)
    return total / min(len(ideal_gains), cutoff)


def _exponential(grade: int) -> float:
    return 2.0**grade - 1 if grade > 0 else 0.0


def _linear(grade: int) -> float:
    return float(max(grade, 0))


def _gain_function(measure: Measure) -> Callable[[int], float]:
    return _exponential if measure["gain"] == "exponential" else _linear


class _GradedProvider(Provider):
    """The interface that ir_measures expects of a provider."""

    NAME = "docparade"
    SUPPORTED_MEASURES = [  # noqa: RUF012 (ir_measures declares it so)
        type(nDCG)(
            cutoff=Anything(), dcg=Choices("exp-log2"), gains=Choices(nDCG["gains"]), judged_only=Choices(False)
        ),
        type(ERR)(cutoff=Anything()),
        _NormalizedERR(cutoff=Anything(), gain=Anything(), max_rel=Anything()),
        _QMeasure(cutoff=Anything(), gain=Anything()),
    ]

    def _evaluator(self, measures: Iterable[Measure], qrels: Any) -> Evaluator:
        return _GradedEvaluator(list(measures), QrelsConverter(qrels).as_dict_of_dict())


class _GradedEvaluator(Evaluator):
    def __init__(self, measures: Sequence[Measure], qrels: Qrels) -> None:
        super().__init__(measures, set(qrels))
        self.qrels = qrels
        self.highest_grade = max((grade for grades in qrels.values() for grade in grades.values()), default=0)

    def _iter_calc(self, run: Any) -> Iterator[Metric]:
        scores: Run = RunConverter(run).as_dict_of_dict()
        for query, grades in self.qrels.items():
            if any(grade > 0 for grade in grades.values()):
                ranked = [grades.get(document, 0) for document in ranking(scores.get(query, {}))]
                ideal = sorted((grade for grade in grades.values() if grade > 0), reverse=True)
                for measure in self.measures:
                    yield Metric(query, measure, self._value(measure, ranked, ideal))

    def _value(self, measure: Measure, ranked: list[int], ideal: list[int]) -> float:
        cutoff = measure.params.get("cutoff", max(len(ranked), len(ideal)))
        if measure.NAME == "Q":
            gain = _gain_function(measure)
            return q_measure([gain(grade) for grade in ranked], [gain(grade) for grade in ideal], cutoff)
        if measure.NAME == "nDCG":
            return _dcg(ranked[:cutoff]) / _dcg(ideal[:cutoff])
        if measure.NAME == "ERR":
            _check_scale(self.highest_grade, GDEVAL_HIGHEST_GRADE, "ERR takes, as gdeval does,")
            return _err(ranked[:cutoff], _exponential, GDEVAL_HIGHEST_GRADE)
        highest = measure.params.get("max_rel", self.highest_grade)
        _check_scale(self.highest_grade, highest, f"{measure} takes")
        gain = _gain_function(measure)
        return _err(ranked[:cutoff], gain, highest) / _err(ideal[:cutoff], gain, highest)


def _dcg(grades: list[int]) -> float:
    return discounted_gain([_exponential(grade) for grade in grades])


def _err(grades: list[int], gain: Callable[[int], float], highest_grade: int) -> float:
    return expected_reciprocal_rank([gain(grade) / (gain(highest_grade) + 1) for grade in grades])


def _check_scale(found: int, highest: int, subject: str) -> None:
    if found > highest:
        raise InputError(
            f"{subject} grades up to {highest}, and the judgments have a grade of {found}; map them first."
        )


PROVIDER = _GradedProvider()
