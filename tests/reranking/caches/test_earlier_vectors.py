"""Documents that were encoded before are copied: which ones, from where, and never by another encoder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.damage import DAMAGES
from support.training import World
from support.vectors import OPTIONS, contents_of, kill_family, start_two_processes, write_collection

from docparade import MaxPForSequenceClassification
from docparade.modeling import Document, DocumentLike, DocumentRanker
from docparade.reranking import VectorCache, load_ranker
from docparade.reranking.caches import vector_building
from docparade.reranking.caches.vector_types import VECTOR_TYPES
from docparade.retrieval import load_collection

LATE = {"late_interaction": True}


@pytest.fixture
def build(encoder_folder: Callable[..., Path]) -> Callable[..., MaxPForSequenceClassification]:
    """Make a bi-encoder with some options changed."""
    return lambda **changed: MaxPForSequenceClassification.from_bi_encoder(
        encoder_folder("bert"), **{**OPTIONS, **changed}
    )


@pytest.fixture
def model(build: Callable[..., MaxPForSequenceClassification]) -> MaxPForSequenceClassification:
    return build()


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many passages each call of an encoder read."""
    encode, calls = MaxPForSequenceClassification.encode, []

    def count(self: DocumentRanker, input_ids: torch.Tensor, *rest: Any, **named: Any) -> Any:
        calls.append(len(input_ids))
        return encode(self, input_ids, *rest, **named)

    monkeypatch.setattr(MaxPForSequenceClassification, "encode", count)
    return calls


def count_passages(cache: VectorCache, ids: list[str]) -> int:
    return sum(len(cache.vectors(name)) for name in ids)


def assert_same_document(cache: VectorCache, source: VectorCache, document: DocumentLike) -> None:
    """Two caches have the same vectors of a document to the last bit, also of tokens, and the same spans."""
    copied, original = (one.find(Document.of(document, "document")) for one in (cache, source))
    assert copied is not None and original is not None
    assert torch.equal(copied.vectors, original.vectors)
    assert (copied.spans, copied.unread) == (original.spans, original.unread)


def assert_same_scores(found: VectorCache, expected: VectorCache, given: World, tolerance: float = 1e-5) -> None:
    for query in given.queries.values():
        scores = [
            {name: one.score for name, one in cache.read(query, list(given.documents)).items()}
            for cache in (found, expected)
        ]
        assert scores[0] == pytest.approx(scores[1], abs=tolerance)


