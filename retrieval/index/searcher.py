"""Search an index: the embedded engine."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from docparade.retrieval.runs import ranking
from docparade.retrieval.storage.arrays import Array

from .analyzer import analyze
from .inverted_index import Index
from .rm3 import RM3
from .similarity import Similarity


class Searcher:
    """Searches an index with a similarity, and optionally with feedback.

    ```python
    searcher = Searcher(open_index(load_collection("cranfield")), BM25(k1=1.5, b=0.75))
    searcher.search("aeroelastic models of heated aircraft", hits=10)  # {'51': 13.2, ...}
    ```
    """

    def __init__(self, index: Index, similarity: Similarity, feedback: RM3 | None = None) -> None:
        self.index = index
        self.similarity = similarity
        self.feedback = feedback
        self._norms = similarity.document_norms(index)

    def search(self, query: str, hits: int = 1000) -> dict[str, float]:
        """The best documents of a query, best first: document id -> score.

        Documents with a score above 0 are hits. If documents at the cutoff have equal scores, `runs.ranking` decides
        which of them stay.
        """
        terms = self._parse(query)
        if self.feedback:
            feedback = self._best(terms, self.feedback.feedback_documents)
            terms = self.feedback.expand(self.index, terms, {hit.number: hit.score for hit in feedback})
        return {hit.id: hit.score for hit in self._best(terms, hits)}

    def _parse(self, query: str) -> dict[int, float]:
        """The query's terms that are in the index, with their counts in the query."""
        numbers = (self.index.term_number(term) for term in analyze(query))
        return {term: float(count) for term, count in Counter(numbers).items() if term is not None}

    def _best(self, terms: Mapping[int, float], hits: int) -> "list[_Hit]":
        """The best documents of a weighted query, best first."""
        scores = self._scores(terms)
        numbers = _best_with_ties(scores, hits)
        ids = self.index.document_ids.take(numbers)
        found = {
            document_id: _Hit(number, document_id, score)
            for number, document_id, score in zip(numbers.tolist(), ids, scores[numbers].tolist(), strict=True)
        }
        ranked = ranking({document_id: hit.score for document_id, hit in found.items()})
        return [found[document_id] for document_id in ranked[:hits]]

    def _scores(self, terms: Mapping[int, float]) -> Array:
        """The score of every document: the sum of the weights of its terms."""
        scores = np.zeros(len(self.index))
        for term, weight in terms.items():
            documents, frequencies = self.index.postings(term)
            weights = self.similarity.weights(self.index, term, frequencies, self._norms[documents])
            scores[documents] += weight * weights  # a document is in the postings of a term only once
        # Runs are ranked by 32-bit scores, so documents are tied if these are equal.
        return scores.astype(np.float32)


class _Hit(NamedTuple):
    number: int
    id: str
    score: float


def _best_with_ties(scores: Array, hits: int) -> Array:
    """The numbers of the best documents: all with at least the score of the one at rank `hits`."""
    found = np.flatnonzero(scores > 0)
    if len(found) <= hits:
        return found
    least = np.partition(scores[found], -hits)[-hits]
    return found[scores[found] >= least]
