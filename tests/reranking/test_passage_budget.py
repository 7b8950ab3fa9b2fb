"""Chosen passages: by vectors or by words, of a document or of a whole list."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from support.training import World

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.modeling import Document, ReadingOptions
from docparade.modeling.engine_budget import read_within_budget, share_budget
from docparade.modeling.engine_results import Reading
from docparade.reranking import VectorCache, rerank, rerank_to_file
from docparade.reranking.caches.token_cache import TokenCache
from docparade.retrieval import InputError, ranking, read_run, write_run

DEPTH = 5
OPTIONS: dict[str, Any] = {"pooling": "mean", "window": 16, "stride": 10, "max_length": 24, "max_query_tokens": 12}


@pytest.fixture(scope="module")
def model(tiny_ranker: Callable[..., DocumentRanker]) -> DocumentRanker:
    return tiny_ranker(MaxPForSequenceClassification, "max")


@pytest.fixture
def cache(encoder_folder: Callable[..., Path], small: World, tmp_path: Path) -> VectorCache:
    """Vectors of a bi-encoder, whose passages are not those of the ranker."""
    bi_encoder = MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), **OPTIONS)
    return VectorCache.open(tmp_path / "cache", bi_encoder, small.documents, vector_type="float32")


def documents_of(small: World, query: str) -> dict[str, Document]:
    return {name: Document.of(small.documents[name], name) for name in ranking(small.run[query])[:DEPTH]}


def read_within(
    model: DocumentRanker,
    query: str,
    documents: dict[str, Document],
    limit: int,
    choose_by: VectorCache | None = None,
) -> tuple[dict[str, Reading], list[str]]:
    options = ReadingOptions(max_passages_per_query=limit, choose_by=choose_by)
    return read_within_budget(model, query, documents, options)


# --- Which passages ---------------------------------------------------------------------------------------------------

passage_scores = st.lists(
    st.lists(st.sampled_from([-np.inf, 0.0, 1.0, 2.0, 3.0]), min_size=1, max_size=5).map(np.array), max_size=6
)


@given(passage_scores, st.integers(1, 20))
def test_how_the_budget_is_shared(scores: list[np.ndarray], limit: int) -> None:
    kept = share_budget(scores, limit)
    assert sum(map(len, kept)) == min(limit, sum(map(len, scores)))
    assert all(places == sorted(set(places)) for places in kept)
    read = [number for number, places in enumerate(kept) if places]
    assert len(read) == min(limit, len(scores)), "every document, as long as there are passages left"
    best = [own.max() for own in scores]
    for number in read:
        assert int(np.argmax(scores[number])) in kept[number]
        assert all(best[number] >= best[other] for other in range(len(scores)) if other not in read)
    further = [scores[n][place] for n in read for place in kept[n] if place != np.argmax(scores[n])]
    left = [own[place] for n, own in enumerate(scores) for place in range(len(own)) if place not in kept[n]]
    assert not further or not left or min(further) >= max(left)


def test_of_equal_scores_the_earlier_is_read() -> None:
    same = [np.zeros(3), np.zeros(3)]
    assert share_budget(same, 1) == [[0], []]
    assert share_budget(same, 4) == [[0, 1, 2], [0]]


# --- A list of documents ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_vectors", [False, True])
def test_a_budget_for_a_query(by_vectors: bool, model: DocumentRanker, cache: VectorCache, small: World) -> None:
    choose_by = cache if by_vectors else None
    for query, text in small.queries.items():
        documents = documents_of(small, query)
        whole = {one.id: one for one in model.rank(text, list(documents.values()))}
        count = sum(len(one.passages) for one in whole.values())
        all_read, unread = read_within(model, text, documents, count, choose_by=choose_by)
        assert unread == [] and list(all_read) == list(documents)
        assert {name: one.score for name, one in all_read.items()} == pytest.approx(
            {name: one.score for name, one in whole.items()}, abs=1e-5
        )
        few, unread = read_within(model, text, documents, 2, choose_by=choose_by)
        assert [len(one.spans) for one in few.values()] == [1, 1]
        assert sorted([*few, *unread]) == sorted(documents)
        for name, one in few.items():
            scores = {(p.start, p.end): p.score for p in whole[name].passages}
            assert one.score == pytest.approx(scores[one.spans[0]], abs=1e-5)
            assert one.unread == whole[name].unread + len(scores) - 1
        # What is read first with less is also read with more.
        for limit in range(1, DEPTH):
            less, first_left = read_within(model, text, documents, limit, choose_by=choose_by)
            more, _ = read_within(model, text, documents, limit + 1, choose_by=choose_by)
            assert set(more) - set(less) == {first_left[0]}


def test_by_words_the_passages_with_the_words_are_read(model: DocumentRanker, small: World) -> None:
    for query, text in small.queries.items():
        documents = documents_of(small, query)
        readings, unread = read_within(model, text, documents, 2)
        assert {name for name in readings if small.qrels[query][name]}, "a relevant document repeats the query's words"
        assert len(unread) == DEPTH - 2


def test_equal_documents_count_once(model: DocumentRanker, small: World) -> None:
    text = small.documents["q0-d0"]["text"]
    documents = {"a": Document(text), "b": Document("another"), "c": Document(text)}
    readings, unread = read_within(model, small.queries["q0"], documents, 2)
    assert unread == [] and readings["a"].score == readings["c"].score


@pytest.mark.parametrize("by_vectors", [False, True])
def test_ranking_with_a_budget(by_vectors: bool, model: DocumentRanker, cache: VectorCache, small: World) -> None:
    choose_by = cache if by_vectors else None
    for query, text in small.queries.items():
        documents = documents_of(small, query)
        # A document without text is read, and has no vectors.
        empty = [] if by_vectors else [Document("", id="empty")]
        given = [*empty, *documents.values()]
        ranked = model.rank(text, given, max_passages_per_query=3, choose_by=choose_by)
        readings, unread = read_within(model, text, documents, 3, choose_by)
        read = ranking({name: one.score for name, one in readings.items()})
        names = [next((name for name in documents if documents[name] == given[one.index]), "empty") for one in ranked]
        assert names == [*read, *unread, *("empty" for _ in empty)]
        scores = [one.score for one in ranked]
        assert scores == sorted(scores, reverse=True) and len(set(scores)) == len(scores)
        assert [bool(one.passages) for one in ranked[: len(documents)]] == [True] * 3 + [False] * (DEPTH - 3)
        with pytest.raises(ValueError, match="max_passages_per_query"):
            _ = ranked[3].best_passage
    with pytest.raises(ValueError, match="max_passages_per_query is for lists"):
        model.score([("query", "text")], max_passages_per_query=1)


# --- Reranking --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_vectors", [False, True])
def test_reranking_with_a_budget(
    by_vectors: bool, model: DocumentRanker, cache: VectorCache, small: World, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"max_passages_per_query": 3, "choose_by": cache if by_vectors else None}
    given = (small.queries, small.documents)
    reranked = rerank(model, small.run, *given, DEPTH, **options)
    for query, found in small.run.items():
        documents = documents_of(small, query)
        readings, unread = read_within(model, small.queries[query], documents, 3, choose_by=options["choose_by"])
        read = ranking({name: one.score for name, one in readings.items()})
        assert len(read) == 3 and len(unread) == DEPTH - 3
        assert ranking(reranked[query]) == [*read, *unread, *ranking(found)[DEPTH:]]
        assert rerank(model, {query: found}, *given, DEPTH, **options) == {query: reranked[query]}, "alone"
    tokens = TokenCache.open(tmp_path, model.require_processor(), small.documents).encode_documents
    assert rerank(model, small.run, *given, DEPTH, encode_documents=tokens, **options) == reranked
    rerank_to_file(model, small.run, *given, tmp_path / "out.txt", DEPTH, **options)
    assert read_run(tmp_path / "out.txt") == reranked


def test_reranking_with_passages_chosen_by_vectors(
    model: DocumentRanker, cache: VectorCache, small: World, tmp_path: Path
) -> None:
    # The ids of the mapping count, not those of the documents.
    documents = {name: {"text": document["text"]} for name, document in small.documents.items()}
    reranked = rerank(model, small.run, small.queries, documents, DEPTH, keep_passages=2, choose_by=cache)
    by_words = rerank(model, small.run, small.queries, documents, DEPTH, keep_passages=2)
    assert reranked != by_words
    for query, text in small.queries.items():
        top = list(documents_of(small, query).values())
        expected = {one.id: one.score for one in model.rank(text, top, keep_passages=2, choose_by=cache)}
        assert {name: reranked[query][name] for name in expected} == pytest.approx(expected, abs=1e-5)
    rerank_to_file(
        model, small.run, small.queries, documents, tmp_path / "out.txt", DEPTH, keep_passages=2, choose_by=cache
    )
    assert read_run(tmp_path / "out.txt") == reranked


def test_options_that_make_no_sense(model: DocumentRanker, cache: VectorCache, small: World, tmp_path: Path) -> None:
    def refused(sentence: str, ranker: DocumentRanker = model, run: Any = small.run, **options: Any) -> None:
        with pytest.raises(InputError, match=sentence):
            rerank_to_file(ranker, run, small.queries, small.documents, tmp_path / "o", DEPTH, **options)
        assert not (tmp_path / "o.parts").exists()

    refused("max_passages_per_query is 0", max_passages_per_query=0)
    refused("both limit what is read", max_passages_per_query=1, keep_passages=1)
    refused("say how many", choose_by=cache)
    refused("max_passages_per_query .*with vectors", cache.model, vectors=cache, max_passages_per_query=1)
    refused("kept vectors are for bi-encoders", vectors=cache)
    refused("may read none of some", max_passages_per_query=1, passage_scores=tmp_path / "p")
    refused("no vectors of document lost", run={"q0": {"lost": 1.0}}, keep_passages=1, choose_by=cache)


def test_the_command(
    model: DocumentRanker,
    cache: VectorCache,
    small: World,
    command_line: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "own"))
    model.save_pretrained(tmp_path / "cross")
    cache.model.save_pretrained(tmp_path / "bi")
    (tmp_path / "collection").mkdir()
    lines = [json.dumps({**document, "doc_id": name}) for name, document in small.documents.items()]
    (tmp_path / "collection" / "docs.jsonl").write_text("\n".join(lines) + "\n")
    queries = [f"{name}\t{text}\n" for name, text in small.queries.items()]
    (tmp_path / "collection" / "queries.tsv").write_text("".join(queries))
    write_run(small.run, tmp_path / "bm25.txt")
    where = ["--collection", str(tmp_path / "collection"), "--run", str(tmp_path / "bm25.txt"), "--depth", str(DEPTH)]
    by_vectors = ["--choose-by", str(tmp_path / "bi")]
    for limit, argument in (
        ("--keep-passages", "keep_passages"),
        ("--max-passages-per-query", "max_passages_per_query"),
    ):
        for options, choose_by in (([], None), (by_vectors, cache)):
            given = ["--model", str(tmp_path / "cross"), limit, "2", *options, "--output", "out.txt"]
            code, _, err = command_line("rerank", *where, *given)
            assert code == 0, err
            limits: dict[str, Any] = {argument: 2, "choose_by": choose_by}
            expected = rerank(model, small.run, small.queries, small.documents, DEPTH, **limits)
            for query, found in read_run("out.txt").items():
                assert found == pytest.approx(expected[query], abs=1e-5)
    given = ["--model", str(tmp_path / "bi"), "--keep-passages", "2", "--choose-by", str(tmp_path / "cross")]
    code, _, err = command_line("rerank", *where, *given, "--output", "no.txt")
    assert code == 2 and "cross is a cross-encoder, which has no vectors; name a bi-encoder." in err
