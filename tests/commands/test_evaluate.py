"""`docparade evaluate` and the manners of the whole command line, through its real entry point."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from docparade.retrieval import (
    Gains,
    evaluate,
    load_collection,
    paired_t_test,
    read_qrels,
    read_run,
    write_qrels,
    write_run,
)

QRELS = {
    str(query): {f"d{document}": int(document < 3) + int(document == 0) for document in range(8)}
    for query in range(1, 13)
}
GOOD = {query: {f"d{document}": float(-document) for document in range(8)} for query in QRELS}
BAD = {
    query: {f"d{document}": float(document) - (int(query) % 3) * 3 * (document == 1) for document in range(8)}
    for query in QRELS
}

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(command_line: Command) -> Command:
    """`docparade` in a folder with these files."""
    write_qrels(QRELS, "qrels.txt")
    write_run(GOOD, "good.txt")
    write_run(BAD, "bad.txt")
    return command_line


def test_a_table_with_markers(command: Command) -> None:
    code, out, err = command(
        "evaluate",
        "--qrels",
        "qrels.txt",
        "--measures",
        "nDCG@20 AP@100",
        "--baseline",
        "good.txt",
        "good.txt",
        "bad.txt",
    )
    assert (code, err) == (0, "")
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if ".txt " in line and "against" not in line}
    means = evaluate(QRELS, BAD, "nDCG@20 AP@100").means
    assert rows == {"good.txt": ["1.0000", "1.0000"], "bad.txt": [f"{value:.4f}‡" for value in means.values()]}
    assert "12 judged queries" in out
    assert "against good.txt: † p < .05, ‡ p < .01 (paired t-test, Bonferroni over 2 tests)" in out


def test_a_table_without_correction(command: Command) -> None:
    # Five of twelve queries are worse: significant alone, and not after a correction for four tests.
    write_run({**GOOD, "1": BAD["1"], "2": BAD["2"], "3": BAD["3"], "4": BAD["4"], "5": BAD["5"]}, "half.txt")
    arguments = ["evaluate", "--qrels", "qrels.txt", "--measures", "AP P@1", "--baseline", "good.txt"]
    arguments += ["good.txt", "half.txt", "bad.txt"]
    tests = {}
    for correction in ("bonferroni", "none"):
        _, out, _ = command(*arguments, "--correction", correction, "--json")
        content = json.loads(out)
        assert (content["correction"], content["tests"]) == (correction, 4)
        tests[correction] = content["runs"]["half.txt"]["significance"]["AP"]
    p = tests["none"]["p_value"]
    assert 0.0125 < p < 0.05
    assert tests["none"]["corrected"] == p == tests["bonferroni"]["p_value"]
    assert tests["bonferroni"]["corrected"] == pytest.approx(4 * p)
    _, out, _ = command(*arguments, "--correction", "none")
    mean = next(line.split()[1] for line in out.splitlines() if line.split()[:1] == ["half.txt"])
    assert mean.endswith("†")
    assert "against good.txt: † p < .05, ‡ p < .01 (paired t-test, 4 tests, not corrected)" in out
    assert command(*arguments)[1] == command(*arguments, "--correction", "bonferroni")[1] != out
    code, _, err = command("evaluate", "--qrels", "qrels.txt", "good.txt", "--correction", "none")
    assert code == 2 and "--correction is for tests against a baseline" in err


def test_json_with_every_figure(command: Command) -> None:
    code, out, _ = command(
        "evaluate",
        "--qrels",
        "qrels.txt",
        "--measures",
        "AP P@3",
        "--baseline",
        "good.txt",
        "bad.txt",
        "--json",
        "--per-query",
    )
    content = json.loads(out)
    good, bad = evaluate(QRELS, GOOD, "AP P@3"), evaluate(QRELS, BAD, "AP P@3")
    assert code == 0
    assert list(content["runs"]) == ["good.txt", "bad.txt"]
    assert content["runs"]["bad.txt"]["means"] == bad.means
    assert content["runs"]["bad.txt"]["per_query"] == bad.per_query
    test = content["runs"]["bad.txt"]["significance"]["AP"]
    assert test["p_value"] == pytest.approx(paired_t_test(good.per_query["AP"], bad.per_query["AP"]))
    assert test["corrected"] == pytest.approx(min(1, 2 * test["p_value"]))
    assert content["tests"] == 2


def test_queries_one_by_one(command: Command) -> None:
    _, out, _ = command("evaluate", "--qrels", "qrels.txt", "--measures", "AP", "good.txt", "bad.txt", "--per-query")
    rows = [line.split() for line in out.splitlines()]
    values = evaluate(QRELS, BAD, "AP").per_query["AP"]
    assert all([query, "1.0000", f"{value:.4f}"] in rows for query, value in values.items())


def test_binary_grades(command: Command) -> None:
    _, graded, _ = command("evaluate", "--qrels", "qrels.txt", "--measures", "nDCG@20", "bad.txt", "--json")
    _, binary, _ = command("evaluate", "--qrels", "qrels.txt", "--measures", "nDCG@20", "bad.txt", "--json", "--binary")
    assert json.loads(graded)["runs"] != json.loads(binary)["runs"]


def test_gains_are_for_all_measures(command: Command) -> None:
    arguments = ["evaluate", "--qrels", "qrels.txt", "--measures", "nDCG@20 nERR@10", "bad.txt", "--json"]
    code, out, err = command(*arguments, "--gains", "1=3,2=1")
    judged = Gains.of("1=3,2=1").judge(QRELS)
    assert (code, err) == (0, "")
    assert (json.loads(out)["binary"], json.loads(out)["gains"]) == (False, "1=3,2=1")
    assert json.loads(out)["runs"]["bad.txt"]["means"] == evaluate(judged, BAD, "nDCG@20 nERR@10").means
    # A grade that begins with a dash is no option, and "out" takes its documents out of the runs.
    write_qrels({query: grades | {"d7": -1} for query, grades in QRELS.items()}, "qrels.txt")
    _, with_it, _ = command(*arguments)
    code, without, err = command(*arguments, "--gains", "-1=out,1=1,2=2")
    run = {query: {name: score for name, score in scores.items() if name != "d7"} for query, scores in BAD.items()}
    assert (code, err) == (0, "")
    assert json.loads(without)["runs"]["bad.txt"]["means"] == evaluate(QRELS, run, "nDCG@20 nERR@10").means
    assert without != with_it
    for gains, problem in (("1=a", "--gains: '1=a' is not a grade"), ("1=1", "gains leave out grade 2")):
        code, _, err = command(*arguments, "--gains", gains)
        assert code == 2 and problem in err


def test_cranfields_grades_are_no_gains(command: Command, cranfield: str) -> None:
    ids = {query: {"184": 2.0, "29": 1.0} for query in load_collection(cranfield).queries()}
    write_run(ids, "run.txt")
    for options, said in (([], True), (["--binary"], False), (["--gains", "1=4,2=3,3=2,4=1"], False)):
        code, _, err = command("evaluate", "--collection", cranfield, "run.txt", *options)
        assert code == 0 and ("upside down" in err) == said
    code, _, err = command("evaluate", "--qrels", "qrels.txt", "good.txt")
    assert (code, err) == (0, "")
    tuning = ["fuse", "linear", "run.txt", "run.txt", "--tune", "--collection", cranfield, "--output", "fused.txt"]
    code, _, err = command(*tuning, "--binary", "--gains", "-1=out")
    assert code == 2 and "--gains: 'out' takes documents out of finished runs" in err


def test_missing_and_unjudged_queries_are_said_once(command: Command) -> None:
    write_run({"1": GOOD["1"], "99": {"d1": 1.0}}, "part.txt")
    code, _, err = command("evaluate", "--qrels", "qrels.txt", "part.txt")
    assert code == 0
    assert err.splitlines() == [
        "docparade: part.txt has no document for 11 queries (2, 3, 4, …): scored 0.",
        "docparade: part.txt has 1 query (99) without judgments: not counted.",
    ]


def test_chosen_queries(command: Command) -> None:
    Path("ids.txt").write_text("1\n2\n\n99\n2\n", encoding="utf-8")
    arguments = ["evaluate", "--qrels", "qrels.txt", "--measures", "nDCG@20", "--queries", "ids.txt", "bad.txt"]
    code, out, err = command(*arguments)
    expected = evaluate(QRELS, BAD, "nDCG@20", queries=["1", "2"]).means["nDCG@20"]
    assert expected != evaluate(QRELS, BAD, "nDCG@20").means["nDCG@20"]
    assert code == 0
    assert out.splitlines()[0] == "2 judged queries"
    assert ["bad.txt", f"{expected:.4f}"] in [line.split() for line in out.splitlines()]
    assert err == "docparade: 1 query (99) of ids.txt without judgments: not counted.\n"
    _, out, _ = command(*arguments, "--json")
    found = json.loads(out)["runs"]["bad.txt"]
    assert (found["queries"], found["means"]) == (2, {"nDCG@20": expected})


def test_one_query(command: Command) -> None:
    Path("ids.txt").write_text("3\n", encoding="utf-8")
    _, out, _ = command("evaluate", "--qrels", "qrels.txt", "--queries", "ids.txt", "bad.txt", "--measures", "AP")
    assert out.splitlines()[0] == "1 judged query"
    _, out, _ = command("evaluate", "--qrels", "qrels.txt", "bad.txt", "--baseline", "good.txt", "--measures", "AP")
    assert "Bonferroni over 1 test)" in out


def test_retrieved_queries_alone(command: Command) -> None:
    write_run({query: BAD[query] for query in ("1", "2", "3")}, "part.txt")
    arguments = ["evaluate", "--qrels", "qrels.txt", "--measures", "AP", "--retrieved-only", "part.txt"]
    code, out, err = command(*arguments)
    mean = evaluate(QRELS, BAD, "AP", queries=["1", "2", "3"]).means["AP"]
    assert code == 0
    assert out.splitlines()[0] == "3 judged and retrieved queries"
    assert ["part.txt", f"{mean:.4f}"] in [line.split() for line in out.splitlines()]
    assert err == "docparade: part.txt has no document for 9 queries (4, 5, 6, …): not counted.\n"
    _, out, _ = command(*arguments, "good.txt", "--per-query")
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["judged", "and", "retrieved", "queries"]
    assert ["run", "queries", "AP"] in rows
    assert ["part.txt", "3", f"{mean:.4f}"] in rows and ["good.txt", "12", "1.0000"] in rows
    assert ["12", "–", "1.0000"] in rows
    _, out, _ = command(*arguments, "good.txt", "--json")
    assert [found["queries"] for found in json.loads(out)["runs"].values()] == [3, 12]


def test_measures_have_the_names_that_were_typed(command: Command) -> None:
    names = "map ndcg_cut_10 P.5 nDCG@10"
    _, out, _ = command("evaluate", "--qrels", "qrels.txt", "bad.txt", "--measures", names)
    assert ["run", *names.split()] in [line.split() for line in out.splitlines()]
    _, out, _ = command("evaluate", "--qrels", "qrels.txt", "bad.txt", "--measures", names, "--json")
    means = json.loads(out)["runs"]["bad.txt"]["means"]
    assert list(means) == names.split()
    assert means["ndcg_cut_10"] == means["nDCG@10"]


def test_a_baseline_alone_is_said(command: Command) -> None:
    code, _, err = command("evaluate", "--qrels", "qrels.txt", "--baseline", "good.txt", "good.txt")
    assert code == 0
    assert err == "docparade: there is no run other than the baseline good.txt, so nothing is tested.\n"


def test_a_run_by_two_spellings_of_its_path_is_one_run(command: Command) -> None:
    baseline = str(Path("good.txt").absolute())
    arguments = ["--baseline", baseline, "bad.txt", "../" + Path().absolute().name + "/good.txt", "./bad.txt"]
    code, out, _ = command("evaluate", "--qrels", "qrels.txt", *arguments, "--json")
    assert (code, list(json.loads(out)["runs"]), json.loads(out)["tests"]) == (0, ["bad.txt", "good.txt"], 3)


def test_runs_of_the_same_name_are_told_apart(command: Command) -> None:
    Path("other").mkdir()
    write_run(BAD, "other/good.txt")
    _, out, _ = command("evaluate", "--qrels", "qrels.txt", "good.txt", "other/good.txt", "--json")
    assert list(json.loads(out)["runs"]) == ["good.txt", "other/good.txt"]


def test_a_collection_by_its_folder(command: Command, time_magazine: str) -> None:
    qrels = read_qrels(Path(time_magazine) / "qrels.txt")
    write_run({query: dict.fromkeys(grades, 1.0) for query, grades in qrels.items()}, "ideal.txt")
    code, out, _ = command("evaluate", "--collection", time_magazine, "--measures", "AP", "ideal.txt", "--json")
    assert (code, json.loads(out)["runs"]["ideal.txt"]["means"]) == (0, {"AP": 1.0})


MISTAKES = {
    "no judgments named": (["evaluate", "good.txt"], "give either --collection or --qrels for the judgments."),
    "both named": (
        ["evaluate", "good.txt", "--qrels", "qrels.txt", "--collection", "cranfield"],
        "give either --collection or --qrels for the judgments.",
    ),
    "no such file": (["evaluate", "--qrels", "nothing.txt", "good.txt"], "nothing.txt does not exist."),
    "qrels for a run": (
        ["evaluate", "--qrels", "qrels.txt", "qrels.txt"],
        "qrels.txt, line 1: a line has 6 columns, 'query Q0 document rank score tag', and this one has 4.",
    ),
    "no such measure": (
        ["evaluate", "--qrels", "qrels.txt", "--measures", "accuracy", "good.txt"],
        "'accuracy' is not a measure; did you mean Accuracy?",
    ),
    "no ids": (
        ["evaluate", "--qrels", "qrels.txt", "--queries", "good.txt", "good.txt"],
        "good.txt, line 1: '1 Q0 d0 1 0.0 docparade' is not a query id; write one id a line.",
    ),
    "ids without judgments": (
        ["evaluate", "--qrels", "qrels.txt", "--queries", "other.txt", "good.txt"],
        "--queries other.txt: none of its queries has judgments.",
    ),
    "nothing retrieved": (
        ["evaluate", "--qrels", "qrels.txt", "--retrieved-only", "strange.txt"],
        "strange.txt has no document for any judged query; leave out --retrieved-only.",
    ),
    "a baseline with other queries": (
        ["evaluate", "--qrels", "qrels.txt", "--retrieved-only", "--baseline", "good.txt", "part.txt"],
        "part.txt and the baseline good.txt have documents for different queries, so their means over retrieved "
        "queries cannot be compared; leave out --retrieved-only or --baseline.",
    ),
}


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_one_sentence_and_code_2(command: Command, arguments: list[str], sentence: str) -> None:
    Path("other.txt").write_text("77\n", encoding="utf-8")
    write_run({"77": {"d1": 1.0}}, "strange.txt")
    write_run({"1": GOOD["1"]}, "part.txt")
    assert command(*arguments) == (2, "", f"docparade: {sentence}\n")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["evaluate", "--help"], ["fuse", "-h"], ["analyze", "rank-bins", "-h"]]
)
def test_help_helps(command: Command, arguments: list[str]) -> None:
    code, out, _ = command(*arguments)
    assert code == 0
    assert "Usage: docparade" in out


@pytest.mark.slow
def test_a_reader_who_leaves_early_is_no_error(tmp_path: Path) -> None:
    write_qrels({str(query): {"a": 1} for query in range(3000)}, tmp_path / "qrels.txt")
    write_run({str(query): {"a": 1.0} for query in range(3000)}, tmp_path / "run.txt")
    main = f"{sys.executable} -c 'from docparade.cli import main; main()'"
    script = f"{main} evaluate --qrels qrels.txt run.txt --per-query | head -n 3"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "judged queries" in done.stdout
    assert done.stderr == ""


@pytest.mark.slow
def test_any_encoding_of_standard_output_will_do(command: Command) -> None:
    write_run(GOOD, "gut‡.txt")
    program = [sys.executable, "-c", "from docparade.cli import main; main()", "evaluate", "--qrels", "qrels.txt"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    for more in (["--baseline", "good.txt", "bad.txt"], ["gut‡.txt", "--json"]):
        done = subprocess.run([*program, *more], capture_output=True, env=environment, check=True)
        text = done.stdout.decode("ascii")
    assert list(json.loads(text)["runs"]) == ["gut‡.txt"]


def test_what_was_written_can_be_read(command: Command) -> None:
    assert read_run("good.txt") == GOOD
