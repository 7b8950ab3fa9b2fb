"""Documents by id, for training and reranking."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from docparade.modeling import DocumentLike
from docparade.retrieval.collections.collection import Collection, Document
from docparade.retrieval.errors import InputError

Documents: TypeAlias = Mapping[str, DocumentLike]
"""document id -> document"""


class CollectionDocuments(Mapping[str, Document]):
    """A collection as a mapping from ids to documents, which are read on access.

    An unknown id raises `InputError`, both in `documents[id]` and in `get_many`.

    Example:
        ```python
        documents = CollectionDocuments(load_collection("cranfield"))
        documents["184"].title  # 'scale models for thermo-aeroelastic research .'
        ```
    """

    def __init__(self, collection: Collection) -> None:
        self.collection = collection

    def get_many(self, ids: Iterable[str]) -> dict[str, Document]:
        """Read several documents in one call, which is faster than one by one."""
        return self.collection.get_many(ids)

    def __getitem__(self, document_id: str) -> Document:
        return self.collection.document(document_id)

    def __contains__(self, document_id: object) -> bool:
        try:
            self[str(document_id)]
        except InputError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return (document.id for document in self.collection.documents())

    def __len__(self) -> int:
        return len(self.collection)


def read_blocks(documents: Documents, ids: Sequence[str] | None, size: int) -> Iterator[dict[str, DocumentLike]]:
    """Read documents by id in blocks of `size`; a whole collection is read in order instead of looked up."""
    if isinstance(documents, CollectionDocuments) and ids is None:
        remaining = documents.collection.documents()
        while block := list(islice(remaining, size)):
            yield {document.id: document for document in block}
        return
    chosen = list(documents if ids is None else ids)
    for start in range(0, len(chosen), size):
        yield fetch_documents(documents, chosen[start : start + size])


def fetch_documents(documents: Documents, ids: Iterable[str]) -> dict[str, DocumentLike]:
    """Look up several documents; from a collection, they are read in one call.

    Example:
        >>> fetch_documents({"1": {"id": "1", "text": "It rains."}}, ["1"])
        {'1': {'id': '1', 'text': 'It rains.'}}
    """
    if isinstance(documents, CollectionDocuments):
        return dict(documents.get_many(ids))
    found = {}
    for document_id in ids:
        if document_id not in documents:
            raise InputError(f"there is no document {document_id} among the documents given.")
        found[document_id] = documents[document_id]
    return found
