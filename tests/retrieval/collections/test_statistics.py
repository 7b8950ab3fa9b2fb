"""What collections are like, counted by hand, and for real ones as others have counted."""

import pytest
from support.collections import Small

from docparade.retrieval.collections.catalog import load_collection
from docparade.retrieval.collections.collection import Document
from docparade.retrieval.collections.statistics import (
    Lengths,
    ReadDocument,
    ReadingLimits,
    describe_documents,
    describe_queries,
)
from docparade.retrieval.errors import InputError


def test_queries_and_judgments_by_hand(small: Small) -> None:
    found = describe_queries(small.queries, {**small.qrels, "unknown": {"d1": 1}})
    assert (found.queries, found.judged_queries, found.judgments, found.relevant) == (4, 2, 4, 3)
    assert (found.words_per_query, found.relevant_per_query) == ((2 + 5 + 2 + 1) / 4, 1.5)
    assert describe_queries({"1": "a b"}, {}).relevant_per_query == 0.0
    with pytest.raises(InputError, match="no queries"):
        describe_queries({}, {})


def test_documents_by_hand(small: Small) -> None:
    found = describe_documents(load_collection(small.folder).documents())
    lengths = [len(text.split()) for text in small.texts.values()]
    assert (found.documents, found.empty, found.tokens) == (6, 1, None)
    assert found.words == Lengths.of(lengths)
    assert (found.words.mean, found.words.longest) == (sum(lengths) / 6, 15)


def test_a_title_counts_once() -> None:
    repeated = Document("1", "Wings. On wings.", title="Wings.")
    other = Document("2", "On wings.", title="Planes and", headings="Lift")
    assert describe_documents([repeated, other]).words.mean == (3 + 5) / 2


def test_what_a_model_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("docparade.retrieval.collections.statistics.BATCH", 2)
    passages = {"1": 1, "2": 2, "3": 5}
    found = describe_documents(
        [Document(name, "text") for name in passages],
        lambda batch: [ReadDocument(100 * passages[document.id], passages[document.id]) for document in batch],
        ReadingLimits(one_input=200, max_passages=3),
    )
    assert found.tokens == Lengths.of([100, 200, 500])
    assert found.passages == Lengths.of([1, 2, 5])
    # One document has more than 200 tokens, and more than three passages: two of eight passages are left unread.
    assert (found.over_one_input, found.over_max_passages, found.unread) == (1 / 3, 1 / 3, 2 / 8)
    with pytest.raises(InputError, match="no documents"):
        describe_documents([])


def test_cranfield(cranfield: str) -> None:
    collection = load_collection(cranfield)
    queries = describe_queries(collection.queries(), collection.qrels())
    assert (queries.queries, queries.judged_queries, queries.judgments) == (225, 225, 1837)
    documents = describe_documents(collection.documents())
    assert (documents.documents, documents.empty, round(documents.words.mean)) == (1400, 2, 164)


def test_time(time_magazine: str) -> None:
    collection = load_collection(time_magazine)
    queries = describe_queries(collection.queries(), collection.qrels())
    assert (queries.queries, queries.judgments, queries.relevant) == (83, 324, 324)
    documents = describe_documents(collection.documents())
    assert (documents.documents, round(documents.words.mean)) == (423, 624)
    assert int(documents.words.ninth_decile) == 1042
