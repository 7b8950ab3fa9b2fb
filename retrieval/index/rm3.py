"""RM3, as in Anserini: expand a query with weighted terms that its best documents have in common.

Anserini keeps the terms with the largest weights of each document, and then of all documents together; ties are left
to the order of a hash table. Here, among terms of equal weight, the rarer comes first, then the one indexed first.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np

from docparade.retrieval.errors import InputError
from docparade.retrieval.storage.arrays import Array

from .inverted_index import Index

MOST_COMMON = 0.1
"""A term in more than this share of all documents is never a feedback term."""

_PLAIN_TERM = re.compile(r"[a-z0-9]{2,20}")


@dataclass(frozen=True)
class RM3:
    """The number of feedback documents and terms, and the weight of the original query.

    >>> RM3(feedback_documents=5)
    RM3(feedback_documents=5, feedback_terms=10, original_weight=0.5)
    """

    feedback_documents: int = 10
    feedback_terms: int = 10
    original_weight: float = 0.5

    def __post_init__(self) -> None:
        if self.feedback_documents < 1:
            raise InputError(f"feedback_documents must be at least 1, and is {self.feedback_documents}.")
        if self.feedback_terms < 1:
            raise InputError(f"feedback_terms must be at least 1, and is {self.feedback_terms}.")
        if not 0 <= self.original_weight <= 1:
            raise InputError(f"original_weight must be from 0 to 1, and is {self.original_weight}.")

    def expand(self, index: Index, query: Mapping[int, float], best: Mapping[int, float]) -> dict[int, float]:
        """The expanded query, term -> weight; `query` is term -> weight too, and `best` is document -> score."""
        original = _shares(query)
        feedback = self._relevance_model(index, best)
        return {
            term: self.original_weight * original.get(term, 0.0) + (1 - self.original_weight) * feedback.get(term, 0.0)
            for term in original | feedback
        }

    def _relevance_model(self, index: Index, best: Mapping[int, float]) -> dict[int, float]:
        """The terms with the largest weights in the feedback documents; scores are the documents' weights."""
        pool: dict[int, float] = {}
        for document, score in best.items():
            terms, frequencies = index.document_terms(document)
            for term, share in _shares(self._heaviest(index, terms, frequencies)).items():
                pool[term] = pool.get(term, 0.0) + share * score
        return _shares(self._heaviest(index, np.array(list(pool), dtype=np.int64), np.array(list(pool.values()))))

    def _heaviest(self, index: Index, terms: Array, weights: Array) -> dict[int, float]:
        """The terms with the largest weights, of plain terms that are not too common."""
        documents = index.document_frequency(terms)
        order = np.lexsort((terms, documents, -weights.astype(np.float64)))
        order = order[documents[order] <= MOST_COMMON * index.filled_documents]
        plain = (at for at in order if _PLAIN_TERM.fullmatch(index.terms[terms[at]]))
        return {int(terms[at]): float(weights[at]) for at in islice(plain, self.feedback_terms)}


def _shares(weights: Mapping[int, float]) -> dict[int, float]:
    """The weights divided by their sum."""
    total = sum(weights.values())
    return {term: weight / total for term, weight in weights.items()} if total else {}
