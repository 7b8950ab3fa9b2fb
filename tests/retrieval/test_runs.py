"""Runs and judgments: strict reading, whole writing, trec_eval's order of ties."""

import math
import re
from pathlib import Path

import pytest
import pytrec_eval
from hypothesis import given, settings, strategies as st

from docparade.retrieval import runs
from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import (
    compare,
    cut,
    merge,
    ranking,
    read_qrels,
    read_run,
    write_qrels,
    write_run,
)

WORDS = st.text(min_size=1, max_size=6).filter(lambda text: text.split() == [text] and text.isprintable())
SCORES = st.floats(min_value=-runs.LARGEST, max_value=runs.LARGEST) | st.sampled_from([0.0, 1.0, 1.0 + 1e-10])
QUERIES = WORDS.filter(lambda text: not text.startswith("#"))  # its lines would be comments
RUNS = st.dictionaries(QUERIES, st.dictionaries(WORDS, SCORES, min_size=1, max_size=5), min_size=1, max_size=4)
QRELS = st.dictionaries(
    QUERIES, st.dictionaries(WORDS, st.integers(-5, 10), min_size=1, max_size=5), min_size=1, max_size=4
)


@given(RUNS, st.sampled_from(["run.txt", "run.txt.gz"]))
def test_a_run_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, run: dict, name: str) -> None:
    path = tmp_path_factory.mktemp("run") / name
    write_run(run, path)
    again = read_run(path)
    assert again == run
    assert [list(scores) for scores in again.values()] == [ranking(scores) for scores in run.values()]


@given(QRELS, st.sampled_from(["qrels.txt", "qrels.txt.gz"]))
def test_judgments_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, qrels: dict, name: str
) -> None:
    path = tmp_path_factory.mktemp("qrels") / name
    write_qrels(qrels, path)
    assert read_qrels(path) == qrels


@given(st.dictionaries(st.text("abcABC0189ü", min_size=1, max_size=3), SCORES, min_size=1, max_size=8))
def test_the_order_is_trec_evals(scores: dict[str, float]) -> None:
    ranked = ranking(scores)
    for document in scores:
        evaluator = pytrec_eval.RelevanceEvaluator({"q": {document: 1}}, {"recip_rank"})
        rank = round(1 / evaluator.evaluate({"q": scores})["q"]["recip_rank"])
        assert ranked[rank - 1] == document


def test_scores_that_differ_below_32_bits_are_ties() -> None:
    assert ranking({"a": 1.0 + 1e-10, "b": 1.0}) == ["b", "a"]
    assert ranking({"a": 1.0 + 1e-6, "b": 1.0}) == ["a", "b"]


def test_a_score_that_is_no_number_has_no_rank() -> None:
    with pytest.raises(InputError, match="document b is not a number"):
        ranking({"a": 1.0, "b": math.nan})
    assert ranking({"a": -math.inf, "b": 1e300, "c": 1.0}) == ["b", "c", "a"]


GOOD_RUN = "1 Q0 a 1 2.5 tag\n"
BAD_RUNS = {
    "too few columns": (
        "1 Q0 a 2 2.5",
        "line 2: a line has 6 columns, 'query Q0 document rank score tag', and this one has 5",
    ),
    "truncated": ("1 Q0", "line 2: a line has 6 columns, 'query Q0 document rank score tag', and this one has 2"),
    "duplicate document": ("1 Q0 a 2 1.5 tag", "line 2: document a occurs a second time for query 1"),
    "NaN": ("1 Q0 b 2 nan tag", "line 2: the score is 'nan'"),
    "infinite": ("1 Q0 b 2 -inf tag", "line 2: the score is '-inf'"),
    "too large": ("1 Q0 b 2 1e999 tag", "line 2: the score is '1e999'"),
    "no number": ("1 Q0 b 2 high tag", "line 2: the score is 'high'"),
    "underscore": ("1 Q0 b 2 1_0 tag", "line 2: the score is '1_0'"),
    "foreign digits": ("1 Q0 b 2 ١ tag", "line 2: the score is '١'"),
    "rank": ("1 Q0 b two 2.5 tag", "line 2: the rank is 'two'"),
}


