"""`Collection`: documents, queries and judgments behind one interface, whatever they are stored as.

`catalog` opens a collection by its name. Each kind is a subclass of `Collection` in a file of its own.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import Qrels, Run


@dataclass(frozen=True)
class Document:
    """A document of a collection; `DocumentProcessor` and `model.rank` take it as it is."""

    id: str
    text: str
    title: str = ""
    headings: str = ""

    def contents(self) -> str:
        """Title, headings and text as one string, for an index.

        A title that the text begins with, as in Cranfield, is not repeated.

        >>> Document("1", "Wings. On wings.", title="Wings.").contents()
        'Wings. On wings.'
        """
        title = "" if self.text.lstrip().startswith(self.title.strip()) else self.title
        return "\n".join(part for part in (title, self.headings, self.text) if part)


class Collection(ABC):
    """The interface of all collections; `load_collection` opens one.

    ```python
    collection = load_collection("cranfield")
    collection.document("1").title
    collection.queries()["1"]
    ```
    """

    name: str
    """the ir_datasets id, or the folder's path"""

    @abstractmethod
    def documents(self) -> Iterator[Document]:
        """All documents, in the order of the source."""

    @abstractmethod
    def get_many(self, ids: Iterable[str]) -> dict[str, Document]:
        """The documents with these ids, without reading the others; an unknown id is an `InputError`."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of documents."""

    @abstractmethod
    def queries(self, field: str | None = None) -> dict[str, str]:
        """Query id -> text; `field` names another field of the queries, such as `title` or `description`."""

    @abstractmethod
    def qrels(self) -> Qrels:
        """The judgments: query id -> document id -> grade; if a document has several grades, the highest."""

    @abstractmethod
    def version(self) -> dict[str, object]:
        """JSON values that change whenever the documents change; part of the key of everything cached from them."""

    def document(self, document_id: str) -> Document:
        """The document with this id."""
        return self.get_many([document_id])[document_id]

    def scored_documents(self) -> Run:
        """The run that comes with the collection, for reranking (scoreddocs in ir_datasets)."""
        raise InputError(f"{self.name} has no scored documents; make a run with 'docparade retrieve'.")
