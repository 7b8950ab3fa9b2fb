"""The inverted index: one for a collection, whatever is asked of it later.

It holds how often each document has each term, and no finished scores, which would fix the parameters of BM25 when the
index is built and leave nothing for query likelihood or for feedback. A score is worked out for the postings of a
query's terms when the query comes. Beside the postings stand the document lengths, the document ids, and the terms of
every document (for feedback).
"""

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from docparade.retrieval.storage.arrays import Array, map_array
from docparade.retrieval.storage.cache import build_once
from docparade.retrieval.storage.string_table import StringTable

from . import analyzer

if TYPE_CHECKING:
    from docparade.retrieval.collections.collection import Collection

FORMAT = 2
"""Raised whenever the files change, so that no old index is used."""


class Index:
    """A saved index, memory-mapped: opening it reads the terms and nothing else.

    ```python
    index = open_index(load_collection("cranfield"))
    documents, frequencies = index.postings(index.term_number("wing"))
    index.document_ids[int(documents[0])]  # '1'
    ```
    """

    def __init__(self, folder: Path) -> None:
        self.terms: list[str] = json.loads((folder / "terms.json").read_text(encoding="utf-8"))
        """all index terms, by number"""
        self._term_numbers = {term: number for number, term in enumerate(self.terms)}
        self._starts = map_array(folder / "posting_starts.npy")
        self._documents = map_array(folder / "posting_documents.npy")
        self._frequencies = map_array(folder / "posting_frequencies.npy")
        self.document_ids = StringTable(folder / "document_ids")
        self.lengths = map_array(folder / "lengths.npy")
        """number of terms of each document"""
        self._document_starts = map_array(folder / "document_starts.npy")
        self._document_terms = map_array(folder / "document_terms.npy")
        self._document_frequencies = map_array(folder / "document_frequencies.npy")

    def __len__(self) -> int:
        return len(self.lengths)

    def term_number(self, term: str) -> int | None:
        """The number of an index term (`analyzer.analyze` makes them), or None where no document has it."""
        return self._term_numbers.get(term)

    def postings(self, term: int) -> tuple[Array, Array]:
        """The numbers of the documents that have a term, ascending, and how often each has it."""
        start, end = self._starts[term], self._starts[term + 1]
        return self._documents[start:end], self._frequencies[start:end]

    def document_terms(self, document: int) -> tuple[Array, Array]:
        """The numbers of the terms that a document has, ascending, and how often it has each."""
        start, end = self._document_starts[document], self._document_starts[document + 1]
        return self._document_terms[start:end], self._document_frequencies[start:end]

    def document_frequency(self, terms: int | Array) -> Array:
        """How many documents have a term (or each of several)."""
        frequency: Array = self._starts[np.add(terms, 1)] - self._starts[terms]
        return frequency

    @cached_property
    def total_length(self) -> int:
        """Number of terms in the whole collection."""
        return int(self.lengths.sum(dtype=np.int64))

    @cached_property
    def filled_documents(self) -> int:
        """Number of documents that have a term at all; the empty ones take no part in averages, as in Lucene."""
        return int(np.count_nonzero(self.lengths))


def open_index(collection: "Collection", progress: bool = True) -> Index:
    """The index of a collection: built the first time, opened from the cache while nothing changed.

    ```python
    index = open_index(load_collection("my-collection/"))
    ```
    """
    from .builder import build_index

    folder = build_once(
        "indexes", collection.name, index_key(collection), lambda folder: build_index(collection, folder, progress)
    )
    return Index(folder)


def index_key(collection: "Collection") -> dict[str, object]:
    """Everything that could change an index: the documents, the analysis and the files' form."""
    from importlib.metadata import version

    return {
        "documents": collection.version(),
        "format": FORMAT,
        "analyzer": analyzer.VERSION,
        "stemmer": version("PyStemmer"),
    }
