"""`TokenCache`: the tokens of documents on disk, in memory-mapped arrays that processes share.

A document is looked up by its contents (a 128-bit hash of title, headings and text), so the result always equals what
the processor would return. A document that has changed or is not in the cache is tokenized when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from transformers.utils import logging

from docparade.modeling import DocumentProcessor
from docparade.modeling.documents import Document
from docparade.modeling.encoder_fingerprint import fingerprint_tokenization
from docparade.modeling.passages import EncodedDocument, unit_bounds
from docparade.retrieval.collections.collection import Collection
from docparade.retrieval.progress import show_progress
from docparade.retrieval.storage.arrays import Array, ArrayWriter
from docparade.retrieval.storage.cache import build_once
from docparade.retrieval.storage.checked_files import CheckedFolder, DamagedFile

from .document_lookup import CollectionDocuments, DocumentLike, Documents, read_blocks
from .fingerprints import BATCH_DOCUMENTS, fingerprint_documents, hash_document

logger = logging.get_logger(__name__)

FORMAT = 1
"""To be raised when the format of the files changes."""

_ARRAYS = {
    "token_ids": np.int32,
    "spans": np.int32,
    "bounds": np.int32,
    "token_ends": np.int64,
    "bound_ends": np.int64,
    "prefixes": np.int32,
    "hashes": np.uint64,
    "checks": np.uint64,
}


class TokenCache:
    """Replaces `DocumentProcessor.encode_documents`, without tokenizing cached documents again.

    Example:
        ```python
        documents = CollectionDocuments(load_collection("cranfield"))
        cache = TokenCache.open(None, model.processor, documents)
        rerank(model, run, queries, documents, encode_documents=cache.encode_documents)
        ```
    """

    def __init__(self, folder: CheckedFolder, processor: DocumentProcessor) -> None:
        self._folder = folder
        self.processor = processor
        self._arrays = {name: folder.array(f"{name}.npy") for name in (*_ARRAYS, "rows")}
        # A search touches blocks all over the file, so all are compared.
        self._hashes: Array = self._arrays["hashes"][:]

    @property
    def folder(self) -> Path:
        """The folder of the cache."""
        return self._folder.path

    @classmethod
    def open(
        cls,
        folder: str | Path | None,
        processor: DocumentProcessor,
        documents: Collection | Documents | Iterable[DocumentLike],
        ids: Iterable[str] | None = None,
    ) -> TokenCache:
        """Open the cache of some documents. The first process builds it, and the others wait.

        Its key has all that affects tokens: the documents, the tokenizer, some settings of the processor, and the
        version of the code. Windows, lengths and limits of passages do not matter: they share one cache.

        Args:
            folder: The folder for caches; `None` is docparade's own cache folder.
            processor: The processor whose `encode_documents` is replaced.
            documents: A collection, documents by id, or a list of documents.
            ids: The documents to tokenize, such as those of a run; `None` is all.
        """
        source = _by_id(documents)
        chosen = None if ids is None else sorted(set(ids))
        key = {
            "format": FORMAT,
            "tokenizing": fingerprint_tokenization(processor, again=True),
            "documents": fingerprint_documents(source, chosen),
        }
        name = source.collection.name if isinstance(source, CollectionDocuments) else "documents"

        def build(target: Path) -> None:
            _build(target, processor, source, chosen)

        return cls(build_once("tokens", name, key, build, root=None if folder is None else Path(folder)), processor)

    def __len__(self) -> int:
        """The number of documents in the cache."""
        return len(self._arrays["rows"])

    def encode_documents(self, documents: Sequence[DocumentLike]) -> list[EncodedDocument]:
        """Like `DocumentProcessor.encode_documents`; documents that are not in the cache are tokenized now."""
        checked = [Document.of(document, f"documents[{i}]") for i, document in enumerate(documents)]
        found = [self._look_up(document) for document in checked]
        missing = [document for document, encoded in zip(checked, found, strict=True) if encoded is None]
        fresh = iter(self.processor.encode_documents(missing))
        return [next(fresh) if encoded is None else encoded for encoded in found]

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process maps the same files instead of copying their contents.
        return type(self), (self._folder, self.processor)

    def _look_up(self, document: Document) -> EncodedDocument | None:
        """The tokens of a document; None if they are not in the cache."""
        try:
            row = self._find(document)
            return None if row is None else self._read(document, row)
        except DamagedFile as damage:  # in a process that cannot build the folder again
            logger.warning(f"{damage.folder} is damaged: {damage}. Documents are tokenized again.")
            return None

    def _find(self, document: Document) -> int | None:
        """The row of a document; `None` if it is not in the cache."""
        first_half, second_half = _hash_halves(document)
        hashes, checks = self._hashes, self._arrays["checks"]
        position = int(np.searchsorted(hashes, np.uint64(first_half)))
        while position < len(hashes) and hashes[position] == first_half:
            if checks[position] == second_half:
                return int(self._arrays["rows"][position])
            position += 1
        return None

    def _read(self, document: Document, row: int) -> EncodedDocument:
        tokens = self._range("token_ends", row)
        token_ids = self._arrays["token_ids"][tokens]
        first_token = int(self._arrays["prefixes"][row])
        if self.processor.unit == "token":
            bounds = unit_bounds("", "token", token_ids, first_token)
        else:
            bounds = self._arrays["bounds"][self._range("bound_ends", row)]
        return EncodedDocument(
            document=document,
            token_ids=token_ids,
            spans=self._arrays["spans"][2 * tokens.start : 2 * tokens.stop].reshape(-1, 2),
            bounds=bounds,
            prefix=token_ids[:first_token],
        )

    def _range(self, name: str, row: int) -> slice:
        ends = self._arrays[name]
        return slice(int(ends[row - 1]) if row else 0, int(ends[row]))


def _by_id(documents: Collection | Documents | Iterable[DocumentLike]) -> Documents:
    if isinstance(documents, Collection):
        return CollectionDocuments(documents)
    if isinstance(documents, Mapping):
        return documents
    return {str(position): document for position, document in enumerate(documents)}


def _build(folder: Path, processor: DocumentProcessor, documents: Documents, ids: Sequence[str] | None) -> None:
    count = len(documents) if ids is None else len(ids)
    with ExitStack() as files, show_progress(total=count, desc="tokenizing", unit=" documents") as bar:
        out = {name: files.enter_context(ArrayWriter(folder / f"{name}.npy", kind)) for name, kind in _ARRAYS.items()}
        for block in read_blocks(documents, ids, BATCH_DOCUMENTS):
            for encoded in processor.encode_documents(list(block.values())):
                first_half, second_half = _hash_halves(encoded.document)
                out["hashes"].append(first_half)
                out["checks"].append(second_half)
                out["token_ids"].extend(encoded.token_ids)
                out["token_ends"].append(len(out["token_ids"]))
                out["spans"].extend(encoded.spans.reshape(-1))
                # If units are tokens, their bounds follow from the tokens.
                out["bounds"].extend(encoded.bounds if processor.unit != "token" else encoded.bounds[:0])
                out["bound_ends"].append(len(out["bounds"]))
                out["prefixes"].append(len(encoded.prefix))
            bar.update(len(block))
    _sort(folder)


def _sort(folder: Path) -> None:
    """Sort the hashes, so that they can be searched, and write the row of each."""
    hashes, checks = np.load(folder / "hashes.npy"), np.load(folder / "checks.npy")
    rows = np.argsort(hashes, kind="stable")
    for name, values in (("hashes", hashes[rows]), ("checks", checks[rows]), ("rows", rows)):
        np.save(folder / f"{name}.npy", values)


def _hash_halves(document: Document) -> tuple[int, int]:
    """The hash of a document's contents, as two 64-bit numbers."""
    digest = hash_document(document)
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
