"""Documents in a JSON Lines file: read one after another, or fetched by id.

The first fetch by id reads the file once and stores the position of each document in the cache, until the file changes.
Of a gzip file, which cannot be read from the middle, the cache also has an unpacked copy.
"""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np

from docparade.retrieval.errors import InputError
from docparade.retrieval.progress import show_progress
from docparade.retrieval.storage.arrays import ArrayWriter
from docparade.retrieval.storage.cache import build_once
from docparade.retrieval.storage.checked_files import CheckedArray
from docparade.retrieval.storage.files import file_version, open_text
from docparade.retrieval.storage.string_table import StringTable, StringTableWriter

from .collection import Document
from .records import parse_json_object, read_json_lines, to_document

FORMAT = 1
"""Incremented when the format of the cached files changes."""


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
        return len(self._positions.ids)

    def get_many(self, ids: Iterable[str]) -> dict[str, Document]:
        """The documents with these ids, read from their positions in the file."""
        numbers = {document_id: self._number_of(document_id) for document_id in ids}
        documents = {}
        with self.path.open("rb") as file:
            for document_id, number in numbers.items():
                line = self._positions.read(number, file)
                documents[document_id] = parse_document(_decode(line, str(self.path)), str(self.path))
                if documents[document_id].id != document_id:
                    raise InputError(f"{self.path} changed while it was being read; start again.")
        return documents

    def version(self) -> dict[str, object]:
        """Path, size and times of the last change."""
        try:
            return {"path": str(self.path.resolve()), **file_version(self.path)}
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error.strerror}.") from error

    def _number_of(self, document_id: str) -> int:
        number = self._positions.ids.find(document_id)
        if number is None:
            raise InputError(f"{self.path} has no document {document_id}.")
        return number

    @cached_property
    def _positions(self) -> "_Positions":
        key = {"file": self.version(), "format": FORMAT}
        folder = build_once("documents", self.path.parent.resolve().name, key, self._write_positions)
        unpacked = folder.text("unpacked.jsonl") if "unpacked.jsonl" in folder else None
        return _Positions(StringTable(folder, "ids"), folder.array("starts.npy"), unpacked)

    def _write_positions(self, folder: Path) -> None:
        packed = self.path.suffix == ".gz"
        with (
            open_text(self.path) as text,
            StringTableWriter(folder / "ids", of=f"document ids of {self.path}") as ids,
            ArrayWriter(folder / "starts.npy", np.int64) as starts,
            (folder / "unpacked.jsonl").open("wb") if packed else nullcontext() as unpacked,
        ):
            start = 0
            doing = f"{'unpacking' if packed else 'reading'} {self.path.name}"
            for number, raw in enumerate(show_progress(text.buffer, doing, unit=" lines"), start=1):
                if raw.strip():
                    place = f"{self.path}, line {number}"
                    ids.append(parse_document(_decode(raw, place), place).id)
                    starts.append(start)
                if unpacked is not None:
                    unpacked.write(raw)
                start += len(raw)


@dataclass(frozen=True)
class _Positions:
    """Positions of the documents: their ids, where each begins, and the unpacked copy of a gzip file."""

    ids: StringTable
    starts: CheckedArray
    unpacked: CheckedArray | None

    def read(self, number: int, file: BinaryIO) -> bytes:
        """The line of a document, from the file or its unpacked copy."""
        start = int(self.starts[number])
        if self.unpacked is None:
            file.seek(start)
            return file.readline()
        # Blank lines may follow.
        end = int(self.starts[number + 1]) if number + 1 < len(self.starts) else len(self.unpacked)
        content: bytes = self.unpacked[start:end].tobytes()
        return content.partition(b"\n")[0]


def parse_document(line: str, place: str) -> Document:
    """The document of a line of JSON; `place` names the line in errors."""
    return to_document(parse_json_object(line, place), place)


def _decode(raw: bytes, place: str) -> str:
    try:
        return raw.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: not UTF-8 text ({error.reason}); convert it first.") from error
