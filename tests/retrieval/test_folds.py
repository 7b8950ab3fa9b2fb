"""Folds: every query tested once, none trained and tested on, Capreolus' files read and written."""

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from docparade.retrieval.errors import InputError
from docparade.retrieval.folds import Fold, k_folds, leave_one_out, read_folds, write_folds

IDS = st.sets(st.integers(0, 10_000).map(str), min_size=2, max_size=60)


@given(IDS, st.data(), st.integers(0, 5))
def test_every_query_is_tested_once_and_never_seen_before(ids: set[str], data: st.DataObject, seed: int) -> None:
    k = data.draw(st.integers(2, len(ids)))
    folds = k_folds(ids, k, seed)
    assert list(folds) == [f"s{number}" for number in range(1, k + 1)]
    assert sorted(query for fold in folds.values() for query in fold.test) == sorted(ids)
    sizes = [len(fold.test) for fold in folds.values()]
    assert max(sizes) - min(sizes) <= 1
    for fold in folds.values():
        assert sorted([*fold.train, *fold.dev, *fold.test]) == sorted(ids)
        assert bool(fold.dev) == (k > 2)


def test_folds_depend_on_the_seed_and_not_on_the_order() -> None:
    ids = [str(number) for number in range(50)]
    assert k_folds(ids, 5, seed=1) == k_folds(reversed(ids), 5, seed=1) != k_folds(ids, 5, seed=2)


def test_without_a_dev_part_all_parts_but_one_are_trained_on() -> None:
    ids = [f"q{number}" for number in range(23)]
    with_dev, without = k_folds(ids, 5), k_folds(ids, 5, dev=False)
    assert without.keys() == with_dev.keys()
    for name, fold in without.items():
        assert (fold.dev, fold.test) == ((), with_dev[name].test)
        assert sorted(fold.train) == sorted(set(ids) - set(fold.test))


def test_five_folds_are_three_to_train_one_to_develop_one_to_test() -> None:
    folds = k_folds([str(number) for number in range(225)], 5)
    assert {(len(fold.train), len(fold.dev), len(fold.test)) for fold in folds.values()} == {(135, 45, 45)}
    assert folds["s1"].dev == folds["s2"].test


@given(st.lists(st.integers(1, 30), min_size=2, max_size=5), st.floats(0, 0.9))
def test_leave_one_collection_out(sizes: list[int], share: float) -> None:
    collections = {str(year): [f"{year}-{number}" for number in range(size)] for year, size in enumerate(sizes)}
    for name, fold in leave_one_out(collections, share).items():
        others = [query for other, queries in collections.items() if other != name for query in queries]
        assert sorted(fold.test) == sorted(collections[name])
        assert sorted([*fold.train, *fold.dev]) == sorted(others)
        assert len(fold.dev) == round(share * len(others))


def test_the_dev_queries_of_the_collections_left_in_are_drawn_with_the_seed() -> None:
    collections = {"2011": [f"a{number}" for number in range(30)], "2012": ["b"]}
    drawn = {leave_one_out(collections, 0.1, seed)["2012"].dev for seed in range(5)}
    assert len(drawn) == 5
    assert leave_one_out(collections, 0.1, seed=1) == leave_one_out(collections, 0.1, seed=1)


def test_a_fold_file_of_capreolus_is_read_and_written(tmp_path: Path) -> None:
    content = {"s1": {"train_qids": ["301"], "predict": {"dev": ["302"], "test": ["303"]}}}
    (tmp_path / "folds.json").write_text(json.dumps(content), encoding="utf-8")
    folds = read_folds(tmp_path / "folds.json")
    assert folds == {"s1": Fold(("301",), ("302",), ("303",))}
    write_folds(folds, tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text(encoding="utf-8")) == content


def test_a_fold_file_of_anserini_is_read(tmp_path: Path) -> None:
    parts = [["302", "303"], ["301"], ["306", "307"]]
    (tmp_path / "folds.json").write_text(json.dumps(parts), encoding="utf-8")
    folds = read_folds(tmp_path / "folds.json")
    assert folds["s1"] == Fold(train=("306", "307"), dev=("301",), test=("302", "303"))
    assert [list(fold.test) for fold in folds.values()] == parts
    (tmp_path / "folds.json").write_text(json.dumps(parts[:2]), encoding="utf-8")
    assert read_folds(tmp_path / "folds.json")["s2"] == Fold(train=("302", "303"), dev=(), test=("301",))


def test_queries_that_stand_twice_in_a_part_are_used_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = {"s1": {"train_qids": ["301", "304", "301"], "predict": {"dev": ["302"], "test": ["303"]}}}
    (tmp_path / "folds.json").write_text(json.dumps(content), encoding="utf-8")
    assert read_folds(tmp_path / "folds.json") == {"s1": Fold(("301", "304"), ("302",), ("303",))}
    assert "fold s1, train_qids: 1 of 3 query ids occur a second time, such as 301" in caplog.text
    (tmp_path / "folds.json").write_text('[["1", "2", "1"], ["3"]]', encoding="utf-8")
    assert read_folds(tmp_path / "folds.json")["s1"].test == ("1", "2")
    assert "list 1: 1 of 3 query ids" in caplog.text


BAD_FILES = {
    "not JSON": ('{"s1": ', "line 1: not JSON"),
    "a list": ("[]", "a fold file is a JSON object"),
    "nothing": ("{}", "a fold file is a JSON object"),
    "no test": ('{"s1": {"train_qids": [], "predict": {"dev": []}}}', "fold s1: needs train_qids"),
    "no fold": ('{"s1": 3}', "fold s1: needs train_qids"),
    "numbers": (
        '{"s1": {"train_qids": [1], "predict": {"dev": [], "test": []}}}',
        "fold s1, train_qids: is not a list of query ids",
    ),
    "lists of numbers": ("[[1], [2]]", "list 1: is not a list of query ids"),
    "one list": ('[["1"]]', "two or more lists of query ids"),
    "lists that share a query": ('[["1", "2"], ["2"]]', "the test parts: query 2 occurs twice"),
    "trained and tested": (
        '{"s1": {"train_qids": ["1"], "predict": {"dev": [], "test": ["1"]}}}',
        "fold s1: query 1 occurs twice",
    ),
    "tested twice": (
        '{"a": {"train_qids": [], "predict": {"dev": [], "test": ["1"]}},'
        ' "b": {"train_qids": [], "predict": {"dev": [], "test": ["1"]}}}',
        "the test parts: query 1 occurs twice",
    ),
}


@pytest.mark.parametrize(("content", "message"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_malformed_fold_file_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "folds.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        read_folds(tmp_path / "folds.json")
    assert str(tmp_path / "folds.json") in str(caught.value)


def test_wrong_arguments_are_named() -> None:
    for k in (1, 4):
        with pytest.raises(InputError, match=rf"folds .*3, and is {k}"):
            k_folds(["1", "2", "3"], k)
    with pytest.raises(InputError, match="query 1 occurs twice"):
        k_folds(["1", "1"], 2)
    with pytest.raises(InputError, match="at least 2 collections"):
        leave_one_out({"a": ["1"]})
    with pytest.raises(InputError, match="dev_share must be"):
        leave_one_out({"a": ["1"], "b": ["2"]}, dev_share=1.0)
