"""Build the inverted index in one pass over the documents, in bounded memory.

Documents are analyzed in blocks. The counts of a block are written document by document (the forward index); at the
end, the forward index is inverted, block by block, into postings by term. Only one block, the vocabulary and a few
numbers for each document are in memory.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike

from docparade.retrieval.errors import InputError
from docparade.retrieval.progress import show_progress
from docparade.retrieval.storage.arrays import Array, ArrayWriter, map_array
from docparade.retrieval.storage.string_table import StringTableWriter

from .analyzer import Vocabulary

if TYPE_CHECKING:
    from docparade.retrieval.collections.collection import Collection, Document

BLOCK = 1 << 21
"""Terms in a block, which takes about 100 MB of memory."""

MOST = np.iinfo(np.uint16).max
"""The highest frequency of a term in a document; higher ones are stored as this one, in 16 bits."""


def build_index(collection: "Collection", folder: Path, progress: bool = True) -> None:
    """Write the index of a collection into an empty folder; `open_index` calls it and opens the result."""
    documents = show_progress(
        collection.documents(),
        desc=f"indexing {collection.name}",
        unit=" documents",
        hide=None if progress else True,
    )
    terms = _write_forward_index(documents, collection.name, folder)
    (folder / "terms.json").write_text(json.dumps(terms, ensure_ascii=False), encoding="utf-8")
    _write_postings(len(terms), folder)


def _write_forward_index(documents: Iterable["Document"], name: str, folder: Path) -> list[str]:
    vocabulary = Vocabulary()
    with ExitStack() as files:
        ids = files.enter_context(StringTableWriter(folder / "document_ids", of=f"document ids of {name}"))
        lengths = files.enter_context(ArrayWriter(folder / "lengths.npy", np.int32))
        starts = files.enter_context(ArrayWriter(folder / "document_starts.npy", np.int64))
        terms = files.enter_context(ArrayWriter(folder / "document_terms.npy", np.int32))
        frequencies = files.enter_context(ArrayWriter(folder / "document_frequencies.npy", np.uint16))

        def analyzed() -> Iterator[list[int]]:
            for document in documents:
                ids.append(document.id)
                yield vocabulary.analyze(document.contents())

        starts.append(0)
        for block in _blocks(analyzed()):
            block_lengths = np.array([len(document) for document in block])
            document_sizes, block_terms, block_frequencies = _count(block, block_lengths)
            lengths.extend(block_lengths)
            starts.extend(len(terms) + np.cumsum(document_sizes))
            terms.extend(block_terms)
            frequencies.extend(np.minimum(block_frequencies, MOST))
        if not len(lengths):
            raise InputError(f"{name} has no documents to index.")
    return list(vocabulary.terms)


def _blocks(documents: Iterable[list[int]]) -> Iterator[list[list[int]]]:
    block: list[list[int]] = []
    size = 0
    for document in documents:
        block.append(document)
        size += len(document)
        # The second limit is for collections of empty documents.
        if size >= BLOCK or len(block) >= BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def _count(block: list[list[int]], lengths: Array) -> tuple[Array, Array, Array]:
    """The number of different terms of each document; these terms, document by document; and their frequencies."""
    terms = np.fromiter(chain.from_iterable(block), dtype=np.int64, count=int(lengths.sum()))
    owners = np.repeat(np.arange(len(block)), lengths)
    pairs, frequencies = np.unique(owners << 32 | terms, return_counts=True)
    return np.bincount(pairs >> 32, minlength=len(block)), pairs & 0xFFFFFFFF, frequencies


def _write_postings(terms: int, folder: Path) -> None:
    """Invert the forward index."""
    starts = _posting_starts(folder, terms)
    np.save(folder / "posting_starts.npy", starts)
    _write_zeros(folder / "posting_documents.npy", np.int32, int(starts[-1]))
    _write_zeros(folder / "posting_frequencies.npy", np.uint16, int(starts[-1]))
    free = starts[:-1].copy()
    for first, last in _document_ranges(map_array(folder / "document_starts.npy")):
        _place_block(folder, first, last, free)


def _write_zeros(path: Path, dtype: DTypeLike, size: int) -> None:
    """Write an array to be mapped. Its space is then taken: a full disk is an error here, not a signal that kills."""
    with ArrayWriter(path, dtype) as file:
        for start in range(0, size, BLOCK):
            file.extend(np.zeros(min(BLOCK, size - start), dtype))


def _posting_starts(folder: Path, terms: int) -> Array:
    """Where the postings of each term begin, and where the last ones end."""
    document_terms = map_array(folder / "document_terms.npy")
    counts = np.zeros(terms, dtype=np.int64)
    for start in range(0, len(document_terms), BLOCK):
        counts += np.bincount(document_terms[start : start + BLOCK], minlength=terms)
    return np.concatenate([[0], np.cumsum(counts)])


def _document_ranges(document_starts: Array) -> Iterator[tuple[int, int]]:
    """Ranges of documents with about a block of postings in each."""
    first, documents = 0, len(document_starts) - 1
    while first < documents:
        last = int(np.searchsorted(document_starts, document_starts[first] + BLOCK))
        last = min(max(last, first + 1), documents)
        yield first, last
        first = last


def _place_block(folder: Path, first: int, last: int, free: Array) -> None:
    """Copy the postings of a range of documents to their terms' postings; `free` has each term's next free place.

    Documents come in order, so the postings of a term are in order. The maps are opened again for each block, so that
    pages of earlier blocks do not stay in memory.
    """
    document_starts = map_array(folder / "document_starts.npy")[first : last + 1]
    block = slice(int(document_starts[0]), int(document_starts[-1]))
    terms = np.asarray(map_array(folder / "document_terms.npy")[block])
    frequencies = map_array(folder / "document_frequencies.npy")[block]
    documents = np.repeat(np.arange(first, last, dtype=np.int32), np.diff(document_starts))
    order = np.argsort(terms, kind="stable")
    present, counts = np.unique(terms, return_counts=True)
    within_term = np.arange(len(terms)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = np.repeat(free[present], counts) + within_term
    np.load(folder / "posting_documents.npy", mmap_mode="r+")[places] = documents[order]
    np.load(folder / "posting_frequencies.npy", mmap_mode="r+")[places] = frequencies[order]
    free[present] += counts
