"""What comes out of the token cache is what the processor would give, and it is built once."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from support.damage import DAMAGES, change_key, damage_at_random, files_in, restore, swap, swap_pairs
from support.project import LICENSE
from transformers import PreTrainedTokenizerBase

from docparade import PRESETS, DocumentProcessor
from docparade.modeling import processing_document
from docparade.reranking.caches import token_cache
from docparade.reranking.caches.document_lookup import CollectionDocuments
from docparade.reranking.caches.token_cache import TokenCache
from docparade.retrieval import load_collection
from docparade.retrieval.errors import InputError
from docparade.retrieval.storage import checked_files
from docparade.retrieval.storage.checked_files import DamagedFile

Tokenizers = dict[str, PreTrainedTokenizerBase]

WORDS = LICENSE.split()
DOCUMENTS: dict[str, dict[str, str]] = {
    "plain": {"id": "plain", "text": " ".join(WORDS[:300])},
    "titled": {"id": "titled", "title": "Grant of License", "headings": "One. Two.", "text": " ".join(WORDS[300:420])},
    "tagged": {"id": "tagged", "text": "<p>Each <b>Contributor</b> grants.</p> 漢字 é 😀"},
    "empty": {"id": "empty", "text": ""},
    "same as empty": {"id": "same as empty", "text": ""},
}


def assert_same(cache: TokenCache, processor: DocumentProcessor, documents: list[Any]) -> None:
    for ours, theirs in zip(cache.encode_documents(documents), processor.encode_documents(documents), strict=True):
        assert ours.document == theirs.document
        for name in ("token_ids", "spans", "bounds", "prefix"):
            assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name
        for query_length in (3, 9):
            passages = [processor.split(document, query_length) for document in (ours, theirs)]
            (of_ours, unread), (of_theirs, unread_too) = passages
            assert unread == unread_too
            assert [(p.start, p.end, p.token_ids.tolist()) for p in of_ours] == [
                (p.start, p.end, p.token_ids.tolist()) for p in of_theirs
            ]


@pytest.fixture
def kept(tokenizers: Tokenizers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Callable[[], None], Path]:
    """Compares a cache on disk with its processor, and its folder."""
    monkeypatch.setattr(checked_files, "sync", lambda path: None)
    processor = DocumentProcessor(tokenizers["wordpiece"], unit="sentence")

    def check() -> None:
        cache = TokenCache.open(tmp_path, processor, DOCUMENTS)
        assert len(cache) == len(DOCUMENTS)
        assert_same(cache, processor, list(DOCUMENTS.values()))

    check()
    [folder] = (tmp_path / "tokens").iterdir()
    return check, folder


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_changes_nothing(
    kept: tuple[Callable[[], None], Path], damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    check, folder = kept
    whole = shutil.copytree(folder, tmp_path / "whole")
    files = files_in(folder)
    assert len(files) == 11
    for file in files:
        caplog.clear()
        DAMAGES[damage](file)
        check()
        [message] = caplog.messages
        assert message.startswith(f"{folder} is damaged and is built again: ")
        assert file.name in (*message.split(), checked_files.NAME)
        restore(folder, whole)


def test_exchanged_files_and_another_key_change_nothing(
    kept: tuple[Callable[[], None], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    check, folder = kept
    whole = shutil.copytree(folder, tmp_path / "whole")
    for first, second in list(swap_pairs(folder)):
        swap(first, second)
        check()
        restore(folder, whole)
    caplog.clear()
    change_key(folder)
    check()
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    "times", [pytest.param(200, marks=pytest.mark.slow), pytest.param(2000, marks=pytest.mark.long)]
)
def test_any_damage_changes_nothing(kept: tuple[Callable[[], None], Path], times: int, tmp_path: Path) -> None:
    check, folder = kept
    whole = shutil.copytree(folder, tmp_path / "whole")
    for seed in range(times):
        damage_at_random(folder, random.Random(seed))
        check()
        restore(folder, whole)


def test_a_worker_tokenizes_what_is_damaged(
    tokenizers: Tokenizers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checked_files, "BLOCK", 256)
    processor = DocumentProcessor(tokenizers["wordpiece"], unit="sentence")
    # Another process cannot build the folder again: it does not have the documents.
    cache = TokenCache.open(tmp_path, processor, DOCUMENTS)
    DAMAGES["last bit"](cache.folder / "spans.npy")
    worker = pickle.loads(pickle.dumps(cache))
    with pytest.raises(DamagedFile):
        worker._arrays["spans"][:]
    assert_same(worker, processor, list(DOCUMENTS.values()))
    assert "spans.npy does not have the checksum" in caplog.text


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("tokenized again")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "sentencepiece"])
def test_the_cache_equals_the_processor(kind: str, preset: str, tokenizers: Tokenizers, tmp_path: Path) -> None:
    processor = DocumentProcessor.from_preset(preset, tokenizers[kind])
    cache = TokenCache.open(tmp_path, processor, DOCUMENTS)
    assert len(cache) == len(DOCUMENTS)
    assert_same(cache, processor, list(DOCUMENTS.values()))


@pytest.mark.parametrize("unit", ["token", "word", "sentence"])
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(alphabet=st.sampled_from("ab the.\n\t éß漢😀\u200b\ud800"), max_size=80), max_size=4))
def test_any_text_comes_back(unit: str, texts: list[str], tokenizers: Tokenizers, tmp_path_factory: Any) -> None:
    processor = DocumentProcessor(tokenizers["byte_bpe"], unit=unit, window=5, max_length=32, max_query_tokens=9)
    cache = TokenCache.open(tmp_path_factory.mktemp("cache"), processor, texts)
    assert_same(cache, processor, texts)


def test_what_it_holds_is_not_tokenized_and_what_it_does_not_hold_is(
    tokenizers: Tokenizers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = DocumentProcessor(tokenizers["wordpiece"])
    cache = TokenCache.open(tmp_path, processor, DOCUMENTS)
    # The same id with another text, and a text that has no id.
    changed = {**DOCUMENTS["plain"], "text": "Another text."}
    assert_same(cache, processor, [DOCUMENTS["titled"], changed, "A new text.", DOCUMENTS["plain"], DOCUMENTS["plain"]])
    monkeypatch.setattr(processing_document, "tokenize_texts", refuse)
    assert len(cache.encode_documents([DOCUMENTS["plain"], DOCUMENTS["plain"]["text"]])) == 2
    with pytest.raises(AssertionError, match="tokenized again"):
        cache.encode_documents([changed])


def test_only_the_documents_that_are_asked_for(tokenizers: Tokenizers, tmp_path: Path) -> None:
    processor = DocumentProcessor(tokenizers["wordpiece"])
    cache = TokenCache.open(tmp_path, processor, DOCUMENTS, ids=["tagged", "plain", "tagged"])
    assert len(cache) == 2
    assert TokenCache.open(tmp_path, processor, DOCUMENTS, ids=["plain", "tagged"]).folder == cache.folder
    assert TokenCache.open(tmp_path, processor, DOCUMENTS, ids=["plain"]).folder != cache.folder
    with pytest.raises(InputError, match="no document unknown"):
        TokenCache.open(tmp_path, processor, DOCUMENTS, ids=["unknown"])


def test_the_key_is_what_changes_tokens_and_nothing_else(tokenizers: Tokenizers, tmp_path: Path) -> None:
    def folder(documents: Any = DOCUMENTS, kind: str = "wordpiece", **options: Any) -> Path:
        processor = DocumentProcessor(tokenizers[kind], **options)
        return TokenCache.open(tmp_path, processor, documents).folder

    first = folder()
    assert folder(window=100, stride=50, max_passages=3, max_query_tokens=5, max_length=128, seed=1) == first
    # What the tokenizer was last called with is no part of what it does.
    tokenizers["wordpiece"]("a", "b", truncation=True, max_length=5, padding="max_length")
    assert folder() == first
    changed = {**DOCUMENTS, "plain": {**DOCUMENTS["plain"], "title": "New"}}
    others = [
        folder(kind="byte_bpe"),
        folder(unit="word"),
        folder(unit="sentence"),
        folder(repeat_title=True),
        folder(repeat_title=True, title_words=3),
        folder(strip_tags=True),
        folder(changed),
    ]
    assert len({first, *others}) == len(others) + 1


def test_a_collection_by_its_version(tokenizers: Tokenizers, tmp_path: Path) -> None:
    docs = tmp_path / "docs.jsonl"

    def write(documents: list[dict[str, str]]) -> None:
        docs.write_text("".join(json.dumps({**document, "doc_id": document["id"]}) + "\n" for document in documents))

    processor = DocumentProcessor(tokenizers["wordpiece"])
    named = [{**document, "id": document["id"].replace(" ", "-")} for document in DOCUMENTS.values()]
    write(named)
    collection = load_collection(tmp_path)
    cache = TokenCache.open(tmp_path / "cache", processor, collection)
    assert TokenCache.open(tmp_path / "cache", processor, CollectionDocuments(collection)).folder == cache.folder
    assert_same(cache, processor, named)
    (tmp_path / "link").symlink_to(tmp_path)
    assert TokenCache.open(tmp_path / "cache", processor, load_collection(tmp_path / "link")).folder == cache.folder
    part = TokenCache.open(tmp_path / "cache", processor, collection, ids=["plain"])
    assert len(part) == 1
    assert_same(part, processor, named)
    write([*named, {"id": "more", "text": "More."}])
    assert len(TokenCache.open(tmp_path / "cache", processor, load_collection(tmp_path))) == len(named) + 1


def test_another_process_maps_the_same_files(tokenizers: Tokenizers, tmp_path: Path) -> None:
    processor = DocumentProcessor(tokenizers["wordpiece"])
    documents = [{"id": str(i), "text": " ".join(WORDS[i : i + 500])} for i in range(200)]
    cache = TokenCache.open(tmp_path, processor, documents)
    sent = pickle.dumps(cache)
    size = sum(path.stat().st_size for path in cache.folder.iterdir())
    assert len(sent) < len(pickle.dumps(processor)) + 1000 < size / 3
    received = pickle.loads(sent)
    assert_same(received, processor, documents[:3])
    token_ids = received.encode_documents(documents[:1])[0].token_ids
    assert not token_ids.flags.owndata and not token_ids.flags.writeable


def test_an_interrupted_build_leaves_nothing(
    tokenizers: Tokenizers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = DocumentProcessor(tokenizers["wordpiece"])

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(token_cache, "_sort", interrupted)
        TokenCache.open(tmp_path, processor, DOCUMENTS)
    assert not [path for path in (tmp_path / "tokens").iterdir() if path.is_dir()]
    assert_same(TokenCache.open(tmp_path, processor, DOCUMENTS), processor, list(DOCUMENTS.values()))


def test_a_folder_that_cannot_be_written_is_named(tokenizers: Tokenizers, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cache folder .*file"):
        TokenCache.open(tmp_path / "file", DocumentProcessor(tokenizers["wordpiece"]), DOCUMENTS)


def open_slowly(folder: Path, processor: DocumentProcessor, name: str, all_ready: Any) -> None:
    build = token_cache._build

    def slow(*arguments: Any) -> None:
        (folder / f"built by {name}").touch()
        time.sleep(0.5)
        build(*arguments)

    token_cache._build = slow
    all_ready.wait()
    cache = TokenCache.open(folder / "cache", processor, list(DOCUMENTS.values()))
    assert_same(cache, processor, list(DOCUMENTS.values()))


def test_of_three_processes_one_builds(tokenizers: Tokenizers, tmp_path: Path) -> None:
    processor = DocumentProcessor(tokenizers["wordpiece"])
    fork = multiprocessing.get_context("fork")
    all_ready = fork.Barrier(3)
    arguments = [(tmp_path, processor, name, all_ready) for name in "abc"]
    processes = [fork.Process(target=open_slowly, args=given) for given in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=600)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(list(tmp_path.glob("built by *"))) == 1
