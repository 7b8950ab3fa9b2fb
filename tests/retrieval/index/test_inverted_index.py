"""The index against counts made without it."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docparade.retrieval.collections.catalog import load_collection
from docparade.retrieval.collections.collection import Document
from docparade.retrieval.collections.jsonl_folder import LocalCollection
from docparade.retrieval.errors import InputError
from docparade.retrieval.index import builder
from docparade.retrieval.index.analyzer import analyze
from docparade.retrieval.index.first_stage import retrieve
from docparade.retrieval.index.inverted_index import Index, open_index
from docparade.retrieval.storage.cache import cache_folder


def counts_by_term(texts: dict[str, str]) -> dict[str, dict[str, int]]:
    """term -> document id -> how often, counted one by one."""
    counts: dict[str, dict[str, int]] = {}
    for name, text in texts.items():
        for term, count in Counter(analyze(text)).items():
            counts.setdefault(term, {})[name] = count
    return counts


def check(index: Index, texts: dict[str, str]) -> None:
    expected = counts_by_term(texts)
    assert sorted(index.terms) == sorted(expected)
    names = [index.document_ids[number] for number in range(len(index))]
    assert names == list(texts)
    for term, counts in expected.items():
        number = index.term_number(term)
        assert number is not None
        documents, frequencies = index.postings(number)
        assert documents.tolist() == sorted(documents.tolist())
        assert dict(zip([names[at] for at in documents], frequencies.tolist(), strict=True)) == counts
        assert index.document_frequency(number) == len(counts)
    for number, name in enumerate(names):
        terms, frequencies = index.document_terms(number)
        assert dict(zip([index.terms[at] for at in terms], frequencies.tolist(), strict=True)) == Counter(
            analyze(texts[name])
        )
    assert index.lengths.tolist() == [len(analyze(text)) for text in texts.values()]
    assert index.total_length == sum(len(analyze(text)) for text in texts.values())
    assert index.filled_documents == sum(bool(analyze(text)) for text in texts.values())
    assert index.term_number("nowhere") is None


@pytest.mark.parametrize("block", [1, 7, 1 << 21])
def test_the_index_holds_every_count_whatever_the_blocks(
    small: Any, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "BLOCK", block)
    check(open_index(load_collection(small.folder)), small.texts)


def test_the_index_of_time_magazine(time_magazine: str) -> None:
    collection = load_collection(time_magazine)
    texts = {document.id: document.contents() for document in collection.documents()}
    index = open_index(collection)
    check(index, texts)
    # Lucene's own statistics of its index of these texts.
    assert (len(index.terms), index.total_length) == (14691, 173699)


def test_an_index_is_built_once_and_again_when_the_documents_change(
    small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_index(load_collection(small.folder))
    with monkeypatch.context() as patch:
        patch.setattr(LocalCollection, "documents", None)  # not read a second time
        check(open_index(load_collection(small.folder)), small.texts)
    with (small.folder / "docs.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"doc_id": "d7", "text": "a new wing"}) + "\n")
    check(open_index(load_collection(small.folder)), small.texts | {"d7": "a new wing"})


def indexes_of(*names: str | Path) -> int:
    """How many indexes a fresh cache holds when all of these have been searched, with the same result."""
    found = [retrieve(load_collection(name), queries={"x": "wing speed"}) for name in names]
    assert found.count(found[0]) == len(found)
    assert found[0]["x"]
    return len(list((cache_folder() / "indexes").iterdir()))


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("fresh_cache")
def test_spellings_of_a_path_share_an_index(small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(small.folder)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "docs.jsonl").symlink_to(small.folder / "docs.jsonl")
    spellings = [small.folder, "small", "./small/", "../" + tmp_path.name + "/small", "link", "files"]
    assert indexes_of(*spellings) == 1


@pytest.mark.usefixtures("fresh_cache")
def test_splits_of_a_beir_folder_share_an_index(small: Any, tmp_path: Path) -> None:
    (small.folder / "docs.jsonl").rename(small.folder / "corpus.jsonl")
    (small.folder / "qrels").mkdir()
    for split in ("test", "dev"):
        (small.folder / "qrels" / f"{split}.tsv").write_text("q1\td1\t1\n", encoding="utf-8")
    qrels = small.folder / "qrels"
    assert indexes_of(small.folder, qrels / "dev.tsv", qrels / "test.tsv") == 1


@pytest.mark.usefixtures("fresh_cache")
def test_parts_of_an_ir_dataset_share_an_index(tmp_path: Path) -> None:
    import ir_datasets
    from ir_datasets.formats import TsvDocs, TsvQueries
    from ir_datasets.util import StringFile

    name = f"docparade-test-{tmp_path.name}"
    docs = TsvDocs(StringFile("d1\twing\nd2\tplate\n", "docs.tsv"), namespace="test")
    ir_datasets.registry.register(name, ir_datasets.Dataset(docs))
    for part in ("2011", "2012"):
        queries = TsvQueries(StringFile(f"{part}\twing\n", "queries.tsv"), namespace="test")
        ir_datasets.registry.register(f"{name}/{part}", ir_datasets.Dataset(docs, queries))
    assert indexes_of(name, f"{name}/2011", f"{name}/2012") == 1


def test_an_index_changes_with_the_analysis(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    open_index(load_collection(small.folder))
    monkeypatch.setattr("docparade.retrieval.index.analyzer.VERSION", 999)
    monkeypatch.setattr("docparade.retrieval.index.builder.build_index", None)
    with pytest.raises(TypeError):
        open_index(load_collection(small.folder))


def test_arrays_are_memory_mapped(small: Any) -> None:
    index = open_index(load_collection(small.folder))
    for array in (index._documents, index._frequencies, index._document_terms, index.lengths):
        owner: Any = array[:]
        while owner.base is not None and not isinstance(owner, np.memmap):
            owner = owner.base
        assert isinstance(owner, np.memmap)


def test_a_term_more_frequent_than_16_bits_can_say(tmp_path: Path) -> None:
    (tmp_path / "docs.jsonl").write_text(json.dumps({"doc_id": "d", "text": "wing " * 70_000}) + "\n", encoding="utf-8")
    index = open_index(load_collection(tmp_path))
    assert index.postings(0)[1].tolist() == [65_535]
    assert index.lengths.tolist() == [70_000]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no documents to index"),
        ('{"id": "a", "text": ""}\n{"id": "a", "text": "x"}\n', "1 and 2 are both a"),
        ('{"id": "a", "text": "x"}\n{"id": "b"\n', "line 2: not a JSON object"),
    ],
)
def test_a_wrong_collection_leaves_no_index(
    tmp_path: Path, content: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "docs.jsonl").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        open_index(load_collection(tmp_path))
    assert list((tmp_path / "cache" / "indexes").iterdir()) == []


def test_a_collection_of_nothing_but_stop_words(tmp_path: Path) -> None:
    (tmp_path / "docs.jsonl").write_text('{"id": "a", "text": "the"}\n{"id": "b", "text": ""}\n', encoding="utf-8")
    index = open_index(load_collection(tmp_path))
    assert (len(index), len(index.terms), index.total_length, index.filled_documents) == (2, 0, 0, 0)


def test_documents_are_read_once_and_never_held(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents go by one at a time: the one before is gone when the next comes."""
    import weakref

    alive: list[weakref.ref[Any]] = []

    class Tracked(Document):
        pass

    def documents(self: LocalCollection) -> Iterator[Document]:
        for name, text in small.texts.items():
            document = Tracked(name, text)
            alive.append(weakref.ref(document))
            yield document
            del document
            assert sum(reference() is not None for reference in alive) <= 1

    monkeypatch.setattr(LocalCollection, "documents", documents)
    open_index(load_collection(small.folder), progress=False)
    assert len(alive) == len(small.texts)
