"""The manifest of a finished folder: the size and checksums of each file, to find damage before the folder is used.

A file's checksums are CRC-32 sums of its blocks. `find_damage` always compares all sizes. In a folder of at most
`SMALL` bytes it compares all blocks. In a larger one it compares all blocks of JSON files, such as vocabularies, which
are read whole anyway, and the first and last block of other files, unless it is asked for everything.
"""

import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

NAME = "manifest.json"

BLOCK = 1 << 23
"""Bytes in a block: 8 MiB."""

SMALL = 1 << 28
"""Bytes of the largest folder of which all blocks are always compared: 256 MiB."""


@dataclass(frozen=True)
class _File:
    """A file in the manifest."""

    size: int
    checksums: list[int]
    """of each block"""


def write_manifest(folder: Path) -> None:
    """Write the manifest of a complete folder, and wait until all files are on the disk.

    ```python
    write_manifest(folder)
    ```
    """
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {path.relative_to(folder).as_posix(): _checksums(path) for path in paths}
    content = {"block": BLOCK, "files": files}
    (folder / NAME).write_text(json.dumps(content, indent=1), encoding="utf-8")
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


def find_damage(folder: Path, everything: bool = False) -> str | None:
    """The first difference between a folder and its manifest, or None.

    ```python
    find_damage(folder)  # 'ids/ends.npy has 0 bytes and should have 1328'
    ```
    """
    files = _read_manifest(folder)
    if files is None:
        return f"{NAME} is missing or unreadable"
    for name, file in files.items():
        if fault := _wrong_size(folder / name, file.size):
            return f"{name} {fault}"
    everything = everything or sum(file.size for file in files.values()) <= SMALL
    for name, file in files.items():
        if fault := _wrong_content(folder / name, file, everything or name.endswith(".json")):
            return f"{name} {fault}"
    return None


def _checksums(path: Path) -> dict[str, object]:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        return {"size": size, "crc32": [_checksum(file, number) for number in range(_blocks(size))]}


def _checksum(file: BinaryIO, block: int) -> int:
    file.seek(block * BLOCK)
    return zlib.crc32(file.read(BLOCK))


def _blocks(size: int) -> int:
    return -(-size // BLOCK)


def _read_manifest(folder: Path) -> dict[str, _File] | None:
    """The files of the manifest, or None if it is missing or damaged."""
    try:
        content = json.loads((folder / NAME).read_text(encoding="utf-8"))
        files = {str(name): _File(int(file["size"]), list(file["crc32"])) for name, file in content["files"].items()}
        sound = content["block"] == BLOCK and all(len(file.checksums) == _blocks(file.size) for file in files.values())
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    return files if sound else None


def _wrong_size(path: Path, expected: int) -> str | None:
    try:
        # A damaged name may be one that no file can have: a ValueError.
        size = path.stat().st_size if path.is_file() else None
    except (OSError, ValueError):
        size = None
    if size is None:
        return "is missing"
    return None if size == expected else f"has {size} bytes and should have {expected}"


def _wrong_content(path: Path, expected: _File, everything: bool) -> str | None:
    blocks = range(len(expected.checksums))
    try:
        with path.open("rb") as file:
            for number in blocks if everything else sorted({*blocks[:1], *blocks[-1:]}):
                if _checksum(file, number) != expected.checksums[number]:
                    return "does not have the checksum that it was written with"
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    return None
