"""Documents in which there is nothing to read are last in every run, and do not change the scores of the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.training import World, world

import docparade
from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.reranking import CollectionDocuments, TokenCache, VectorCache, rank_all_documents, rerank
from docparade.reranking.rerank_run import rerank_to_file
from docparade.retrieval import Run, load_collection, ranking, read_run
from docparade.retrieval.errors import InputError

EMPTY = ["q0-d1", "q0-d4"]
DEPTH = 5
BI_ENCODER: dict[str, Any] = {"pooling": "mean", "window": 12, "stride": 8, "max_length": 24, "max_query_tokens": 12}


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    """The tiny world, in which two documents that the first stage found have no text."""
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "cache"))
    made = world()
    for name, text in zip(EMPTY, ("", " \n"), strict=True):
        made.documents[name] = {**made.documents[name], "text": text}
    return made


@pytest.fixture
def parade(tiny_ranker: Callable[..., DocumentRanker]) -> DocumentRanker:
    return tiny_ranker(ParadeForSequenceClassification, "transformer")


@pytest.fixture(params=[False, True], ids=["one vector", "late interaction"])
def bi_encoder(request: pytest.FixtureRequest, encoder_folder: Callable[..., Path]) -> DocumentRanker:
    options = {**BI_ENCODER, "late_interaction": request.param}
    return MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), **options)


def without_empty(given: World) -> Run:
    return {query: {name: found[name] for name in found if name not in EMPTY} for query, found in given.run.items()}


def check_run(reranked: Run, given: World, alone: Run) -> None:
    """The two are last, the greater id first; the others are as they are without them."""
    assert ranking(reranked["q0"])[-2:] == sorted(EMPTY, reverse=True)
    assert ranking(reranked["q0"])[:-2] == ranking(alone["q0"])
    for query, scores in alone.items():
        assert {name: reranked[query][name] for name in scores} == pytest.approx(scores, abs=1e-5)
    # Placed as the documents that are not read: measures and fusion see no extreme values.
    assert min(reranked["q0"].values()) > min(alone["q0"].values()) - 3


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_reranking(parade: DocumentRanker, lacking: World, share: float, tmp_path: Path) -> None:
    found = rerank(parade, lacking.run, lacking.queries, lacking.documents, DEPTH, first_stage_share=share)
    # Of the top, three have a text: the same are read without the two.
    run = {"q0": without_empty(lacking)["q0"]}
    alone = rerank(parade, run, lacking.queries, lacking.documents, DEPTH - 2, first_stage_share=share)
    check_run(found, lacking, alone)
    output = tmp_path / "out.txt"
    rerank_to_file(parade, lacking.run, lacking.queries, lacking.documents, output, DEPTH, first_stage_share=share)
    assert read_run(output) == found


def test_kept_vectors(bi_encoder: DocumentRanker, lacking: World) -> None:
    vectors = VectorCache.open(None, bi_encoder, lacking.documents, vector_type="float32")
    assert sorted(vectors.empty) == EMPTY
    found = rerank(bi_encoder, lacking.run, lacking.queries, lacking.documents, vectors=vectors)
    alone = rerank(bi_encoder, without_empty(lacking), lacking.queries, lacking.documents, vectors=vectors)
    check_run(found, lacking, alone)
    read = rerank(bi_encoder, lacking.run, lacking.queries, lacking.documents)
    assert {query: ranking(scores) for query, scores in read.items()} == {
        query: ranking(scores) for query, scores in found.items()
    }
    documents = [lacking.documents[name] for name in lacking.run["q0"]]
    ranked = bi_encoder.rank(lacking.queries["q0"], documents, vectors=vectors)
    assert [document.id for document in ranked] == ranking(found["q0"])
    assert [document.empty for document in ranked] == [False] * 6 + [True] * 2


def test_a_search_does_not_find_them(bi_encoder: DocumentRanker, lacking: World) -> None:
    vectors = VectorCache.open(None, bi_encoder, lacking.documents)
    [found] = vectors.search([lacking.queries["q0"]])
    assert found.keys() == lacking.documents.keys() - set(EMPTY)


def test_vectors_that_are_copied_stay_empty(lacking: World, encoder_folder: Callable[..., Path]) -> None:
    model = MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), **BI_ENCODER)
    VectorCache.open(None, model, lacking.documents)
    assert sorted(VectorCache.open(None, model, lacking.documents, ids=["q0-d0", *EMPTY]).empty) == EMPTY


@pytest.mark.parametrize("limit", [2, 100])
def test_a_budget_is_for_documents_with_text(parade: DocumentRanker, lacking: World, limit: int) -> None:
    options: dict[str, Any] = {"depth": DEPTH, "max_passages_per_query": limit}
    found = rerank(parade, lacking.run, lacking.queries, lacking.documents, **options)
    run = {"q0": without_empty(lacking)["q0"]}
    alone = rerank(parade, run, lacking.queries, lacking.documents, **{**options, "depth": DEPTH - 2})
    check_run(found, lacking, alone)


@pytest.mark.parametrize("hits", [7, 38, 39, 1000])
def test_full_ranking(parade: DocumentRanker, lacking: World, hits: int, tmp_path: Path) -> None:
    queries = {"q0": lacking.queries["q0"]}
    tokens = TokenCache.open(None, parade.require_processor(), lacking.documents)
    encode = tokens.encode_documents
    rank_all_documents(parade, queries, lacking.documents, tmp_path / "out.txt", hits, encode_documents=encode)
    check_full(read_run(tmp_path / "out.txt")["q0"], hits)


@pytest.mark.parametrize("hits", [7, 39, 1000])
def test_full_ranking_by_vectors(bi_encoder: DocumentRanker, lacking: World, hits: int, tmp_path: Path) -> None:
    queries = {"q0": lacking.queries["q0"]}
    vectors = VectorCache.open(None, bi_encoder, lacking.documents, vector_type="float32")
    rank_all_documents(bi_encoder, queries, lacking.documents, tmp_path / "out.txt", hits, vectors=vectors)
    check_full(read_run(tmp_path / "out.txt")["q0"], hits)


def check_full(found: dict[str, float], hits: int) -> None:
    """All 40 documents are ranked, the two last, and cut to the hits."""
    assert len(found) == min(hits, 40)
    assert ranking(found)[38:] == sorted(EMPTY, reverse=True)[: max(0, hits - 38)]
    assert min(found.values()) > -1000


def test_cranfields_documents_without_text(cranfield: str) -> None:
    collection = load_collection(cranfield)
    documents, model = CollectionDocuments(collection), docparade.load_default()
    query = next(iter(collection.queries().values()))
    ranked = model.rank(query, [documents[name] for name in ("471", "1", "995", "2", "12")])
    assert [document.id for document in ranked][-2:] == ["995", "471"]
    assert [document.empty for document in ranked] == [False, False, False, True, True]


def test_a_score_that_is_not_a_number_names_its_document(
    encoder_folder: Callable[..., Path], lacking: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), **BI_ENCODER)
    vectors = VectorCache.open(None, model, lacking.documents, vector_type="float32")
    wrong, _ = vectors._rows(vectors._find(["q1-d3"]))
    load = vectors._store.load

    def load_wrong(numbers: np.ndarray, device: torch.device) -> torch.Tensor:
        loaded = load(numbers, device)
        loaded[torch.from_numpy(np.isin(numbers, wrong))] = float("nan")
        return loaded

    monkeypatch.setattr(vectors._store, "load", load_wrong)
    asked = [
        lambda: vectors.search([lacking.queries["q1"]], hits=3),
        lambda: vectors.read(lacking.queries["q1"], ["q1-d2", "q1-d3"]),
        lambda: model.rank("query", [lacking.documents[name] for name in lacking.run["q1"]], vectors=vectors),
        lambda: rerank(model, lacking.run, lacking.queries, lacking.documents, vectors=vectors),
    ]
    for ask in asked:
        with pytest.raises((FloatingPointError, InputError), match=r"q1-d3 .*finite"):
            ask()
