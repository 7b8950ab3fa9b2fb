"""Many strings on disk, numbered in the order in which they were added, and found by number or by value.

The document ids of a large collection do not fit in memory as Python strings. Here they are a text file and three
arrays, all memory-mapped: where each string ends, the sorted 64-bit hashes of all strings, and their numbers.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType

import numpy as np

from docparade.retrieval.errors import InputError

from .arrays import Array, ArrayWriter
from .checked_files import CheckedFolder


class StringTable:
    """The memory-mapped strings that a `StringTableWriter` wrote into a part of a finished folder.

    ```python
    table = StringTable(build_once("documents", "mine", key, write_ids), "ids")
    table[table.find("doc-17")]  # 'doc-17'
    ```
    """

    def __init__(self, folder: CheckedFolder, part: str) -> None:
        self._text = folder.text(f"{part}/strings.txt")
        self._ends = folder.array(f"{part}/ends.npy")
        self._sorted_hashes = folder.array(f"{part}/hashes.npy")
        self._numbers = folder.array(f"{part}/numbers.npy")

    @cached_property
    def _hashes(self) -> Array:
        # A search touches blocks all over the file, so all are compared.
        hashes: Array = self._sorted_hashes[:]
        return hashes

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> str:
        start = self._ends[number - 1] if number > 0 else 0
        return self._decode(start, self._ends[number])

    def take(self, numbers: Array) -> list[str]:
        """The strings with these numbers."""
        ends = self._ends[numbers].tolist()
        starts = np.where(numbers > 0, self._ends[numbers - 1], 0).tolist()
        return [self._decode(start, end) for start, end in zip(starts, ends, strict=True)]

    def _decode(self, start: int, end: int) -> str:
        text: str = self._text[start:end].tobytes().decode("utf-8")
        return text

    def find(self, string: str) -> int | None:
        """The number of a string, or None."""
        wanted = np.uint64(_hash(string.encode("utf-8")))
        at = int(np.searchsorted(self._hashes, wanted))
        # Strings may share a hash: compare each of them.
        while at < len(self._hashes) and self._hashes[at] == wanted:
            if self[number := int(self._numbers[at])] == string:
                return number
            at += 1
        return None

    def find_many(self, strings: Sequence[str]) -> Array:
        """The numbers of strings, and -1 for those that are not in the table."""
        if not strings or not len(self):
            return np.full(len(strings), -1, dtype=np.int64)
        wanted = np.array([_hash(string.encode("utf-8")) for string in strings], dtype=np.uint64)
        at = np.minimum(np.searchsorted(self._hashes, wanted), len(self) - 1)
        numbers = np.where(self._hashes[at] == wanted, self._numbers[at], -1)
        hashed = np.flatnonzero(numbers >= 0)
        for place, found in zip(hashed.tolist(), self.take(numbers[hashed]), strict=True):
            if found != strings[place]:  # another string with the same hash
                number = self.find(strings[place])
                numbers[place] = -1 if number is None else number
        return numbers


class StringTableWriter:
    """Write a `StringTable`, one string at a time; a duplicate string is an error when the block ends.

    ```python
    with StringTableWriter(folder, of="document ids of docs.jsonl") as table:
        table.append("doc-17")
    ```
    """

    def __init__(self, folder: Path, of: str) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._of = of
        self._end = 0
        self._text = (folder / "strings.txt").open("wb")
        self._ends = ArrayWriter(folder / "ends.npy", np.int64)
        self._hashes = ArrayWriter(folder / "hashes.npy", np.uint64)

    def append(self, string: str) -> None:
        """Add a string; its number is the number of strings before it."""
        raw = string.encode("utf-8")
        self._text.write(raw)
        self._end += len(raw)
        self._ends.append(self._end)
        self._hashes.append(_hash(raw))

    def __enter__(self) -> "StringTableWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.__exit__(kind, error, trace)
        self._hashes.__exit__(kind, error, trace)
        if kind is not None:
            with suppress(OSError):
                self._text.close()
            return
        self._text.close()
        self._sort_hashes()

    def _sort_hashes(self) -> None:
        hashes = np.load(self._folder / "hashes.npy")
        numbers = np.argsort(hashes, kind="stable")
        np.save(self._folder / "hashes.npy", hashes[numbers])
        np.save(self._folder / "numbers.npy", numbers)
        self._refuse_duplicates(hashes[numbers], numbers)

    def _refuse_duplicates(self, hashes: Array, numbers: Array) -> None:
        """Refuse duplicates; only strings with equal hashes are compared."""
        ends = np.load(self._folder / "ends.npy")
        same = np.flatnonzero(hashes[1:] == hashes[:-1])
        first_number: dict[str, int] = {}
        with (self._folder / "strings.txt").open("rb") as file:
            for number in np.sort(numbers[np.union1d(same, same + 1)]).tolist():
                start = int(ends[number - 1]) if number else 0
                file.seek(start)
                string = file.read(int(ends[number]) - start).decode("utf-8")
                first = first_number.setdefault(string, number)
                if first != number:
                    raise InputError(
                        f"the {self._of} must differ, and numbers {first + 1} and {number + 1} are both {string}."
                    )


def _hash(raw: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "little")
