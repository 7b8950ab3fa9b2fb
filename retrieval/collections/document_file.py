"""Documents in a JSON Lines file: read one after another, or fetched by id from their place in the file.

Where each document begins is found in one pass, the first time one is asked for by id, and kept in the cache until
the file changes. A gzip file cannot be entered in the middle, so an unpacked copy is kept there too.
"""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from tqdm.auto import tqdm

from docparade.retrieval.errors import InputError
from docparade.retrieval.storage.arrays import Array, ArrayWriter, map_array
from docparade.retrieval.storage.cache import build_once
from docparade.retrieval.storage.files import open_text
from docparade.retrieval.storage.string_table import StringTable, StringTableWriter

from .collection import Document
from .records import parse_json_object, read_json_lines, to_document

FORMAT = 1
"""Raised whenever the files in the cache change their form."""


class DocumentFile:
    """A file with a JSON object a line: `{"doc_id": "1", "title": "", "headings": "", "text": "..."}`.

    The id may also be called `id` or `_id`; `title` and `headings` may be missing; other fields are ignored.

    ```python
    DocumentFile(Path("docs.jsonl")).get_many(["17"])["17"].text
    ```
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __getstate__(self) -> dict[str, object]:
        # Memory maps cannot be pickled: another process maps the same files.
        return {"path": self.path}

    def __iter__(self) -> Iterator[Document]:
        for place, record in read_json_lines(self.path):
            yield to_document(record, place)

    def __len__(self) -> int:
        return len(self._places.ids)

    def get_many(self, ids: Iterable[str]) -> dict[str, Document]:
        """The documents with these ids, read from their places in the file."""
        starts = {document_id: self._place_of(document_id) for document_id in ids}
        documents = {}
        with self._places.text.open("rb") as file:
            for document_id, start in starts.items():
                file.seek(start)
                documents[document_id] = parse_document(_decode(file.readline(), str(self.path)), str(self.path))
                if documents[document_id].id != document_id:
                    raise InputError(f"{self.path} changed while it was in use; start again.")
        return documents

    def version(self) -> dict[str, object]:
        """Changes whenever the file does."""
        try:
            status = self.path.stat()
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error.strerror}.") from error
        return {"path": str(self.path.resolve()), "size": status.st_size, "changed": status.st_mtime_ns}

    def _place_of(self, document_id: str) -> int:
        number = self._places.ids.find(document_id)
        if number is None:
            raise InputError(f"{self.path} has no document {document_id}.")
        return int(self._places.starts[number])

    @cached_property
    def _places(self) -> "_Places":
        key = {"file": self.version(), "format": FORMAT}
        folder = build_once("documents", self.path.parent.resolve().name, key, self._find_places)
        unpacked = folder / "unpacked.jsonl"
        text = unpacked if unpacked.exists() else self.path
        return _Places(StringTable(folder / "ids"), map_array(folder / "starts.npy"), text)

    def _find_places(self, folder: Path) -> None:
        packed = self.path.suffix == ".gz"
        with (
            open_text(self.path) as text,
            StringTableWriter(folder / "ids", of=f"document ids of {self.path}") as ids,
            ArrayWriter(folder / "starts.npy", np.int64) as starts,
            (folder / "unpacked.jsonl").open("wb") if packed else nullcontext() as unpacked,
        ):
            start = 0
            doing = f"{'unpacking' if packed else 'finding the documents of'} {self.path.name}"
            for number, raw in enumerate(tqdm(text.buffer, doing, unit=" lines", disable=None), start=1):
                if raw.strip():
                    where = f"{self.path}, line {number}"
                    ids.append(parse_document(_decode(raw, where), where).id)
                    starts.append(start)
                if unpacked is not None:
                    unpacked.write(raw)
                start += len(raw)


@dataclass(frozen=True)
class _Places:
    """Where the documents of a file are: their ids, where each begins, and in which (unpacked) file."""

    ids: StringTable
    starts: Array
    text: Path


def parse_document(line: str, where: str) -> Document:
    """The document that a line of JSON describes; `where` names the line in what is wrong with it."""
    return to_document(parse_json_object(line, where), where)


def _decode(raw: bytes, where: str) -> str:
    try:
        return raw.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8 text ({error.reason}); convert it first.") from error
