"""Whatever is in a file, reading it gives what it says or one sentence about what is wrong."""

import gzip
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from docparade.retrieval.birch import read_passage_scores
from docparade.retrieval.collections.beir import read_beir_judgments
from docparade.retrieval.collections.document_file import DocumentFile
from docparade.retrieval.collections.jsonl_folder import read_queries
from docparade.retrieval.collections.passage_judgments import read_fira, read_genomics, read_passage_map, read_webap
from docparade.retrieval.collections.records import queries_from, read_json_lines
from docparade.retrieval.errors import LONGEST, InputError
from docparade.retrieval.evaluation import measures
from docparade.retrieval.folds import read_folds
from docparade.retrieval.runs import HIGHEST_GRADE, read_qrels, read_run, write_qrels, write_run

FOLDS = {"s1": {"train_qids": ["q1"], "predict": {"dev": [], "test": ["q2"]}}}
READERS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "run": (read_run, "q1 Q0 d1 1 5.5 t\nq1 Q0 d2 2 -4e3 t\nq2 Q0 d1 1 .5 t\n"),
    "qrels": (read_qrels, "q1 0 d1 2\nq1 0 d2 0\nq2 0 d1 -1\n"),
    "queries": (read_queries, "q1\twing\nq2\tlift of wings\n"),
    "documents": (lambda path: [*iter(DocumentFile(path))], '{"doc_id": "d1", "title": "t", "text": "a wing"}\n' * 2),
    "BEIR queries": (lambda path: queries_from(read_json_lines(path), str(path)), '{"_id": "q1", "text": "wing"}\n'),
    "BEIR judgments": (read_beir_judgments, "query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t0\n"),
    "folds": (read_folds, json.dumps(FOLDS)),
    "passage scores": (read_passage_scores, '{"query": "q1", "document": "d1", "scores": [0.1, 2.3]}\n'),
    "passage map": (read_passage_map, "p1\td1\np2\td1\n"),
    "FiRA": (read_fira, "q1 Q0 d1_0 3\nq1 Q0 d1_12 0\nq2 Q0 d2_1 1\n"),
    "Genomics": (read_genomics, "q1 d1 0 9 0 NOT\nq1 d1 9 12 0 DEFINITELY\n"),
    "WebAP": (
        read_webap,
        "<DOC><TARGET_QID>q1</TARGET_QID>\n<ORIGINAL_DOCNO>d1</ORIGINAL_DOCNO>\n<EXCEL><SENTENCE>a</SENTENCE></EXCEL></DOC>",
    ),
}
NUMBERS = ["-1", "1e39", "1e999", "nan", "9" * 30, "9" * 5000, "1" + "0" * 400, "1_000", "٣", "0x10", "", "-"]
TEXTS = ["\0", "\u2028", "\x85", "\ufeff", "\t", " ", "\r", "\\ud800", "\\u0000", '"', "[", "{", "}", "a" * 300, "null"]
VALUES = [
    "null",
    "true",
    "NaN",
    "-Infinity",
    "[]",
    "{}",
    '""',
    '"\\ud800"',
    "[[1]]",
    "[null]",
    "[NaN]",
    '["q1"]',
    '"a b"',
]


def damaged(text: str, chance: random.Random) -> bytes:
    data = bytearray(text.encode())
    place = chance.randrange(len(data))
    how = chance.randrange(6)
    if how == 0:
        return chance.randbytes(chance.choice([0, 1, 100]))
    if how == 1:
        return bytes(data[:place])
    if how == 2:
        data[place] = chance.randrange(256)
        return bytes(data)
    if how == 3:
        return bytes(data[:place]) + chance.choice(TEXTS).encode() + bytes(data[place:])
    # A number, a text, a list or an object that is another one.
    found = chance.choice(list(re.finditer(r'"[^"]*"|-?[0-9.]+|\[[^\[\]]*\]|\{[^{}]*\}|\S+', text)))
    return (text[: found.start()] + chance.choice(NUMBERS + VALUES) + text[found.end() :]).encode()


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused(name: str, tmp_path: Path) -> None:
    read, whole = READERS[name]
    path = tmp_path / "whole"
    path.write_text(whole, encoding="utf-8")
    assert read(path)
    refused = 0
    for seed in range(500):
        chance = random.Random(seed)
        content = damaged(whole, chance)
        path = tmp_path / "damaged"
        if chance.random() < 0.2:
            path = tmp_path / "damaged.gz"
            content = gzip.compress(content)[: -chance.randrange(20) or None]
        path.write_bytes(content)
        try:
            read(path)
        except InputError as error:
            refused += 1
            assert str(path) in str(error)
    assert refused > 100


LINES = [b"[" * 100_000, b'{"a":' * 100_000, b"\0" * 1000, b"\xff\xfe" * 50, b"9" * 100_000, b"x" * 10_000_000]


