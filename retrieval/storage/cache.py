"""The cache of computed folders: built once by one process, complete or absent, and repaired where it is damaged."""

import errno
import hashlib
import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from docparade.retrieval.errors import InputError

from .checked_files import CheckedFolder, DamagedFile, sync, write_checksums

logger = logging.getLogger(__name__)

SILENCE = 5.0
"""Seconds to wait for another process before a warning."""

_KEY = "key.json"
_BUILDING = ".building-"
_DAMAGED = ".damaged-"
# Errors from writing to an open file do not name it.
_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
_FULL = (errno.ENOSPC, errno.EDQUOT, None)


def cache_folder() -> Path:
    """The folder for everything that can be computed again: `DOCPARADE_CACHE`, or `~/.cache/docparade`.

    It may be deleted at any time; only computing time is lost.
    """
    if chosen := os.environ.get("DOCPARADE_CACHE"):
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "docparade"
    except RuntimeError as error:
        raise InputError("this user has no home folder for the cache; set DOCPARADE_CACHE to a folder.") from error


def free_space(folder: Path) -> int | None:
    """The free bytes where a folder is, or will be; None if this cannot be told."""
    place = next((place for place in (folder, *folder.absolute().parents) if place.is_dir()), None)
    try:
        return None if place is None else shutil.disk_usage(place).free
    except OSError:
        return None


def build_once(
    kind: str, name: str, key: Mapping[str, object], build: Callable[[Path], None], root: Path | None = None
) -> CheckedFolder:
    """The folder that `build` fills; built the first time a `key` is used, reused afterwards.

    `key` has everything that could change the result, as JSON values. `name` is part of the folder's name, for people
    who look into the cache; folders are found by the key alone, so that splits of a collection and spellings of a path
    share one. `root` replaces the common cache folder.

    `build` works in a temporary folder, which gets checksums and its final name when it is complete. An existing folder
    with this key is used. If it is damaged, now or when something in it is read later, it is removed and built again,
    with a warning. If several processes need the same folder, one builds it and the others wait. Unfinished folders of
    killed processes are removed.

    ```python
    folder = build_once("indexes", "cranfield", {"size": 1644714}, lambda folder: write_index(folder))
    folder.array("lengths.npy")[17]
    ```
    """
    written_key = json.dumps(key, sort_keys=True, indent=1)
    digest = hashlib.sha256(written_key.encode()).hexdigest()[:16]
    place = (root or cache_folder()) / kind

    def open_folder(folder: Path, damage: DamagedFile | None = None) -> CheckedFolder:
        opened = CheckedFolder(folder)
        if opened.read_bytes(_KEY) != written_key.encode():
            raise DamagedFile(folder, _KEY, "does not hold the key of this folder")
        if damage is not None and damage.folder == folder:
            opened.read_bytes(damage.name)
        return CheckedFolder(folder, build_again)

    def build_with_key(folder: Path) -> None:
        build(folder)
        (folder / _KEY).write_text(written_key, encoding="utf-8")

    def build_again(found: DamagedFile | None = None) -> CheckedFolder:
        with hold_place(place, digest, root):
            for folder in _folders(place, digest):
                try:
                    return open_folder(folder, found)  # another process built it meanwhile
                except DamagedFile as damage:
                    logger.warning("%s is damaged and is built again: %s.", folder, damage)
                    discard(folder, digest)
            folder = place / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name)[-80:].strip('.-')}-{digest}"
            write_folder(folder, digest, build_with_key)
            return open_folder(folder)

    remove_unfinished(place)
    # Without a lock: a complete cache can be used from a read-only disk.
    for folder in _folders(place, digest):
        with suppress(DamagedFile):
            return open_folder(folder)
    return build_again()


def _folders(place: Path, digest: str) -> list[Path]:
    return sorted(place.glob(f"[!.]*-{digest}"))


def write_folder(folder: Path, digest: str, build: Callable[[Path], None]) -> None:
    """Let `build` fill a temporary folder, which gets checksums and its name when it is complete."""
    temporary = folder.with_name(f"{_BUILDING}{digest}.{uuid.uuid4().hex}")
    try:
        temporary.mkdir()
        build(temporary)
        write_checksums(temporary)
        temporary.rename(folder)
        sync(folder.parent)
    finally:
        _remove(temporary)


def discard(folder: Path, digest: str) -> None:
    """Rename a folder, then remove it: no process sees it half removed."""
    aside = folder.with_name(f"{_DAMAGED}{digest}.{uuid.uuid4().hex}")
    folder.rename(aside)
    _remove(aside)


def _remove(path: Path) -> None:
    """Remove a folder, a file or a link (not what the link points to)."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_unfinished(place: Path) -> None:
    """Remove unfinished folders of killed processes: those whose lock nobody holds."""
    for path in place.glob(".*"):
        prefix = next((prefix for prefix in (_BUILDING, _DAMAGED) if path.name.startswith(prefix)), None)
        if prefix is not None:
            digest = path.name.removeprefix(prefix).partition(".")[0]
            # A process that is still building holds the lock; on a read-only disk, nothing is removed.
            with suppress(OSError), _lock_of(place, digest).acquire(timeout=0):
                _remove(path)


@contextmanager
def hold_place(place: Path, digest: str, root: Path | None = None) -> Iterator[None]:
    """Hold the lock of the folders with this digest; what cannot be written there is an `InputError`."""
    with _locked(place, digest, _advice(root)), _writing(place, _advice(root)):
        yield


@contextmanager
def _locked(place: Path, digest: str, advice: str) -> Iterator[None]:
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = _lock_of(place, digest)
        try:
            lock.acquire(timeout=SILENCE)
        except Timeout:
            logger.warning("waiting for another process that is building the same folder in %s.", place)
            lock.acquire()
    except OSError as error:
        raise _cannot_write(place, error, advice) from error
    try:
        yield
    finally:
        lock.release()


def _lock_of(place: Path, digest: str) -> FileLock:
    # Lock files are kept, because removing one is not safe; hence in a folder of their own.
    locks = place.parent / ".locks"
    locks.mkdir(exist_ok=True)
    return FileLock(locks / f"{place.name}-{digest}.lock")


@contextmanager
def _writing(place: Path, advice: str) -> Iterator[None]:
    """Turn errors from writing to the cache into an `InputError`; other errors are not changed."""
    try:
        yield
    except OSError as error:
        if not _is_about_writing(place, error):
            raise
        raise _cannot_write(place, error, advice) from error


def _is_about_writing(place: Path, error: OSError) -> bool:
    if error.filename is not None:
        return Path(str(error.filename)).is_relative_to(place)
    # On a full disk, numpy raises an OSError without a number.
    return error.errno in _WRITE_ERRORS or (type(error) is OSError and error.errno is None)


def _cannot_write(place: Path, error: OSError, advice: str) -> InputError:
    reason = error.strerror or "a file was written only in part"
    room = "free some space there, or " if error.errno in _FULL else ""
    return InputError(f"the cache folder {place} cannot be written ({reason}); {room}{advice}.")


def _advice(root: Path | None) -> str:
    return "set DOCPARADE_CACHE to another folder" if root is None else "choose another folder"
