"""Birch: interpolate the first stage's score with the scores of a document's best passages; weights from a grid.

    score = a * S_doc + (1 - a) * (S_1 + w_2 * S_2 + ... + w_n * S_n)

S_doc is the first stage's score and S_i the score of the i-th best passage (in the paper: sentence), n at most 4. A
document with fewer than n passages repeats its lowest score, as the learned Birch does; the paper does not say what to
do. So every document has n terms, and a constant added to all passage scores does not change the order; with fewer
terms, as in the paper's code, short documents would win where scores are negative, as that code's logits often are, and
lose where all are positive, as probabilities are. With n = 1 and a reranker's document
score as the only passage, this tunes the plain interpolation of a reranker with its first stage.
"""

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .folds import Folds
from .runs import Qrels, Run, merge
from .storage.files import atomic_write, is_text, read_lines

PassageScores: TypeAlias = dict[str, dict[str, list[float]]]
"""query id -> document id -> score of each of its passages"""

GRID = tuple(step / 10 for step in range(11))
MOST_PASSAGES = 4


@dataclass(frozen=True)
class BirchWeights:
    """The weights of one interpolation; `passages[0]` is always 1."""

    document: float
    passages: tuple[float, ...]


def birch_run(first_stage: Run, passages: PassageScores, weights: BirchWeights) -> Run:
    """Score every document of the first stage with the given weights.

    >>> weights = BirchWeights(document=0.5, passages=(1.0, 0.5))
    >>> birch_run({"1": {"d": 4.0}}, {"1": {"d": [0.0, 2.0, 6.0]}}, weights)
    {'1': {'d': 5.5}}
    """
    _check_same_documents(first_stage, passages)
    return {
        query: _Candidates.of(scores, passages[query], len(weights.passages)).scored(weights)
        for query, scores in first_stage.items()
    }


def tune_birch(
    first_stage: Run, passages: PassageScores, qrels: Qrels, queries: Iterable[str], count: int = 3
) -> BirchWeights:
    """The weights with the highest mean AP on the given queries; among equal ones, the smallest.

    For up to three passages, a and each w_i take all values 0, 0.1 .. 1. For four, as in the paper, w_4 takes all
    values, and a, w_2 and w_3 the best values for three passages and their neighbors.

    ```python
    tune_birch(bm25, sentences, qrels, queries=folds["s1"].train, count=3)
    ```
    """
    wanted = {query: first_stage[query] for query in queries if query in first_stage}
    return _Tuner(wanted, passages, qrels, count).best(wanted)


def cross_validate_birch(
    first_stage: Run, passages: PassageScores, qrels: Qrels, folds: Folds, count: int = 3
) -> tuple[Run, dict[str, BirchWeights]]:
    """Tune on each fold's train and dev queries and score its test queries: the merged run, and each fold's weights.

    ```python
    run, weights = cross_validate_birch(bm25, sentences, qrels, k_folds(bm25, k=5), count=3)
    ```
    """
    tuner = _Tuner(first_stage, passages, qrels, count)
    weights = {name: tuner.best([*fold.train, *fold.dev]) for name, fold in folds.items()}
    tests = [
        birch_run(
            {query: first_stage[query] for query in fold.test if query in first_stage},
            {query: passages[query] for query in fold.test if query in passages},
            weights[name],
        )
        for name, fold in folds.items()
    ]
    return merge(tests), weights


def read_passage_scores(path: str | Path) -> PassageScores:
    """Read lines of `{"query": "1", "document": "d7", "scores": [0.1, 2.3]}`; `.gz` files are unpacked.

    ```python
    sentences = read_passage_scores("sentences.jsonl.gz")
    ```
    """
    passages: PassageScores = {}
    for number, line in read_lines(path):
        try:
            entry = json.loads(line)
            query, document, scores = entry["query"], entry["document"], [float(score) for score in entry["scores"]]
            if not (is_text(query) and is_text(document)):
                raise TypeError
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            form = '{"query": "1", "document": "d7", "scores": [0.1, 2.3]}'
            raise InputError(f"{path}, line {number}: not of the form {form}.") from None
        if not scores or not all(map(math.isfinite, scores)):
            raise InputError(f"{path}, line {number}: scores must be finite numbers, at least one.")
        documents = passages.setdefault(query, {})
        if document in documents:
            raise InputError(f"{path}, line {number}: document {document} occurs a second time for query {query}.")
        documents[document] = scores
    if not passages:
        raise InputError(f"{path}: there are no lines; a file of passage scores has at least one.")
    return passages


def write_passage_scores(passages: PassageScores, path: str | Path) -> None:
    """Write passage scores as `read_passage_scores` reads them.

    >>> write_passage_scores({"1": {"d7": [0.1, 2.3]}}, "sentences.jsonl")
    >>> read_passage_scores("sentences.jsonl")
    {'1': {'d7': [0.1, 2.3]}}
    """
    with atomic_write(path) as file:
        for query, documents in passages.items():
            for document, scores in documents.items():
                entry = {"query": query, "document": document, "scores": [float(score) for score in scores]}
                file.write(json.dumps(entry, ensure_ascii=False) + "\n")


