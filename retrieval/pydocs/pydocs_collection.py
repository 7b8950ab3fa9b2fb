"""`docparade:pydocs`: a collection of long documents, made from documentation that is on every machine.

- **Documents** are modules of Python's standard library and of packages that docparade depends on: all docstrings of a
  module with their signatures, read from the source, which is not imported. Modules have 200 to 5000 words; a module
  that mostly repeats another (half of its five-word sequences) is left out.
- **Queries** are summary lines of functions, classes and methods: the first paragraph of a docstring, 5 to 20 words.
  The line is removed from its document, which is the only relevant one. A line that nearly repeats one of another
  document (word overlap 0.6 or more) is not a query; if it repeats another line of its own document, that line is
  removed too. A document has at most 4 queries, from docstrings that say more than the summary line.
- **Splits** are by module: a tenth of the modules has its queries in `test`, a tenth in `validation`, the rest in
  `train`. So a document that is relevant in one split is not relevant in another. All documents are in every split.

Lines and splits are chosen by hashes of a seed and the names: the same versions of Python and of the packages give the
same collection. It is built the first time, in some seconds, and kept in the cache.
"""

import hashlib
import json
import platform
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar, get_args

from docparade.retrieval.collections.jsonl_folder import LocalCollection
from docparade.retrieval.errors import InputError, check_choice
from docparade.retrieval.progress import show_progress
from docparade.retrieval.runs import Qrels, write_qrels
from docparade.retrieval.storage.cache import build_once
from docparade.retrieval.storage.files import atomic_write, read_lines

from .docstrings import STANDARD_LIBRARY, Entry, Module, is_installed, read_modules
from .near_duplicates import content_words, repeated_texts, similar_pairs, words_in_order

Split: TypeAlias = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
Value = TypeVar("Value")

NAME = "docparade:pydocs"
FORMAT = 2
"""Incremented when the collection is built differently."""

SEED = 42
PACKAGES = (
    STANDARD_LIBRARY,
    *("accelerate", "datasets", "fsspec", "huggingface_hub", "jinja2", "networkx", "numpy"),
    *("pandas", "peft", "rich", "scipy", "torch", "transformers"),
)
DOCUMENT_WORDS = (200, 5000)
QUERY_WORDS = (5, 20)
QUERIES_PER_DOCUMENT = 4
LEAST_REST = 20
"""Words that a docstring must have beside its summary line."""
REPEATED_DOCUMENT = 0.5
REPEATED_QUERY = 0.6


# A role such as :class:`~os.PathLike`. A sequence of colons and letters is matched from its first one only, so that the
# time is linear in its length.
_ROLE = re.compile(r"(?<![\w:])(?P<before>\w*):[\w:]+:`~?(?P<text>[^`<]+)(?P<target><[^`]*>)?`")
_MODULE = re.compile(r"[\w.]*\.(?=.)", re.DOTALL)


class PydocsCollection(LocalCollection):
    """The whole collection, or with `split` all documents and the queries of that split.

    ```python
    len(PydocsCollection("test").queries())
    ```
    """

    def __init__(self, split: Split | None = None) -> None:
        super().__init__(build_once("pydocs", "pydocs", _key(), build).check_all())
        self.name = NAME if split is None else f"{NAME}/{split}"
        self._split = split

    def queries(self, field: str | None = None) -> dict[str, str]:
        return self._of_split(super().queries(field))

    def qrels(self) -> Qrels:
        return self._of_split(super().qrels())

    def splits(self) -> dict[str, str]:
        """Query id -> its split."""
        return dict(line.split("\t") for _, line in read_lines(self._folder / "splits.tsv"))

    def _of_split(self, by_query: dict[str, Value]) -> dict[str, Value]:
        if self._split is None:
            return by_query
        splits = self.splits()
        return {query: value for query, value in by_query.items() if splits[query] == self._split}


def load_pydocs(name: str) -> PydocsCollection:
    """Open the collection by its name, with or without a split.

    ```python
    load_pydocs("docparade:pydocs/train")
    ```
    """
    base, _, split = name.partition("/")
    if base != NAME:
        raise InputError(f"there is no collection {base}; the collection of docparade itself is {NAME}.")
    return PydocsCollection(check_choice(split, SPLITS, f"the part of {NAME}") if split else None)


