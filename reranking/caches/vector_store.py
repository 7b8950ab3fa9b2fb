"""`VectorStore`: the vectors that an encoder has made of any documents, found by the documents' contents.

A store is a folder for one encoder and type. Documents are added to it, whatever collection or run they came with:

- A *part* is a file with some documents that were encoded together. It appears whole, so an interruption loses nothing
  but the documents that are being encoded, and the processes of a group each write parts of their own.
- A *segment* is a folder with the documents of many parts, in arrays that are memory-mapped. It never changes, so
  readers need no lock, and each block is compared with its checksum when it is first read (see `checked_files`).

A damaged segment is replaced by one with its undamaged documents. The others are then no longer there, and are encoded
again when they are asked for.
"""

from __future__ import annotations

import json
import logging
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from docparade.retrieval.storage.arrays import Array, ArrayWriter
from docparade.retrieval.storage.cache import discard, hold_place, remove_unfinished, write_folder
from docparade.retrieval.storage.checked_files import CheckedArray, CheckedFolder, DamagedFile
from docparade.retrieval.storage.files import atomic_path, sweep

from .fingerprints import CONTENT
from .vector_types import VectorType

logger = logging.getLogger(__name__)

Part = Mapping[str, Array]
"""Some documents: `contents` (hashes), `counts` (of passages), `unread`, `empty`; of their passages `spans` and
`lengths` (how many vectors a passage has: with late interaction, its own and those of its tokens); `vectors`, and
`scales` of int8 vectors."""

# Read whole when a segment is opened; the rest is read when it is needed.
_COLUMNS: dict[str, Any] = {
    "contents": CONTENT,
    "counts": np.int32,
    "unread": np.int32,
    "empty": np.bool_,
    "lengths": np.int32,
}
_SEGMENT = "segment"


class VectorStore:
    """The documents in a folder, of all segments that are there now.

    Documents, passages and vectors are numbered through all segments.

    Example:
        ```python
        store = VectorStore(folder, "float16")
        [number] = store.find([hash_document(document)])
        ```
    """

    def __init__(self, folder: Path, vector_type: VectorType, segments: Sequence[_Segment] | None = None) -> None:
        self.folder = folder
        self.vector_type = vector_type
        self.damaged: set[Path] = set()
        """Folders of segments in which damage was found."""
        self._segments = list(self._open_segments() if segments is None else segments)
        columns = {
            name: np.concatenate([np.zeros(0, kind), *(segment.columns[name] for segment in self._segments)])
            for name, kind in _COLUMNS.items()
        }
        self.contents, self.unread, self.empty = columns["contents"], columns["unread"], columns["empty"]
        self.counts = columns["counts"].astype(np.int64)
        """How many passages each document has."""
        self.lengths = columns["lengths"].astype(np.int64)
        """How many vectors each passage has."""
        self.is_flat = bool((self.lengths == 1).all())
        """Whether each passage has one vector."""
        self.first_passages = np.cumsum(self.counts) - self.counts
        self.first_vectors = np.cumsum(self.lengths) - self.lengths
        """Of each passage: the number of its own vector, before those of its tokens."""
        self._passage_ends = np.cumsum([len(segment.columns["lengths"]) for segment in self._segments])
        self._vector_ends = np.cumsum([segment.columns["lengths"].sum(dtype=np.int64) for segment in self._segments])
        self._order = np.argsort(self.contents, kind="stable")

    def __len__(self) -> int:
        """The number of documents."""
        return len(self.contents)

    def find(self, contents: Array | Sequence[bytes]) -> Array:
        """The numbers of documents with these contents; -1 for those that are not in the store."""
        wanted = np.asarray(contents, dtype=CONTENT)
        if not len(self):
            return np.full(len(wanted), -1, dtype=np.int64)
        places = np.searchsorted(self.contents, wanted, sorter=self._order)
        numbers = self._order[np.minimum(places, len(self) - 1)]
        return np.where(self.contents[numbers] == wanted, numbers, -1)

    def passages_of(self, documents: Array) -> Array:
        """The numbers of the passages of documents."""
        return _expand(self.first_passages[documents], self.counts[documents])

    def vectors_of(self, passages: Array) -> Array:
        """The numbers of the vectors of passages."""
        return _expand(self.first_vectors[passages], self.lengths[passages])

    def spans(self, passages: Array) -> Array:
        """The spans of passages in their documents' texts, `(passages, 2)`."""
        return self._read("spans", self._passage_ends, passages)

    def load(self, vectors: Array, device: torch.device | str = "cpu") -> Tensor:
        """Vectors in float32."""
        # torch converts types faster than numpy.
        loaded = torch.from_numpy(self._read("vectors", self._vector_ends, vectors)).to(device).float()
        if self.vector_type == "int8":
            loaded *= torch.from_numpy(self._read("scales", self._vector_ends, vectors)).to(device)
        return loaded

    def read_part(self, number: int) -> Part:
        """A document as it is stored."""
        passages = self.passages_of(np.array([number]))
        vectors = self.vectors_of(passages)
        part = {name: getattr(self, name)[[number]] for name in ("contents", "counts", "unread", "empty")}
        part |= {"lengths": self.lengths[passages], "spans": self.spans(passages)}
        for name in ("vectors", "scales") if self.vector_type == "int8" else ("vectors",):
            part[name] = self._read(name, self._vector_ends, vectors)
        return part

    def _read(self, name: str, ends: Array, rows: Array) -> Array:
        """Rows of an array, from the segments that have them; a copy, because what is mapped is not writable."""
        owners = np.searchsorted(ends, rows, side="right")
        used = np.unique(owners).tolist()
        if len(used) == 1:
            return self._segments[used[0]].read(name, rows - (ends[used[0] - 1] if used[0] else 0))
        found = np.zeros((0, 1), np.float32)
        for place, owner in enumerate(used):
            inside = owners == owner
            values = self._segments[owner].read(name, rows[inside] - (ends[owner - 1] if owner else 0))
            if place == 0:
                found = np.empty((len(rows), values.shape[1]), values.dtype)
            found[inside] = values
        return found

    # --- Adding documents ---------------------------------------------------------------------------------------------

    def lock(self) -> AbstractContextManager[None]:
        """Hold the right to change the store; other processes wait for it."""
        remove_unfinished(self.folder)
        return hold_place(self.folder, _SEGMENT)

    def find_parts(self) -> Array:
        """The contents of the documents in parts that an interrupted process left; damaged parts are removed."""
        sweep(self.folder)
        found = [np.zeros(0, CONTENT)]
        for path in self._parts():
            if (part := _read_part(path)) is None:
                logger.warning("%s is damaged: its documents are encoded again.", path)
                path.unlink()
            else:
                found.append(part["contents"])
        return np.concatenate(found)

    def write_part(self, number: int, part: Part) -> None:
        """Write documents to a file; they are in the store after `join_parts`."""
        with atomic_path(self.folder / f"part-{number:08}-{uuid.uuid4().hex}.npz") as temporary:
            np.savez(temporary, allow_pickle=False, **part)

    def join_parts(self) -> None:
        """Make a segment of all parts."""
        parts = self._parts()
        if parts:
            self._write_segment(part for path in parts if (part := _read_part(path)) is not None)
        for path in parts:
            path.unlink()

    def report(self, damage: DamagedFile) -> None:
        """Say that a segment is damaged, and remember it for `drop_damaged`."""
        logger.warning("%s is damaged: %s. Its documents are encoded again.", damage.folder, damage)
        self.damaged.add(damage.folder)

    def drop_damaged(self) -> None:
        """Replace each damaged segment by one with its undamaged documents."""
        for folder in self.damaged:
            if folder.is_dir():  # and was not replaced by another process
                with suppress(DamagedFile):
                    self._save_undamaged(VectorStore(self.folder, self.vector_type, [_Segment(CheckedFolder(folder))]))
                discard(folder, _SEGMENT)

    def _save_undamaged(self, alone: VectorStore) -> None:
        undamaged = [number for number in range(len(alone)) if alone._is_whole(number)]
        if undamaged:
            self._write_segment(alone.read_part(number) for number in undamaged)

    def _is_whole(self, number: int) -> bool:
        try:
            return bool(self.read_part(number))
        except DamagedFile:
            return False

    def _write_segment(self, parts: Iterable[Part]) -> None:
        folder = self.folder / f"{_SEGMENT}-{uuid.uuid4().hex}"
        write_folder(folder, _SEGMENT, lambda target: _write_arrays(target, parts))

    def _parts(self) -> list[Path]:
        return sorted(self.folder.glob("part-*.npz"))

    def _folders(self) -> list[Path]:
        return sorted(self.folder.glob(f"{_SEGMENT}-*"))

    def _open_segments(self) -> Iterator[_Segment]:
        """Open the segments; the documents of a damaged one count as not there, and are encoded again."""
        for folder in self._folders():
            try:
                yield _Segment(CheckedFolder(folder))
            except DamagedFile as damage:
                if folder.is_dir():  # and was not replaced by another process
                    self.report(damage)


