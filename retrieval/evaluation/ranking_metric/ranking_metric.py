"""Ranking measures as a metric for Hugging Face `evaluate`: evaluate.load(docparade.retrieval.RANKING_METRIC)."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar

import datasets
import evaluate

from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.measures import evaluate as evaluate_run
from docparade.retrieval.runs import add_judgment, add_score

Entry: TypeAlias = dict[str, Any]
Number = TypeVar("Number", int, float)

DESCRIPTION = """\
Measures rankings against graded judgments: nDCG, AP, P, R, RR, ERR, nERR, Q and all other measures of ir_measures, by
name. Ties are broken as in trec_eval."""

INPUTS_DESCRIPTION = """\
Args:
    predictions: for each query, {"query": id, "documents": [ids], "scores": [scores]}
    references: for each query, {"query": id, "documents": [ids], "grades": [whole numbers]}, in any order;
        if a document has several grades, the highest counts
    measures: names of measures, such as "nDCG@20 AP@100"
Returns:
    the mean of each measure over all queries with references
Example:
    >>> metric = evaluate.load(docparade.retrieval.RANKING_METRIC)
    >>> metric.compute(
    ...     predictions=[{"query": "1", "documents": ["a", "b"], "scores": [2.0, 1.0]}],
    ...     references=[{"query": "1", "documents": ["b"], "grades": [1]}],
    ...     measures="RR@10",
    ... )
    {'RR@10': 0.5}
"""


class RankingMetric(evaluate.Metric):
    """Takes one entry for each query; `compute` takes the names of the measures."""

    def _info(self) -> evaluate.MetricInfo:
        text, texts = datasets.Value("string"), datasets.Sequence(datasets.Value("string"))
        scores, grades = datasets.Sequence(datasets.Value("float64")), datasets.Sequence(datasets.Value("int64"))
        return evaluate.MetricInfo(
            description=DESCRIPTION,
            citation="",
            inputs_description=INPUTS_DESCRIPTION,
            features=datasets.Features(
                {
                    "predictions": {"query": text, "documents": texts, "scores": scores},
                    "references": {"query": text, "documents": texts, "grades": grades},
                }
            ),
        )

    def _compute(
        self, predictions: list[dict[str, Any]], references: list[dict[str, Any]], measures: str
    ) -> dict[str, float]:
        run = _by_query(predictions, "scores", add_score)
        return evaluate_run(_by_query(references, "grades", add_judgment), run, measures).means


def _by_query(
    entries: list[Entry],
    field: Literal["scores", "grades"],
    add: Callable[[dict[str, dict[str, Number]], str, str, Number], None],
) -> dict[str, dict[str, Number]]:
    """query id -> document id -> score or grade"""
    table: dict[str, dict[str, Number]] = {}
    for entry in entries:
        query, documents, values = entry["query"], entry["documents"], entry[field]
        if query in table:
            raise InputError(f"query {query} has two entries with {field}; merge them.")
        if len(documents) != len(values):
            raise InputError(
                f"query {query} has {len(documents)} documents and {len(values)} {field}; give one for each document."
            )
        table[query] = {}
        for document, value in zip(documents, values, strict=True):
            add(table, query, document, value)
    return table
