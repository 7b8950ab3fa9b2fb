"""The Birch grid against brute force with the public measures."""

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from docparade.retrieval.birch import (
    GRID,
    BirchWeights,
    PassageScores,
    _best_first,
    birch_run,
    cross_validate_birch,
    read_passage_scores,
    tune_birch,
    write_passage_scores,
)
from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.measures import evaluate
from docparade.retrieval.folds import Fold, k_folds
from docparade.retrieval.runs import Qrels, Run, ranking

Data = tuple[Run, PassageScores, Qrels]


@pytest.fixture(scope="module")
def data() -> Data:
    """Eight queries whose relevant documents have two good passages, and scores with ties."""
    chance = random.Random(7)
    run: Run = {}
    passages: PassageScores = {}
    qrels: Qrels = {}
    for query in map(str, range(8)):
        documents = [f"d{number}" for number in range(20)]
        run[query] = {document: float(chance.randint(0, 5)) for document in documents}
        qrels[query] = {document: int(chance.random() < 0.25) for document in documents} | {"not retrieved": 1}
        passages[query] = {
            document: [chance.random() + 0.3 * qrels[query][document] for _ in range(chance.randint(1, 6))]
            for document in documents
        }
    return run, passages, qrels


def mean_ap(data: Data, weights: BirchWeights, queries: list[str]) -> float:
    run, passages, qrels = data
    fused = birch_run({query: run[query] for query in queries}, passages, weights)
    return evaluate({query: qrels[query] for query in queries}, fused, "AP").means["AP"]


def test_the_score_is_the_formula() -> None:
    run, passages = {"1": {"a": 10.0, "b": 5.0}}, {"1": {"a": [1.0, 3.0, 2.0], "b": [4.0]}}
    fused = birch_run(run, passages, BirchWeights(0.4, (1.0, 0.5, 0.1)))
    assert fused["1"]["a"] == pytest.approx(0.4 * 10 + 0.6 * (3 + 0.5 * 2 + 0.1 * 1))
    assert fused["1"]["b"] == pytest.approx(0.4 * 5 + 0.6 * (4 + 0.5 * 4 + 0.1 * 4))


def test_a_short_document_does_not_win_on_negative_scores() -> None:
    run = {"1": {"long": 1.0, "short": 1.0, "two": 1.0}}
    passages = {"1": {"long": [-1.0, -1.5, -2.0], "short": [-3.0], "two": [-1.2, -2.5]}}
    fused = birch_run(run, passages, BirchWeights(0.2, (1.0, 1.0, 1.0)))["1"]
    assert ranking(fused) == ["long", "two", "short"]
    assert fused["two"] == pytest.approx(0.2 + 0.8 * (-1.2 - 2.5 - 2.5))


def test_a_constant_added_to_all_passages_changes_no_ranking(data: Data) -> None:
    run, passages, _ = data
    shifted = {
        query: {document: [score - 100 for score in scores] for document, scores in documents.items()}
        for query, documents in passages.items()
    }
    weights = BirchWeights(0.3, (1.0, 0.6, 0.2))
    before, after = birch_run(run, passages, weights), birch_run(run, shifted, weights)
    for query, scores in before.items():
        moved = {document: score - 0.7 * 1.8 * 100 for document, score in scores.items()}
        assert after[query] == pytest.approx(moved)


@pytest.mark.parametrize("count", [1, 2])
def test_the_grid_finds_what_brute_force_finds(data: Data, count: int) -> None:
    queries = list(data[0])[:5]
    points = [BirchWeights(a, (1.0, *rest)) for a, *rest in itertools.product(GRID, repeat=count)]
    best = max(points, key=lambda weights: round(mean_ap(data, weights, queries), 12))  # max keeps the first of equals
    assert tune_birch(*data, queries=queries, count=count) == best


@given(arrays(np.float32, (2, 7), elements=st.floats(-3, 3, width=32) | st.sampled_from([0.0, -0.0, 1.0, -1.0])))
def test_sorting_as_whole_numbers_is_the_stable_sort(scores: np.ndarray) -> None:
    assert (_best_first(scores.astype(np.float64)) == np.argsort(-scores, axis=1, kind="stable")).all()


