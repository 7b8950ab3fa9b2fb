"""Long work in parts that survive an interruption: each is written to a folder beside the final file."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from transformers.utils import logging

from docparade.retrieval.errors import InputError
from docparade.retrieval.progress import show_progress
from docparade.retrieval.storage.files import atomic_write, check_output, sweep
from docparade.retrieval.storage.locks import lock_output

from .process_group import is_main_process, should_hide_bar, take_share, wait_for_all

logger = logging.get_logger(__name__)

KEY_FILE = "key.json"
# In every key file; a folder without it was not made by docparade.
MAKER = {"made by": "docparade", "format": 2}
MOST_PARTS = 1000
"""The most parts that work is divided into; with fewer queries, each query is a part."""


def work_in_parts(
    target: str | Path,
    key: Mapping[str, Any],
    queries: Sequence[str],
    fingerprint: Callable[[str], str],
    work: Callable[[str], Any],
    finish: Callable[[Iterator[Any]], None],
    progress: bool | None = None,
    *,
    count: Callable[[str], int] = lambda query: 1,
    unit: str = "queries",
) -> None:
    """Process every query, and write a file from the results. In a process group, all processes must call this.

    After an interruption, the same call, with any number of processes, continues where it stopped. With another key it
    warns and starts again. Parts that are damaged, or made from other documents, are made again. The file is locked
    meanwhile: another command that wants to write it waits.

    Args:
        target: The file that `finish` writes.
        key: All that the results depend on, by name, as JSON values.
        queries: The ids of the queries.
        fingerprint: Returns a fingerprint of a query's documents; a part is computed again when it changes. It
            is called for all queries before work starts.
        work: Processes a query and returns JSON values.
        finish: Called in the main process with the results of all queries, in order, once all are there.
        progress: Whether to show a progress bar; `None` shows it in a terminal, and elsewhere a line every
            half minute.
        count: How far a query moves the progress bar.
        unit: What the progress bar counts.
    """
    check_output(target)
    is_main = is_main_process()
    with lock_output(target) if is_main else nullcontext():
        parts = Parts(target, key)
        length = max(1, math.ceil(len(queries) / MOST_PARTS))
        shards = [queries[start : start + length] for start in range(0, len(queries), length)]
        # All parts are shared out, finished or not, so no process needs to know what the others have done meanwhile.
        numbers = take_share(range(len(shards)))
        share = {number: {query: fingerprint(query) for query in shards[number]} for number in numbers}
        if is_main:
            _warn_of_old_parts(parts.open(), parts, len(shards))
        wait_for_all()
        missing = {number: made_from for number, made_from in share.items() if not parts.has(number, made_from)}
        total = sum(count(query) for made_from in missing.values() for query in made_from)
        with show_progress(total=total, desc=Path(target).name, unit=f" {unit}", hide=should_hide_bar(progress)) as bar:
            for number, made_from in missing.items():
                results = []
                for query in made_from:
                    results.append(work(query))
                    bar.update(count(query))
                parts.write(number, made_from, results)
        wait_for_all()
        if is_main:
            finish(result for number in range(len(shards)) for result in parts.read(number))
            parts.remove()
        wait_for_all()


def _warn_of_old_parts(changed: Sequence[str], parts: Parts, count: int) -> None:
    if changed:
        logger.warning(f"{parts.folder} was made with other input ({', '.join(changed)}): starting again.")
    if done := parts.count():
        logger.warning(f"{done} of {count} parts are in {parts.folder}: continuing from there.")


def check_parts(target: Path) -> None:
    """Refuse a target if another folder, not made by docparade, has the name of its folder of parts."""
    parts = Parts(target, {})
    if parts.folder.exists():
        parts._read_key()


def is_done(target: Path) -> bool:
    """Whether a file that is made in parts exists; if so, it is complete. All processes must call this.

    Parts that a process left because it was killed right after writing the file are removed.
    """
    done = target.is_file()
    wait_for_all()
    if done and is_main_process():
        Parts(target, {}).remove_if_ours()
    return done


class Parts:
    """The parts of a file, in a folder beside it, with a key of all that they depend on.

    The key is the first file written to the folder and the last one removed, so a folder with parts always has it. Only
    files made by docparade are ever removed.

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
        """Prepare the folder, and remove parts with another key; returns the names of the changed values of the key.

        Only one process may call this, before any other uses the folder.
        """
        # Remove what a killed process was writing.
        sweep(self.target.resolve().parent, self.target.name)
        changed: list[str] = []
        if self.folder.exists():
            before = self._read_key()
            changed = [name for name in self.key if name in before and before[name] != self.key[name]]
            if before == self.key:
                sweep(self.folder)
                return []
            self._remove_parts()
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.folder} cannot be created ({error.strerror}); choose another output.") from error
        with atomic_write(self.folder / KEY_FILE) as file:
            json.dump(self.key, file, indent=1)
        return changed

    def count(self) -> int:
        """Count the parts, damaged ones included."""
        return sum(_is_part(path) for path in self.folder.iterdir())

    def has(self, number: int, made_from: Mapping[str, str]) -> bool:
        """Whether a part exists, is not damaged, and was made from these queries and documents."""
        if not self._path(number).exists():
            return False
        content = read_checked(self._path(number), self._belongs_to(number))
        if content is not None and content["made from"] == dict(made_from):
            return True
        fault = "is damaged" if content is None else "was made from other documents"
        logger.warning(f"{self._path(number)} {fault}: it is made again.")
        return False

    def write(self, number: int, made_from: Mapping[str, str], results: Sequence[Any]) -> None:
        """Write a part: the results of its queries, and the fingerprint of each query's documents."""
        content = {"made from": dict(made_from), "results": list(results)}
        write_checked(self._path(number), content, self._belongs_to(number))

    def read(self, number: int) -> Any:
        """Read the results of a part; numbers are the same to the last bit."""
        content = read_checked(self._path(number), self._belongs_to(number))
        if content is None:
            raise InputError(f"{self._path(number)} was damaged while this command ran; run it again.")
        return content["results"]

    def remove(self) -> None:
        """Remove the parts, once the final file exists."""
        self._remove_parts()
        (self.folder / KEY_FILE).unlink(missing_ok=True)
        try:
            self.folder.rmdir()
        except OSError:
            logger.warning(f"{self.folder} is kept: it holds files that docparade did not make.")

    def remove_if_ours(self) -> None:
        """Remove parts that a killed process left; a folder that docparade did not make stays."""
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
        """Read the key of an existing folder; refuse a folder that docparade did not make."""
        try:
            key = json.loads((self.folder / KEY_FILE).read_text(encoding="utf-8"))
            if isinstance(key, dict) and key.items() >= MAKER.items():
                return key
        except FileNotFoundError:
            # A process was killed before it wrote the key, or only files of others are left: there are no parts.
            if self.folder.is_dir() and not self.count():
                return {}
        except (OSError, ValueError):
            pass
        raise InputError(f"{self.folder} exists and was not made by docparade; move it away, or choose another output.")


def _is_part(path: Path) -> bool:
    return re.fullmatch(r"\d{5,}\.json", path.name) is not None


def write_checked(path: Path, content: Any, belongs_to: Any) -> None:
    """Write JSON values with a checksum of `content` and `belongs_to`, which names what they are part of."""
    with atomic_write(path) as file:
        json.dump({"checksum": _checksum(content, belongs_to), "content": content}, file, ensure_ascii=False)


def read_checked(path: Path, belongs_to: Any) -> Any:
    """Read what `write_checked` wrote; `None` if it is damaged or belongs to something else."""
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
        checksum, content = read["checksum"], read["content"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return content if checksum == _checksum(content, belongs_to) else None


def _checksum(content: Any, belongs_to: Any) -> str:
    return hashlib.blake2b(json.dumps([belongs_to, content]).encode(), digest_size=16).hexdigest()
