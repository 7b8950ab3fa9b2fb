"""How a document is cut into passages: windows over its units, in token positions, and which of them are kept.

Everything here is a function of the document alone (and of the room that the query leaves), never of the batch, of
global random state or of the machine: the same document always has the same passages.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .sentences import sentence_spans

Unit = Literal["token", "word", "sentence"]
Selection = Literal["first", "first_last_sample"]
Range = tuple[int, int]


# The names under which collections keep a document's id: ours, BEIR's and ir_datasets'.
ID_NAMES = ("id", "_id", "doc_id")


@dataclass(frozen=True)
class Document:
    """A document as users give it: a string, or something with `text` and, if there are any, `id`, `title`, `headings`.

    Example:
        >>> Document.of({"id": "d1", "title": "Rain", "text": "It rains."}, "documents[0]").title
        'Rain'
    """

    text: str
    title: str = ""
    headings: str = ""
    id: Any = None
    """The id as it was given, of any type."""

    @classmethod
    def of(cls, given: Any, name: str) -> Document:
        """Check what a user gave; `name` says in an error which argument it was.

        Args:
            given: A string; a mapping with the key `text`; or an object with the attribute `text`, such as a document
                of a collection or of ir_datasets. Its id may be called `id`, `_id` or `doc_id`.
            name: The argument's name.
        """
        if isinstance(given, Document):
            return given
        if isinstance(given, str):
            return cls(_clean(given))
        fields = _Fields(given, name)
        headings = fields.get("headings") or ""
        return cls(
            text=_clean(fields.text()),
            title=_clean(fields.string("title")),
            headings=_clean(headings if isinstance(headings, str) else " ".join(map(str, headings))),
            id=next((found for each in ID_NAMES if (found := fields.get(each)) is not None), None),
        )


class _Fields:
    """The fields of a mapping or of an object, under one interface."""

    def __init__(self, given: Any, name: str) -> None:
        self.given, self.name = given, name

    def get(self, field: str) -> Any:
        return self.given.get(field) if isinstance(self.given, Mapping) else getattr(self.given, field, None)

    def text(self) -> str:
        if isinstance(text := self.get("text"), str):
            return text
        if isinstance(self.given, Mapping):
            keys = ", ".join(map(str, self.given))
            raise TypeError(f"{self.name} has no 'text' that is a string: its keys are {keys}.")
        kind = "None" if self.given is None else f"of type {type(self.given).__name__}"
        raise TypeError(f"{self.name} is {kind}: give a string, or a dict with the key 'text'.")

    def string(self, field: str) -> str:
        value = self.get(field)
        if isinstance(value, float) and value != value:  # how pandas writes that there is none
            return ""
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{self.name} has a '{field}' that is no string: {value!r}.")
        return value or ""


def _clean(text: str) -> str:
    # Half of a surrogate pair is no character: tokenizers refuse it. One replacement character keeps all positions.
    return text if text.isascii() else re.sub("[\ud800-\udfff]", "\ufffd", text)


def blank_tags(text: str) -> str:
    """The text with markup tags turned into as many spaces, so that positions stay.

    Example:
        >>> blank_tags("<p>1 < 2</p>")
        '   1 < 2    '
    """
    return re.sub(r"</?[A-Za-z!][^<>]*>", lambda tag: " " * len(tag[0]), text)


def first_words(text: str, limit: int) -> str:
    """The first words of a text, at most `limit` of them.

    Example:
        >>> first_words("To be or not", 2)
        'To be'
    """
    return " ".join(text.split(maxsplit=limit)[:limit])


_SINGLE_SPACE = re.compile(r"(?<=\S) (?=\S)")


def cut_at_spaces(text: str, longest: int, at_most: int) -> list[str]:
    """A text in pieces of about `longest` characters, cut before single spaces, or after `at_most` where there is none.

    A tokenizer splits at spaces before it does anything else, so that the pieces' tokens are the text's. (Not so inside
    a run of spaces, which may be one token.) Where there is no space for so long, a token at the cut may differ.

    Example:
        >>> cut_at_spaces("one two three", 5, at_most=100)
        ['one two', ' three']
        >>> cut_at_spaces("onetwothree", 5, at_most=6)
        ['onetwo', 'three']
    """
    pieces, start = [], 0
    while len(text) - start > longest:
        space = _SINGLE_SPACE.search(text, start + longest, start + at_most + 1)
        if space is None and len(text) - start <= at_most:
            break
        end = start + at_most if space is None else space.start()
        pieces.append(text[start:end])
        start = end
    return [*pieces, text[start:]]


def unit_ends(text: str, unit: Unit) -> np.ndarray:
    """Where, in characters, each word or sentence of a text ends."""
    if unit == "sentence":
        return np.array([end for _, end in sentence_spans(text)], dtype=np.int64)
    return np.array([word.end() for word in re.finditer(r"\S+", text)], dtype=np.int64)


def unit_bounds(text: str, unit: Unit, token_ends: np.ndarray, first_token: int) -> np.ndarray:
    """Token positions at which the units of a text begin, and the last one's end: unit i is `bounds[i]:bounds[i + 1]`.

    Args:
        text: The text that the tokens were made of.
        unit: What windows count.
        token_ends: Where each token ends in the text, in characters.
        first_token: Position of the first token that belongs to a unit; those before it are a prefix of their own.
    """
    count = len(token_ends)
    if unit == "token":
        return np.arange(first_token, count + 1)
    ends = unit_ends(text, unit)
    # A token belongs to the unit in which it ends. Tokens of white space alone thereby go with the word that follows.
    bounds = np.searchsorted(token_ends, ends, side="right")
    bounds = np.unique(np.concatenate([[first_token], bounds[bounds > first_token]]))
    if len(bounds) == 1:
        return np.array([first_token, count])
    bounds[-1] = count
    return bounds


def sliding_windows(count: int, window: int, stride: int) -> list[Range]:
    """Windows over `count` units. The last one ends at the last unit; none only repeats what the one before it has.

    Example:
        >>> sliding_windows(7, window=4, stride=3)
        [(0, 4), (3, 7)]
        >>> sliding_windows(8, window=4, stride=3)
        [(0, 4), (3, 7), (6, 8)]
    """
    windows = []
    for start in range(0, max(count, 1), stride):
        windows.append((start, min(start + window, count)))
        if start + window >= count:
            break
    return windows


def fit_to_room(ranges: list[Range], room: int) -> list[Range]:
    """Cut token ranges that are longer than `room`, without losing a token.

    What is cut off a range is left to the next one if that covers it, and otherwise becomes ranges of its own.

    Example:
        >>> fit_to_room([(0, 10), (5, 12)], room=6)
        [(0, 6), (5, 11), (11, 12)]
    """
    fitted = []
    for position, (start, end) in enumerate(ranges):
        next_start = ranges[position + 1][0] if position + 1 < len(ranges) else end
        fitted.append((start, min(start + room, end)))
        fitted += [(piece, min(piece + room, next_start)) for piece in range(start + room, next_start, room)]
    return fitted


def token_windows(bounds: np.ndarray, unit: Unit, window: int | None, stride: int | None, room: int) -> list[Range]:
    """Token ranges of a document's passages.

    Args:
        bounds: The document's units, from `unit_bounds`.
        unit: What `window` and `stride` count.
        window: Units in a passage; `None`, with tokens, is as many as there is room for.
        stride: Units from one passage's start to the next one's; `None` is `window`.
        room: Tokens that a passage may have at most.
    """
    window = window or room
    stride = stride or window
    if unit == "token":
        window, stride = min(window, room), min(stride, room)
    windows = sliding_windows(len(bounds) - 1, window, stride)
    return fit_to_room([(int(bounds[start]), int(bounds[end])) for start, end in windows], room)


def select_passages(count: int, limit: int | None, selection: Selection, text: str, seed: int) -> list[int]:
    """Which of a document's `count` passages are read where there are more than `limit`, in document order.

    `first` keeps the first ones. `first_last_sample` keeps the first and the last and a uniform sample between them:
    the passages with the smallest hashes of document, seed and position.
    """
    if limit is None or count <= limit:
        return list(range(count))
    if selection == "first" or limit == 1:
        return list(range(limit))
    document = hashlib.blake2b(text.encode(), digest_size=16, salt=seed.to_bytes(16, "little", signed=True))

    def draw(position: int) -> bytes:
        hashed = document.copy()
        hashed.update(position.to_bytes(8, "little"))
        return hashed.digest()

    middle = sorted(range(1, count - 1), key=draw)[: limit - 2]
    return [0, *sorted(middle), count - 1]