@pytest.mark.parametrize("content", LINES, ids=lambda content: str(content[:5]))
@pytest.mark.parametrize("name", READERS)
def test_deep_and_long_lines_are_one_short_sentence(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(InputError) as caught:
        READERS[name][0](tmp_path / "file")
    assert str(tmp_path / "file") in str(caught.value)
    assert len(str(caught.value)) <= LONGEST + 10


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("documents", '{"doc_id": "d1", "text": "x", "year": %s}'),
        ("BEIR queries", '{"_id": "q1", "text": "x", "year": %s}'),
        ("folds", '{"s1": %s}'),
        ("passage scores", '{"query": "q1", "document": "d1", "scores": [%s]}'),
    ],
)
@pytest.mark.parametrize("value", ["9" * 5000, "[" * 10_000])
def test_numbers_of_thousands_of_digits_and_lists_in_lists(name: str, line: str, value: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(line % value, encoding="utf-8")
    with pytest.raises(InputError, match="file"):
        READERS[name][0](tmp_path / "file")


def test_a_whole_number_too_large_for_a_score(tmp_path: Path) -> None:
    (tmp_path / "file").write_text('{"query": "q", "document": "d", "scores": [1' + "0" * 400 + "]}", encoding="utf-8")
    with pytest.raises(InputError, match="line 1"):
        read_passage_scores(tmp_path / "file")


@pytest.mark.parametrize("grade", [HIGHEST_GRADE + 1, -HIGHEST_GRADE - 1, 2**31, 999_999_999_999_999_999])
def test_a_grade_that_nothing_can_be_measured_with_is_refused(grade: int, tmp_path: Path) -> None:
    """trec_eval takes memory in proportion to the highest grade, and crashes where there is not so much."""
    (tmp_path / "qrels").write_text(f"q1 0 d1 1\nq1 0 d2 {grade}\n", encoding="utf-8")
    with pytest.raises(InputError, match=rf"qrels, line 2: .*d2 .*q1 is {grade}"):
        read_qrels(tmp_path / "qrels")
    (tmp_path / "test.tsv").write_text(f"q1\td1\t1\nq1\td2\t{grade}\n", encoding="utf-8")
    with pytest.raises(InputError, match=rf"test\.tsv, line 2: .*d2 .*q1 is {grade}"):
        read_beir_judgments(tmp_path / "test.tsv")
    with pytest.raises(InputError, match="document d2"):
        measures.evaluate({"q1": {"d2": grade}}, {"q1": {"d2": 1.0}}, "nDCG@20")


def test_a_grade_too_high_for_a_measure_is_one_sentence(tmp_path: Path) -> None:
    qrels, run = {"q1": {"d1": HIGHEST_GRADE}}, {"q1": {"d1": 1.0}}
    assert measures.evaluate(qrels, run, "nDCG@20").means == {"nDCG@20": 1.0}
    with pytest.raises(InputError, match=r"nDCG.* cannot be computed"):
        measures.evaluate(qrels, run, "nDCG(dcg='exp-log2')@20")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    run, qrels = {"q1": {"d1": 3.4e38, "d2": -3.4e38}}, {"q1": {"d1": HIGHEST_GRADE, "d2": -HIGHEST_GRADE}}
    write_run(run, tmp_path / "run")
    write_qrels(qrels, tmp_path / "qrels")
    assert read_run(tmp_path / "run") == run
    assert read_qrels(tmp_path / "qrels") == qrels


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nDCG@99999999999999999999", "cutoff"),
        ("ndcg_cut.5,99999999999999999999", "cutoff"),
        ("P(rel=2147483648)@5", "rel must"),
        ("Bpref(rel=99999999999999)", "rel must"),
        ("nDCG(gains={1:2147483648})@5", "gain 2147483648"),
        ("nDCG(gains={1:1.5})@5", "gain 1.5"),
    ],
)
def test_a_number_that_trec_eval_does_not_hold_is_one_sentence(name: str, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        measures.parse_measures(name)


def test_a_measure_that_divides_by_nothing_is_one_sentence() -> None:
    with pytest.raises(InputError, match=r"Accuracy .*\(float division by zero\)"):
        measures.evaluate({"q1": {"d1": 1}}, {"q1": {"d1": 1.0}}, "Accuracy")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("folds", '{"\\ud800": {"train_qids": [], "predict": {"dev": [], "test": []}}}'),
        ("folds", '{"s1": {"train_qids": ["\\ud800"], "predict": {"dev": [], "test": []}}}'),
        ("passage scores", '{"query": "\\udfff", "document": "d1", "scores": [1]}'),
        ("passage scores", '{"query": "q1", "document": "\\udfff", "scores": [1]}'),
    ],
)
def test_half_a_character_is_refused(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match="file"):
        READERS[name][0](tmp_path / "file")
