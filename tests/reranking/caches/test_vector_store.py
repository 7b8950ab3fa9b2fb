"""Kept vectors are found by the documents' contents: nothing is encoded twice, and nothing damaged is used."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.damage import DAMAGES
from support.marks import others_slow
from support.training import World
from support.vectors import OPTIONS, kill_family, start_two_processes, write_collection

from docparade import MaxPForSequenceClassification
from docparade.modeling import Document, DocumentRanker
from docparade.modeling.engine_vectors import encode_passages
from docparade.reranking import VectorCache, load_ranker
from docparade.reranking.caches import vector_encoding
from docparade.reranking.caches.content_list import ContentList
from docparade.reranking.caches.vector_store import VectorStore
from docparade.reranking.caches.vector_types import VECTOR_TYPES
from docparade.retrieval import InputError, load_collection
from docparade.retrieval.storage import checked_files

LATE = {"late_interaction": True}
TOLERANCES = {"float32": 1e-5, "float16": 1e-3, "int8": 1e-2}


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
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of all documents that are encoded."""
    encode, calls = vector_encoding.encode_passages, []

    def count(model: DocumentRanker, documents: Any) -> Any:
        calls.extend(document.id for document in documents)
        return encode(model, documents)

    monkeypatch.setattr(vector_encoding, "encode_passages", count)
    return calls


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_encoding, "BATCH_DOCUMENTS", 8)
    monkeypatch.setattr(vector_encoding, "BATCH_DOCUMENTS_WITH_TOKENS", 8)


def assert_same_scores(found: VectorCache, expected: VectorCache, given: World, tolerance: float = 1e-5) -> None:
    for query in given.queries.values():
        scores = [
            {name: one.score for name, one in cache.read(query, list(given.documents)).items()}
            for cache in (found, expected)
        ]
        assert scores[0] == pytest.approx(scores[1], abs=tolerance)


def segments(cache: VectorCache) -> list[Path]:
    return sorted(cache.folder.glob("segment-*"))


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("late", [{}, LATE], ids=["one vector", "late interaction"])
@pytest.mark.parametrize("vector_type", VECTOR_TYPES)
def test_a_document_is_encoded_once(
    vector_type: Any,
    late: dict[str, Any],
    build: Callable[..., MaxPForSequenceClassification],
    small: World,
    tmp_path: Path,
    encoded: list[str],
) -> None:
    model = build(**late)
    fresh = VectorCache.open(tmp_path / "fresh", model, small.documents, vector_type=vector_type)
    names = list(small.documents)
    encoded.clear()
    for wanted in (names[1::3], names[5:9], names, names[:2], names):
        cache = VectorCache.open(tmp_path / "kept", model, small.documents, wanted, vector_type)
        assert len(cache) == len(wanted)
    assert sorted(encoded) == sorted(names)
    assert len(segments(cache)) == 3
    assert list(cache.ids.take(np.arange(len(cache)))) == sorted(names)
    assert cache.passages == fresh.passages
    assert_same_scores(cache, fresh, small, TOLERANCES[vector_type])
    for found, expected in zip(
        cache.search(list(small.queries.values()), 3), fresh.search(list(small.queries.values()), 3), strict=True
    ):
        assert found == pytest.approx(expected, abs=TOLERANCES[vector_type])


def test_ids_and_collections_do_not_matter(
    model: DocumentRanker, small: World, tmp_path: Path, encoded: list[str]
) -> None:
    first = VectorCache.open(tmp_path, model, small.documents, vector_type="float32")
    renamed = {f"other-{name}": document for name, document in small.documents.items()}
    again = VectorCache.open(tmp_path, model, {**renamed, "twice": renamed["other-q0-d0"]}, vector_type="float32")
    assert sorted(encoded) == sorted(small.documents)
    assert torch.equal(again.vectors("twice"), first.vectors("q0-d0"))
    # Also those of the store that are not in the list are found.
    alone = VectorCache.open(tmp_path, model, small.documents, ["q0-d1"], "float32")
    found = alone.find(Document.of(small.documents["q0-d0"], "document"))
    assert found is not None and torch.equal(found.vectors, first.vectors("q0-d0"))
    with pytest.raises(InputError, match="no vectors of document q0-d0"):
        alone.read("query", ["q0-d0"])


