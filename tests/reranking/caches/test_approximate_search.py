"""An index over kept vectors: exact scores, recall that is measured, built once, refused where it would be wrong."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.collections import make_small_collection
from support.marks import others_slow
from support.training import World, world

from docparade import MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.reranking import VectorCache
from docparade.reranking.caches import approximate_search
from docparade.reranking.caches.approximate_search import ApproximateIndex, measure_recall
from docparade.retrieval import InputError, read_run

pytest.importorskip("faiss")
OPTIONS: dict[str, Any] = {"pooling": "mean", "window": 12, "stride": 8, "max_length": 24, "max_query_tokens": 12}
HITS = 5


@pytest.fixture(scope="module")
def many() -> World:
    """Documents with enough passages for several lists."""
    return world(40)


def build(encoder: Path, given: World, folder: Path, aggregation: str = "max", **options: Any) -> VectorCache:
    model = MaxPForSequenceClassification.from_bi_encoder(encoder, aggregation, **{**OPTIONS, **options})  # type: ignore[arg-type]
    return VectorCache.open(folder, model, given.documents, vector_type="float16")


@pytest.fixture
def encoder(encoder_folder: Callable[..., Path]) -> Path:
    return encoder_folder("bert")


# Each two of them together: one file of the index or several, a similarity and an aggregation.
@pytest.mark.parametrize(
    ("file_passages", "similarity", "aggregation"),
    others_slow(
        [
            (300, "cosine", "max"),
            (1_000_000, "cosine", "avg"),
            (300, "dot", "avg"),
            (1_000_000, "dot", "max"),
            (300, "euclidean", "max"),
            (1_000_000, "euclidean", "avg"),
        ]
    ),
)
def test_all_lists_find_what_the_exact_search_finds(
    file_passages: int,
    similarity: str,
    aggregation: str,
    encoder: Path,
    many: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(approximate_search, "FILE_PASSAGES", file_passages)
    monkeypatch.setattr(approximate_search, "BLOCK_PASSAGES", 128)
    cache = build(encoder, many, tmp_path, aggregation, similarity=similarity)
    index = ApproximateIndex.open(tmp_path, cache)
    assert index.lists > 5
    queries = list(many.queries.values())
    # An average is not found by its best passage, unless all documents are candidates.
    hits = HITS if aggregation == "max" else len(cache)
    found, exact = index.search(queries, hits, probes=index.lists), cache.search(queries, hits)
    for one, other in zip(found, exact, strict=True):
        assert one == pytest.approx(other, rel=1e-6, abs=1e-5)
    recall = measure_recall(cache, many.queries, dict(zip(many.queries, found, strict=True)), hits, 10)
    assert recall == 1


def test_few_lists_miss_documents_and_score_the_others_exactly(encoder: Path, many: World, tmp_path: Path) -> None:
    cache = build(encoder, many, tmp_path)
    index = ApproximateIndex.open(tmp_path, cache)
    found = dict(zip(many.queries, index.search(list(many.queries.values()), 20, probes=1), strict=True))
    recall = measure_recall(cache, many.queries, found, 20, len(found))
    assert 0 < recall < 1
    kept = 0
    exact = cache.search([many.queries[query] for query in found], len(cache))
    for scores, everything in zip(found.values(), exact, strict=True):
        assert scores == pytest.approx({name: everything[name] for name in scores}, rel=1e-6, abs=1e-5)
        kept += len(scores.keys() & set(list(everything)[:20]))
    assert recall == pytest.approx(kept / (20 * len(found)))


def test_an_index_is_the_same_for_a_seed(encoder: Path, many: World, tmp_path: Path) -> None:
    cache = build(encoder, many, tmp_path)
    first, again = (ApproximateIndex.open(tmp_path / name, cache) for name in ("a", "b"))
    assert (first.folder / "00000.faiss").read_bytes() == (again.folder / "00000.faiss").read_bytes()
    other = ApproximateIndex.open(tmp_path / "a", cache, seed=1)
    assert other.folder != first.folder
    assert (other.folder / "00000.faiss").read_bytes() != (first.folder / "00000.faiss").read_bytes()


def test_an_interrupted_or_damaged_index_is_built_again(
    encoder: Path, many: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    cache = build(encoder, many, tmp_path)
    write = Path.write_bytes
    for error in (KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")):

        def fail(path: Path, content: Any, error: BaseException = error) -> int:
            write(path, bytes(content)[:4])
            raise error

        with monkeypatch.context() as patch, pytest.raises((KeyboardInterrupt, InputError)) as caught:
            patch.setattr(Path, "write_bytes", fail)
            ApproximateIndex.open(tmp_path, cache)
    assert "No space left on device" in str(caught.value)
    index = ApproximateIndex.open(tmp_path, cache)
    file = index.folder / "00000.faiss"
    content = file.read_bytes()
    queries = list(many.queries.values())[:4]
    expected = index.search(queries, HITS)
    for damaged in (content[:1000], content[:5000] + b"\0\1\2\3" + content[5004:]):
        del index
        file.write_bytes(damaged)
        caplog.clear()
        index = ApproximateIndex.open(tmp_path, cache)
        assert "is damaged and is built again" in caplog.text
        assert file.read_bytes() == content
        assert index.search(queries, HITS) == expected


def test_what_cannot_be_searched_is_refused(
    encoder: Path, small: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="not for manhattan"):
        ApproximateIndex.open(tmp_path, build(encoder, small, tmp_path, similarity="manhattan"))
    parade = ParadeForSequenceClassification.from_bi_encoder(encoder, "attn", **OPTIONS)
    with pytest.raises(InputError, match="PARADE"):
        ApproximateIndex.open(tmp_path, VectorCache.open(tmp_path, parade, small.documents))
    cache = build(encoder, small, tmp_path)
    cache.model.calibration.scale.data.fill_(-1)
    with pytest.raises(InputError, match="scale"):
        ApproximateIndex.open(tmp_path, cache)
    monkeypatch.setattr(approximate_search, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install faiss-cpu"):
        ApproximateIndex.open(tmp_path, cache)


def test_the_command(
    command_line: Callable[..., tuple[int, str, str]], encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "cache"))
    collection = make_small_collection(tmp_path / "collection")
    MaxPForSequenceClassification.from_bi_encoder(encoder, **OPTIONS).save_pretrained(tmp_path / "ranker")
    given = ["retrieve", "--collection", str(collection.folder), "--hits", "4", "--output", "dense.txt"]
    dense = [*given, "--method", "dense", "--model", str(tmp_path / "ranker")]
    assert command_line(*dense)[0] == 0
    exact = read_run("dense.txt")
    code, out, err = command_line(*dense, "--search", "faiss", "--recall-sample", "2", "--json")
    assert code == 0, err
    stage = json.loads(out)["stage"]
    assert stage == {"method": "dense", "search": "faiss", "probes": 64, "recall": 1, "recall queries": 2}
    assert "searched 1 of 1 list: found 100.0% of the exact search's documents, measured on 2 queries" in err
    assert all(scores == pytest.approx(exact[query], abs=1e-5) for query, scores in read_run("dense.txt").items())
    for options, sentence in (
        ([*dense, "--probes", "3"], "--probes is for --search faiss; leave it out."),
        ([*dense, "--search", "quick"], "--search is 'quick'"),
        ([*dense, "--search", "faiss", "--probes", "0"], "--probes must be at least 1"),
        ([*given, "--search", "faiss"], "--search has no effect on --method bm25"),
    ):
        code, _, err = command_line(*options)
        assert code == 2 and sentence in err
