"""Collections: documents, queries and judgments behind one interface, whatever they are stored as.

`load_collection` takes one of these names:

- an ir_datasets id, such as `cranfield` or `msmarco-document/trec-dl-2019`;
- a folder with `docs.jsonl` (or `.jsonl.gz`), `queries.tsv` and `qrels.txt`;
- a folder in BEIR's format, with `corpus.jsonl`, `queries.jsonl` and `qrels/test.tsv`, or the path of another split;
- a folder with Hugging Face datasets saved as `corpus`, `queries` and `qrels`, or `hf:` and a dataset's name;
- `docparade:pydocs`, made from documentation that is on every machine, and its parts `docparade:pydocs/train`,
  `/validation` and `/test`.

Each kind is a subclass of `Collection` in a file of its own.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

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


def load_collection(name_or_path: str | Path) -> Collection:
    """Open a collection by its ir_datasets id, its folder, `hf:` and a Hugging Face dataset, or `docparade:pydocs`.

    Opening is fast: files are read only when they are needed.

    >>> len(load_collection("cranfield"))
    1400
    """
    name = str(name_or_path)
    path = Path(name_or_path)
    if name.startswith("docparade:"):
        from docparade.retrieval.pydocs.collection import load_pydocs

        return load_pydocs(name)
    if name.startswith("hf:"):
        from .hugging_face import check_hub_name, load_hugging_face

        check_hub_name(name)
        return load_hugging_face(name)
    try:
        if path.is_dir() or path.suffix == ".tsv":
            return _load_folder(path)
    except OSError as error:  # a name that is too long, or a folder without permission to read
        raise InputError(f"the collection {name} cannot be opened: {error.strerror}.") from error
    from .irds import IrDatasetsCollection

    return IrDatasetsCollection(name)


def _load_folder(path: Path) -> Collection:
    if path.suffix == ".tsv":
        from .beir import BeirCollection

        return BeirCollection(path.parent.parent, judgments=path)
    if any((path / name).is_file() for name in ("docs.jsonl", "docs.jsonl.gz")):
        from .jsonl_folder import LocalCollection

        return LocalCollection(path)
    if any((path / name).is_file() for name in ("corpus.jsonl", "corpus.jsonl.gz")):
        from .beir import BeirCollection

        return BeirCollection(path)
    if (path / "corpus").is_dir():
        from .hugging_face import load_saved

        return load_saved(path)
    raise InputError(
        f"{path} is not a collection: it must have docs.jsonl (or docs.jsonl.gz), queries.tsv and qrels.txt; "
        "or BEIR's corpus.jsonl; or a Hugging Face dataset saved as corpus."
    )