def test_smaller_types_are_made_from_float32(
    model: DocumentRanker, small: World, tmp_path: Path, encoded: list[str]
) -> None:
    names = list(small.documents)
    VectorCache.open(tmp_path, model, small.documents, names[:20], "float32")
    VectorCache.open(tmp_path, model, small.documents, names[20:], "float16")
    for vector_type, expected in zip(VECTOR_TYPES[1:], ([], names[20:]), strict=True):
        encoded.clear()
        VectorCache.open(tmp_path, model, small.documents, vector_type=vector_type)
        # int8 is not made from float16, which has lost digits.
        assert encoded == expected


def test_a_document_that_has_changed_is_encoded_again(
    model: DocumentRanker, small: World, tmp_path: Path, encoded: list[str]
) -> None:
    VectorCache.open(tmp_path, model, small.documents)
    changed = {**small.documents, "q0-d0": {"text": "Something else."}}
    encoded.clear()
    cache = VectorCache.open(tmp_path, model, changed)
    assert len(encoded) == 1
    [fresh] = encode_passages(model, [changed["q0-d0"]])
    torch.testing.assert_close(cache.vectors("q0-d0"), fresh.vectors, atol=1e-3, rtol=0)


@pytest.mark.parametrize("changed", [{"window": 14}, LATE, {"pooling": "cls"}, "weights"], ids=str)
def test_another_encoder_or_other_passages_have_vectors_of_their_own(
    changed: Mapping[str, Any] | str,
    build: Callable[..., MaxPForSequenceClassification],
    small: World,
    tmp_path: Path,
    encoded: list[str],
) -> None:
    first = VectorCache.open(tmp_path, build(), small.documents)
    other = build(**changed) if isinstance(changed, Mapping) else build()
    if changed == "weights":
        other.encoder.get_input_embeddings().weight.data[5] += 1
    encoded.clear()
    cache = VectorCache.open(tmp_path, other, small.documents)
    assert sorted(encoded) == sorted(small.documents) and cache.folder != first.folder
    with pytest.raises(InputError, match=str(changed["window"]) if "window" in changed else "do not fit: they were"):
        first.for_ranker(other)


def test_what_vectors_do_not_depend_on(
    build: Callable[..., MaxPForSequenceClassification], small: World, tmp_path: Path, encoded: list[str]
) -> None:
    first = VectorCache.open(tmp_path, build(), small.documents)
    encoded.clear()
    for other in (build(aggregation="avg"), build(max_query_tokens=9)):
        assert VectorCache.open(tmp_path, other, small.documents).folder == first.folder
        assert first.for_ranker(other).model is other
    assert not encoded


def test_a_collection_that_grew(model: DocumentRanker, tmp_path: Path, encoded: list[str]) -> None:
    write_collection(tmp_path / "collection")
    docs = tmp_path / "collection" / "docs.jsonl"
    VectorCache.open(tmp_path / "cache", model, load_collection(str(tmp_path / "collection")))
    with docs.open("a") as file:
        file.write('{"doc_id": "new", "text": "a new one"}\n')
    encoded.clear()
    cache = VectorCache.open(tmp_path / "cache", model, load_collection(str(tmp_path / "collection")))
    assert (len(cache), encoded) == (961, ["new"])


