"""Weights of ensembles against a grid search in plain Python."""

import itertools
import math
import random

import pytest

from docparade.retrieval.ensembles import cross_validate_weights, tune_weights, weight_grid
from docparade.retrieval.errors import InputError
from docparade.retrieval.folds import Fold, Folds, k_folds
from docparade.retrieval.runs import Qrels, Run

Data = tuple[list[Run], Qrels]
TENTHS = [step / 10 for step in range(11)]


@pytest.fixture(scope="module")
def data() -> Data:
    """Three runs of ten queries, each with its own noise, scale and documents."""
    chance = random.Random(11)
    qrels: Qrels = {str(q): {f"d{d}": int(chance.random() < 0.3) for d in range(12)} | {"x": 1} for q in range(10)}
    runs: list[Run] = []
    for scale, noise, share in ((10.0, 0.8, 0.9), (0.1, 0.6, 0.7), (-3.0, 0.9, 0.8)):
        runs.append(
            {
                query: {
                    document: round(abs(scale) * (grade + chance.gauss(0, noise)) + min(scale, 0), 3)
                    for document, grade in grades.items()
                    if document != "x" and chance.random() < share
                }
                for query, grades in qrels.items()
            }
        )
    return runs, qrels


def fuse_by_hand(runs: list[Run], weights: tuple[float, ...], query: str) -> list[str]:
    """The order of a query's documents by the weighted sum of min-max scores; the later id first among equals."""
    lists = []
    for run in runs:
        low, high = min(run[query].values()), max(run[query].values())
        lists.append({document: (score - low) / (high - low) for document, score in run[query].items()})
    documents = {document for scores in lists for document in scores}
    total = {d: sum(w * scores.get(d, 0.0) for w, scores in zip(weights, lists, strict=True)) for d in documents}
    # Runs are ranked by 32-bit scores; far from a tie, six digits are the same order.
    return sorted(documents, key=lambda d: (round(total[d], 6), d), reverse=True)


def average_precision(order: list[str], grades: dict[str, int]) -> float:
    hits, total = 0, 0.0
    for rank, document in enumerate(order, start=1):
        if grades.get(document, 0) > 0:
            hits += 1
            total += hits / rank
    return total / sum(grade > 0 for grade in grades.values())


def search_by_hand(data: Data, queries: list[str]) -> tuple[float, ...]:
    runs, qrels = data
    points = [p for p in itertools.product(TENTHS, repeat=len(runs)) if math.isclose(sum(p), 1.0)]

    def value(weights: tuple[float, ...]) -> float:
        return round(sum(average_precision(fuse_by_hand(runs, weights, q), qrels[q]) for q in queries), 10)

    return max(sorted(points), key=value)  # max keeps the first of equals


@pytest.mark.parametrize("count", [2, 3])
def test_weights_are_those_of_a_plain_grid_search(data: Data, count: int) -> None:
    runs, qrels = data[0][:count], data[1]
    for queries in (list(qrels)[:6], list(qrels)[4:]):
        found = tune_weights(runs, qrels, queries, measure="AP")
        assert found == pytest.approx(search_by_hand((runs, qrels), queries))


@pytest.mark.parametrize("deciding", ["train", "dev", "train+dev"])
def test_each_fold_is_fused_with_what_its_own_queries_chose(data: Data, deciding: str) -> None:
    runs, qrels = data
    folds: Folds = k_folds(qrels, k=5)
    fused, weights = cross_validate_weights(runs, qrels, folds, "AP", deciding=deciding)  # type: ignore[arg-type]
    assert fused.keys() == qrels.keys()
    for name, fold in folds.items():
        ids = {"train": fold.train, "dev": fold.dev, "train+dev": (*fold.train, *fold.dev)}[deciding]
        assert weights[name] == pytest.approx(search_by_hand(data, list(ids)))
        for query in fold.test:
            order = sorted(fused[query], key=lambda d: (round(fused[query][d], 6), d), reverse=True)
            assert order == fuse_by_hand(runs, weights[name], query)
        # The judgments of the test queries decide nothing.
        without = {query: grades for query, grades in qrels.items() if query not in fold.test}
        assert cross_validate_weights(runs, without, {name: fold}, "AP", deciding=deciding)[1] == {  # type: ignore[arg-type]
            name: weights[name]
        }
    assert len(set(weights.values())) > 1


def test_the_grid_has_every_combination_once() -> None:
    grid = weight_grid(3, 0.25)
    assert len(grid) == len(set(grid)) == math.comb(4 + 2, 2)
    assert all(math.isclose(sum(weights), 1.0) for weights in grid)
    assert grid == sorted(grid)


def test_mistakes_are_named(data: Data) -> None:
    runs, qrels = data
    with pytest.raises(InputError, match=r"fold only, dev .*judgments"):
        cross_validate_weights(runs, qrels, {"only": Fold(("1",), (), ("2",))}, "AP", deciding="dev")
    with pytest.raises(InputError, match=r"step 0\.05 .*230230 .*7 runs"):
        weight_grid(7, 0.05)
    for step in (0.0, -0.1, 0.3, 2.0):
        with pytest.raises(InputError, match="must divide 1"):
            weight_grid(2, step)
