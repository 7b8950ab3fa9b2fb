"""Where the documents come from: typed text, uploaded files, a collection's first stage, or the examples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from time import monotonic

from docparade.reranking.document_files import READERS, SourceDocument, from_text, read_file
from docparade.retrieval.collections.collection import Collection
from docparade.retrieval.collections.pdf_process import PdfLimits
from docparade.retrieval.errors import InputError
from docparade.retrieval.index.inverted_index import open_index
from docparade.retrieval.index.searcher import Searcher
from docparade.retrieval.index.similarity import BM25

MAX_DOCUMENTS = 50
MAX_CHARACTERS = 500_000
"""Of all documents of a ranking together."""
MEGABYTE = 2**20  # as Gradio counts them
MAX_FILE_BYTES = 10 * MEGABYTE
MAX_BYTES = 50 * MEGABYTE
"""Of all files of a ranking together."""
PDF_LIMITS = PdfLimits()
"""The seconds are for all files of a ranking together."""
MAX_QUERY_CHARACTERS = 1_000
LIMITS = (
    f"At most {MAX_DOCUMENTS} documents with {MAX_CHARACTERS:,} characters in all; "
    f"files of at most {MAX_FILE_BYTES // MEGABYTE} MB each, and {MAX_BYTES // MEGABYTE} MB in all."
)

EXAMPLE_QUERY = "Why does bread go stale faster in the fridge?"


def check_query(query: str | None) -> str:
    """The query without white space around it; an empty or a very long one is an `InputError`."""
    query = (query or "").strip()
    if not query:
        raise InputError("Type a query: what should the documents be ranked for?")
    if len(query) > MAX_QUERY_CHARACTERS:
        raise InputError(f"The query has {len(query):,} characters; {MAX_QUERY_CHARACTERS:,} is the limit.")
    return query


def check_size(documents: Sequence[SourceDocument]) -> list[SourceDocument]:
    """Refuse more documents or text than one ranking may have."""
    characters = sum(len(document.text) for document in documents)
    if len(documents) > MAX_DOCUMENTS:
        raise InputError(f"There are {len(documents):,} documents; {MAX_DOCUMENTS} is the limit.")
    if characters > MAX_CHARACTERS:
        raise InputError(f"The documents have {characters:,} characters in all; {MAX_CHARACTERS:,} is the limit.")
    return list(documents)


# --- Examples and typed text -----------------------------------------------------------------------------------------


def example_documents() -> list[SourceDocument]:
    """Four articles: one answers `EXAMPLE_QUERY` deep inside, another only seems to, at its beginning."""
    folder = files("docparade.hub_cards.space") / "examples"
    texts = (file.read_text(encoding="utf-8") for file in sorted(folder.iterdir(), key=lambda file: file.name))
    return [from_text(text, "Example") for text in texts]


def split_typed(text: str | None) -> list[SourceDocument]:
    """The documents of a text box, which are separated by lines of three or more dashes.

    >>> [document.name for document in split_typed("# Rain\\nIt rains.\\n---\\nThe sun shines.")]
    ['Rain', 'The sun shines.']
    """
    parts = [part.strip() for part in re.split(r"^[ \t]*-{3,}[ \t]*$", text or "", flags=re.MULTILINE)]
    documents = [from_text(part, "Untitled") for part in parts if part]
    if not documents:
        raise InputError("Type or paste at least one document, or choose the examples.")
    return check_size(documents)


# --- Files -----------------------------------------------------------------------------------------------------------


def read_files(paths: Sequence[str | Path] | None) -> list[SourceDocument]:
    """The documents of uploaded files; a file that cannot be read is an `InputError`."""
    documents: list[SourceDocument] = []
    end = monotonic() + PDF_LIMITS.seconds
    for path in check_files(paths):
        limits = replace(PDF_LIMITS, seconds=max(end - monotonic(), 0))
        for document in read_file(path, MAX_CHARACTERS, limits):
            # A large file is refused before all of it is read.
            documents = check_size([*documents, document])
    return documents


def check_files(paths: Sequence[str | Path] | None) -> list[Path]:
    """Refuse an empty list, and more or larger files than one ranking may have, before any is read."""
    if not paths:
        kinds = ", ".join(READERS)
        raise InputError(f"Choose files to rank: {kinds}, of at most {MAX_FILE_BYTES // MEGABYTE} MB each.")
    if len(paths) > MAX_DOCUMENTS:
        raise InputError(f"There are {len(paths):,} files; {MAX_DOCUMENTS} is the limit.")
    files = [Path(path) for path in paths]
    sizes = [file.stat().st_size for file in files]
    for file, size in zip(files, sizes, strict=True):
        if size > MAX_FILE_BYTES:
            raise InputError(f"{file.name} has {size / MEGABYTE:.1f} MB; {MAX_FILE_BYTES // MEGABYTE} MB is the limit.")
    if sum(sizes) > MAX_BYTES:
        total = sum(sizes) / MEGABYTE
        raise InputError(f"The files have {total:.1f} MB in all; {MAX_BYTES // MEGABYTE} MB is the limit.")
    return files


# --- A collection ----------------------------------------------------------------------------------------------------


class FirstStageSource:
    """The documents of a collection that BM25 finds for a query.

    ```python
    FirstStageSource(load_collection("cranfield"), depth=20).search("heat transfer")
    ```
    """

    def __init__(self, collection: Collection, depth: int) -> None:
        self.collection = collection
        self.depth = depth
        self.searcher = Searcher(open_index(collection), BM25())

    def search(self, query: str) -> list[SourceDocument]:
        """The best documents, as many as the limit of characters permits."""
        found = self.searcher.search(query, self.depth)
        if not found:
            raise InputError(f"BM25 finds no document of {self.collection.name} for this query; use other words.")
        documents: list[SourceDocument] = []
        characters = 0
        texts = self.collection.get_many(found)
        for rank, identifier in enumerate(found, start=1):
            document = texts[identifier]
            characters += len(document.text)
            if documents and characters > MAX_CHARACTERS:
                break
            documents.append(
                SourceDocument(document.title or identifier, document.text, document.title, f"BM25 rank {rank}")
            )
        return documents
