"""How a document is cut into passages: windows over its units, in token positions, and which windows are read.

Everything here depends only on the document (and on the room that the query leaves), not on the batch, global random
state or the machine: the same document always has the same passages.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .documents import Document
from .sentences import sentence_spans

Unit = Literal["token", "word", "sentence"]
"""The unit in which the length of passages is counted; see `DocumentProcessor`."""
Selection = Literal["first", "first_last_sample"]
"""Which passages are read if there are too many; see `DocumentProcessor`."""
Range = tuple[int, int]


@dataclass(frozen=True)
class Passage:
    """A passage of a document: its span in the document's text, and its tokens."""

    start: int
    end: int
    token_ids: np.ndarray


@dataclass(frozen=True)
class EncodedDocument:
    """A document and its tokens, which are computed once and cut into passages for any query."""

    document: Document
    token_ids: np.ndarray
    spans: np.ndarray
    """The span of each token in the document's text, `(tokens, 2)`; `(0, 0)` for tokens of title and headings."""
    bounds: np.ndarray
    """Token positions at which units begin, and the end of the last unit."""
    prefix: np.ndarray
    """Tokens before every passage: title and headings, if they are repeated."""

    def passage(self, prefix: np.ndarray, tokens: Range) -> Passage:
        """The passage of a range of tokens, after a prefix."""
        start, end = tokens
        span = self.spans[start:end]
        return Passage(
            start=int(span[0, 0]) if len(span) else 0,
            end=int(span[-1, 1]) if len(span) else 0,
            token_ids=np.concatenate([prefix, self.token_ids[start:end]]),
        )


def unit_ends(text: str, unit: Unit) -> np.ndarray:
    """The character positions at which the words or sentences of a text end."""
    if unit == "sentence":
        return np.array([end for _, end in sentence_spans(text)], dtype=np.int64)
    return np.array([word.end() for word in re.finditer(r"\S+", text)], dtype=np.int64)


def unit_bounds(text: str, unit: Unit, token_ends: np.ndarray, first_token: int) -> np.ndarray:
    """The token positions at which units begin, and the end of the last one: unit i is `bounds[i]:bounds[i + 1]`.

    Args:
        text: The text of the tokens.
        unit: The unit of windows.
        token_ends: The character positions at which tokens end.
        first_token: Position of the first token that belongs to a unit; the tokens before it are the prefix.
    """
    count = len(token_ends)
    if unit == "token":
        return np.arange(first_token, count + 1)
    ends = unit_ends(text, unit)
    # A token belongs to the unit in which it ends. So tokens of white space belong to the word that follows.
    bounds = np.searchsorted(token_ends, ends, side="right")
    bounds = np.unique(np.concatenate([[first_token], bounds[bounds > first_token]]))
    if len(bounds) == 1:
        return np.array([first_token, count])
    bounds[-1] = count
    return bounds


def sliding_windows(count: int, window: int, stride: int) -> list[Range]:
    """Windows over `count` units. The last window ends at the last unit, and adds units to the window before it.

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
    """Shorten token ranges that are longer than `room`, without losing a token.

    Tokens that are cut off, and that the next range does not cover, become ranges of their own.

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
        unit: The unit of `window` and `stride`.
        window: Units of a passage; `None`, for tokens only, is as many as there is room for.
        stride: Units between the starts of two passages; `None` is `window`.
        room: The most tokens that a passage may have.
    """
    window = window or room
    stride = stride or window
    if unit == "token":
        window, stride = min(window, room), min(stride, room)
    windows = sliding_windows(len(bounds) - 1, window, stride)
    return fit_to_room([(int(bounds[start]), int(bounds[end])) for start, end in windows], room)


def select_passages(count: int, limit: int | None, selection: Selection, text: str, seed: int) -> list[int]:
    """Which of a document's `count` passages are read if there are more than `limit`, in document order.

    `first` reads the first ones. `first_last_sample` reads the first, the last and a uniform sample of the others: the
    passages with the smallest hashes of document, seed and position.
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
