"""Kept vectors: the same scores as reading the text, whatever they are stored as, built once and resumed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.collections import make_small_collection
from support.training import World

from docparade import MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.modeling import DocumentRanker
from docparade.reranking import VectorCache, rerank, rerank_to_file, vector_cache
from docparade.retrieval import InputError, ranking, read_run

OPTIONS: dict[str, Any] = {"pooling": "mean", "window": 12, "stride": 8, "max_length": 24, "max_query_tokens": 12}


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
    size = {cache: (cache.folder / "vectors.npy").stat().st_size - 128 for cache in (exact, smaller)}
    assert size[exact] / size[smaller] == {"float16": 2, "int8": 4}[vector_type]
    names = list(small.documents)
    differences = [
        abs(exact.read(query, names)[name].score - smaller.read(query, names)[name].score)
        for query in small.queries.values()
        for name in names
    ]
    assert 0 < max(differences) < most


def test_ties_follow_the_rule_of_runs(model: MaxPForSequenceClassification, tmp_path: Path) -> None:
    documents = {name: {"text": "the same text"} for name in ("b", "c", "a")}
    cache = VectorCache.open(tmp_path, model, documents, vector_type="float32")
    assert [list(found) for found in cache.search(["text"], 2)] == [["c", "b"]]


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_an_interrupted_build_continues(
    damage: str, model: MaxPForSequenceClassification, small: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_cache, "BATCH_DOCUMENTS", 8)
    whole = VectorCache.open(tmp_path / "whole", model, small.documents)
    encode, calls = vector_cache.encode_passages, []

    def interrupted(model: DocumentRanker, documents: Any) -> Any:
        calls.append(len(documents))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return encode(model, documents)

    monkeypatch.setattr(vector_cache, "encode_passages", interrupted)
    with pytest.raises(KeyboardInterrupt):
        VectorCache.open(tmp_path / "cache", model, small.documents)
    (parts,) = (tmp_path / "cache" / "vector-parts").iterdir()
    _, second = sorted(parts.glob("*.npz"))
    content = second.read_bytes()
    second.write_bytes(content[:100] if damage == "cut" else content.replace(content[2000:2004], b"\0\1\2\3"))
    resumed = VectorCache.open(tmp_path / "cache", model, small.documents)
    assert calls[3:] == [8] * (len(small.documents) // 8 - 1)  # all but the first
    assert not parts.exists()
    for name in ("vectors.npy", "passage_ends.npy"):
        assert (resumed.folder / name).read_bytes() == (whole.folder / name).read_bytes()


def test_what_the_cache_depends_on(
    encoder_folder: Callable[..., Path], model: MaxPForSequenceClassification, small: World, tmp_path: Path
) -> None:
    def folder_of(ranker: DocumentRanker, **options: Any) -> Path:
        return VectorCache.open(tmp_path, ranker, small.documents, **options).folder

    first = folder_of(model)
    average = MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), "avg", **OPTIONS)
    assert folder_of(average) == first
    longer = MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), **{**OPTIONS, "window": 14})
    others = [folder_of(longer), folder_of(model, ids=list(small.documents)[:3]), folder_of(model, vector_type="int8")]
    model.encoder.get_input_embeddings().weight.data[5] += 1
    others.append(folder_of(model))
    assert len({first, *others}) == 5


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
    with pytest.raises(InputError, match="only a bi-encoder has passage vectors"):
        VectorCache.open(tmp_path, tiny_ranker(MaxPForSequenceClassification, "max"), small.documents)
    with pytest.raises(InputError, match="vector_type is 'float8'"):
        VectorCache.open(tmp_path, model, small.documents, vector_type="float8")  # type: ignore[arg-type]
    cache = VectorCache.open(tmp_path, model, small.documents)
    with pytest.raises(InputError, match="no vectors of document unknown"):
        cache.read("query", ["unknown"])
    with pytest.raises(InputError, match="keep_passages"):
        rerank_to_file(model, small.run, small.queries, {}, tmp_path / "o", 5, vectors=cache, keep_passages=1)


def test_compression_keeps_zero_vectors() -> None:
    vectors = np.array([[0.0, 0.0], [0.5, -1.0]], dtype=np.float32)
    stored, scales = vector_cache.compress(vectors, "int8")
    np.testing.assert_allclose(stored * scales[:, None], vectors, atol=0.005)


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
    code, out, _ = command_line(*dense, "--json", "--verify")
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
