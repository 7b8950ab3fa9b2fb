"""Local and BEIR folders behind the one interface."""

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from docparade.retrieval.collections.catalog import load_collection
from docparade.retrieval.collections.collection import Collection, Document
from docparade.retrieval.collections.jsonl_folder import read_queries
from docparade.retrieval.errors import InputError


def check(collection: Collection, small: Any) -> None:
    """The collection holds what the small one holds, read in order and fetched by id."""
    assert {document.id: document.text for document in collection.documents()} == small.texts
    assert len(collection) == len(small.texts)
    fetched = collection.get_many(["d6", "d1", "d3"])
    assert {name: document.text for name, document in fetched.items()} == {
        name: small.texts[name] for name in ("d6", "d1", "d3")
    }
    assert collection.document("d2").text == small.texts["d2"]
    with pytest.raises(InputError, match="no document d7"):
        collection.document("d7")
    assert collection.qrels() == small.qrels


def test_a_local_folder(small: Any) -> None:
    collection = load_collection(small.folder)
    check(collection, small)
    assert collection.queries() == collection.queries("text") == small.queries
    with pytest.raises(InputError, match=r"queries\.tsv, line 1: .*q1 .*title; .*query_id, text"):
        collection.queries("title")
    with pytest.raises(InputError, match="has no scored documents"):
        collection.scored_documents()


def test_a_local_folder_of_packed_files(small: Any) -> None:
    for path in list(small.folder.iterdir()):
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    check(load_collection(str(small.folder)), small)


def beir_folder(small: Any, place: Path) -> Path:
    (place / "qrels").mkdir(parents=True)
    corpus = [
        json.dumps({"_id": name, "title": "", "text": text, "metadata": {}}) for name, text in small.texts.items()
    ]
    (place / "corpus.jsonl").write_text("\n".join(corpus), encoding="utf-8")
    queries = [json.dumps({"_id": name, "text": text, "long": "x " + text}) for name, text in small.queries.items()]
    (place / "queries.jsonl").write_text("\n".join(queries), encoding="utf-8")
    judgments = [f"{query}\t{name}\t{grade}" for query, grades in small.qrels.items() for name, grade in grades.items()]
    (place / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judgments]), encoding="utf-8")
    (place / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq3\td2\t1\n", encoding="utf-8")
    return place


def test_a_beir_folder(small: Any, tmp_path: Path) -> None:
    collection = load_collection(beir_folder(small, tmp_path / "beir"))
    check(collection, small)
    assert collection.queries() == {name: small.queries[name] for name in ("q1", "q2")}
    assert collection.queries("long")["q1"] == "x " + small.queries["q1"]
    with pytest.raises(InputError, match=r"queries\.jsonl, line 1: .*q1 .*title"):
        collection.queries("title")


def test_another_split_of_a_beir_folder(small: Any, tmp_path: Path) -> None:
    collection = load_collection(beir_folder(small, tmp_path / "beir") / "qrels" / "dev.tsv")
    assert collection.qrels() == {"q3": {"d2": 1}}
    assert collection.queries() == {"q3": small.queries["q3"]}


def test_a_beir_folder_without_test_judgments(small: Any, tmp_path: Path) -> None:
    folder = beir_folder(small, tmp_path / "beir")
    (folder / "qrels" / "test.tsv").unlink()
    with pytest.raises(InputError, match=r"test\.tsv .*dev\.tsv"):
        load_collection(folder).queries()
    (folder / "qrels" / "dev.tsv").unlink()
    (folder / "qrels").rmdir()
    assert load_collection(folder).queries() == small.queries


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q1\td1", "line 2: .*3 columns .*'query-id corpus-id score', .*2"),
        ("q1\td1\thigh", "line 2: score .*high"),
        ("q1\td 1\t1", "line 2: corpus-id is 'd 1'"),
        ("\td1\t1", "line 2: query-id is ''"),
        ("query-id\tcorpus-id\tscore", "line 2: score .*score"),
        ("", "test.tsv has no judgments"),
        ("q9\td1\t1", "query q9 .*queries.jsonl"),
    ],
)
def test_wrong_beir_judgments_are_named(small: Any, tmp_path: Path, line: str, message: str) -> None:
    folder = beir_folder(small, tmp_path / "beir")
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        load_collection(folder).queries()


def test_of_several_beir_judgments_of_a_document_the_highest_counts(small: Any, tmp_path: Path) -> None:
    folder = beir_folder(small, tmp_path / "beir")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td1\t1\n", encoding="utf-8")
    assert load_collection(folder).qrels() == {"q1": {"d1": 2}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "queries.tsv has no queries"),
        ("1 no tab\n", "line 1: there is no tab"),
        ("\tno id\n", "line 1: query_id is ''"),
        ("1 2\tan id of two words\n", "line 1: query_id is '1 2'"),
        ("1\tone\n\n1\ttwo\n", "line 3: query 1 "),
    ],
)
def test_wrong_queries_are_named(small: Any, content: str, message: str) -> None:
    (small.folder / "queries.tsv").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        load_collection(small.folder).queries()


@given(st.binary(max_size=40) | st.text("12\t \n\r\ufeffx", max_size=40).map(str.encode))
def test_any_file_of_queries_gives_queries_or_one_sentence(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "queries.tsv"
        path.write_bytes(content)
        try:
            queries = read_queries(path)
        except InputError as error:
            assert "queries.tsv" in str(error)
            assert "\n" not in str(error)
        else:
            assert queries
            assert all(query_id.split() == [query_id] for query_id in queries)
            assert len(queries) == sum(bool(line.strip()) for line in content.decode("utf-8-sig").split("\n"))


def test_what_is_missing_is_named_when_it_is_asked_for(small: Any) -> None:
    (small.folder / "queries.tsv").unlink()
    (small.folder / "qrels.txt").unlink()
    collection = load_collection(small.folder)
    assert len(collection) == 6
    with pytest.raises(InputError, match=r"queries\.tsv"):
        collection.queries()
    with pytest.raises(InputError, match=r"qrels\.txt"):
        collection.qrels()


def test_what_is_no_collection(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not a collection.*docs\.jsonl"):
        load_collection(tmp_path)
    with pytest.raises(InputError, match="ir_datasets"):
        load_collection("no-such-collection")


def test_the_title_counts_once() -> None:
    assert Document("1", "Wings.\n On wings.", title="Wings. ").contents() == "Wings.\n On wings."
    assert Document("1", "Text.", title="Title.", headings="One\nTwo").contents() == "Title.\nOne\nTwo\nText."
    assert Document("1", "Text.").contents() == "Text."
    assert Document("1", "").contents() == ""


def test_time_magazine(time_magazine: str) -> None:
    collection = load_collection(time_magazine)
    assert (len(collection), len(collection.queries())) == (423, 83)
    assert sum(len(grades) for grades in collection.qrels().values()) == 324
    documents = list(collection.documents())
    fetched = collection.get_many(document.id for document in reversed(documents))
    assert [fetched[document.id] for document in documents] == documents