def build(folder: Path) -> None:
    """Write documents, queries, judgments and splits to an empty folder."""
    manuals = [_Manual(module) for module in _modules()]
    _hold_out(manuals)
    queries = {f"{manual.module.name}:{line.name}": (manual, line) for manual in manuals for line in manual.queries}
    with atomic_write(folder / "docs.jsonl") as file:
        for manual in manuals:
            name = manual.module.name
            file.write(json.dumps({"doc_id": name, "title": name, "text": manual.text()}, ensure_ascii=False) + "\n")
    with atomic_write(folder / "queries.tsv") as file:
        file.writelines(f"{query}\t{plain(line.summary)}\n" for query, (_, line) in queries.items())
    with atomic_write(folder / "splits.tsv") as file:
        file.writelines(f"{query}\t{_split_of(manual.module.name)}\n" for query, (manual, _) in queries.items())
    write_qrels({query: {manual.module.name: 1} for query, (manual, _) in queries.items()}, folder / "qrels.txt")


def plain(line: str) -> str:
    """A summary line without markup.

    >>> plain("Give the :class:`~os.PathLike` of ``path``.")
    'Give the PathLike of path'
    """
    line = _ROLE.sub(lambda role: role["before"] + _last_name(role["text"], bool(role["target"])), line)
    return " ".join(line.replace("`", "").replace("*", "").split()).rstrip(".")


def _last_name(text: str, with_target: bool) -> str:
    """The visible part of a role's text: the last part of a dotted name, the title of "title <target>"."""
    text = text.rstrip() if with_target else text
    module = _MODULE.match(text)
    return text[module.end() :] if module else text


def _key() -> dict[str, object]:
    versions = {package: version(package) for package in _installed() if package != STANDARD_LIBRARY}
    return {"format": FORMAT, "python": platform.python_version(), "packages": versions}


def _installed() -> list[str]:
    return [package for package in PACKAGES if is_installed(package)]


def _modules() -> list[Module]:
    least, most = DOCUMENT_WORDS
    packages = show_progress(_installed(), f"reading documentation for {NAME}", unit=" packages")
    found = [module for package in packages for module in read_modules(package, least)]
    kept = [module for module in found if len(module.words()) <= most]
    repeated = repeated_texts([module.words() for module in kept], REPEATED_DOCUMENT)
    return [module for position, module in enumerate(kept) if position not in repeated]


class _Manual:
    """A module as a document: which of its summary lines become queries, and which are removed for them."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.queries: list[Entry] = []
        self.removed: set[Entry] = set()

    def text(self) -> str:
        """The document's text."""
        texts = [entry.text(with_summary=entry not in self.removed) for entry in self.module.entries]
        return "\n\n".join(part for part in (self.module.introduction, *texts) if part)

    def in_random_order(self) -> list[Entry]:
        """The entries whose line may become a query, in an order that depends on their names alone."""
        named = {entry.name: entry for entry in self.module.entries if _is_query(entry)}
        return [named[name] for name in sorted(named, key=lambda name: _draw(self.module.name, name))]

    def hold_out(self, entry: Entry, repeats: Iterable[Entry]) -> None:
        """Make a line a query, unless the rest of the document has it word for word."""
        before = self.removed
        self.removed = before | {entry, *repeats}
        if words_in_order(entry.summary) in words_in_order(self.text()):
            self.removed = before
        else:
            self.queries.append(entry)


def _hold_out(manuals: Sequence[_Manual]) -> None:
    lines = [(number, entry) for number, manual in enumerate(manuals) for entry in manual.module.entries]
    repeats: dict[tuple[int, Entry], set[tuple[int, Entry]]] = defaultdict(set)
    for first, second in similar_pairs([content_words(entry.summary) for _, entry in lines], REPEATED_QUERY):
        repeats[lines[first]].add(lines[second])
        repeats[lines[second]].add(lines[first])
    for number, manual in enumerate(manuals):
        for entry in manual.in_random_order():
            similar = repeats[number, entry]
            is_only_here = all(other == number for other, _ in similar)
            if is_only_here and entry not in manual.removed and len(manual.queries) < QUERIES_PER_DOCUMENT:
                manual.hold_out(entry, (other for _, other in similar))


def _is_query(entry: Entry) -> bool:
    least, most = QUERY_WORDS
    is_public = not any(part.startswith("_") for part in entry.name.split("."))
    is_sentence = entry.summary[:1].isupper() and not re.search(r"::|>>>|[Dd]eprecated|[{}|=\\]", entry.summary)
    says_more = len(entry.rest.split()) >= LEAST_REST
    return is_public and is_sentence and says_more and least <= len(content_words(entry.summary)) <= most


def _split_of(module: str) -> Split:
    drawn = int(_draw("split", module), 16) % 10
    return "test" if drawn == 0 else "validation" if drawn == 1 else "train"


def _draw(*names: str) -> str:
    """A hash of the seed and names, used as a random number."""
    return hashlib.sha256("/".join((str(SEED), *names)).encode()).hexdigest()
