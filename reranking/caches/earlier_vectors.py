"""`EarlierVectors`: what the same encoder made of documents before, in caches of other documents or of another type.

Query sets of a collection, runs, and a collection before and after it has grown share most of their documents. A
document that is in one of their caches with the same contents is copied, and not encoded again.

Vectors depend in their last bits on the documents that are encoded together. So a cache with copied vectors may differ
in these bits from one that is encoded anew; scores agree to 1e-5 on float32 vectors, as they do for all batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from docparade.retrieval.storage.arrays import map_array
from docparade.retrieval.storage.cache import list_built
from docparade.retrieval.storage.string_table import StringTable

from .vector_building import Part, compress
from .vector_types import VectorType


@dataclass(frozen=True)
class EarlierVectors:
    """The folders of complete caches from which vectors are copied, and the type that they are copied to.

    Example:
        ```python
        earlier = EarlierVectors.find({"format": 3, "encoder": encoder}, "float16", root=None)
        earlier.take({"184": content_number(document)})
        ```
    """

    folders: tuple[Path, ...]
    vector_type: VectorType

    @classmethod
    def find(cls, values: Mapping[str, object], vector_type: VectorType, root: Path | None) -> EarlierVectors:
        """Find the caches of a type whose keys have these values, and those of float32, from which all are made."""
        types = dict.fromkeys(("float32", vector_type))
        found = (folder for one in types for folder in list_built("vectors", {**values, "type": one}, root))
        return cls(tuple(found), vector_type)

    def take(self, contents: Mapping[str, int]) -> dict[str, Part]:
        """Read the documents that were encoded with these contents, by id; each is a part of its own."""
        found: dict[str, Part] = {}
        for folder in self.folders:
            left = [name for name in contents if name not in found]
            if not left:
                break
            # Each folder is opened for a moment: all of them together may have more files than a process may open.
            try:
                kept = _KeptDocuments(folder)
            except (OSError, ValueError, EOFError):  # removed or damaged since it was found: its documents are encoded
                continue
            numbers = kept.ids.find_many(left).tolist()
            for name, number in zip(left, numbers, strict=True):
                if number >= 0 and int(kept.contents[number]) == contents[name]:
                    found[name] = kept.read(number, self.vector_type)
        return found


class _KeptDocuments:
    """The documents of a cache, by number. Only those that are read are in memory."""

    def __init__(self, folder: Path) -> None:
        self.ids = StringTable(folder)
        self.contents = map_array(folder / "contents.npy")
        self._ends = map_array(folder / "passage_ends.npy")
        self._unread = map_array(folder / "unread.npy")
        self._empty = map_array(folder / "empty.npy")
        self._spans = map_array(folder / "spans.npy").reshape(-1, 2)
        self._lengths = map_array(folder / "lengths.npy")
        self._vectors = map_array(folder / "vectors.npy").reshape(-1, int(np.load(folder / "width.npy")))
        self._scales = map_array(folder / "scales.npy") if (folder / "scales.npy").is_file() else None
        # Where each passage's vectors end; without those of tokens, each passage has one.
        is_flat = len(self._vectors) == len(self._lengths)
        self._vector_ends = None if is_flat else np.cumsum(self._lengths, dtype=np.int64)

    def read(self, number: int, vector_type: VectorType) -> Part:
        """Copy a document; vectors of this type bit for bit, and those of float32 as they are when it is encoded."""
        passages = slice(int(self._ends[number - 1]) if number else 0, int(self._ends[number]))
        rows = slice(self._count_vectors(passages.start), self._count_vectors(passages.stop))
        if self._scales is None:
            vectors, scales = compress(self._vectors[rows], vector_type)
        else:
            vectors, scales = np.array(self._vectors[rows]), np.array(self._scales[rows])
        return {
            "ids": np.array([self.ids[number]]),
            "contents": np.array([self.contents[number]]),
            "counts": np.array([passages.stop - passages.start]),
            "unread": np.array([self._unread[number]]),
            "empty": np.array([self._empty[number]]),
            "spans": np.array(self._spans[passages]),
            "lengths": np.array(self._lengths[passages]),
            "vectors": vectors,
            "scales": scales,
        }

    def _count_vectors(self, passages: int) -> int:
        """The number of vectors of the first passages."""
        if self._vector_ends is None or not passages:
            return passages
        return int(self._vector_ends[passages - 1])
