"""HTML is read as a browser shows it, whatever file it is in; other texts stay as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docparade.reranking.document_files import SourceDocument, from_text, read_file

PAGE = "<html><title>Rain</title><p>It <b>rai</b>ns.</p></html>"
SEEN = "Rain\nIt rains."


@pytest.mark.parametrize(
    ("name", "content"), [("a.html", PAGE), ("a.txt", PAGE), ("a.md", PAGE), ("a.jsonl", json.dumps({"text": PAGE}))]
)
def test_html_is_read_as_it_is_seen(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    [document] = read_file(tmp_path / name)
    assert (document.name, document.text, document.title) == ("Rain", SEEN, "Rain")


def test_typed_html_is_read_as_it_is_seen() -> None:
    assert from_text(PAGE, "Untitled") == SourceDocument("Rain", SEEN, "Rain")
    assert from_text("<p>It rains.</p>", "Untitled") == SourceDocument("Untitled", "It rains.")


@pytest.mark.parametrize("text", ["if a < b > c: pass", "<rain>It rains.</rain>", "#include <stdio.h>"])
def test_what_is_not_html_stays(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    [document] = read_file(tmp_path / "a.txt")
    assert document.text == text
