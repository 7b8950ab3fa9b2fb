"""Documents as users give them, and their texts."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from unicodedata import category


class HasText(Protocol):
    """An object with a text, such as a document of a collection or of ir_datasets."""

    @property
    def text(self) -> str:
        """The document's text."""


DocumentLike = str | Mapping[str, Any] | HasText
"""A document is given as a text, as a mapping with the key `text`, or as an object with the attribute `text`. Mappings
and objects may also have `id` (or `_id`, `doc_id`), `title` and `headings`."""

# Names of the id's field: in our collections, in BEIR and in ir_datasets.
ID_NAMES = ("id", "_id", "doc_id")


@dataclass(frozen=True)
class Document:
    """A document whose fields were checked.

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
    def of(cls, given: DocumentLike, name: str) -> Document:
        """Check a document that a user gave.

        Args:
            given: The document.
            name: The argument's name, for errors.
        """
        if isinstance(given, Document):
            return given
        if isinstance(given, str):
            return cls(replace_surrogates(given))
        fields = _Fields(given, name)
        return cls(
            text=replace_surrogates(fields.text()),
            title=replace_surrogates(fields.string("title")),
            headings=replace_surrogates(" ".join(fields.strings("headings"))),
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
            keys = reprlib.repr(list(self.given))
            raise TypeError(f"{self.name} has no 'text' that is a string: its keys are {keys}.")
        kind = "None" if self.given is None else f"of type {type(self.given).__name__}"
        raise TypeError(f"{self.name} is {kind}: give a string, or a dict with the key 'text'.")

    def string(self, field: str) -> str:
        value = self.get(field)
        if isinstance(value, float) and value != value:  # NaN, which pandas writes for a missing value
            return ""
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{self.name} has a '{field}' that is not a string: {reprlib.repr(value)}.")
        return value or ""

    def strings(self, field: str) -> list[str]:
        """A string, or several."""
        value = self.get(field)
        if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
            return [self.string(field)]
        parts = list(value)
        for part in parts:
            if not isinstance(part, str):
                raise TypeError(f"{self.name} has '{field}' with one that is not a string: {reprlib.repr(part)}.")
        return parts


def replace_surrogates(text: str) -> str:
    """Replace each half of a surrogate pair, which tokenizers refuse, by one character: all positions stay the same."""
    return text if text.isascii() else re.sub("[\ud800-\udfff]", "\ufffd", text)


def has_text(text: str) -> bool:
    """Whether anything in a text can be read: white space, control and format characters cannot.

    Example:
        >>> has_text(" \\n\\u200b"), has_text(" ?")
        (False, True)
    """
    return any(not character.isspace() and category(character) not in ("Cc", "Cf") for character in text)


def first_words(text: str, limit: int) -> str:
    """The first words of a text, at most `limit` of them.

    Example:
        >>> first_words("To be or not", 2)
        'To be'
    """
    return " ".join(text.split(maxsplit=limit)[:limit])
