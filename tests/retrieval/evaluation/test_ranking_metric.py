"""The metric of Hugging Face `evaluate` loads from the package's folder and says what our measures say."""

from pathlib import Path

import pytest

from docparade.retrieval import RANKING_METRIC, InputError, evaluate
from docparade.retrieval.evaluation.metric import compute_metric

QRELS = {"1": {"a": 1, "b": 3, "c": 0}, "2": {"x": 2}, "3": {"y": 1}}
RUN = {"1": {"c": 2.0, "b": 2.0, "a": 1.0}, "2": {"z": 1.0, "x": 0.5}, "3": {}}
MEASURES = "nDCG@20 AP@100 nERR@10 Q@10"


@pytest.fixture
def metric(tmp_path: Path):  # type: ignore[no-untyped-def]
    import evaluate as hugging_face_evaluate

    return hugging_face_evaluate.load(RANKING_METRIC, cache_dir=str(tmp_path))


def entries(table: dict, field: str) -> list[dict]:
    return [
        {"query": query, "documents": list(values), field: list(values.values())} for query, values in table.items()
    ]


def test_it_says_what_evaluate_says(metric) -> None:  # type: ignore[no-untyped-def]
    means = metric.compute(
        predictions=entries(RUN, "scores"), references=entries(QRELS, "grades")[::-1], measures=MEASURES
    )
    assert means == pytest.approx(evaluate(QRELS, RUN, MEASURES).means)
    assert means["nDCG@20"] > 0.3


def test_training_validates_with_it() -> None:
    # A run of more and of fewer queries than have judgments.
    run = {query: RUN[query] for query in "21"} | {"4": {"a": 1.0}}
    assert compute_metric(QRELS, run, MEASURES) == evaluate(QRELS, run, MEASURES).means


def test_it_can_be_filled_in_batches(metric) -> None:  # type: ignore[no-untyped-def]
    for prediction, reference in zip(entries(RUN, "scores"), entries(QRELS, "grades"), strict=True):
        metric.add_batch(predictions=[prediction], references=[reference])
    assert metric.compute(measures=MEASURES) == pytest.approx(evaluate(QRELS, RUN, MEASURES).means)


def test_a_document_twice(metric) -> None:  # type: ignore[no-untyped-def]
    prediction = {"query": "1", "documents": ["a", "b"], "scores": [1.0, 2.0]}
    graded = [{"query": "1", "documents": ["a", "b", "b"], "grades": [1, 2, 0]}]
    expected = evaluate({"1": {"a": 1, "b": 2}}, {"1": {"a": 1.0, "b": 2.0}}, "nDCG@20").means
    assert metric.compute(predictions=[prediction], references=graded, measures="nDCG@20") == pytest.approx(expected)
    twice = [prediction | {"documents": ["a", "a"]}]
    with pytest.raises(InputError, match=r"document a .*query 1"):
        metric.compute(predictions=twice, references=graded, measures="AP")


def test_a_query_twice_or_a_score_missing_is_named(metric) -> None:  # type: ignore[no-untyped-def]
    reference = {"query": "1", "documents": ["a"], "grades": [1]}
    twice = [{"query": "1", "documents": ["a"], "scores": [1.0]}] * 2
    with pytest.raises(InputError, match="query 1 has two entries"):
        metric.compute(predictions=twice, references=[reference, reference | {"query": "2"}], measures="AP")
    short = [{"query": "1", "documents": ["a", "b"], "scores": [1.0]}]
    with pytest.raises(InputError, match="query 1 has 2 documents and 1 scores"):
        metric.compute(predictions=short, references=[reference], measures="AP")