@pytest.mark.parametrize("late", [{}, LATE], ids=["one vector", "late interaction"])
@pytest.mark.parametrize("vector_type", ["float32", "float16", "int8"])
def test_what_is_there_is_copied_and_the_rest_is_encoded(
    vector_type: Any,
    late: dict[str, Any],
    build: Callable[..., MaxPForSequenceClassification],
    small: World,
    tmp_path: Path,
    encoded: list[int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(vector_building, "BATCH_DOCUMENTS", 8)
    monkeypatch.setattr(vector_building, "BATCH_DOCUMENTS_WITH_TOKENS", 8)
    model = build(**late)
    fresh = VectorCache.open(tmp_path / "fresh", model, small.documents, vector_type=vector_type)
    names = list(small.documents)
    some, others = names[1::3], names[5:9]  # which share documents
    first = VectorCache.open(tmp_path / "kept", model, small.documents, some, vector_type)
    second = VectorCache.open(tmp_path / "kept", model, small.documents, others, vector_type)
    encoded.clear()
    caplog.clear()
    cache = VectorCache.open(tmp_path / "kept", model, small.documents, vector_type=vector_type)
    left = [name for name in names if name not in {*some, *others}]
    assert sum(encoded) == count_passages(fresh, left)
    assert [record.getMessage() for record in caplog.records] == [
        f"{len(names) - len(left)} of {len(names)} documents have been encoded before: their vectors are copied."
    ]
    assert len(cache) == len(fresh) and cache.passages == fresh.passages
    for source, ids in ((first, some), (second, others)):
        for name in ids:
            assert_same_document(cache, source, small.documents[name])
    # A vector of a smaller type may be rounded to the next number.
    assert_same_scores(cache, fresh, small, {"float32": 1e-5, "float16": 1e-3, "int8": 1e-2}[vector_type])


@pytest.mark.parametrize("vector_type", ["float32", "float16", "int8"])
def test_nothing_is_encoded_if_all_is_there(
    vector_type: Any, model: DocumentRanker, small: World, tmp_path: Path, encoded: list[int]
) -> None:
    names = list(small.documents)
    whole = VectorCache.open(tmp_path, model, small.documents, vector_type="float32")
    for ids in (names[:10], names[10:], names[3:20]):
        VectorCache.open(tmp_path, model, small.documents, ids, vector_type)
    assert sum(encoded) == whole.passages


def test_smaller_types_are_made_from_float32_of_other_documents(
    model: DocumentRanker, small: World, tmp_path: Path, encoded: list[int]
) -> None:
    names = list(small.documents)
    VectorCache.open(tmp_path, model, small.documents, names[:20], "float32")
    VectorCache.open(tmp_path, model, small.documents, names[20:], "float16")
    for vector_type, expected in zip(VECTOR_TYPES[1:], ([], names[20:]), strict=True):
        encoded.clear()
        cache = VectorCache.open(tmp_path, model, small.documents, vector_type=vector_type)
        # int8 is not made from float16, which has lost digits.
        assert sum(encoded) == count_passages(cache, expected)


def test_a_document_that_has_changed_is_encoded_again(
    model: DocumentRanker, small: World, tmp_path: Path, encoded: list[int]
) -> None:
    VectorCache.open(tmp_path, model, small.documents, vector_type="float32")
    first, second, *_ = small.documents
    changed = {**small.documents, first: small.documents[second]}
    encoded.clear()
    cache = VectorCache.open(tmp_path, model, changed, vector_type="float32")
    assert sum(encoded) == len(cache.vectors(second)) == len(cache.vectors(first))
    torch.testing.assert_close(cache.vectors(first), cache.vectors(second), atol=1e-6, rtol=0)


@pytest.mark.parametrize("changed", [{"window": 14}, LATE, {"pooling": "cls"}, "weights"], ids=str)
def test_another_encoder_or_processor_is_no_source(
    changed: Mapping[str, Any] | str,
    build: Callable[..., MaxPForSequenceClassification],
    small: World,
    tmp_path: Path,
    encoded: list[int],
) -> None:
    VectorCache.open(tmp_path, build(), small.documents)
    other = build(**changed) if isinstance(changed, Mapping) else build()
    if changed == "weights":
        other.encoder.get_input_embeddings().weight.data[5] += 1
    encoded.clear()
    cache = VectorCache.open(tmp_path, other, small.documents)
    assert sum(encoded) == cache.passages


def test_a_damaged_cache_is_no_source(
    model: DocumentRanker, small: World, tmp_path: Path, encoded: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    names = list(small.documents)
    damaged = VectorCache.open(tmp_path, model, small.documents, names[:20]).folder
    DAMAGES["cut to half"](damaged / "spans.npy")
    encoded.clear()
    cache = VectorCache.open(tmp_path, model, small.documents)
    assert sum(encoded) == cache.passages
    assert f"{damaged} is damaged and is not used: spans.npy has" in caplog.text
    assert "have been encoded before" not in caplog.text


def test_a_cache_that_disappears_meanwhile_is_left_out(
    model: DocumentRanker, small: World, tmp_path: Path, encoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_building, "BATCH_DOCUMENTS", 8)
    names = list(small.documents)
    source = VectorCache.open(tmp_path, model, small.documents, names[4:]).folder
    encode = MaxPForSequenceClassification.encode

    def encode_and_remove(self: DocumentRanker, *given: Any, **named: Any) -> Any:
        shutil.rmtree(source, ignore_errors=True)
        return encode(self, *given, **named)

    encoded.clear()
    monkeypatch.setattr(MaxPForSequenceClassification, "encode", encode_and_remove)
    cache = VectorCache.open(tmp_path, model, small.documents)
    # The first block has four documents to encode, and four that are copied.
    assert sum(encoded) == count_passages(cache, [*names[:4], *names[8:]])


def test_an_interrupted_build_continues_to_the_same_bytes(
    model: DocumentRanker, small: World, tmp_path: Path, encoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_building, "BATCH_DOCUMENTS", 8)
    VectorCache.open(tmp_path / "whole", model, small.documents, list(small.documents)[::2])
    shutil.copytree(tmp_path / "whole", tmp_path / "cache")
    whole = VectorCache.open(tmp_path / "whole", model, small.documents)
    encode = MaxPForSequenceClassification.encode

    def interrupt(self: DocumentRanker, *given: Any, **named: Any) -> Any:
        if len(list((tmp_path / "cache" / "vectors").glob(".parts-*/*.npz"))) == 2:
            raise KeyboardInterrupt
        return encode(self, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(MaxPForSequenceClassification, "encode", interrupt)
        with pytest.raises(KeyboardInterrupt):
            VectorCache.open(tmp_path / "cache", model, small.documents)
    encoded.clear()
    resumed = VectorCache.open(tmp_path / "cache", model, small.documents)
    assert contents_of(resumed.folder) == contents_of(whole.folder)
    assert sum(encoded) == count_passages(whole, list(small.documents)[17::2])


def test_a_collection_that_grew(model: DocumentRanker, tmp_path: Path, encoded: list[int]) -> None:
    write_collection(tmp_path / "collection")
    docs = tmp_path / "collection" / "docs.jsonl"
    VectorCache.open(tmp_path / "cache", model, load_collection(str(tmp_path / "collection")))
    with docs.open("a") as file:
        file.write('{"doc_id": "new", "text": "a new one"}\n')
    encoded.clear()
    cache = VectorCache.open(tmp_path / "cache", model, load_collection(str(tmp_path / "collection")))
    assert (len(cache), sum(encoded)) == (961, 1)


def test_the_cache_of_the_whole_collection_is_used_as_it_is(
    model: DocumentRanker, tmp_path: Path, encoded: list[int]
) -> None:
    write_collection(tmp_path / "collection")
    collection = load_collection(str(tmp_path / "collection"))
    ids = ["q0-d1", "q3-d2"]
    own = VectorCache.open_containing(tmp_path / "cache", model, collection, ids)
    assert len(own) == 2 and sum(encoded) == own.passages
    whole = VectorCache.open(tmp_path / "cache", model, collection)
    assert VectorCache.open_containing(tmp_path / "cache", model, collection, ids).folder == whole.folder
    assert np.array_equal(whole.vectors("q3-d2"), own.vectors("q3-d2"))


# --- Several processes ------------------------------------------------------------------------------------------------


@pytest.fixture
def started(model: DocumentRanker, tmp_path: Path) -> tuple[VectorCache, list[str]]:
    """The cache that one process makes where half of the documents are kept, and the options of the command.

    The folder `two` has the same half.
    """
    write_collection(tmp_path / "collection")
    model.save_pretrained(tmp_path / "ranker")
    ranker, collection = load_ranker(str(tmp_path / "ranker")), load_collection(str(tmp_path / "collection"))
    ids = [document.id for document in collection.documents()][::2]
    VectorCache.open(tmp_path / "one", ranker, collection, ids)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    expected = VectorCache.open(tmp_path / "one", ranker, collection)
    return expected, ["--model", str(tmp_path / "ranker"), "--collection", str(tmp_path / "collection")]


@pytest.mark.slow
def test_two_processes_copy_the_same(started: tuple[VectorCache, list[str]], tmp_path: Path) -> None:
    expected, arguments = started
    process = start_two_processes(tmp_path / "two", arguments)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0 and "(2 processes)" in err, err
    assert err.count("480 of 960 documents have been encoded before") == 1
    made = tmp_path / "two" / "vectors" / expected.folder.name
    assert contents_of(made) == contents_of(expected.folder)


@pytest.mark.slow
def test_killed_in_two_processes_and_resumed_in_one(started: tuple[VectorCache, list[str]], tmp_path: Path) -> None:
    expected, arguments = started
    process = start_two_processes(tmp_path / "two", arguments)
    place = tmp_path / "two" / "vectors"
    while process.poll() is None and not list(place.glob(".parts-*/0*.npz")):
        time.sleep(0.001)
    kill_family(process.pid)
    assert not (place / expected.folder.name).exists()
    resumed = VectorCache.open(tmp_path / "two", load_ranker(arguments[1]), load_collection(arguments[3]))
    assert contents_of(resumed.folder) == contents_of(expected.folder)
