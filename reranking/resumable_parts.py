"""Long work in parts: each is written whole beside the file it is for, and survives whatever happens to the next."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm
from transformers.utils import logging

from docparade.retrieval.errors import InputError
from docparade.retrieval.storage.files import atomic_write, check_output, sweep
from docparade.retrieval.storage.locks import lock_output

from .processes import hide_bar, place_among_processes, wait_for_all

logger = logging.get_logger(__name__)

KEY_FILE = "key.json"
# In every key file: a folder without one is somebody else's.
MAKER = {"made by": "docparade", "format": 2}
MOST_PARTS = 1000
"""Into how many parts work is divided at most; with fewer queries, each is a part."""


def work_in_parts(
    target: str | Path,
    key: Mapping[str, Any],
    queries: Sequence[str],
    fingerprint: Callable[[str], str],
    work: Callable[[str], Any],
    finish: Callable[[Iterator[Any]], None],
    progress: bool | None = None,
) -> None:
    """Do something for every query, and make a file of it at the end. In a process group, all processes call this.

    The same call, after a kill and on any number of processes, goes on where it stopped. With another key it starts
    anew, and says so. A part that is damaged, or was made from other documents, is made again. While this lasts, the
    file is locked: a second process that wants to write it waits.

    Args:
        target: The file that `finish` writes.
        key: All that the results are made from, by name, as JSON values.
        queries: What the work is divided by.
        fingerprint: Of what a query's result is made from beside the key: the contents of its documents. Asked of all
            queries before work begins.
        work: What is done for a query; gives JSON values.
        finish: Gets the results of all queries in order, in the first process, when all are there.
        progress: Whether to show a progress bar; `None` is in a terminal only.
    """
    check_output(target)
    rank, size = place_among_processes()
    with lock_output(target) if rank == 0 else nullcontext():
        parts = Parts(target, key)
        length = max(1, math.ceil(len(queries) / MOST_PARTS))
        shards = [queries[start : start + length] for start in range(0, len(queries), length)]
        # Dealt by number, so that nobody has to look at what the others have done meanwhile.
        numbers = range(rank, len(shards), size)
        mine = {number: {query: fingerprint(query) for query in shards[number]} for number in numbers}
        if rank == 0:
            _announce(parts.open(), parts, len(shards))
        wait_for_all()
        missing = {number: made_from for number, made_from in mine.items() if not parts.has(number, made_from)}
        count = sum(map(len, missing.values()))
        with tqdm(total=count, desc=Path(target).name, unit=" queries", disable=hide_bar(progress)) as bar:
            for number, made_from in missing.items():
                results = []
                for query in made_from:
                    results.append(work(query))
                    bar.update()
                parts.write(number, made_from, results)
        wait_for_all()
        if rank == 0:
            finish(result for number in range(len(shards)) for result in parts.read(number))
            parts.remove()
        wait_for_all()


def _announce(differs: Sequence[str], parts: Parts, count: int) -> None:
    if differs:
        logger.warning(f"{parts.folder} was made with other input ({', '.join(differs)}): starting anew.")
    if done := parts.count():
        logger.warning(f"{done} of {count} parts are in {parts.folder}: going on from there.")


def check_parts(target: Path) -> None:
    """Refuse a file beside which there is a folder in the place of its parts that is somebody else's. Quick."""
    parts = Parts(target, {})
    if parts.folder.exists():
        parts._read_key()


def is_done(target: Path) -> bool:
    """Whether a file that is made in parts is there; if so, it is whole. All processes ask.

    A process that was killed right after it wrote the file may have left the parts: they are removed.
    """
    done = target.is_file()
    wait_for_all()
    if done and place_among_processes()[0] == 0:
        Parts(target, {}).remove_if_ours()
    return done


