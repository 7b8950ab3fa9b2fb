"""What is taken for a document, and what is not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from docparade.modeling.documents import Document, first_words


def test_first_words() -> None:
    assert first_words("  one  two three ", 2) == "one two"
    assert first_words("", 2) == ""


def test_documents_are_strings_or_dicts() -> None:
    assert Document.of("text", "documents[0]") == Document("text")
    given = {"id": 7, "title": None, "headings": ["one", "two"], "text": "text", "url": "ignored"}
    assert Document.of(given, "documents[0]") == Document("text", "", "one two", 7)


@pytest.mark.parametrize("name", ["id", "_id", "doc_id"])
def test_documents_are_what_collections_give(name: str) -> None:
    expected = Document("text", "title", "", "d1")
    fields = {name: "d1", "title": "title", "text": "text"}
    assert Document.of(fields, "documents[0]") == expected
    assert Document.of(SimpleNamespace(**fields, url="ignored"), "documents[0]") == expected


@pytest.mark.parametrize(
    "wrong, words",
    [
        (None, "documents\\[3\\] is None"),
        (7, "is of type int"),
        ({"body": "x"}, "body"),
        ({"text": "x", "title": 7}, "'title' that is not a string: 7"),
    ],
)
def test_other_documents_are_named_in_the_error(wrong: object, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        Document.of(wrong, "documents[3]")
