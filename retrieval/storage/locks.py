"""Locks of outputs: a second process that wants to write the same file or folder waits, with a message."""

import hashlib
import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from docparade.retrieval.errors import InputError

logger = logging.getLogger(__name__)


@contextmanager
def lock_output(path: str | Path) -> Iterator[None]:
    """Lock an output file or folder within the block, against other processes on this machine.

    The lock of a killed process is released. The lock file is in the machine's folder for temporary files, so that
    nothing is left beside the output.

    ```python
    with lock_output("run.txt"):
        write_run(run, "run.txt")
    ```
    """
    place = _place(Path(path).resolve())
    lock, holder = FileLock(f"{place}.lock"), Path(f"{place}.json")
    try:
        place.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            logger.warning(f"{path} is being written by {_read(holder)}; waiting until it is done.")
            lock.acquire()
    except OSError as error:
        raise InputError(f"{path} cannot be locked: {error.strerror or error} ({place}.lock).") from error
    try:
        with suppress(OSError):  # only needed for the message of a waiting process
            holder.write_text(json.dumps({"pid": os.getpid(), "command": sys.argv[:2]}), encoding="utf-8")
        yield
    finally:
        lock.release()


def _place(path: Path) -> Path:
    user = os.getuid() if hasattr(os, "getuid") else "all"
    folder = Path(tempfile.gettempdir()) / f"docparade-locks-{user}"
    return folder / hashlib.sha256(str(path).encode()).hexdigest()[:32]


def _read(holder: Path) -> str:
    try:
        known = json.loads(holder.read_text(encoding="utf-8"))
        command = " ".join([Path(known["command"][0]).name, *known["command"][1:]])
        return f"process {known['pid']} ({command})"
    except (OSError, ValueError, LookupError, TypeError):
        return "another process"  # which has not written its number yet
