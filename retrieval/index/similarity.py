"""Weights of terms in documents: BM25 and query likelihood, as Lucene computes them.

A similarity is a small class with a method `weights`; `Searcher` adds up the weights of a query's terms. Weights are
32-bit floats, as in Lucene, and are added up in 64 bits.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from docparade.retrieval.errors import InputError
from docparade.retrieval.storage.arrays import Array

from .inverted_index import Index


class Similarity(Protocol):
    """The interface of all similarities."""

    def document_norms(self, index: Index) -> Array:
        """A number for each document that depends on its length, computed once for an index."""

    def weights(self, index: Index, term: int, frequencies: Array, norms: Array) -> Array:
        """The weights of a term in all documents that have it, from its frequencies and the documents' norms."""


@dataclass(frozen=True)
class BM25:
    """`idf * tf / (tf + k1 * (1 - b + b * length / average length))`, idf `ln(1 + (N - n + 0.5) / (n + 0.5))`.

    >>> BM25(k1=1.5, b=0.75)
    BM25(k1=1.5, b=0.75)
    """

    k1: float = 0.9
    b: float = 0.4

    def __post_init__(self) -> None:
        if not 0 <= self.k1 < float("inf"):
            raise InputError(f"k1 must be at least 0, and is {self.k1}.")
        if not 0 <= self.b <= 1:
            raise InputError(f"b must be from 0 to 1, and is {self.b}.")

    def document_norms(self, index: Index) -> Array:
        average = index.total_length / max(index.filled_documents, 1)
        norms = self.k1 * (1 - self.b + self.b * lucene_lengths(index.lengths) / max(average, 1))
        return norms.astype(np.float32)

    def weights(self, index: Index, term: int, frequencies: Array, norms: Array) -> Array:
        n = index.document_frequency(term)
        idf = np.log(1 + (index.filled_documents - n + 0.5) / (n + 0.5))
        frequencies = frequencies.astype(np.float32)
        weights: Array = np.float32(idf) * (frequencies / (frequencies + norms))
        return weights


@dataclass(frozen=True)
class QueryLikelihood:
    """Dirichlet-smoothed query likelihood: `ln(1 + tf / (mu * p)) + ln(mu / (length + mu))`, and never below 0.

    p is the term's share of the collection, `(its frequency + 1) / (all terms + 1)`. As in Lucene, only terms that a
    document has count, and a negative weight is 0.

    >>> QueryLikelihood(mu=1000)
    QueryLikelihood(mu=1000)
    """

    mu: float = 1000.0

    def __post_init__(self) -> None:
        if not 0 < self.mu < float("inf"):
            raise InputError(f"mu must be above 0, and is {self.mu}.")

    def document_norms(self, index: Index) -> Array:
        return np.log(self.mu / (lucene_lengths(index.lengths) + self.mu)).astype(np.float32)

    def weights(self, index: Index, term: int, frequencies: Array, norms: Array) -> Array:
        collection_frequency = int(frequencies.sum(dtype=np.int64))
        share = (collection_frequency + 1) / (index.total_length + 1)
        # There are few different frequencies, so each logarithm is computed once.
        gains = np.log1p(np.arange(int(frequencies.max()) + 1) / (self.mu * share)).astype(np.float32)
        return np.maximum(gains[frequencies] + norms, 0)


def lucene_lengths(lengths: Array) -> Array:
    """Document lengths as Lucene stores them, in one byte: exact up to 40, then rounded down to 4 binary digits.

    >>> lucene_lengths(np.array([7, 40, 41, 164, 1000]))
    array([  7,  40,  40, 152, 984])
    """
    steps = _stored_lengths()
    return steps[np.searchsorted(steps, lengths, side="right") - 1]


@lru_cache(maxsize=1)
def _stored_lengths() -> Array:
    """The 256 lengths that Lucene's byte can store: 0 to 39, then 8 steps for every doubling of what is above 24."""
    exact = np.arange(24)
    above = [(8 + step) << shift for shift in range(28) for step in range(8)]
    return np.concatenate([exact, 24 + np.array([*range(8), *above])])
