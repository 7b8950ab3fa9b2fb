"""A collection in a folder: docs.jsonl (or docs.jsonl.gz), queries.tsv and qrels.txt."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import Qrels, read_qrels
from docparade.retrieval.storage.files import read_lines

from .collection import Collection, Document
from .document_file import DocumentFile
from .records import PlacedRecord, queries_from


class FolderCollection(Collection):
    """A collection in a folder whose documents are in a JSON Lines file."""

    def __init__(self, folder: Path, documents: str) -> None:
        self.name = str(folder)
        self._folder = folder
        self._documents = DocumentFile(file_in(folder, documents))

    def documents(self) -> Iterator[Document]:
        return iter(self._documents)

    def get_many(self, ids: Iterable[str]) -> dict[str, Document]:
        return self._documents.get_many(ids)

    def __len__(self) -> int:
        return len(self._documents)

    def version(self) -> dict[str, object]:
        return self._documents.version()


class LocalCollection(FolderCollection):
    """A folder with `docs.jsonl`, one JSON object a line; `queries.tsv`, `id<tab>text` a line; and TREC judgments.

    Queries and judgments may be missing as long as they are not used. Any of the files may be a `.gz` file.

    ```python
    LocalCollection(Path("my-collection")).queries()
    ```
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "docs.jsonl")

    def queries(self, field: str | None = None) -> dict[str, str]:
        return read_queries(file_in(self._folder, "queries.tsv"), field)

    def qrels(self) -> Qrels:
        return read_qrels(file_in(self._folder, "qrels.txt"))


def read_queries(path: Path, field: str | None = None) -> dict[str, str]:
    """Read queries, `id<tab>text` a line; an id occurs once, a text may be empty. The only `field` is `text`.

    ```python
    read_queries(Path("queries.tsv"))["1"]
    ```
    """
    return queries_from(_query_records(path), str(path), field)


def _query_records(path: Path) -> Iterator[PlacedRecord]:
    for number, line in read_lines(path):
        query_id, tab, text = line.partition("\t")
        if not tab:
            raise InputError(f"{path}, line {number}: there is no tab; a line is an id, a tab and the query's text.")
        yield f"{path}, line {number}", {"query_id": query_id, "text": text.strip()}


def file_in(folder: Path, name: str) -> Path:
    """A file of a folder, or its `.gz` file; one of the two must exist."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise InputError(f"the collection {folder} has no {name}; add the file.")
