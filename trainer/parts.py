"""Long work in parts: each is written whole beside the file it is for, and survives whatever happens to the next."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm
from transformers.utils import logging

from docparade.retrieval.errors import InputError
from docparade.retrieval.files import atomic_write

from .processes import hide_bar, place_among_processes, wait_for_all

logger = logging.get_logger(__name__)

KEY_FILE = "key.json"
MOST_PARTS = 1000
"""Into how many parts work is divided at most; with fewer queries, each is a part."""


def work_in_parts(
    target: str | Path,
    key: Mapping[str, Any],
    queries: Sequence[str],
    work: Callable[[str], Any],
    finish: Callable[[Iterator[Any]], None],
    progress: bool | None = None,
) -> None:
    """Do something for every query, and make a file of it at the end. In a process group, all processes call this.

    The same call, after a kill and on any number of processes, goes on where it stopped. With another key it starts
    anew, and says so.

    Args:
        target: The file that `finish` writes.
        key: All that the results are made from, by name, as JSON values.
        queries: What the work is divided by.
        work: What is done for a query; gives JSON values.
        finish: Gets the results of all queries in order, in the first process, when all are there.
        progress: Whether to show a progress bar; `None` is in a terminal only.
    """
    if not Path(target).resolve().parent.is_dir():
        raise InputError(f"{target} cannot be written: its folder does not exist; make it first.")
    parts = Parts(target, key)
    length = max(1, math.ceil(len(queries) / MOST_PARTS))
    shards = [queries[start : start + length] for start in range(0, len(queries), length)]
    rank, size = place_among_processes()
    if rank == 0:
        _announce(parts.open(), parts, len(shards))
    wait_for_all()
    # Dealt by number, so that nobody has to look at what the others have done meanwhile.
    mine = [number for number in range(rank, len(shards), size) if not parts.has(number)]
    count = sum(len(shards[number]) for number in mine)
    with tqdm(total=count, desc=Path(target).name, unit=" queries", disable=hide_bar(progress)) as bar:
        for number in mine:
            results = []
            for query in shards[number]:
                results.append(work(query))
                bar.update()
            parts.write(number, results)
    wait_for_all()
    if rank == 0:
        finish(result for number in range(len(shards)) for result in parts.read(number))
        parts.remove()
    wait_for_all()


def _announce(differs: Sequence[str], parts: Parts, count: int) -> None:
    done = sum(parts.has(number) for number in range(count))
    if differs:
        logger.warning(f"{parts.folder} was made with other input ({', '.join(differs)}): starting anew.")
    if done:
        logger.warning(f"{done} of {count} parts are in {parts.folder}: going on from there.")


class Parts:
    """The parts of a file, in a folder beside it that is named after it, under a key of all they were made from.

    Example:
        >>> parts = Parts("out.txt", {"depth": 100})  # doctest: +SKIP
        >>> parts.folder  # doctest: +SKIP
        PosixPath('out.txt.parts')
    """

    def __init__(self, target: str | Path, key: Mapping[str, Any]) -> None:
        self.folder = Path(f"{target}.parts")
        self.key = dict(key)

    def open(self) -> list[str]:
        """Make the folder ready; parts that were made from something else are thrown away, and what differs is named.

        One process does this, before any other looks.
        """
        differs: list[str] = []
        if self.folder.is_dir():
            before = self._read_key()
            differs = [name for name in self.key if before.get(name) != self.key[name]]
            if not differs:
                return []
            shutil.rmtree(self.folder)
        try:
            self.folder.mkdir()
        except OSError as error:
            raise InputError(f"{self.folder} cannot be made ({error.strerror}); choose another output.") from error
        with atomic_write(self.folder / KEY_FILE) as file:
            json.dump(self.key, file, indent=1)
        return differs

    def has(self, number: int) -> bool:
        """Whether a part is there; if so, it is whole."""
        return self._path(number).is_file()

    def write(self, number: int, content: Any) -> None:
        """Write a part, as JSON."""
        with atomic_write(self._path(number)) as file:
            json.dump(content, file, ensure_ascii=False)

    def read(self, number: int) -> Any:
        """What was written; numbers come back to the last bit."""
        return json.loads(self._path(number).read_text(encoding="utf-8"))

    def remove(self) -> None:
        """Throw the parts away, once the file they are for is there."""
        shutil.rmtree(self.folder)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:05}.json"

    def _read_key(self) -> dict[str, Any]:
        try:
            return json.loads((self.folder / KEY_FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            # Killed before the key was written: there are no parts yet.
            if not any(self.folder.glob("*.json")):
                return {}
            raise InputError(f"{self.folder} is no folder of parts; move it away, or choose another output.") from None
