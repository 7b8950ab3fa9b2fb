"""Ready triples, from files, ir_datasets and Hugging Face datasets."""

from __future__ import annotations

import gzip
import json
import lzma
import pickle
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from hypothesis import HealthCheck, given, settings, strategies as st
from torch.utils.data import DataLoader

from docparade.retrieval import InputError
from docparade.trainer.data import triples as module
from docparade.trainer.data.triples import Triples

ROWS = [{"query": f"q{i}", "positive": f"p{i}", "negatives": [f"n{i}a", f"n{i}b"]} for i in range(25)]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_ROWS", 10)


def write(path: Path, rows: list[Any]) -> Path:
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opener(path, "wt", encoding="utf-8") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
    return path


def assert_all_once(triples: Triples, start: int = 0) -> None:
    pairs = [triples[number] for number in range(start, start + 25)]
    assert sorted(pair.query for pair in pairs) == sorted(row["query"] for row in ROWS)
    for pair in pairs:
        assert pair.positive == pair.query.replace("q", "p")
        assert pair.negative[:-1] == pair.query.replace("q", "n")


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.xz"])
def test_files(suffix: str, tmp_path: Path) -> None:
    triples = Triples.from_files(write(tmp_path / f"t{suffix}", ROWS), seed=1)
    assert len(triples) == 25
    assert_all_once(triples)
    # After the last comes the first again, in another order.
    assert_all_once(triples, 25)
    assert [triples[n].query for n in range(25)] != [triples[n].query for n in range(25, 50)]
    # Blocks come in the file's order, and are shuffled within.
    assert sorted(triples[n].query for n in range(10)) == sorted(f"q{i}" for i in range(10))


def test_a_triple_depends_on_its_number_alone(tmp_path: Path) -> None:
    triples = Triples.from_files(write(tmp_path / "t.jsonl", ROWS), seed=1, pairs_per_epoch=7, negatives=2)
    expected = [triples[number] for number in range(60)]
    assert len(triples) == 7
    assert all(sorted(pair.documents[1:]) == sorted(set(pair.documents[1:])) for pair in expected)
    assert [triples[number] for number in reversed(range(60))] == expected[::-1]
    # An open file shared with forked workers would be read from where the other left it.
    again = Triples.from_files(tmp_path / "t.jsonl", seed=1, negatives=2)
    assert again[3] == expected[3]
    loader = DataLoader(again, batch_size=3, num_workers=2, sampler=list(range(60)), collate_fn=list)
    assert [pair for batch in loader for pair in batch] == expected


def test_several_files_are_spread_over_each_other(tmp_path: Path) -> None:
    few = write(tmp_path / "few.jsonl", ROWS[:5])
    many = write(tmp_path / "many.jsonl", [{"query": f"m{i}", "positive": "x", "negatives": ["y"]} for i in range(20)])
    triples = Triples.from_files([few, many], seed=1)
    queries = [triples[number].query for number in range(25)]
    assert sum(query.startswith("q") for query in queries[:10]) == 2
    assert len(set(queries)) == 25


def test_rows_without_negatives_take_other_positives(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", [{"query": f"q{i}", "positive": f"p{i}"} for i in range(10)])
    triples = Triples.from_files(path, seed=1)
    pairs = [triples[number] for number in range(100)]
    assert all(pair.negative.startswith("p") and pair.negative != pair.positive for pair in pairs)
    assert len({pair.negative for pair in pairs}) == 10
    alone = Triples.from_files(write(tmp_path / "one.jsonl", [{"query": "q", "positive": "p"}]), seed=1)
    with pytest.raises(InputError, match="no negatives"):
        alone[0]


def test_hugging_face_datasets(tmp_path: Path) -> None:
    dataset = Dataset.from_list(ROWS)
    assert_all_once(Triples.from_dataset(dataset, seed=1))
    streamed = dataset.to_iterable_dataset()
    with pytest.raises(InputError, match="rows="):
        Triples.from_dataset(streamed, seed=1)
    for source in (dataset, streamed):
        triples = Triples.from_dataset(source, rows=25, seed=1)
        assert_all_once(triples)
        # What is open does not travel: a worker reads from the start.
        assert_all_once(pickle.loads(pickle.dumps(triples)))
    with pytest.raises(InputError, match="row 99"):
        Triples.from_dataset(streamed, rows=99, seed=1)[90]
    single = Dataset.from_list([{"query": "q", "positive": "p", "negative": "n"}])
    assert Triples.from_dataset(single, seed=1)[0].documents == ("p", "n")


def test_docpairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ir_datasets = pytest.importorskip("ir_datasets")
    from ir_datasets.formats import TsvDocPairs
    from ir_datasets.util import LocalDownload

    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"q{i}\tp{i}\tn{i}a\n" for i in range(25)))
    name = "docparade-test-docpairs"
    pairs = ir_datasets.Dataset(TsvDocPairs(LocalDownload(path)))
    monkeypatch.setitem(ir_datasets.registry._registered, name, pairs)
    triples = Triples.from_ir_datasets(name, seed=1)
    assert_all_once(triples)
    assert_all_once(pickle.loads(pickle.dumps(triples)))
    with pytest.raises(InputError, match="has no docpairs"):
        Triples.from_ir_datasets("vaswani", seed=1)
    with pytest.raises(InputError, match="ir_datasets"):
        Triples.from_ir_datasets("nothing-like-it", seed=1)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"line 2: not JSON"),
        ("[]", r"line 2: not an object"),
        ('{"query": "q"}', r"line 2: .*positive .*None"),
        ('{"query": " ", "positive": "p"}', r"line 2: .*query"),
        ('{"query": "q", "positive": "p", "negatives": "n"}', r"line 2: .*negatives .*list"),
        ('{"query": "q", "positive": "p", "negatives": [1]}', r"line 2: .*negatives .*list"),
    ],
)
def test_bad_lines_are_named(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps(ROWS[0]) + "\n" + line + "\n")
    with pytest.raises(InputError, match=message):
        Triples.from_files(path, seed=1)[0]


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        Triples.from_files(tmp_path / "none.jsonl.xz", seed=1)
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(InputError, match="there are no lines"):
        Triples.from_files(tmp_path / "empty.jsonl", seed=1)
    whole = write(tmp_path / "whole.jsonl.xz", ROWS).read_bytes()
    (tmp_path / "cut.jsonl.xz").write_bytes(whole[:-20])
    with pytest.raises(InputError, match="xz"):
        Triples.from_files(tmp_path / "cut.jsonl.xz", seed=1)


@given(text=st.text(max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_any_line_is_read_or_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "fuzz.jsonl"
    path.write_text(
        json.dumps({"query": text, "positive": text, "negatives": [text]}) + "\n" + text,
        encoding="utf-8",
        errors="replace",
    )
    try:
        pair = Triples.from_files(path, seed=1)[0]
    except InputError:
        return
    assert pair.query.strip()
