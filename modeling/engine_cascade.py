"""Less work for each document: the encoder reads only the passages that a cheap score selects. Not exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .documents import Document
from .passages import Passage

K1, B = 0.9, 0.4

ChoosePassages = Callable[[Document, str, Sequence[int], Sequence[Passage]], list[int]]
"""Chooses the passages to read, from a document, a query, the query's tokens and the document's passages."""


def choose_by_words(keep: int) -> ChoosePassages:
    """A function that chooses `promising_passages`."""

    def choose(document: Document, query: str, query_ids: Sequence[int], passages: Sequence[Passage]) -> list[int]:
        return promising_passages(query_ids, [passage.token_ids for passage in passages], keep)

    return choose


def promising_passages(query_ids: Sequence[int], passages: Sequence[np.ndarray], keep: int) -> list[int]:
    """The most promising passages of a document for a query: at most `keep`, in document order.

    The score is BM25 over the passages' tokens, with the document's passages as the collection. The first passage is
    always kept; of equal scores, the earlier passage is kept.

    Example:
        >>> promising_passages([7], [np.array([1, 2]), np.array([3, 4]), np.array([7, 5])], keep=2)
        [0, 2]
    """
    if len(passages) <= keep:
        return list(range(len(passages)))
    return keep_best(bm25_scores(query_ids, passages), keep)


def keep_best(scores: np.ndarray, keep: int) -> list[int]:
    """The first passage, and the `keep - 1` others with the highest scores, in document order.

    Example:
        >>> keep_best(np.array([0.0, 1.0, 3.0, 2.0]), 3)
        [0, 2, 3]
    """
    best_first = np.argsort(-scores[1:], kind="stable") + 1
    return sorted([0, *best_first[: keep - 1].tolist()])


def bm25_scores(query_ids: Sequence[int], passages: Sequence[np.ndarray]) -> np.ndarray:
    """BM25 of each passage for a query, with these passages as the collection."""
    lengths = np.array([len(passage) for passage in passages])
    norms = K1 * (1 - B + B * lengths / max(lengths.mean(), 1))
    tokens = np.concatenate(passages)
    owners = np.repeat(np.arange(len(passages)), lengths)
    scores = np.zeros(len(passages))
    for token in sorted(set(query_ids)):
        counts = np.bincount(owners[tokens == token], minlength=len(passages))
        having = np.count_nonzero(counts)
        weight = np.log(1 + (len(passages) - having + 0.5) / (having + 0.5))
        scores += weight * counts / (counts + norms)
    return scores