@pytest.mark.parametrize(("line", "message"), BAD_RUNS.values(), ids=BAD_RUNS.keys())
def test_a_malformed_run_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(GOOD_RUN + line + "\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_run(path)
    assert str(caught.value).startswith(f"{path}, {message}")
    assert "\n" not in str(caught.value)


def test_comments_are_no_lines(tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text("# BM25 of today\n1 Q0 #a 1 2.5 tag\n  #1 Q0 b 2 1.5 tag\n", encoding="utf-8")
    (tmp_path / "qrels.txt").write_text("# by two judges\n1 0 #a 1\n#1 0 b 1\n", encoding="utf-8")
    assert read_run(tmp_path / "run.txt") == {"1": {"#a": 2.5}}
    assert read_qrels(tmp_path / "qrels.txt") == {"1": {"#a": 1}}
    (tmp_path / "run.txt").write_text("# nothing else\n", encoding="utf-8")
    with pytest.raises(InputError, match="there are no lines"):
        read_run(tmp_path / "run.txt")
    for write, table in ((write_run, {"#1": {"a": 1.0}}), (write_qrels, {"#1": {"a": 1}})):
        with pytest.raises(InputError, match="query id is '#1'"):
            write(table, tmp_path / "out.txt")  # type: ignore[operator]
    assert not (tmp_path / "out.txt").exists()


def test_what_follows_the_tag_is_ignored_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "run.txt"
    path.write_text("1 Q0 a 1 2.5 tag\n1 Q0 b 2 1.5 tag more\n1 Q0 c 3 0.5 tag and more\n", encoding="utf-8")
    assert read_run(path) == {"1": {"a": 2.5, "b": 1.5, "c": 0.5}}
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"{path}, line 2: what follows")


BAD_QRELS = {
    "too few columns": ("1 0 b", "line 2: a line has 4 columns, 'query iteration document grade', and this one has 3"),
    "a run": ("1 Q0 b 2 2.5 tag", "line 2: a line has 4 columns, 'query iteration document grade', and this one has 6"),
    "fraction": ("1 0 b 1.5", "line 2: the grade is '1.5'"),
    "word": ("1 0 b yes", "line 2: the grade is 'yes'"),
    "huge": ("1 0 b 99999999999999999999", "line 2: the grade is '99999999999999999999'"),
}


@pytest.mark.parametrize(("line", "message"), BAD_QRELS.values(), ids=BAD_QRELS.keys())
def test_a_malformed_judgment_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_text("1 0 a 1\n" + line + "\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_qrels(path)
    assert str(caught.value).startswith(f"{path}, {message}")


def test_of_several_judgments_of_a_document_the_highest_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "qrels.txt").write_text(
        "1 0 a 1\n1 0 b 2\n1 0 a 3\n1 0 a 0\n1 0 b 2\n2 0 a -1\n2 0 a 0\n", encoding="utf-8"
    )
    for _ in range(2):
        assert read_qrels(tmp_path / "qrels.txt") == {"1": {"a": 3, "b": 2}, "2": {"a": 0}}
    # Said once: a for query 1 and a for query 2 have different grades, b has the same one twice.
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        f"{tmp_path / 'qrels.txt'}: 2 judged documents have different grades for the same query, such as document a "
        "for query 1"
    ]


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_file_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "empty").write_text(content, encoding="utf-8")
    for read in (read_run, read_qrels):
        with pytest.raises(InputError, match="there are no lines"):
            read(tmp_path / "empty")


FIELD = st.sampled_from(
    ["1", "Q0", "a", "b", "2.5", "-1", "nan", "inf", "1e400", "ü", "\ufeff", "", "1_0", "\x00", "\x85"]
)
SEPARATOR = st.sampled_from([" ", "\t", "\n", "\r\n", "\u00a0", "  "])
TEXT_LIKE_A_RUN = st.lists(st.tuples(FIELD, SEPARATOR), max_size=20).map(
    lambda pairs: "".join(field + separator for field, separator in pairs).encode()
)


@given(st.binary(max_size=60) | TEXT_LIKE_A_RUN, st.sampled_from(["f.txt", "f.gz"]))
@settings(max_examples=300)
def test_any_bytes_give_a_table_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / name
    path.write_bytes(content)
    for read in (read_run, read_qrels):
        try:
            table = read(path)
        except InputError as error:
            assert str(path) in str(error)
            assert len(str(error).splitlines()) == 1
        else:
            assert all(math.isfinite(value) for values in table.values() for value in values.values())


