"""Kept vectors: the same scores as reading the text, whatever they are stored as, built once and resumed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.collections import make_small_collection
from support.training import World
from support.vectors import OPTIONS, contents_of

from docparade import MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.modeling import Document, DocumentRanker
from docparade.modeling.engine_vectors import encode_passages
from docparade.reranking import VectorCache, rerank, rerank_to_file
from docparade.reranking.caches import vector_cache, vector_encoding
from docparade.reranking.caches.vector_size import estimate_size
from docparade.retrieval import InputError, ranking, read_run


@pytest.fixture
def model(encoder_folder: Callable[..., Path]) -> MaxPForSequenceClassification:
    return MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), **OPTIONS)


def scores_of(model: DocumentRanker, given: World, query: str) -> dict[str, float]:
    pairs = [(given.queries[query], document) for document in given.documents.values()]
    return dict(zip(given.documents, model.score(pairs), strict=True))


@pytest.mark.parametrize("aggregation", ["max", "first", "avg", "kmax_avg"])
def test_reading_and_searching_equal_the_model(
    aggregation: str, encoder_folder: Callable[..., Path], small: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_cache, "BLOCK_ROWS", 7)
    model = MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), aggregation, **OPTIONS)
    cache = VectorCache.open(tmp_path, model, small.documents, vector_type="float32")
    assert len(cache) == len(small.documents) < cache.passages
    hits = 5
    found = cache.search(list(small.queries.values()), hits)
    for query, of_search in zip(small.queries, found, strict=True):
        expected = scores_of(model, small, query)
        read = cache.read(small.queries[query], list(small.documents))
        assert {name: one.score for name, one in read.items()} == pytest.approx(expected, abs=1e-6)
        assert list(of_search) == ranking(expected)[:hits]
        assert list(of_search.values()) == pytest.approx([expected[name] for name in of_search], abs=1e-6)


def test_the_vectors_of_a_document(model: MaxPForSequenceClassification, small: World, tmp_path: Path) -> None:
    cache = VectorCache.open(tmp_path, model, small.documents, vector_type="float32")
    for name, encoded in zip(small.documents, encode_passages(model, list(small.documents.values())), strict=True):
        torch.testing.assert_close(cache.vectors(name), encoded.vectors, atol=1e-6, rtol=0)
    with pytest.raises(InputError, match="no vectors of document unknown"):
        cache.vectors("unknown")


def test_vector_families_read_kept_vectors(encoder_folder: Callable[..., Path], small: World, tmp_path: Path) -> None:
    model = ParadeForSequenceClassification.from_bi_encoder(encoder_folder("bert"), "attn", **OPTIONS)
    cache = VectorCache.open(tmp_path, model, small.documents, vector_type="float32")
    expected = scores_of(model, small, "q0")
    read = cache.read(small.queries["q0"], list(small.documents))
    assert {name: one.score for name, one in read.items()} == pytest.approx(expected, abs=1e-5)
    (found,) = cache.search([small.queries["q0"]], 3)
    assert list(found) == ranking(expected)[:3]


@pytest.mark.parametrize("vector_type, most", [("float16", 1e-3), ("int8", 1e-2)])
def test_smaller_types_are_near(
    vector_type: Any, most: float, model: MaxPForSequenceClassification, small: World, tmp_path: Path
) -> None:
    exact = VectorCache.open(tmp_path, model, small.documents, vector_type="float32")
    smaller = VectorCache.open(tmp_path, model, small.documents, vector_type=vector_type)
    sizes = [len(contents_of(cache.folder)["vectors.npy"]) - 128 for cache in (exact, smaller)]
    assert sizes[0] / sizes[1] == {"float16": 2, "int8": 4}[vector_type]
    names = list(small.documents)
    differences = []
    for query in small.queries.values():
        near, right = smaller.read(query, names), exact.read(query, names)
        differences += [abs(right[name].score - near[name].score) for name in names]
    assert 0 < max(differences) < most


@pytest.mark.parametrize("vector_type", ["float16", "int8"])
def test_smaller_types_are_made_from_float32(
    vector_type: Any,
    model: MaxPForSequenceClassification,
    small: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vector_encoding, "BATCH_DOCUMENTS", 8)
    monkeypatch.setattr(vector_cache, "BLOCK_ROWS", 7)
    encoded = VectorCache.open(tmp_path / "encoded", model, small.documents, vector_type=vector_type)
    VectorCache.open(tmp_path, model, small.documents, vector_type="float32")
    monkeypatch.delattr(vector_encoding, "encode_passages")
    derived = VectorCache.open(tmp_path, model, small.documents, vector_type=vector_type)
    assert contents_of(derived.folder) == contents_of(encoded.folder)
    assert derived.folder.name == encoded.folder.name


@pytest.mark.parametrize("vector_type, tolerance", [("float32", 1e-6), ("float16", 1e-3), ("int8", 2e-2)])
def test_late_interaction_keeps_the_vectors_of_tokens(
    vector_type: Any,
    tolerance: float,
    encoder_folder: Callable[..., Path],
    small: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vector_cache, "PASSAGES_WITH_TOKENS", 3)
    folder = encoder_folder("bert")
    plain = MaxPForSequenceClassification.from_bi_encoder(folder, **OPTIONS)
    model = MaxPForSequenceClassification.from_bi_encoder(folder, late_interaction=True, **OPTIONS)
    cache = VectorCache.open(tmp_path, model, small.documents, vector_type=vector_type)
    for query, text in small.queries.items():
        read = {name: one.score for name, one in cache.read(text, list(small.documents)).items()}
        assert read == pytest.approx(scores_of(model, small, query), abs=tolerance)
        # A search compares one vector of each passage.
        [found] = cache.search([text], hits=len(small.documents))
        assert found == pytest.approx(scores_of(plain, small, query), abs=tolerance)
    assert cache.vectors(next(iter(small.documents))).dim() == 2


def test_types_with_tokens_are_made_from_float32(
    encoder_folder: Callable[..., Path], small: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), late_interaction=True, **OPTIONS)
    encoded = VectorCache.open(tmp_path / "encoded", model, small.documents, vector_type="int8")
    VectorCache.open(tmp_path / "derived", model, small.documents, vector_type="float32")
    monkeypatch.setattr(vector_encoding, "encode_passages", None)
    monkeypatch.setattr(vector_cache, "PASSAGES_WITH_TOKENS", 5)
    derived = VectorCache.open(tmp_path / "derived", model, small.documents, vector_type="int8")
    assert contents_of(derived.folder) == contents_of(encoded.folder)


def test_ties_follow_the_rule_of_runs(model: MaxPForSequenceClassification, tmp_path: Path) -> None:
    documents = {name: {"text": "the same text"} for name in ("b", "c", "a")}
    cache = VectorCache.open(tmp_path, model, documents, vector_type="float32")
    assert [list(found) for found in cache.search(["text"], 2)] == [["c", "b"]]


def test_reranking_from_vectors(model: MaxPForSequenceClassification, small: World, tmp_path: Path) -> None:
    cache = VectorCache.open(tmp_path, model, small.documents, vector_type="float32")
    without = rerank(model, small.run, small.queries, small.documents, 5)
    with_vectors = rerank(model, small.run, small.queries, {}, 5, vectors=cache)
    for query, scores in without.items():
        assert with_vectors[query] == pytest.approx(scores, abs=1e-5)
    output = tmp_path / "run.txt"
    rerank_to_file(model, small.run, small.queries, {}, output, 5, vectors=cache, passage_scores=tmp_path / "p.jsonl")
    for query, scores in read_run(output).items():
        assert scores == pytest.approx(with_vectors[query], abs=1e-6)
    assert (tmp_path / "p.jsonl").stat().st_size > 0


def test_mistakes_are_reported(
    model: MaxPForSequenceClassification, tiny_ranker: Callable[..., DocumentRanker], small: World, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="only a bi-encoder"):
        VectorCache.open(tmp_path, tiny_ranker(MaxPForSequenceClassification, "max"), small.documents)
    with pytest.raises(InputError, match="vector_type is 'float8'"):
        VectorCache.open(tmp_path, model, small.documents, vector_type="float8")  # type: ignore[arg-type]
    cache = VectorCache.open(tmp_path, model, small.documents)
    with pytest.raises(InputError, match="no vectors of document unknown"):
        cache.read("query", ["unknown"])
    with pytest.raises(InputError, match="keep_passages"):
        rerank_to_file(model, small.run, small.queries, {}, tmp_path / "o", 5, vectors=cache, keep_passages=1)


def test_parts_with_tokens_are_limited_by_their_text(
    encoder_folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), late_interaction=True, **OPTIONS)
    monkeypatch.setattr(vector_encoding, "BATCH_CHARACTERS_WITH_TOKENS", 100)
    documents = {
        str(i): {"id": str(i), "text": f"{i} " + "word " * length} for i, length in enumerate((8, 8, 8, 90, 1, 1))
    }
    together = []
    encode = vector_encoding.encode_passages
    monkeypatch.setattr(
        vector_encoding, "encode_passages", lambda model, some: together.append(len(some)) or encode(model, some)
    )
    cache = VectorCache.open(tmp_path, late, documents)
    assert together == [2, 1, 1, 2] and len(cache) == 6


def test_the_size_of_vectors_is_known_before_they_are_made(
    encoder_folder: Callable[..., Path], small: World, tmp_path: Path
) -> None:
    for late in (True, False):
        ranker = MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), late_interaction=late, **OPTIONS)
        cache = VectorCache.open(tmp_path, ranker, small.documents, vector_type="float32")
        size = sum(file.stat().st_size for file in cache.folder.rglob("vectors*"))
        expected = estimate_size(ranker, small.documents, list(small.documents), "float32")
        # Special tokens have no vectors, and there is a file's header.
        assert 0.5 < size / expected < 1.5


@pytest.mark.parametrize(
    ("value", "vector_type", "message"),
    [(65_600, "float16", "float32"), (np.nan, "float32", "finite"), (np.inf, "int8", "finite")],
)
def test_numbers_that_a_type_does_not_hold_are_refused(value: float, vector_type: Any, message: str) -> None:
    vectors = np.array([[1.0, value], [0.5, 2.0]], dtype=np.float32)
    with pytest.raises(InputError, match=message):
        vector_encoding.compress(vectors, vector_type)
    assert vector_encoding.compress(vectors[1:], vector_type)[0].shape == (1, 2)


def test_compression_keeps_zero_vectors() -> None:
    vectors = np.array([[0.0, 0.0], [0.5, -1.0]], dtype=np.float32)
    stored, scales = vector_encoding.compress(vectors, "int8")
    assert scales is not None
    np.testing.assert_allclose(stored * scales, vectors, atol=0.005)


def test_spans_are_kept(model: MaxPForSequenceClassification, small: World, tmp_path: Path) -> None:
    assert model.processor is not None
    model.processor = model.processor.with_options(max_passages=2)
    cache = VectorCache.open(tmp_path, model, small.documents)
    for document in small.documents.values():
        kept = cache.find(Document.of(document, "document"))
        (expected,) = model.rank("terms", [document])
        assert kept is not None
        assert kept.spans == [(passage.start, passage.end) for passage in expected.passages]
        assert kept.unread == expected.unread
    assert cache.find(Document("another text", id="q0-d0")) is None
    assert any(one.unread for one in model.rank("terms", list(small.documents.values()), vectors=cache))


def test_ranking_from_a_cache(model: MaxPForSequenceClassification, small: World, tmp_path: Path) -> None:
    cache = VectorCache.open(tmp_path, model, small.documents, vector_type="float32")
    documents = list(small.documents.values())
    read, kept = model.rank(small.queries["q1"], documents), model.rank(small.queries["q1"], documents, vectors=cache)
    for one, other in zip(kept, read, strict=True):
        assert (one.id, one.unread) == (other.id, other.unread)
        assert one.score == pytest.approx(other.score, abs=1e-5)
        assert [(p.start, p.end, p.text) for p in one.passages] == [(p.start, p.end, p.text) for p in other.passages]
    [same] = model.rank(small.queries["q1"], [{**documents[0], "id": "another"}], vectors=cache)
    assert same.score == next(one.score for one in kept if one.index == 0)
    with pytest.raises(ValueError, match="There are no vectors of the document 'q0-d0'"):
        model.rank("query", [{**documents[0], "text": "another text"}], vectors=cache)
    model.encoder.get_input_embeddings().weight.data.add_(1)
    with pytest.raises(ValueError, match="before the model was trained"):
        model.rank("query", documents, vectors=cache)
    with pytest.raises(InputError, match="before the model was trained"):
        rerank(model, small.run, small.queries, {}, 5, vectors=cache)


# --- The commands -----------------------------------------------------------------------------------------------------


def test_commands(
    command_line: Callable[..., tuple[int, str, str]],
    model: MaxPForSequenceClassification,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "cache"))
    small_collection = make_small_collection(tmp_path / "collection")
    model.save_pretrained(tmp_path / "ranker")
    where = ["--model", str(tmp_path / "ranker"), "--collection", str(small_collection.folder)]
    code, _, err = command_line("encode", *where, "--vectors", "float32")
    assert code == 0 and "6 documents" in err
    dense = ["retrieve", "--method", "dense", *where, "--vectors", "float32", "--hits", "4", "--output", "dense.txt"]
    assert command_line(*dense)[0] == 0
    found = read_run("dense.txt")
    assert found.keys() == small_collection.queries.keys() and all(len(one) == 4 for one in found.values())
    for name, options in (("kept.txt", ["--vectors", "float32"]), ("read.txt", [])):
        code, _, err = command_line("rerank", *where, "--run", "dense.txt", "--output", name, *options)
        assert code == 0, err
    read, kept = read_run("read.txt"), read_run("kept.txt")
    for query, scores in read.items():
        assert kept[query] == pytest.approx(scores, abs=1e-5)
        assert found[query] == pytest.approx(scores, abs=1e-5)
    code, _, err = command_line("retrieve", *where, "--output", "no.txt")
    assert code == 2 and "--model has no effect on --method bm25" in err
    code, _, err = command_line(*dense, "--k1", "1")
    assert code == 2 and "--k1 has no effect on --method dense" in err
    code, _, err = command_line(*dense, "--engine", "lucene")
    assert code == 2 and "--engine has no effect on --method dense" in err
    code, out, _ = command_line(*dense, "--json")
    assert code == 0 and json.loads(out)["stage"] == {"method": "dense"}
    rerank_options = ["--run", "dense.txt", "--output", "no.txt", "--vectors", "int8", "--keep-passages", "1"]
    code, _, err = command_line("rerank", *where, *rerank_options)
    assert code == 2 and "--keep-passages is for reading texts" in err


def test_search_is_the_same_in_small_pieces(
    encoder_folder: Callable[..., Path], small: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), "kmax_avg", **OPTIONS)
    cache = VectorCache.open(tmp_path, model, small.documents, vector_type="float32")
    queries = list(small.queries.values())
    whole = cache.search(queries, 5)
    monkeypatch.setattr(vector_cache, "QUERIES_PER_PRODUCT", 2)
    monkeypatch.setattr(vector_cache, "AGGREGATED_VALUES", 20)
    monkeypatch.setattr(vector_cache, "BLOCK_ROWS", 9)
    for found, expected in zip(cache.search(queries, 5), whole, strict=True):
        assert list(found) == list(expected) and found == pytest.approx(expected, abs=1e-6)
