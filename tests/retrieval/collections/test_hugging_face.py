"""Hugging Face datasets as collections: saved to disk, or loaded by name from a folder; nothing reaches out."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import pytest

from docparade.retrieval.collections.catalog import load_collection
from docparade.retrieval.collections.hugging_face import HuggingFaceCollection
from docparade.retrieval.errors import InputError


@pytest.fixture
def parts(small: Any) -> dict[str, datasets.Dataset]:
    """The small collection as three datasets, with a title and headings for one document."""
    corpus = [{"_id": name, "title": "", "headings": "", "text": text} for name, text in small.texts.items()]
    corpus[0] |= {"title": "On wings", "headings": "Lift\nDrag"}
    queries = [{"_id": name, "text": text, "title": "T " + text} for name, text in small.queries.items()]
    qrels = [
        {"query-id": query, "corpus-id": name, "score": grade}
        for query, grades in small.qrels.items()
        for name, grade in grades.items()
    ]
    rows = {"corpus": corpus, "queries": queries, "qrels": qrels}
    return {name: datasets.Dataset.from_list(part) for name, part in rows.items()}


def test_datasets_saved_to_disk(small: Any, parts: dict[str, datasets.Dataset], tmp_path: Path) -> None:
    for name, part in parts.items():
        part.save_to_disk(tmp_path / "saved" / name)
    collection = load_collection(tmp_path / "saved")
    assert {document.id: document.text for document in collection.documents()} == small.texts
    assert len(collection) == 6
    first = collection.document("d1")
    assert (first.title, first.headings, first.text) == ("On wings", "Lift\nDrag", small.texts["d1"])
    assert list(collection.get_many(["d6", "d2"])) == ["d6", "d2"]
    assert collection.queries() == small.queries
    assert collection.queries("title")["q1"] == "T wing lift"
    assert collection.qrels() == small.qrels
    with pytest.raises(InputError, match="no document d9"):
        collection.document("d9")
    with pytest.raises(InputError, match=r"q1 .*narrative; .*_id, text, title"):
        collection.queries("narrative")
    assert load_collection(tmp_path / "saved").version() == collection.version()


def test_parts_that_are_missing_or_no_datasets(parts: dict[str, datasets.Dataset], tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    collection = load_collection(tmp_path)
    with pytest.raises(InputError, match=r"corpus .*save_to_disk"):
        len(collection)
    with pytest.raises(InputError, match="has no qrels"):
        collection.qrels()


def test_a_dataset_by_its_name(
    small: Any, parts: dict[str, datasets.Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder laid out as MTEB lays out its repositories: judgments in the configuration `default`."""
    for name, part in parts.items():
        part.to_json(tmp_path / f"{name}.jsonl")
    (tmp_path / "README.md").write_text(
        "---\nconfigs:\n"
        "- config_name: default\n  data_files:\n  - split: test\n    path: qrels.jsonl\n"
        "- config_name: corpus\n  data_files:\n  - split: corpus\n    path: corpus.jsonl\n"
        "- config_name: queries\n  data_files:\n  - split: queries\n    path: queries.jsonl\n"
        "---\n",
        encoding="utf-8",
    )
    for function in (datasets.get_dataset_config_names, datasets.load_dataset):
        # What the Hub would have under this name.
        here = partial(_with_place, function, {"mteb/small": str(tmp_path)})
        monkeypatch.setattr(datasets, function.__name__, here)
    collection = load_collection("hf:mteb/small")
    assert collection.queries() == small.queries
    assert collection.qrels() == small.qrels
    assert collection.document("d4").text == small.texts["d4"]


def _with_place(function: Callable[..., Any], places: dict[str, str], name: str, *arguments: Any) -> Any:
    return function(places[name], *arguments)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../..", "/", "/etc", "./a", "a/", "/a", "a/b/c", "a//b", "~/a", "a b", "a/b.git", "a--b", "a/..",
     "ü/b", "hf:a/b", "a\nb", "a\0b", "C:\\a", "https://huggingface.co/datasets/a/b", "a" * 10_000],
)  # fmt: skip
def test_a_name_that_no_dataset_can_have_is_refused_before_anything_is_looked_for(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(datasets, "get_dataset_config_names")
    monkeypatch.delattr(datasets, "load_dataset")
    with pytest.raises(InputError, match="such as hf:mteb/scifact"):
        load_collection(f"hf:{name}")


def test_a_folder_is_not_read_in_the_place_of_a_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mteb" / "scifact").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"hf:mteb/scifact .*mteb/scifact and not from the Hub"):
        load_collection("hf:mteb/scifact")


def test_a_dataset_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="queries of hf:nobody/nothing"):
        load_collection("hf:nobody/nothing").queries()


def test_splits(parts: dict[str, datasets.Dataset], tmp_path: Path) -> None:
    corpus = parts["corpus"]
    datasets.DatasetDict(train=corpus).save_to_disk(tmp_path / "corpus")
    datasets.DatasetDict(train=parts["qrels"].select([0]), test=parts["qrels"]).save_to_disk(tmp_path / "qrels")
    datasets.DatasetDict(a=corpus, b=corpus).save_to_disk(tmp_path / "queries")
    collection = load_collection(tmp_path)
    assert len(collection) == 6
    assert sum(map(len, collection.qrels().values())) == 4
    with pytest.raises(InputError, match=r"splits a, b, .*queries or test"):
        collection.queries()


@pytest.mark.parametrize(
    ("part", "rows", "message"),
    [
        (
            "corpus",
            [{"_id": "a", "text": "x"}, {"_id": "a", "text": "y"}],
            "1 and 2 are both a",
        ),
        ("corpus", [{"_id": 7, "text": "x"}], "corpus, row 0: _id"),
        ("corpus", [{"name": "a", "text": "x"}], "doc_id or id or _id"),
        ("queries", [{"_id": "a", "text": "x"}, {"_id": "a", "text": "y"}], "row 1: query a "),
        ("qrels", [{"query-id": "a", "corpus-id": "b"}], "row 0: score .*None"),
        ("qrels", [{"query-id": "a", "corpus-id": "b", "score": 0.5}], "score .*0.5"),
        ("qrels", [{"query-id": "a", "corpus-id": "b", "score": float("nan")}], "score .*nan"),
    ],
)
def test_wrong_rows_are_named(part: str, rows: list[dict[str, Any]], message: str) -> None:
    collection = HuggingFaceCollection("mine", {part: datasets.Dataset.from_list(rows)}.__getitem__)
    with pytest.raises(InputError, match=message):
        {"corpus": lambda: collection.document("a"), "queries": collection.queries, "qrels": collection.qrels}[part]()


def test_of_several_judgments_of_a_document_the_highest_counts() -> None:
    rows = [{"query-id": "a", "corpus-id": "b", "score": score} for score in (1, 3, 2)]
    collection = HuggingFaceCollection("mine", {"qrels": datasets.Dataset.from_list(rows)}.__getitem__)
    assert collection.qrels() == {"a": {"b": 3}}


def test_json_is_kept_whole(parts: dict[str, datasets.Dataset]) -> None:
    text = json.dumps({"a": ["ü", "\n"]})
    corpus = datasets.Dataset.from_list([{"doc_id": "1", "text": text, "title": None}])
    assert HuggingFaceCollection("mine", {"corpus": corpus}.__getitem__).document("1").text == text
