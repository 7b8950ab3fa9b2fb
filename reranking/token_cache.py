"""Documents that were tokenized once: `TokenCache`, a folder of memory-mapped arrays that processes share.

A document is found by its contents (a 128-bit hash of title, headings and text), so what comes out is always what the
processor would give, and a text that changed, or that was never here, is tokenized on the spot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from docparade.modeling import DocumentProcessor
from docparade.modeling.documents import Document
from docparade.modeling.passages import unit_bounds
from docparade.modeling.processing_document import EncodedDocument
from docparade.retrieval.collections.collection import Collection
from docparade.retrieval.storage.arrays import ArrayWriter, map_array
from docparade.retrieval.storage.cache import build_once

from . import fingerprints
from .documents import CollectionDocuments, DocumentLike, Documents, fetch

FORMAT = 1
"""Raised whenever the files change their form."""

DOCUMENTS_AT_ONCE = 256
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
    """Takes the place of `DocumentProcessor.encode_documents`, without tokenizing what it holds.

    Example:
        ```python
        documents = CollectionDocuments(load_collection("cranfield"))
        cache = TokenCache.open(None, model.processor, documents)
        rerank(model, run, queries, documents, encode_documents=cache.encode_documents)
        ```
    """

    def __init__(self, folder: Path, processor: DocumentProcessor) -> None:
        self.folder = folder
        self.processor = processor
        self._arrays = {name: map_array(folder / f"{name}.npy") for name in (*_ARRAYS, "rows")}

    @classmethod
    def open(
        cls,
        folder: str | Path | None,
        processor: DocumentProcessor,
        documents: Collection | Documents | Iterable[DocumentLike],
        ids: Iterable[str] | None = None,
    ) -> TokenCache:
        """Open the cache of some documents; the first process that does builds it, the others wait for it.

        It is kept under a key of all that could change it: the documents, the tokenizer, the processor's settings that
        matter for tokens, and the code's version. Windows, lengths and limits do not: they share one cache.

        Args:
            folder: Where caches are kept; `None` is docparade's own cache folder.
            processor: Whose `encode_documents` it stands for.
            documents: A collection, documents by id, or a list of documents.
            ids: The documents that are wanted, such as those of a run; `None` is all.
        """
        source = _by_id(documents)
        wanted = None if ids is None else sorted(set(ids))
        key = {
            "format": FORMAT,
            "tokenizing": fingerprints.of_tokenizing(processor),
            "documents": fingerprints.of_documents(source, wanted),
        }
        name = source.collection.name if isinstance(source, CollectionDocuments) else "documents"

        def build(place: Path) -> None:
            _build(place, processor, source, wanted)

        return cls(build_once("tokens", name, key, build, root=None if folder is None else Path(folder)), processor)

    def __len__(self) -> int:
        """How many documents it holds."""
        return len(self._arrays["rows"])

    def encode_documents(self, documents: Sequence[DocumentLike]) -> list[EncodedDocument]:
        """As `DocumentProcessor.encode_documents`; what the cache does not hold is tokenized now."""
        checked = [Document.of(document, f"documents[{i}]") for i, document in enumerate(documents)]
        found = [self._find(document) for document in checked]
        missing = [document for document, row in zip(checked, found, strict=True) if row is None]
        fresh = iter(self.processor.encode_documents(missing))
        return [
            next(fresh) if row is None else self._read(document, row)
            for document, row in zip(checked, found, strict=True)
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process maps the same files, instead of getting a copy of what is in them.
        return type(self), (self.folder, self.processor)

    def _find(self, document: Document) -> int | None:
        wanted, check = _hashes(document)
        hashes, checks = self._arrays["hashes"], self._arrays["checks"]
        place = int(np.searchsorted(hashes, np.uint64(wanted)))
        while place < len(hashes) and hashes[place] == wanted:
            if checks[place] == check:
                return int(self._arrays["rows"][place])
            place += 1
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
    with ExitStack() as files, tqdm(total=count, desc="tokenizing", unit=" documents", disable=None) as bar:
        out = {name: files.enter_context(ArrayWriter(folder / f"{name}.npy", kind)) for name, kind in _ARRAYS.items()}
        for block in _blocks(documents, ids):
            for encoded in processor.encode_documents(block):
                wanted, check = _hashes(encoded.document)
                out["hashes"].append(wanted)
                out["checks"].append(check)
                out["token_ids"].extend(encoded.token_ids)
                out["token_ends"].append(len(out["token_ids"]))
                out["spans"].extend(encoded.spans.reshape(-1))
                # Tokens as units begin where tokens do.
                out["bounds"].extend(encoded.bounds if processor.unit != "token" else encoded.bounds[:0])
                out["bound_ends"].append(len(out["bounds"]))
                out["prefixes"].append(len(encoded.prefix))
            bar.update(len(block))
    _sort(folder)


def _sort(folder: Path) -> None:
    """Hashes in order, so that they are found by bisection, and beside each the row that it belongs to."""
    hashes, checks = np.load(folder / "hashes.npy"), np.load(folder / "checks.npy")
    rows = np.argsort(hashes, kind="stable")
    for name, values in (("hashes", hashes[rows]), ("checks", checks[rows]), ("rows", rows)):
        np.save(folder / f"{name}.npy", values)


def _blocks(documents: Documents, ids: Sequence[str] | None) -> Iterator[list[DocumentLike]]:
    """The documents in blocks; all of a collection are read one after another, and not looked up."""
    if isinstance(documents, CollectionDocuments) and ids is None:
        everything: Iterator[DocumentLike] = documents.collection.documents()
        while block := list(islice(everything, DOCUMENTS_AT_ONCE)):
            yield block
        return
    wanted = list(documents if ids is None else ids)
    for start in range(0, len(wanted), DOCUMENTS_AT_ONCE):
        yield list(fetch(documents, wanted[start : start + DOCUMENTS_AT_ONCE]).values())


def _hashes(document: Document) -> tuple[int, int]:
    digest = fingerprints.of_document(document)
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
