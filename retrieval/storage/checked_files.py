"""Finished folders of files whose bytes are compared with checksums when they are read.

`write_checksums` writes the size of each file and the CRC-32 of each of its blocks. Opening a folder compares sizes
alone. A block is compared the first time that something in it is read, so that damage anywhere is found before it is
used, and what is not read costs nothing.
"""

import io
import json
import os
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NAME = "checksums.json"

BLOCK = 1 << 16
"""Bytes in a block: 64 KiB."""


class DamagedFile(Exception):
    """A file does not have the size or the bytes that it was written with."""

    def __init__(self, folder: Path, name: str, fault: str) -> None:
        super().__init__(f"{name} {fault}")
        self.folder = folder
        self.name = name


@dataclass(frozen=True)
class _File:
    size: int
    checksums: list[int]
    """of each block"""


class CheckedFolder:
    """A finished folder, whose files are opened here.

    Args:
        path: The folder; a missing file or a wrong size is a `DamagedFile`.
        repair: Called with damage that was found while a file was read; returns the repaired folder. Without it,
            damage is an error.

    ```python
    lengths = CheckedFolder(path).array("lengths.npy")
    lengths[100:200]  # of the whole file, the blocks with these values are compared
    ```
    """

    def __init__(self, path: Path, repair: Callable[[DamagedFile], "CheckedFolder"] | None = None) -> None:
        self.path = path
        self._repair = repair
        self._files = _read_checksums(path)
        for name, file in self._files.items():
            _check_size(path, name, file.size)

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process opens the same files, and cannot repair them.
        return CheckedFolder, (self.path,)

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def checksums(self, name: str) -> list[int]:
        """The CRC-32 of each block of a file."""
        if name not in self._files:
            raise DamagedFile(self.path, name, "is missing")
        return self._files[name].checksums

    def array(self, name: str, width: int | None = None) -> "CheckedArray":
        """Memory-map a `.npy` file; with `width`, as rows of so many values."""
        return CheckedArray(self, name, width)

    def text(self, name: str) -> "CheckedArray":
        """Memory-map a file as bytes."""
        return CheckedArray(self, name, is_text=True)

    def read_bytes(self, name: str) -> bytes:
        """A whole file."""
        return self.text(name)[:].tobytes()

    def check_all(self) -> Path:
        """Compare all blocks of all files, for what others read; returns the folder's path."""
        for name in self._files:
            self.text(name)[:]
        return self.path

    def repair(self, damage: DamagedFile) -> "CheckedFolder":
        """The folder after its repair; the damage is raised if it cannot be repaired."""
        if self._repair is None:
            raise damage
        return self._repair(damage)


class CheckedArray:
    """A memory-mapped file; a number, a slice, or several numbers at once are read by their places."""

    def __init__(self, folder: CheckedFolder, name: str, width: int | None = None, is_text: bool = False) -> None:
        self._name = name
        self._width = width
        self._is_text = is_text
        self._open(folder)

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, places: Any) -> Any:
        while self._unread:
            try:
                self._check(places)
                break
            except DamagedFile as damage:
                self._open(self._folder.repair(damage))
        return self._array[places]

    def _open(self, folder: CheckedFolder) -> None:
        self._folder = folder
        try:
            self._map()
        except DamagedFile as damage:
            self._open(folder.repair(damage))

    def _map(self) -> None:
        path = self._folder.path / self._name
        self._checksums = self._folder.checksums(self._name)
        self._unread = set(range(len(self._checksums)))
        try:
            # An empty file cannot be memory-mapped.
            self._bytes = np.asarray(np.memmap(path, np.uint8, "r")) if self._unread else np.zeros(0, np.uint8)
        except OSError as error:
            raise DamagedFile(self._folder.path, self._name, f"cannot be read ({error.strerror or error})") from error
        self._array, self._start = self._bytes, 0
        if not self._is_text:
            self._check_blocks([0])
            header = io.BytesIO(self._bytes[:BLOCK].tobytes())
            np.lib.format.read_magic(header)
            _, _, dtype = np.lib.format.read_array_header_1_0(header)
            self._start = header.tell()
            self._array = self._bytes[self._start :].view(dtype)
        if self._width is not None:
            self._array = self._array.reshape(-1, self._width)

    def _check(self, places: Any) -> None:
        """Compare the blocks that have these values."""
        count, size = len(self._array), self._array.strides[0]
        if isinstance(places, slice):
            first, last, _ = places.indices(count)
            start, end = self._start + first * size, self._start + last * size
            self._check_blocks(range(start // BLOCK, -(-end // BLOCK)) if first < last else [])
            return
        starts = self._start + np.atleast_1d(np.asarray(places, dtype=np.int64)) % max(count, 1) * size
        # A row is smaller than a block, so it is in one block or in two.
        blocks = np.unique([starts // BLOCK, (starts + size - 1) // BLOCK])
        self._check_blocks(blocks.tolist())

    def _check_blocks(self, blocks: Iterable[int]) -> None:
        for number in blocks:
            if number in self._unread:
                block = self._bytes[number * BLOCK : (number + 1) * BLOCK]
                if zlib.crc32(block.data) != self._checksums[number]:
                    fault = "does not have the checksum that it was written with"
                    raise DamagedFile(self._folder.path, self._name, fault)
                self._unread.discard(number)


def write_checksums(folder: Path) -> None:
    """Write the checksums of a complete folder, and wait until all files are on the disk."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {path.relative_to(folder).as_posix(): _checksums(path) for path in paths}
    (folder / NAME).write_text(json.dumps({"block": BLOCK, "files": files}), encoding="utf-8")
    for path in (*paths, folder / NAME, *(path for path in folder.rglob("*") if path.is_dir()), folder):
        sync(path)


def sync(path: Path) -> None:
    """Wait until a file, or a folder's list of files, is on the disk, so that a power cut does not undo it."""
    if os.name == "nt":  # Windows cannot open folders, and syncs only files that are open for writing
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checksums(path: Path) -> dict[str, object]:
    with path.open("rb") as file:
        blocks = [zlib.crc32(block) for block in iter(lambda: file.read(BLOCK), b"")]
    return {"size": path.stat().st_size, "crc32": blocks}


def _read_checksums(folder: Path) -> dict[str, _File]:
    try:
        content = json.loads((folder / NAME).read_text(encoding="utf-8"))
        files = {str(name): _File(int(file["size"]), list(file["crc32"])) for name, file in content["files"].items()}
        sound = content["block"] == BLOCK and all(len(one.checksums) == -(-one.size // BLOCK) for one in files.values())
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        sound = False
    if not sound:
        raise DamagedFile(folder, NAME, "is missing or unreadable")
    return files


def _check_size(folder: Path, name: str, expected: int) -> None:
    try:
        # A damaged name may be one that no file can have: a ValueError.
        path = folder / name
        size = path.stat().st_size if path.is_file() else None
    except (OSError, ValueError):
        size = None
    if size != expected:
        fault = "is missing" if size is None else f"has {size} bytes and should have {expected}"
        raise DamagedFile(folder, name, fault)
