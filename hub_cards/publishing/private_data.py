"""Finds in texts what must stay private: access tokens and keys, and paths, users and hosts of this machine."""

from __future__ import annotations

import getpass
import re
import socket
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

# Not in the middle of a longer word.
_STARTS = r"(?<![A-Za-z0-9])"
SECRETS = {
    "an access token of Hugging Face": rf"{_STARTS}(?:hf_(?:oauth_|jwt_)?|api_org_)[A-Za-z0-9]{{20}}",
    "an access token of GitHub": rf"{_STARTS}(?:gh[pousr]_[A-Za-z0-9]{{36}}|github_pat_\w{{40}})",
    # Keys of Anthropic and OpenRouter begin like it.
    "an API key of OpenAI": rf"{_STARTS}sk-(?:(?:proj|svcacct|admin|ant|or)-[\w-]{{20}}|[A-Za-z0-9]{{40}})",
    "an access token of GitLab": rf"{_STARTS}gl(?:pat|ptt|dt|rt)-[\w-]{{20}}",
    "an access token of Slack": rf"{_STARTS}xox[abeprs]-[\w-]{{20}}",
    "an API key of Google": rf"{_STARTS}AIza[\w-]{{35}}(?![\w-])",
    "an access key of AWS": rf"{_STARTS}(?:AKIA|ASIA)[A-Z0-9]{{16}}(?![A-Za-z0-9])",
    "a secret key of AWS": r"(?i:secret_?access_?key)\W{1,8}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])",
    # Nothing marks the older form: it is a key if a word before it says so, as in .netrc.
    "an API key of Weights & Biases": r"wandb_v\d_\w{20}|(?:(?i:wandb|api[ _-]?key)[^\n]{0,80}?"
    r"|wandb\S*\s+login\s+\S+\s+password\s+)"
    r"(?<![A-Za-z0-9])[0-9a-f]{40}(?![A-Za-z0-9])",
    "a private key": r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY",
    "an address with a password": r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,15}://"
    r"[^\s/:@\"'<>(){}$]{0,99}:[^\s/@\"'<>(){}$]{1,199}@[\w-]",
}
# A path starts here, and not in the middle of another one or of an address.
_PATH_STARTS = r"(?<![\w.:/\\~<-])"
# Home folders of any machine, not only this one: a model may have been trained elsewhere.
_HOME = r"(?:/(?:mnt|private|export|net|nfs|data)(?:/\w+)?)?/(?:home|Users)/[\w.-]+|/root/[\w.-]+"
# `C:\data\x` and `\\server\share\x`, also with more backslashes, as in JSON. A single one before n, r or t is
# taken for the end of a line or a tab.
_WINDOWS = (
    r"[A-Za-z]:(?:\\{2,}|\\(?![nrt]))[\w .-]{2,}\\+[\w.-]+|[A-Za-z]:/[\w.-]+/[\w.-]+"
    r"|(?P<slash>\\+)(?P=slash)\w[\w.-]*(?P=slash)[\w.$-]+(?P=slash)[\w.-]+"
)
FOREIGN = re.compile(rf"{_PATH_STARTS}(?:{_HOME}|{_WINDOWS})|\bfile://[\w.%-]*/[\w.%/-]*\w")
PATH = re.compile(rf"{_PATH_STARTS}/[\w.@+-]+(?:/[\w.@+-]+)+")
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
    def _secret_patterns(self) -> dict[str, re.Pattern[str]]:
        own = {"an access token": re.escape(self.token)} if self.token else {}
        return {what: re.compile(pattern) for what, pattern in {**SECRETS, **own}.items()}

    @cached_property
    def _folder_pattern(self) -> re.Pattern[str] | None:
        # In JSON, each backslash is two.
        places = "|".join(re.escape(place).replace(r"\\", r"\\+") for place in self.folders)
        return re.compile(rf"(?<![\w.-])(?:{places})(?![\w.-])") if places else None

    @cached_property
    def _name_pattern(self) -> re.Pattern[str] | None:
        return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, self.names))})(?![\w-])") if self.names else None

    def find(self, text: str, is_vocabulary: bool = False) -> tuple[int, str] | None:
        """Where the first private thing stands, as its line number and a description; `None` if there is none.

        Args:
            text: The text.
            is_vocabulary: Whether it is a tokenizer's vocabulary, which has all kinds of names and parts of paths. A
                path counts there if it leads into a home folder, or from a folder of this machine to something in it.

        Example:
            >>> PrivateData(folders=("/data/ann",)).find("trained on\\n/data/ann/robust04")
            (2, 'the path /data/ann')
        """
        for what, pattern in self._secret_patterns.items():
            if secret := pattern.search(text):
                return _line(text, secret), what
        if path := self._find_path(text, is_vocabulary):
            return _line(text, path), f"the path {path[0]}"
        if not is_vocabulary and self._name_pattern is not None and (name := self._name_pattern.search(text)):
            return _line(text, name), f"{name[0]!r}, a user or host name of this machine"
        return None

    def _find_path(self, text: str, is_vocabulary: bool) -> re.Match[str] | None:
        for path in self._folder_pattern.finditer(text) if self._folder_pattern is not None else ():
            if not is_vocabulary or re.match(r"[/\\]+\w", text[path.end() : path.end() + 4]):
                return path
        if foreign := FOREIGN.search(text):
            return foreign
        for path in PATH.finditer(text):
            is_part = is_vocabulary and path[0].count("/") < 3
            if not is_part and not path[0].startswith(SYSTEM) and Path(path[0]).exists():
                return path
        return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return ""


def _line(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start()) + 1