def test_a_file_with_its_old_size_and_time_has_changed(
    model: DocumentRanker, tmp_path: Path, encoded: list[str]
) -> None:
    write_collection(tmp_path / "collection")
    docs = tmp_path / "collection" / "docs.jsonl"
    VectorCache.open(tmp_path / "cache", model, load_collection(str(tmp_path / "collection")))
    before, content = docs.stat(), bytearray(docs.read_bytes())
    place = content.rindex(b"text") + 12
    content[place] = ord("x") if content[place] != ord("x") else ord("y")
    docs.write_bytes(content)
    os.utime(docs, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (docs.stat().st_size, docs.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    encoded.clear()
    VectorCache.open(tmp_path / "cache", model, load_collection(str(tmp_path / "collection")))
    assert len(encoded) == 1


# --- Damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["read", "search", "find", "vectors"])
@pytest.mark.parametrize("place", others_slow([0, 0.1, 0.5, 0.99]))
def test_a_flipped_bit_is_found_where_it_is_read(
    method: str,
    place: float,
    model: DocumentRanker,
    small: World,
    tmp_path: Path,
    encoded: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(checked_files, "BLOCK", 1024)
    names = list(small.documents)
    VectorCache.open(tmp_path, model, small.documents, names[:5], "float32")
    expected = VectorCache.open(tmp_path, model, small.documents, vector_type="float32")
    vectors = {name: expected.vectors(name) for name in names}
    [path] = [path / "vectors.npy" for path in segments(expected) if (path / "vectors.npy").stat().st_size > 10_000]
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1
    path.write_bytes(content)
    encoded.clear()
    cache = VectorCache.open(tmp_path, model, small.documents, vector_type="float32")
    # Opening reads the first block, and nothing else of this file.
    assert bool(encoded) == (place == 0)
    read: dict[str, Callable[[], object]] = {
        "read": lambda: cache.read("terms", names),
        "search": lambda: cache.search(["terms"]),
        "find": lambda: [cache.find(Document.of(one, "document")) for one in small.documents.values()],
        "vectors": lambda: [cache.vectors(name) for name in names],
    }
    read[method]()
    assert 0 < len(encoded) < len(names) - 5 or place == 0
    assert caplog.text.count(f"{path.parent} is damaged: vectors.npy does not have the checksum") == 1
    for name in names:
        torch.testing.assert_close(cache.vectors(name), vectors[name], atol=1e-6, rtol=0)
    # All is whole again.
    encoded.clear()
    caplog.clear()
    assert_same_scores(VectorCache.open(tmp_path, model, small.documents, vector_type="float32"), cache, small)
    assert not encoded and not caplog.messages


@pytest.mark.parametrize(
    ("damage", "vector_type"),
    others_slow([(damage, ("float16", "int8")[number % 2]) for number, damage in enumerate(DAMAGES)]),
)
def test_any_damaged_file_changes_nothing(
    damage: str, vector_type: Any, model: DocumentRanker, small: World, tmp_path: Path
) -> None:
    expected = VectorCache.open(tmp_path / "whole", model, small.documents, vector_type=vector_type)
    cache = VectorCache.open(tmp_path / "damaged", model, small.documents, vector_type=vector_type)
    for name in [path.name for path in segments(cache)[0].iterdir()]:
        # After a repair there may be two segments.
        DAMAGES[damage](segments(cache)[0] / name)
        cache = VectorCache.open(tmp_path / "damaged", model, small.documents, vector_type=vector_type)
        assert_same_scores(cache, expected, small, TOLERANCES[vector_type])


def test_a_trained_model_does_not_repair_the_vectors_of_the_one_before(
    model: DocumentRanker, small: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoded: list[str]
) -> None:
    monkeypatch.setattr(checked_files, "BLOCK", 1024)
    cache = VectorCache.open(tmp_path, model, small.documents)
    DAMAGES["last bit"](segments(cache)[0] / "vectors.npy")
    encoded.clear()
    model.encoder.get_input_embeddings().weight.data[5] += 1
    with pytest.raises(InputError, match="cannot be repaired with this model: they were made before"):
        cache.read_vectors(np.arange(cache.passages))
    assert not encoded


# --- Interruptions and several processes ------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("damage", [None, "cut", "changed"])
def test_an_interruption_loses_nothing_that_was_there(
    damage: str | None,
    model: DocumentRanker,
    small: World,
    tmp_path: Path,
    encoded: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = VectorCache.open(tmp_path / "whole", model, small.documents)
    names = sorted(small.documents)
    VectorCache.open(tmp_path / "cache", model, small.documents, names[:4])
    encoded.clear()
    encode = vector_encoding.encode_passages

    def interrupted(model: DocumentRanker, documents: Any) -> Any:
        if len(encoded) == 16:
            raise KeyboardInterrupt
        return encode(model, documents)

    with monkeypatch.context() as patch:
        patch.setattr(vector_encoding, "encode_passages", interrupted)
        with pytest.raises(KeyboardInterrupt):
            VectorCache.open(tmp_path / "cache", model, small.documents, names)
    _, second = sorted((tmp_path / "cache").glob("vectors/*/part-*.npz"))
    content = second.read_bytes()
    if damage == "cut":
        second.write_bytes(content[:100])
    elif damage == "changed":
        second.write_bytes(content.replace(content[2000:2004], b"\0\1\2\3"))
    # What is there is readable meanwhile, and not a lock away.
    assert len(VectorCache.open(tmp_path / "cache", model, small.documents, names[:4])) == 4
    encoded.clear()
    # A part is used whatever the documents of the next command are.
    resumed = VectorCache.open(tmp_path / "cache", model, small.documents)
    assert len(encoded) == len(names) - 4 - (8 if damage else 16)
    assert not list(resumed.folder.glob("part-*"))
    assert_same_scores(resumed, whole, small, 1e-3)


def test_readers_do_not_wait_for_a_writer(model: DocumentRanker, small: World, tmp_path: Path) -> None:
    names = list(small.documents)
    cache = VectorCache.open(tmp_path, model, small.documents, names[:5])
    found: list[VectorCache] = []
    with VectorStore(cache.folder, "float16").lock():
        reader = threading.Thread(
            target=lambda: found.append(VectorCache.open(tmp_path, model, small.documents, names[:3]))
        )
        reader.start()
        reader.join(timeout=600)
        writer = threading.Thread(target=lambda: found.append(VectorCache.open(tmp_path, model, small.documents)))
        assert len(found) == 1 and len(found[0].read("terms", names[:3])) == 3
        writer.start()
    writer.join(timeout=600)
    assert len(found[1]) == len(names)
    # The first was opened before, and sees what it saw.
    assert len(cache.read("terms", names[:5])) == 5


@pytest.mark.usefixtures("small_parts")
def test_the_share_of_a_process(
    model: DocumentRanker, small: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_encoding, "get_rank_and_size", lambda: (1, 3))
    numbers = np.arange(len(small.documents))
    monkeypatch.setattr(vector_encoding, "share_from_main", lambda own: numbers)
    store = VectorStore(tmp_path / "store", "float16")
    listed = ContentList.open(tmp_path, small.documents, None)
    with pytest.raises(InputError, match=r"process 1 does not see .*store, which process 0 made; set DOCPARADE_CACHE"):
        vector_encoding.add_documents(model, store, None, small.documents, listed)
    store.folder.mkdir()
    vector_encoding.add_documents(model, store, None, small.documents, listed)
    assert [path.name[:13] for path in store.folder.iterdir()] == ["part-00000001"]


@pytest.fixture
def started(model: DocumentRanker, tmp_path: Path) -> tuple[VectorCache, list[str]]:
    """The vectors that one process makes of 960 documents, which are four parts, and the options of the command."""
    write_collection(tmp_path / "collection")
    model.save_pretrained(tmp_path / "ranker")
    ranker, collection = load_ranker(str(tmp_path / "ranker")), load_collection(str(tmp_path / "collection"))
    expected = VectorCache.open(tmp_path / "one", ranker, collection)
    return expected, ["--model", str(tmp_path / "ranker"), "--collection", str(tmp_path / "collection")]


def assert_equal(found: VectorCache, expected: VectorCache) -> None:
    numbers = np.arange(expected.passages)
    np.testing.assert_allclose(found.read_vectors(numbers), expected.read_vectors(numbers), atol=1e-3)
    assert found.ids.take(np.arange(len(found))) == expected.ids.take(np.arange(len(expected)))


@pytest.mark.slow
def test_two_processes_share_the_encoding(
    started: tuple[VectorCache, list[str]], tmp_path: Path, encoded: list[str]
) -> None:
    expected, arguments = started
    process = start_two_processes(tmp_path / "two", arguments)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert "960 documents" in err and "(2 processes)" in err
    made = VectorCache.open(tmp_path / "two", load_ranker(arguments[1]), load_collection(arguments[3]))
    assert len(segments(made)) == 1 and not encoded
    assert_equal(made, expected)


@pytest.mark.slow
def test_killed_in_two_processes_and_resumed_in_one(
    started: tuple[VectorCache, list[str]], tmp_path: Path, encoded: list[str]
) -> None:
    expected, arguments = started
    process = start_two_processes(tmp_path / "two", arguments)
    place = tmp_path / "two" / "vectors"
    while process.poll() is None and not list(place.glob("*/part-*.npz")):
        time.sleep(0.001)
    kill_family(process.pid)
    finished = len(list(place.glob("*/part-*.npz")))
    assert finished >= 1 and not list(place.glob("*/segment-*"))
    encoded.clear()
    resumed = VectorCache.open(tmp_path / "two", load_ranker(arguments[1]), load_collection(arguments[3]))
    assert len(encoded) <= 960 - finished * 192
    assert_equal(resumed, expected)
