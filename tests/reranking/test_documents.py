"""Documents by id, from a collection or from any mapping."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docparade.reranking.documents import CollectionDocuments, fetch
from docparade.retrieval import load_collection
from docparade.retrieval.errors import InputError


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CollectionDocuments:
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "cache"))
    lines = [{"doc_id": "a", "title": "A", "headings": "H", "text": "First."}, {"doc_id": "b", "text": "Second."}]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return CollectionDocuments(load_collection(tmp_path))


def test_a_collection_is_a_mapping(documents: CollectionDocuments) -> None:
    assert documents["a"] == {"id": "a", "title": "A", "headings": "H", "text": "First."}
    assert (list(documents), len(documents), "b" in documents, "c" in documents) == (["a", "b"], 2, True, False)
    assert documents.get_many(["b", "a"]) == {"b": documents["b"], "a": documents["a"]}
    with pytest.raises(InputError, match="has no document c"):
        documents["c"]


def test_what_is_fetched_is_the_callers_own(documents: CollectionDocuments) -> None:
    documents["a"]["text"] = "changed"
    assert documents["a"]["text"] == "First."


def test_fetching_from_a_collection_and_from_a_dict(documents: CollectionDocuments) -> None:
    assert fetch(documents, ["b"]) == fetch(dict(documents.items()), ["b"]) == {"b": documents["b"]}
    for source in (documents, dict(documents.items())):
        with pytest.raises(InputError, match="no document c"):
            fetch(source, ["a", "c"])
