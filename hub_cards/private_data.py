"""Finds what must not be published in texts: access tokens, and paths, users and hosts of this machine."""

from __future__ import annotations

import getpass
import re
import socket
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{20,}")
# Home folders of any machine, not only this one: a model may have been trained elsewhere.
HOME = re.compile(r"(?<![\w.:/\\-])(?:/home/|/Users/|/root/|[A-Za-z]:\\+Users\\+)[\w.-]+|\bfile://\S+")
PATH = re.compile(r"(?<![\w.:/~<-])/[\w.@+-]+(?:/[\w.@+-]+)+")
# Folders that are on every machine: their paths tell nothing.
SYSTEM = ("/bin/", "/dev/", "/etc/", "/lib/", "/opt/", "/proc/", "/sbin/", "/sys/", "/usr/")
# Names that many machines and users have.
# fmt: off
COMMON = frozenset((
    "admin", "administrator", "build", "builder", "cluster", "compute", "debian", "desktop", "docker", "fedora",
    "guest", "home", "jovyan", "laptop", "linux", "localhost", "login", "node", "nobody", "research", "root",
    "runner", "server", "student", "ubuntu", "user", "vagrant", "windows", "work", "worker",
))
# fmt: on


@dataclass(frozen=True)
class PrivateData:
    """What a text must not contain.

    Args:
        folders: Paths of this machine.
        names: Names of its user and of the machine itself.
        token: The access token in use.
    """

    folders: tuple[str, ...]
    names: tuple[str, ...] = ()
    token: str | None = None

    @classmethod
    def of_this_machine(cls, public_words: set[str], token: str | None = None) -> PrivateData:
        """What is private here, except names that are words of the model's code, or public on the Hub anyway."""
        folders = {str(place) for place in (Path.home(), Path.cwd(), tempfile.gettempdir())}
        folders |= {str(Path(place).resolve()) for place in folders}
        names = {_user(), socket.gethostname(), socket.gethostname().partition(".")[0]}
        return cls(
            tuple(sorted(place for place in folders if len(place) > 1)),
            tuple(sorted(name for name in names - public_words - COMMON if len(name) > 3)),
            token,
        )

    @cached_property
    def _folder_pattern(self) -> re.Pattern[str] | None:
        return (
            re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, self.folders))})(?![\w.-])") if self.folders else None
        )

    @cached_property
    def _name_pattern(self) -> re.Pattern[str] | None:
        return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, self.names))})(?![\w-])") if self.names else None

    def find(self, text: str, is_vocabulary: bool = False) -> tuple[int, str] | None:
        """Where the first private thing stands, as its line number and a description; `None` if there is none.

        Args:
            text: The text.
            is_vocabulary: Whether it is a tokenizer's vocabulary, which has all kinds of names and parts of paths.

        Example:
            >>> PrivateData(folders=("/data/ann",)).find("trained on\\n/data/ann/robust04")
            (2, 'the path /data/ann')
        """
        if (token := TOKEN.search(text)) or (self.token and (token := re.search(re.escape(self.token), text))):
            return _line(text, token), "an access token"
        if is_vocabulary:
            return None
        for pattern in (self._folder_pattern, HOME):
            if pattern is not None and (path := pattern.search(text)):
                return _line(text, path), f"the path {path[0]}"
        for path in PATH.finditer(text):
            if not path[0].startswith(SYSTEM) and Path(path[0]).exists():
                return _line(text, path), f"the path {path[0]}"
        if self._name_pattern is not None and (name := self._name_pattern.search(text)):
            return _line(text, name), f"{name[0]!r}, a user or host name of this machine"
        return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return ""


def _line(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start()) + 1
