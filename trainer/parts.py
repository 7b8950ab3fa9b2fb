"""Long work in parts: each is written whole beside the file it is for, and survives whatever happens to the next."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docparade.retrieval.errors import InputError
from docparade.retrieval.files import atomic_write

KEY_FILE = "key.json"


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