class _Segment:
    """The arrays of a segment."""

    def __init__(self, folder: CheckedFolder) -> None:
        self.folder = folder
        self.columns = {name: folder.array(f"{name}.npy")[:] for name in _COLUMNS}
        widths = json.loads(folder.read_bytes("widths.json"))
        self._arrays: dict[str, CheckedArray] = {
            name: folder.array(f"{name}.npy", width) for name, width in widths.items()
        }

    def read(self, name: str, rows: Array) -> Array:
        """Copy rows of an array."""
        places: Any = rows
        if len(rows) > 1 and (np.diff(rows) == 1).all():
            places = slice(int(rows[0]), int(rows[-1]) + 1)
        return np.array(self._arrays[name][places])


def _expand(firsts: Array, counts: Array) -> Array:
    """The numbers of ranges, one after another.

    Example:
        >>> _expand(np.array([4, 0]), np.array([2, 3]))
        array([4, 5, 0, 1, 2])
    """
    before = np.cumsum(counts) - counts
    return np.repeat(firsts - before, counts) + np.arange(counts.sum())


def join(parts: Sequence[Part]) -> Part:
    """One part of several."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _read_part(path: Path) -> Part | None:
    """Read a part; None if it is damaged."""
    try:
        with np.load(path) as arrays:
            # Reading an array compares its checksum.
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error):
        return None


def _write_arrays(folder: Path, parts: Iterable[Part]) -> None:
    """Write parts to the arrays of a segment."""
    widths: dict[str, int] = {}
    with ExitStack() as files:
        writers: dict[str, ArrayWriter] = {}
        for part in parts:
            for name, values in part.items():
                if name not in writers:
                    kind = _COLUMNS.get(name, values.dtype)
                    writers[name] = files.enter_context(ArrayWriter(folder / f"{name}.npy", kind))
                if values.ndim == 2:
                    widths[name] = values.shape[1]
                writers[name].extend(values.reshape(-1))
    (folder / "widths.json").write_text(json.dumps(widths), encoding="utf-8")
