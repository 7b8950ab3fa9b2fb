"""The inverted index of a collection, for all methods and parameters.

It has term frequencies and not finished scores, which would fix the parameters of BM25 when the index is built and
could not be used for query likelihood or feedback. Scores are computed from the postings of a query's terms at search
time. The index also has the document lengths, the document ids, and the terms of every document (for feedback).
"""

import json
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from docparade.retrieval.storage.arrays import Array
from docparade.retrieval.storage.cache import build_once
from docparade.retrieval.storage.checked_files import CheckedFolder
from docparade.retrieval.storage.string_table import StringTable

from . import analyzer

if TYPE_CHECKING:
    from docparade.retrieval.collections.collection import Collection

FORMAT = 2
"""Incremented when the format of the files changes, so that no old index is used."""


class Index:
    """A saved index, memory-mapped; opening it reads only the terms.

    ```python
    index = open_index(load_collection("cranfield"))
    documents, frequencies = index.postings(index.term_number("wing"))
    index.document_ids[int(documents[0])]  # '1'
    ```
    """

    def __init__(self, folder: CheckedFolder) -> None:
        self.terms: list[str] = json.loads(folder.read_bytes("terms.json"))
        """all index terms, by number"""
        self._term_numbers = {term: number for number, term in enumerate(self.terms)}
        self._starts = folder.array("posting_starts.npy")
        self._documents = folder.array("posting_documents.npy")
        self._frequencies = folder.array("posting_frequencies.npy")
        self.document_ids = StringTable(folder, "document_ids")
        self.lengths: Array = folder.array("lengths.npy")[:]
        """number of terms of each document"""
        self._document_starts = folder.array("document_starts.npy")
        self._document_terms = folder.array("document_terms.npy")
        self._document_frequencies = folder.array("document_frequencies.npy")

    def __len__(self) -> int:
        return len(self.lengths)

    def term_number(self, term: str) -> int | None:
        """The number of an index term (see `analyzer.analyze`), or None if no document has it."""
        return self._term_numbers.get(term)

    def postings(self, term: int) -> tuple[Array, Array]:
        """The numbers of the documents that have a term, ascending, and its frequency in each."""
        start, end = self._starts[term], self._starts[term + 1]
        return self._documents[start:end], self._frequencies[start:end]

    def document_terms(self, document: int) -> tuple[Array, Array]:
        """The numbers of the terms of a document, ascending, and their frequencies."""
        start, end = self._document_starts[document], self._document_starts[document + 1]
        return self._document_terms[start:end], self._document_frequencies[start:end]

    def document_frequency(self, terms: int | Array) -> Array:
        """The number of documents that have a term, or each of several terms."""
        frequency: Array = self._starts[np.add(terms, 1)] - self._starts[terms]
        return frequency

    @cached_property
    def total_length(self) -> int:
        """Number of terms in the whole collection."""
        return int(self.lengths.sum(dtype=np.int64))

    @cached_property
    def filled_documents(self) -> int:
        """Number of documents that are not empty; as in Lucene, empty ones do not count in averages."""
        return int(np.count_nonzero(self.lengths))


def open_index(collection: "Collection", progress: bool = True) -> Index:
    """The index of a collection, built the first time and then opened from the cache until something changes.

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
    """Everything that could change an index: the documents, the analyzer and the format of the files."""
    from importlib.metadata import version

    return {
        "documents": collection.version(),
        "format": FORMAT,
        "analyzer": analyzer.VERSION,
        "stemmer": version("PyStemmer"),
    }