class Parts:
    """The parts of a file, in a folder beside it that is named after it, under a key of all they were made from.

    The key is the first file of the folder and the last one to go, so that a folder with parts always has it. Nothing
    but files that are docparade's own is ever removed.

    Example:
        ```python
        parts = Parts("out.txt", {"depth": 100})
        parts.folder  # PosixPath('out.txt.parts')
        ```
    """

    def __init__(self, target: str | Path, key: Mapping[str, Any]) -> None:
        self.target = Path(target)
        self.folder = Path(f"{target}.parts")
        self.key = {**MAKER, **key}

    def open(self) -> list[str]:
        """Make the folder ready; parts that were made from something else are thrown away, and what differs is named.

        One process does this, before any other looks.
        """
        # What a killed process was writing.
        sweep(self.target.resolve().parent, self.target.name)
        differs: list[str] = []
        if self.folder.exists():
            before = self._read_key()
            differs = [name for name in self.key if name in before and before[name] != self.key[name]]
            if before == self.key:
                sweep(self.folder)
                return []
            self._remove_parts()
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.folder} cannot be made ({error.strerror}); choose another output.") from error
        with atomic_write(self.folder / KEY_FILE) as file:
            json.dump(self.key, file, indent=1)
        return differs

    def count(self) -> int:
        """How many parts are there, whole or not."""
        return sum(_is_part(path) for path in self.folder.iterdir())

    def has(self, number: int, made_from: Mapping[str, str]) -> bool:
        """Whether a part is there and whole, of these queries, and made from what they are made from now."""
        if not self._path(number).exists():
            return False
        content = read_checked(self._path(number), self._belongs_to(number))
        if content is not None and content["made from"] == dict(made_from):
            return True
        damage = "is damaged" if content is None else "was made from other documents"
        logger.warning(f"{self._path(number)} {damage}: it is made again.")
        return False

    def write(self, number: int, made_from: Mapping[str, str], results: Sequence[Any]) -> None:
        """Write a part: the results of its queries, and the fingerprint of what each is made from."""
        content = {"made from": dict(made_from), "results": list(results)}
        write_checked(self._path(number), content, self._belongs_to(number))

    def read(self, number: int) -> Any:
        """The results that were written; numbers come back to the last bit."""
        content = read_checked(self._path(number), self._belongs_to(number))
        if content is None:
            raise InputError(f"{self._path(number)} was damaged while this command ran; run it again.")
        return content["results"]

    def remove(self) -> None:
        """Throw the parts away, once the file they are for is there."""
        self._remove_parts()
        (self.folder / KEY_FILE).unlink(missing_ok=True)
        try:
            self.folder.rmdir()
        except OSError:
            logger.warning(f"{self.folder} is not empty: files in it that are not docparade's are left there.")

    def remove_if_ours(self) -> None:
        """Throw away what a killed process left; a folder of somebody else stays."""
        with suppress(InputError):
            if self.folder.is_dir():
                self._read_key()
                self.remove()

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:05}.json"

    def _belongs_to(self, number: int) -> Any:
        return [self.key, number]

    def _remove_parts(self) -> None:
        sweep(self.folder)
        for path in self.folder.iterdir():
            if _is_part(path):
                path.unlink()

    def _read_key(self) -> dict[str, Any]:
        """The key of a folder that is there, which has to be docparade's."""
        try:
            key = json.loads((self.folder / KEY_FILE).read_text(encoding="utf-8"))
            if isinstance(key, dict) and key.items() >= MAKER.items():
                return key
        except FileNotFoundError:
            # Killed before the key was written, or other people's files that were among ours: there are no parts.
            if self.folder.is_dir() and not self.count():
                return {}
        except (OSError, ValueError):
            pass
        raise InputError(f"{self.folder} is no folder of parts; move it away, or choose another output.")


def _is_part(path: Path) -> bool:
    return re.fullmatch(r"\d{5,}\.json", path.name) is not None


def write_checked(path: Path, content: Any, belongs_to: Any) -> None:
    """Write JSON values with a checksum of them and of where they belong, as JSON values."""
    with atomic_write(path) as file:
        json.dump({"checksum": _checksum(content, belongs_to), "content": content}, file, ensure_ascii=False)


def read_checked(path: Path, belongs_to: Any) -> Any:
    """What `write_checked` wrote; `None` where it is damaged, or belongs elsewhere."""
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
        checksum, content = read["checksum"], read["content"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return content if checksum == _checksum(content, belongs_to) else None


def _checksum(content: Any, belongs_to: Any) -> str:
    return hashlib.blake2b(json.dumps([belongs_to, content]).encode(), digest_size=16).hexdigest()