@dataclass(frozen=True)
class _Candidates:
    """One query's documents, in descending order of their ids, so that a stable sort breaks ties as `ranking` does."""

    ids: list[str]
    document: NDArray[np.float64]
    """first-stage score of each document"""
    best: NDArray[np.float64]
    """[document, i]: score of its i-th best passage, or its lowest if it has fewer"""

    @classmethod
    def of(cls, scores: Mapping[str, float], passages: Mapping[str, Sequence[float]], count: int) -> "_Candidates":
        ids = sorted(scores, reverse=True)
        best = np.empty((len(ids), count))
        for row, document in enumerate(ids):
            top = sorted(passages[document], reverse=True)[:count]
            best[row] = top + top[-1:] * (count - len(top))
        return cls(ids, np.array([scores[document] for document in ids]), best)

    def scored(self, weights: BirchWeights) -> dict[str, float]:
        return dict(zip(self.ids, self.scores([weights])[0].tolist(), strict=True))

    def scores(self, grid: Sequence[BirchWeights]) -> NDArray[np.float64]:
        """[point of the grid, document]"""
        share = np.array([[weights.document] for weights in grid])
        passages = sum(
            np.array([[weights.passages[i]] for weights in grid]) * self.best[:, i] for i in range(self.best.shape[1])
        )
        return share * self.document + (1 - share) * passages

    def average_precision(self, grid: Sequence[BirchWeights], grades: Mapping[str, int]) -> NDArray[np.float64]:
        """AP at every point of the grid."""
        relevant = np.array([grades.get(document, 0) > 0 for document in self.ids])
        found, total = int(relevant.sum()), sum(grade > 0 for grade in grades.values())
        if not found:
            return np.zeros(len(grid))
        _, columns = np.nonzero(relevant[_best_first(self.scores(grid))])
        ranks = columns.reshape(len(grid), found) + 1
        result: NDArray[np.float64] = (np.arange(1, found + 1) / ranks).sum(axis=1) / total
        return result


def _best_first(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """A stable argsort of the negative 32-bit scores, in half the time: sorts 64-bit integers with the
    score in the upper and the document's position in the lower half."""
    bits = (0.0 - scores.astype(np.float32)).view(np.int32)
    ascending = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # negative floats are stored as sign and magnitude
    keys = (ascending.astype(np.int64) << 32) | np.arange(scores.shape[1])
    keys.sort(axis=1)
    return keys & 0xFFFFFFFF


class _Tuner:
    """Computes the AP of every query at every point of the grid once; each fold only averages."""

    def __init__(self, first_stage: Run, passages: PassageScores, qrels: Qrels, count: int) -> None:
        if not 1 <= count <= MOST_PASSAGES:
            raise InputError(f"count must be from 1 to {MOST_PASSAGES}, and is {count}.")
        _check_same_documents(first_stage, passages)
        self.qrels = qrels
        self.count = count
        self.candidates = {
            query: _Candidates.of(scores, passages[query], count) for query, scores in first_stage.items() if scores
        }
        self.grid = _grid(count)
        self.precision = {query: self._precision(query, self.grid) for query in self.candidates}

    def best(self, queries: Iterable[str]) -> BirchWeights:
        known = [query for query in queries if query in self.candidates]
        if not known:
            raise InputError("there is no query to tune on: none of the training queries is in the first-stage run.")
        if not any(self.qrels.get(query) for query in known):
            raise InputError("none of the training queries has judgments; weights are chosen by them.")
        best = self.grid[_argmax([self.precision[query] for query in known])]
        if self.count < MOST_PASSAGES:
            return best
        around = _around(best)
        return around[_argmax([self._precision(query, around) for query in known])]

    def _precision(self, query: str, grid: Sequence[BirchWeights]) -> NDArray[np.float64]:
        return self.candidates[query].average_precision(grid, self.qrels.get(query, {}))


def _argmax(precision: list[NDArray[np.float64]]) -> int:
    # Sums in another order differ in the last bits; without rounding, these would choose the weights.
    return int(np.argmax(np.round(np.mean(precision, axis=0), 12)))


def _grid(count: int) -> list[BirchWeights]:
    """All points for up to three passages; for four, the same points with w_4 = 0."""
    exhaustive = min(count, MOST_PASSAGES - 1)
    padding = (0.0,) * (count - exhaustive)
    return [BirchWeights(a, (1.0, *weights, *padding)) for a, *weights in itertools.product(GRID, repeat=exhaustive)]


def _around(best: BirchWeights) -> list[BirchWeights]:
    """The points for four passages: w_4 from the whole grid, the others at most one step from the best of three."""
    a, (_, w2, w3, _) = best.document, best.passages
    neighbors = [[GRID[i] for i in _one_step_from(GRID.index(value))] for value in (a, w2, w3)]
    return [BirchWeights(x, (1.0, y, z, w4)) for x, y, z, w4 in itertools.product(*neighbors, GRID)]


def _one_step_from(index: int) -> range:
    return range(max(index - 1, 0), min(index + 2, len(GRID)))


def _check_same_documents(first_stage: Run, passages: PassageScores) -> None:
    for query, scores in first_stage.items():
        lacking = [document for document in scores if not passages.get(query, {}).get(document)]
        if lacking:
            raise InputError(
                f"document {min(lacking)} of query {query} has no passage scores; score it, or cut the first stage."
            )
