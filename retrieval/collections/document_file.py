"""Documents in a JSON Lines file: read one after another, or fetched by id from their place in the file.

Where each document begins is found in one pass, the first time one is asked for by id, and kept in the cache until
the file changes. A gzip file cannot be entered in the middle, so an unpacked copy is kept there too.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from tqdm.auto import tqdm

from docparade.retrieval.errors import InputError
from docparade.retrieval.storage.arrays import Array, ArrayWriter, map_array
from docparade.retrieval.storage.cache import build_once
from docparade.retrieval.storage.files import open_text, read_lines
from docparade.retrieval.storage.string_table import StringTable, StringTableWriter

from .collection import Document

FORMAT = 1
"""Raised whenever the files in the cache change their form."""

ID_FIELDS = ("doc_id", "id", "_id")


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
        for number, line in read_lines(self.path):
            yield parse_document(line, f"{self.path}, line {number}")

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
    return to_document(parse_object(line, where), where)


def to_document(record: Mapping[str, object], where: str) -> Document:
    """The document that a record describes."""
    if "text" not in record:
        raise InputError(f"{where}: the document has no field text.")
    title, headings, text = (text_field(record, name, where) for name in ("title", "headings", "text"))
    return Document(id_field(record, ID_FIELDS, where), text, title, headings)


def parse_object(line: str, where: str) -> dict[str, object]:
    """The JSON object on a line."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a ValueError too
        raise InputError(f"{where}: not a JSON object ({error}).") from None
    if not isinstance(record, dict):
        raise InputError(f"{where}: not a JSON object but {type(record).__name__}.")
    return record


def id_field(record: Mapping[str, object], names: Sequence[str], where: str) -> str:
    """The id in the first of the named fields that the record has."""
    name = next((name for name in names if name in record), None)
    if name is None:
        raise InputError(f"{where}: there is no id; give it a field {names[0]}.")
    value = text_field(record, name, where)
    if not value or value.split() != [value]:
        raise InputError(f"{where}: {name} is {value!r}; an id is a string without spaces.")
    return value


def text_field(record: Mapping[str, object], name: str, where: str) -> str:
    """A field that should be a string; one that is missing or null is empty."""
    value = record.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError(f"{where}: {name} should be a string, and is {json.dumps(value)[:50]}.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{where}: {name} holds half a character (a lone surrogate such as \\ud800).") from None
    return value


def _decode(raw: bytes, where: str) -> str:
    try:
        return raw.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8 text ({error.reason}); convert it first.") from error
