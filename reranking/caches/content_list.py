"""`ContentList`: the ids of documents, and the hashes of their contents, by which vectors are found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from docparade.modeling import Document
from docparade.reranking.processes.process_group import should_hide_bar
from docparade.retrieval.progress import show_progress
from docparade.retrieval.storage.arrays import Array, ArrayWriter
from docparade.retrieval.storage.cache import build_once
from docparade.retrieval.storage.string_table import StringTable, StringTableWriter

from .document_lookup import CollectionDocuments, DocumentLike, Documents, read_blocks
from .fingerprints import BATCH_DOCUMENTS, CONTENT, fingerprint_documents, hash_document

FORMAT = 1
"""To be raised when the format of the files changes."""


@dataclass(frozen=True)
class ContentList:
    """Documents in their order. It is kept on disk, so that a collection is read once for all encoders.

    Example:
        ```python
        ContentList.open(None, CollectionDocuments(load_collection("cranfield")), None).ids[0]  # '1'
        ```
    """

    ids: StringTable
    contents: Array
    """Hashes, of type `CONTENT`."""
    version: str
    """The fingerprint of ids and contents; of a collection, that of its files."""
    is_whole: bool
    """Whether these are all documents of a collection."""

    @classmethod
    def open(cls, root: Path | None, documents: Documents, ids: Sequence[str] | None) -> ContentList:
        """List documents: those with some ids, or all. The first process reads them, and the others wait."""

        def build(folder: Path) -> None:
            total = len(documents) if ids is None else len(ids)
            with (
                StringTableWriter(folder / "ids", "document ids") as names,
                ArrayWriter(folder / "contents.npy", CONTENT) as contents,
                show_progress(total=total, desc="reading", unit=" documents", hide=should_hide_bar(None)) as bar,
            ):
                for block in read_blocks(documents, ids, BATCH_DOCUMENTS):
                    hashes = [hash_document(Document.of(one, f"document {name}")) for name, one in block.items()]
                    contents.extend(np.array(hashes, dtype=CONTENT))
                    for name in block:
                        names.append(name)
                    bar.update(len(block))

        name = documents.collection.name if isinstance(documents, CollectionDocuments) else "documents"
        version = fingerprint_documents(documents, ids)
        folder = build_once("contents", name, {"format": FORMAT, "documents": version}, build, root)
        return cls(StringTable(folder, "ids"), folder.array("contents.npy")[:], version, ids is None)

    def __len__(self) -> int:
        """The number of documents."""
        return len(self.contents)

    def read(self, documents: Documents, numbers: Array, size: int) -> Iterator[dict[str, DocumentLike]]:
        """Read some of the documents in blocks; all of a collection in its order, which is faster."""
        if len(numbers) == len(self) and self.is_whole:
            yield from read_blocks(documents, None, size)
        else:
            for start in range(0, len(numbers), size):
                yield from read_blocks(documents, self.ids.take(numbers[start : start + size]), size)
