"""The cache of computed folders: built once by one process, complete or absent, and checked for damage."""

import errno
import hashlib
import json
import logging
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from filelock import FileLock, Timeout

from docparade.retrieval.errors import InputError

from .manifest import find_damage, sync, write_manifest

logger = logging.getLogger(__name__)

SILENCE = 5.0
"""Seconds to wait for another process before a warning."""

PARTS_DAYS = 30
"""For how many days the finished parts of an interrupted build are kept."""

_KEY = "key.json"
_BUILDING = ".building-"
_DAMAGED = ".damaged-"
_PARTS = ".parts-"
# Errors from writing to an open file do not name it.
_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
_FULL = (errno.ENOSPC, errno.EDQUOT, None)
_verify_everything: ContextVar[bool] = ContextVar("_verify_everything", default=False)


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


@contextmanager
def full_verification() -> Iterator[None]:
    """Within the block, `build_once` compares all bytes of a folder with their checksums, even if it is large.

    ```python
    with full_verification():
        index = open_index(collection)
    ```
    """
    before = _verify_everything.set(True)
    try:
        yield
    finally:
        _verify_everything.reset(before)


def build_once(
    kind: str, name: str, key: Mapping[str, object], build: Callable[[Path], None], root: Path | None = None
) -> Path:
    """The folder that `build` fills; built the first time a `key` is used, reused afterwards.

    `key` has everything that could change the result, as JSON values. `name` is part of the folder's name, for people
    who look into the cache; folders are found by the key alone, so that splits of a collection and spellings of a path
    share one. `root` replaces the common cache folder.

    `build` works in a temporary folder, which gets a manifest and its final name when it is complete. An existing
    folder is used if it has this key and agrees with its manifest; otherwise it is removed and built again, with a
    warning. If several processes need the same folder, one builds it and the others wait. Unfinished folders of killed
    processes are removed.

    ```python
    folder = build_once("indexes", "cranfield", {"size": 1644714}, lambda folder: write_index(folder))
    ```
    """
    place, digest, written_key = _place_of(kind, key, root)
    _remove_unfinished(place, digest)
    # Without a lock: a complete cache can be used from a read-only disk.
    for folder in _folders(place, digest):
        if _damage(folder, written_key) is None:
            return folder
    with _locked(place, digest, _advice(root)), _writing(place, _advice(root)):
        for folder in _folders(place, digest):
            damage = _damage(folder, written_key)
            if damage is None:  # another process built it meanwhile
                return folder
            logger.warning("%s is damaged and is built again: %s.", folder, damage)
            _discard(folder, digest)
        folder = place / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name)[-80:].strip('.-')}-{digest}"
        _build(folder, digest, written_key, build)
        _remove(place / f"{_PARTS}{digest}")
        return folder


def find_built(kind: str, key: Mapping[str, object], root: Path | None = None) -> Path | None:
    """The folder that `build_once` built for this key, or None; nothing is built."""
    place, digest, written_key = _place_of(kind, key, root)
    return next((folder for folder in _folders(place, digest) if _damage(folder, written_key) is None), None)


def list_built(kind: str, values: Mapping[str, object], root: Path | None = None) -> list[Path]:
    """The folders that `build_once` built for keys with these values, sorted by name; a damaged one is left out.

    ```python
    list_built("vectors", {"encoder": encoder})  # those of all documents, and of all types
    ```
    """
    found = []
    for folder in sorted(((root or cache_folder()) / kind).glob("[!.]*")):
        if not _has_values(folder, values):
            continue
        if damage := find_damage(folder, _verify_everything.get()):
            logger.warning("%s is damaged and is not used: %s.", folder, damage)
        else:
            found.append(folder)
    return found


def parts_folder(kind: str, key: Mapping[str, object], root: Path | None = None) -> Path:
    """The folder in which a long `build` keeps its finished parts, so that it can continue after an interruption.

    `build` makes it, and `build_once` removes it when all is built. The parts of a build that is never finished are
    removed `PARTS_DAYS` after the last one was written, by the next use of this kind of cache, unless a process is
    building with this key.
    """
    place, digest, _ = _place_of(kind, key, root)
    return place / f"{_PARTS}{digest}"


def _place_of(kind: str, key: Mapping[str, object], root: Path | None) -> tuple[Path, str, str]:
    """The folder of a kind, the digest of a key, and the key as it is written."""
    written_key = json.dumps(key, sort_keys=True, indent=1)
    return (root or cache_folder()) / kind, hashlib.sha256(written_key.encode()).hexdigest()[:16], written_key


def _folders(place: Path, digest: str) -> list[Path]:
    # Not the hidden folder of its parts.
    return sorted(place.glob(f"[!.]*-{digest}"))


def _damage(folder: Path, written_key: str) -> str | None:
    """Why a folder cannot be used, or None."""
    if damage := find_damage(folder, _verify_everything.get()):
        return damage
    try:
        same = (folder / _KEY).read_text(encoding="utf-8") == written_key
    except (OSError, ValueError):
        same = False
    return None if same else f"{_KEY} does not hold the key of this folder"


def _has_values(folder: Path, values: Mapping[str, object]) -> bool:
    """Whether the key of a folder has these values, and maybe others."""
    try:
        key = json.loads((folder / _KEY).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(key, dict) and all(name in key and key[name] == value for name, value in values.items())


def _build(folder: Path, digest: str, written_key: str, build: Callable[[Path], None]) -> None:
    temporary = folder.with_name(f"{_BUILDING}{digest}.{uuid.uuid4().hex}")
    try:
        temporary.mkdir()
        build(temporary)
        (temporary / _KEY).write_text(written_key, encoding="utf-8")
        write_manifest(temporary)
        temporary.rename(folder)
        sync(folder.parent)
    finally:
        _remove(temporary)


def _discard(folder: Path, digest: str) -> None:
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


def _remove_unfinished(place: Path, wanted: str) -> None:
    """Remove unfinished folders of killed processes: those whose lock nobody holds.

    Parts are kept for a while, and those of the `wanted` digest for as long as nothing is built from them.
    """
    for path in place.glob(".*"):
        prefix = next((prefix for prefix in (_BUILDING, _DAMAGED, _PARTS) if path.name.startswith(prefix)), None)
        if prefix is None:
            continue
        digest = path.name.removeprefix(prefix).partition(".")[0]
        # A process that is still building holds the lock; on a read-only disk, nothing is removed.
        with suppress(OSError):
            if prefix == _PARTS and not _folders(place, digest) and (digest == wanted or not _is_old(path)):
                continue
            with _lock_of(place, digest).acquire(timeout=0):
                _remove(path)


def _is_old(parts: Path) -> bool:
    """Whether the last part was written long ago; writing one also changes the folder's time."""
    return time.time() - parts.stat().st_mtime > PARTS_DAYS * 24 * 60 * 60


@contextmanager
def _locked(place: Path, digest: str, advice: str) -> Iterator[None]:
    """Hold the lock of the folder with this digest."""
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
