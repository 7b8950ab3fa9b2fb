"""What is computed once and kept: where it lives, and how it gets there whole."""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .errors import InputError


def cache_folder() -> Path:
    """The folder for everything that can be computed again: `DOCPARADE_CACHE`, or `~/.cache/docparade`.

    It may be deleted at any time; nothing but time is lost.
    """
    if chosen := os.environ.get("DOCPARADE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "docparade"


def build_once(
    kind: str, name: str, key: Mapping[str, Any], build: Callable[[Path], None], root: Path | None = None
) -> Path:
    """The folder that `build` fills, built the first time `key` is seen and reused from then on.

    `key` holds everything that could change the result, as JSON values. `name` is a hint for people who look into the
    cache and does not count, so that splits of a collection and spellings of a path share one folder. `build` works in
    a temporary folder that takes its final name when it is complete, so a folder that exists is whole, whatever was
    interrupted before. `root` takes the place of the common cache folder.

    >>> folder = build_once("indexes", "cranfield", {"size": 1644714}, lambda folder: write_index(folder))
    """
    written_key = json.dumps(key, sort_keys=True, indent=1)
    digest = hashlib.sha256(written_key.encode()).hexdigest()[:16]
    place = (root or cache_folder()) / kind
    if built := sorted(place.glob(f"*-{digest}")):
        return built[0]
    folder = place / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name)[-80:].strip('.-')}-{digest}"
    temporary = _temporary_folder_beside(folder)
    try:
        build(temporary)
        (temporary / "key.json").write_text(written_key, encoding="utf-8")
        _take_place(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _temporary_folder_beside(folder: Path) -> Path:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=".building-", dir=folder.parent))
    except OSError as error:
        raise InputError(
            f"the cache folder {folder.parent} cannot be written ({error.strerror}); set DOCPARADE_CACHE to another."
        ) from error


def _take_place(temporary: Path, folder: Path) -> None:
    try:
        temporary.rename(folder)
    except OSError:
        # Another process finished the same folder first; the two are the same.
        if not folder.is_dir():
            raise