BAD_VALUES = {
    "NaN": ({"1": {"a": 1.0, "b": math.nan}}, "the score of document b for query 1 is nan"),
    "infinite": ({"1": {"a": math.inf}}, "the score of document a for query 1 is inf"),
    "space in an id": ({"1": {"a": 1.0, "a b": 0.5}}, "a document id is 'a b', and must be one word"),
    "no query id": ({"": {"a": 1.0}}, "a query id is ''"),
    "nothing": ({"1": {}}, "there are no lines"),
}


@pytest.mark.parametrize(("run", "message"), BAD_VALUES.values(), ids=BAD_VALUES.keys())
def test_a_run_that_cannot_be_read_again_is_not_written(tmp_path: Path, run: dict, message: str) -> None:
    (tmp_path / "run.txt").write_text("old", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        write_run(run, tmp_path / "run.txt")
    assert (tmp_path / "run.txt").read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["run.txt"]


def test_ranks_count_from_one_in_ranking_order(tmp_path: Path) -> None:
    write_run({"q": {"a": 1.0, "b": 2.0, "c": 2.0}}, tmp_path / "run.txt", tag="x")
    assert (tmp_path / "run.txt").read_text(encoding="utf-8") == "q Q0 c 1 2.0 x\nq Q0 b 2 2.0 x\nq Q0 a 3 1.0 x\n"


def test_cut_keeps_the_best() -> None:
    assert cut({"1": {"a": 1.0, "b": 2.0, "c": 2.0}, "2": {"a": 1.0}}, 2) == {
        "1": {"c": 2.0, "b": 2.0},
        "2": {"a": 1.0},
    }
    with pytest.raises(InputError, match="depth must be at least 1"):
        cut({}, 0)


def test_merge_refuses_a_query_twice() -> None:
    assert merge([{"1": {"a": 1.0}}, {"2": {"b": 2.0}}]) == {"1": {"a": 1.0}, "2": {"b": 2.0}}
    with pytest.raises(InputError, match="query 1 is in two"):
        merge([{"1": {"a": 1.0}}, {"1": {"b": 2.0}}])


def test_compare_counts_what_agrees() -> None:
    first = {"1": {"a": 3.0, "b": 2.0, "c": 1.0}, "2": {"a": 1.0}, "3": {"z": 1.0}}
    second = {"1": {"a": 3.5, "b": 2.0, "d": 1.0}, "2": {"a": 1.0}, "4": {"z": 1.0}}
    found = compare(first, second)
    assert (found.queries_in_both, found.only_in_first, found.only_in_second) == (2, ("3",), ("4",))
    assert (found.same_ranking, found.largest_score_difference) == (1, 0.5)
    assert found.overlap == pytest.approx((2 / 3 + 1) / 2)
    assert compare(first, second, depth=2).overlap == 1.0
    assert compare({"1": {}}, {"1": {}}).overlap == 1.0


@pytest.mark.parametrize("size", [1_000, 1_000_000])
@pytest.mark.parametrize("score", ["{}x", "1.{}x", ".{}x", "1e{}x", "{}.{}.", "-{}-"])
def test_a_long_number_that_is_none_takes_time_in_proportion(tmp_path: Path, score: str, size: int) -> None:
    (tmp_path / "run").write_text(f"1 Q0 d 1 {score.replace('{}', '7' * size)} t\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"run, line 1: .*'.{51}', "):
        read_run(tmp_path / "run")


@given(st.text(alphabet="0179.eE+-x", max_size=12))
def test_a_score_is_a_number_as_it_is_written_everywhere(text: str) -> None:
    plain = re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text)
    assert bool(runs._NUMBER(text)) == bool(plain)


@pytest.mark.parametrize("score", ["inf", "-inf", "Infinity", "1e999", "-1e999", "1e39", "-3.5e38", "nan"])
def test_a_score_that_is_infinite_where_scores_are_compared_is_refused(tmp_path: Path, score: str) -> None:
    (tmp_path / "run").write_text(f"1 Q0 a 1 3.4e38 t\n1 Q0 b 2 {score} t\n", encoding="utf-8")
    with pytest.raises(InputError, match=rf"run, line 2: the score is '{score}'"):
        read_run(tmp_path / "run")
    with pytest.raises(InputError, match=r"document b for query 1 .*finite"):
        write_run({"1": {"a": 3.4e38, "b": float(score)}}, tmp_path / "written")
    assert not (tmp_path / "written").exists()
