"""Documents by id, from a collection or from any mapping."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.reranking.caches.document_lookup import CollectionDocuments, fetch_documents
from docparade.reranking.caches.fingerprints import fingerprint_contents
from docparade.retrieval import Document, load_collection
from docparade.retrieval.errors import InputError


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CollectionDocuments:
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "cache"))
    lines = [{"doc_id": "a", "title": "A", "headings": "H", "text": "First ü."}, {"doc_id": "b", "text": "Second."}]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return CollectionDocuments(load_collection(tmp_path))


def test_a_collection_is_a_mapping(documents: CollectionDocuments) -> None:
    assert documents["a"] == Document(id="a", title="A", headings="H", text="First ü.")
    assert (list(documents), len(documents), "b" in documents, "c" in documents) == (["a", "b"], 2, True, False)
    assert documents.get_many(["b", "a"]) == {"b": documents["b"], "a": documents["a"]}
    with pytest.raises(InputError, match="has no document c"):
        documents["c"]


def test_a_collections_document_is_read_like_a_mapping(
    documents: CollectionDocuments, tiny_ranker: Callable[..., DocumentRanker]
) -> None:
    model = tiny_ranker(MaxPForSequenceClassification, "max")
    fields = {document_id: vars(document) for document_id, document in documents.items()}
    assert model.rank("first", documents.values()) == model.rank("first", fields.values())
    assert [found.id for found in model.rank("first", documents.values())] in (["a", "b"], ["b", "a"])


def test_the_fingerprint_of_contents_is_that_of_earlier_versions(documents: CollectionDocuments) -> None:
    """Token caches and unfinished parts are found by it."""
    fields = {document_id: vars(document) for document_id, document in documents.items()}
    kept = "3beee17ef57edd20bb829db0b078216e"
    assert fingerprint_contents(documents, ["a", "b"]) == fingerprint_contents(fields, ["a", "b"]) == kept


def test_fetching_from_a_collection_and_from_a_dict(documents: CollectionDocuments) -> None:
    assert fetch_documents(documents, ["b"]) == fetch_documents(dict(documents.items()), ["b"]) == {"b": documents["b"]}
    for source in (documents, dict(documents.items())):
        with pytest.raises(InputError, match="no document c"):
            fetch_documents(source, ["a", "c"])
