"""Ways to damage the files of a folder, for tests of what is cached."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path


def _flip(path: Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[min(int(place * len(content)), len(content) - 1)] ^= 1
        path.write_bytes(content)


def _replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "emptied": lambda path: path.write_bytes(b""),
    "cut to half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "made longer": lambda path: path.write_bytes(path.read_bytes() + b"\0\1\2"),
    "first bit": lambda path: _flip(path, 0),
    "middle bit": lambda path: _flip(path, 0.5),
    "last bit": lambda path: _flip(path, 1),
    "deleted": lambda path: path.unlink(),
    "replaced by a folder": _replace_by_folder,
}


def files_in(folder: Path) -> list[Path]:
    """All files of a folder, in a fixed order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def swap_pairs(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Pairs of files with different contents: each with the next in order."""
    files = files_in(folder)
    for first, second in pairwise(files):
        if first.read_bytes() != second.read_bytes():
            yield first, second


def swap(first: Path, second: Path) -> None:
    """Give two files each other's contents."""
    contents = first.read_bytes(), second.read_bytes()
    second.write_bytes(contents[0])
    first.write_bytes(contents[1])


def change_key(folder: Path) -> None:
    """Give a folder the key of another, with checksums that agree with it."""
    from docparade.retrieval.storage.checked_files import write_checksums

    (folder / "key.json").write_text(json.dumps({"another": "key"}), encoding="utf-8")
    (folder / "checksums.json").unlink()
    write_checksums(folder)


def damage_at_random(folder: Path, chance: random.Random) -> str:
    """Change a run of bytes somewhere in one of the files, or its length; says what was done."""
    path = chance.choice([path for path in files_in(folder) if path.stat().st_size])
    content = bytearray(path.read_bytes())
    start = chance.randrange(len(content))
    how = chance.choice(["bit", "bytes", "cut", "removed", "inserted"])
    if how == "bit":
        content[start] ^= 1 << chance.randrange(8)
    elif how == "bytes":
        content[start : start + 16] = chance.randbytes(len(content[start : start + 16]))
    elif how == "cut":
        del content[start:]
    elif how == "removed":
        del content[start : start + 8]
    else:
        content[start:start] = chance.randbytes(8)
    path.write_bytes(content)
    return f"{path.relative_to(folder)}: {how} at {start}"


def restore(folder: Path, whole: Path) -> None:
    """Make a folder what a copy of it is."""
    shutil.rmtree(folder)
    shutil.copytree(whole, folder)
