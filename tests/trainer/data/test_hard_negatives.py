"""Hard negatives: what is found, what is left out, and the command that writes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from docparade.modeling import MaxPForSequenceClassification
from docparade.reranking import VectorCache
from docparade.retrieval import InputError
from docparade.trainer.data.hard_negatives import TextPool, find_too_close, mine_negatives
from docparade.trainer.data.triples import Triple, read_triples, write_triples

ROWS = [
    Triple("blue sky", "the sky is blue today"),
    Triple("blue sky", "light is scattered, so the sky looks blue"),
    Triple("gray sky", "the sky is gray, and rain falls", ("a gray cat",)),
    Triple("yeast bread", "bread rises with yeast"),
]


def test_the_best_texts_that_are_not_relevant_are_added() -> None:
    pool = TextPool(ROWS)
    assert len(pool) == 5 and pool.qrels()["q0"] == {"t0": 1, "t1": 1}
    run = {"q0": {"t0": 9.0, "t2": 7.0, "t1": 8.0, "t3": 6.0, "t4": 1.0}, "q1": {"t3": 5.0, "t0": 4.0}}
    mined = mine_negatives(ROWS, [run, {"q0": {"t4": 1.0}}], pool, count=1)
    # Both relevant texts of the query are left out, in both of its rows.
    assert [row.negatives for row in mined[:2]] == [("the sky is gray, and rain falls", "bread rises with yeast")] * 2
    # What a row has already is not counted as new.
    assert mined[2].negatives == ("a gray cat", "the sky is blue today")
    assert mined[3] == ROWS[3]
    assert mine_negatives(ROWS, [run], pool, count=1, too_close={"q0": {"t2"}})[0].negatives == ("a gray cat",)


def test_texts_too_close_to_the_query_are_found(tiny_ranker: Callable[..., Any], tmp_path: Path) -> None:
    model = tiny_ranker(MaxPForSequenceClassification, "max", pooling="mean")
    pool = TextPool(ROWS)
    vectors = VectorCache.open(tmp_path / "cache", model, pool)
    run = {"q0": dict.fromkeys(("t0", "t1", "t2", "t3", "t4"), 1.0)}
    texts = {text_id: text for text, text_id in pool.ids.items()}
    scores = dict(zip(texts, model.score([("blue sky", text) for text in texts.values()]), strict=True))
    best = max(scores["t0"], scores["t1"])
    for margin in (0.0, 0.02, 0.5):
        expected = {name for name in texts if scores[name] > best - margin + 2e-3}
        allowed = {name for name in texts if scores[name] > best - margin - 2e-3}
        assert expected <= find_too_close([run], pool, vectors, margin)["q0"] <= allowed
    with pytest.raises(InputError, match="margin is -1"):
        find_too_close([run], pool, vectors, -1)


def test_triples_are_written_as_they_are_read(tmp_path: Path) -> None:
    rows = [Triple("größe", 'a "quoted"\nline'), *ROWS]
    write_triples(rows, tmp_path / "rows.jsonl.gz")
    assert list(read_triples(tmp_path / "rows.jsonl.gz")) == rows


def test_the_command(command_line: Any, tiny_ranker: Callable[..., Any], tmp_path: Path) -> None:
    pairs, output = tmp_path / "pairs.jsonl", tmp_path / "mined.jsonl"
    write_triples(ROWS, pairs)
    code, _, err = command_line("mine", str(pairs), "--output", str(output), "--negatives", "2", "--depth", "4")
    assert code == 0 and "1 pair still without negatives" in err
    found = list(read_triples(output))
    # The row with negatives stays as it is; those of "blue sky" get what BM25 finds beside the relevant texts.
    assert found[2] == ROWS[2] and found[3] == ROWS[3]
    assert found[0].negatives == found[1].negatives == ("the sky is gray, and rain falls",)

    bi_encoder = tmp_path / "bi"
    tiny_ranker(MaxPForSequenceClassification, "max", pooling="mean").save_pretrained(bi_encoder)
    dense = ["--methods", "dense", "--model", str(bi_encoder), "--every-pair", "--negatives", "1"]
    code, _, _ = command_line("mine", str(pairs), "--output", str(output), *dense)
    assert code == 0 and [len(row.negatives) for row in read_triples(output)] == [1, 1, 2, 1]
    code, _, _ = command_line("mine", str(pairs), "--output", str(output), *dense, "--dtype", "bfloat16")
    assert code == 0 and [len(row.negatives) for row in read_triples(output)] == [1, 1, 2, 1]
    code, _, _ = command_line("mine", str(pairs), "--output", str(output), *dense, "--margin", "3")
    assert code == 0 and [len(row.negatives) for row in read_triples(output)] == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--methods", "bm26"], "--methods"),
        (["--methods", " "], "--methods is empty"),
        (["--output", "mined.jsonl.xz"], "mined.jsonl.xz: the name of the file must end in .jsonl or .jsonl.gz"),
        (["--negatives", "0"], "--negatives"),
        (["--margin", "-1"], "--margin must be a number from 0"),
        (["--dtype", "bfloat16"], "--dtype is for --methods dense and for --margin"),
        (["--methods", "dense", "--dtype", "float8"], "--dtype is 'float8', and must be one of"),
        (["--model", "x"], "--model is for --methods dense and for --margin"),
    ],
)
def test_mistakes_end_in_one_sentence(command_line: Any, tmp_path: Path, options: list[str], words: str) -> None:
    (tmp_path / "pairs.jsonl").write_text(json.dumps({"query": "a", "positive": "b"}) + "\n", encoding="utf-8")
    code, _, err = command_line(
        "mine", str(tmp_path / "pairs.jsonl"), "--output", str(tmp_path / "out.jsonl"), *options
    )
    assert code == 2 and words in err and not (tmp_path / "out.jsonl").exists()
