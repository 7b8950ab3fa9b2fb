"""Documents by their ids, in the form that processors and rankers take: what training and reranking read from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from docparade.retrieval.collections.collection import Collection
from docparade.retrieval.errors import InputError

DocumentFields = dict[str, str]
"""A document as `DocumentProcessor` takes it: `id`, `title`, `headings`, `text`."""


class CollectionDocuments(Mapping[str, DocumentFields]):
    """A collection seen as a mapping from ids to documents; each is fetched when it is asked for.

    An id that the collection does not have is an `InputError`, in `documents[id]` as in `get_many`.

    Example:
        ```python
        documents = CollectionDocuments(load_collection("cranfield"))
        documents["184"]["title"]  # 'scale models for thermo-aeroelastic research .'
        ```
    """

    def __init__(self, collection: Collection) -> None:
        self.collection = collection

    def get_many(self, ids: Iterable[str]) -> dict[str, DocumentFields]:
        """Several documents in one go, which is faster than one by one."""
        return {document_id: {**vars(document)} for document_id, document in self.collection.get_many(ids).items()}

    def __getitem__(self, document_id: str) -> DocumentFields:
        return self.get_many([document_id])[document_id]

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


def fetch(documents: Mapping[str, DocumentFields], ids: Iterable[str]) -> dict[str, DocumentFields]:
    """Several documents of any lookup, in one go where it can.

    Example:
        >>> fetch({"1": {"id": "1", "text": "It rains."}}, ["1"])["1"]["text"]
        'It rains.'
    """
    if isinstance(documents, CollectionDocuments):
        return documents.get_many(ids)
    found = {}
    for document_id in ids:
        if document_id not in documents:
            raise InputError(f"there is no document {document_id} among the documents given.")
        found[document_id] = documents[document_id]
    return found