def test_three_passages_are_at_least_as_good_as_two(data: Data) -> None:
    queries = list(data[0])
    two, three = (tune_birch(*data, queries=queries, count=count) for count in (2, 3))
    assert mean_ap(data, three, queries) >= mean_ap(data, two, queries)
    sample = random.Random(3).sample(list(itertools.product(GRID, repeat=3)), 60)
    best_of_sample = max(mean_ap(data, BirchWeights(a, (1.0, w2, w3)), queries) for a, w2, w3 in sample)
    assert mean_ap(data, three, queries) >= best_of_sample


def test_the_fourth_passage_is_searched_around_the_best_three(data: Data) -> None:
    queries = list(data[0])[:3]
    three = tune_birch(*data, queries=queries, count=3)
    four = tune_birch(*data, queries=queries, count=4)

    def near(value: float) -> list[float]:
        return [point for point in GRID if abs(point - value) < 0.11]

    axes = near(three.document), near(three.passages[1]), near(three.passages[2]), GRID
    points = [BirchWeights(a, (1.0, w2, w3, w4)) for a, w2, w3, w4 in itertools.product(*axes)]
    assert len(points) <= 27 * 11
    assert four == max(points, key=lambda weights: round(mean_ap(data, weights, queries), 12))


def test_a_fold_is_tuned_without_its_test_queries(data: Data) -> None:
    run, passages, qrels = data
    folds = k_folds(run, k=4)
    fused, weights = cross_validate_birch(run, passages, qrels, folds, count=2)
    assert fused.keys() == run.keys()
    for name, fold in folds.items():
        assert weights[name] == tune_birch(run, passages, qrels, [*fold.train, *fold.dev], count=2)
        expected = birch_run({query: run[query] for query in fold.test}, passages, weights[name])
        assert {query: fused[query] for query in fold.test} == expected
        without = {query: grades for query, grades in qrels.items() if query not in fold.test}
        assert cross_validate_birch(run, passages, without, {name: fold}, count=2)[1] == {name: weights[name]}


def test_passage_scores_are_read_as_they_were_written(tmp_path: Path, data: Data) -> None:
    write_passage_scores(data[1], tmp_path / "passages.jsonl.gz")
    assert read_passage_scores(tmp_path / "passages.jsonl.gz") == data[1]


GOOD_LINE = '{"query": "1", "document": "a", "scores": [1]}\n'
BAD_LINES = {
    "not JSON": ('{"query": "1", ', "line 2: not of the form"),
    "a field missing": ('{"query": "1", "scores": [1]}', "line 2: not of the form"),
    "no object": ("[1]", "line 2: not of the form"),
    "words": ('{"query": "1", "document": "b", "scores": ["x"]}', "line 2: not of the form"),
    "NaN": ('{"query": "1", "document": "b", "scores": [NaN]}', "line 2: scores must be finite"),
    "no scores": (
        '{"query": "1", "document": "b", "scores": []}',
        "line 2: scores must be finite numbers, at least one",
    ),
    "twice": (GOOD_LINE, "line 2: document a occurs a second time for query 1"),
    "ids that are no strings": ('{"query": 1, "document": "b", "scores": [1]}', "line 2: not of the form"),
}


@pytest.mark.parametrize(("line", "message"), BAD_LINES.values(), ids=BAD_LINES.keys())
def test_a_malformed_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "f").write_text(GOOD_LINE + line, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_passage_scores(tmp_path / "f")


def test_wrong_arguments_are_named(data: Data) -> None:
    with pytest.raises(InputError, match=r"count .*1 to 4, .*5"):
        tune_birch(*data, queries=["1"], count=5)
    with pytest.raises(InputError, match="no query to tune on"):
        cross_validate_birch(*data, {"s1": Fold(("unknown",), (), ("1",))}, count=1)
    with pytest.raises(InputError, match="document x of query 1"):
        birch_run({"1": {"x": 1.0}}, data[1], BirchWeights(0.5, (1.0,)))
    with pytest.raises(InputError, match="document x of query 1"):
        birch_run({"1": {"x": 1.0}}, {"1": {"x": []}}, BirchWeights(0.5, (1.0,)))
