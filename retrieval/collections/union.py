"""Several collections as one."""

from collections.abc import Iterable, Iterator

from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import Qrels

from .collection import Collection, Document


class CollectionUnion(Collection):
    """Several collections as one: their queries and judgments together, a document from the first that has it."""

    def __init__(self, collections: list[Collection]) -> None:
        self.name = " + ".join(collection.name for collection in collections)
        self.collections = collections
        # The topics of several years often have one set of documents.
        versions = [collection.version() for collection in collections]
        self.sources = [c for i, c in enumerate(collections) if versions[i] not in versions[:i]]

    def documents(self) -> Iterator[Document]:
        for source in self.sources:
            yield from source.documents()

    def get_many(self, ids: Iterable[str]) -> dict[str, Document]:
        if len(self.sources) == 1:
            return self.sources[0].get_many(ids)
        return {document_id: self._find(document_id) for document_id in dict.fromkeys(ids)}

    def _find(self, document_id: str) -> Document:
        for source in self.sources:
            try:
                return source.document(document_id)
            except InputError:
                continue
        raise InputError(f"{self.name} have no document {document_id}.")

    def __len__(self) -> int:
        return sum(len(source) for source in self.sources)

    def queries(self, field: str | None = None) -> dict[str, str]:
        queries: dict[str, str] = {}
        for collection in self.collections:
            found = collection.queries(field)
            if shared := queries.keys() & found.keys():
                raise InputError(f"query {min(shared)} is in two of {self.name}; their queries cannot be told apart.")
            queries |= found
        return queries

    def qrels(self) -> Qrels:
        return {query: grades for collection in self.collections for query, grades in collection.qrels().items()}

    def version(self) -> dict[str, object]:
        return {"union": [source.version() for source in self.sources]}
