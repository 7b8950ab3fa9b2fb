"""`docparade analyze`, through the real entry point."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from docparade.retrieval import differences, relevant_by_rank, unique_relevant, write_qrels, write_run

QRELS = {"1": {"a": 1, "b": 2, "c": 0, "x": 4}, "2": {"a": 3, "e": -1}}
FIRST = {"1": {"a": 3.0, "b": 2.0, "c": 1.0}, "2": {"e": 2.0, "a": 1.0}}
SECOND = {"1": {"x": 3.0, "a": 2.0, "d": 1.0}, "2": {"a": 1.0}}

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(command_line: Command) -> Command:
    """`docparade analyze` in a folder with these files."""
    write_run(FIRST, "first.txt")
    write_run(SECOND, "second.txt")
    write_qrels(QRELS, "qrels.txt")
    return partial(command_line, "analyze")


def test_unique_relevant(command: Command) -> None:
    arguments = ["unique-relevant", "first.txt", "second.txt", "--qrels", "qrels.txt", "--depths", "1 10"]
    code, out, err = command(*arguments, "--json", "--plot", "unique.png")
    content = json.loads(out)
    found = unique_relevant(QRELS, SECOND, FIRST, depth=10)
    assert (code, err) == (0, "docparade: the plot is in unique.png.\n")
    assert content["second.txt"][1]["share"] == found.share == 1 / 4
    assert content["second.txt"][1]["grade_shares"] == {"4": 1.0}
    assert Path("unique.png").stat().st_size > 1000
    _, out, _ = command(*arguments)
    assert ["second.txt", "10", "0.2500", "0.5000", "0.00", "0.00", "0.00", "1.00"] in [
        line.split() for line in out.splitlines()
    ]


def test_a_run_against_itself(command: Command) -> None:
    code, out, _ = command(
        "unique-relevant", "first.txt", "first.txt", "--qrels", "qrels.txt", "--plot", "u.png", "--json"
    )
    assert code == 0
    assert [entry["share"] for entry in json.loads(out)["first.txt"]] == [0.0, 0.0, 0.0]


def test_rank_bins(command: Command) -> None:
    arguments = ["rank-bins", "second.txt", "--first", "first.txt", "--second", "second.txt", "--qrels", "qrels.txt"]
    code, out, _ = command(*arguments, "--json", "--plot", "bins.svg")
    bins = relevant_by_rank(QRELS, SECOND, FIRST, SECOND)
    assert code == 0
    assert [(entry["both"], entry["only_second"]) for entry in json.loads(out)] == [
        (b.both, b.only_second) for b in bins
    ]
    assert bins[0].only_second == 0.5
    assert Path("bins.svg").exists()
    _, out, _ = command(*arguments)
    assert ["1–10", "1.000", "0.000", "0.500", "0.000"] in [line.split() for line in out.splitlines()]


def test_relevant_passages(command: Command) -> None:
    write_qrels({"1": {"p1": 3, "p2": 3, "p3": 3}, "2": {"p3": 1}}, "passages.txt")
    Path("map.tsv").write_text("p1\td\np2\td\np3\te\n", encoding="utf-8")
    code, out, _ = command(
        "relevant-passages", "passages.txt", "map.tsv", "--min-grade", "3", "--json", "--plot", "p.png"
    )
    assert code == 0
    assert json.loads(out) == {"documents": {"1": 1, "2": 1}, "shares": {"1": 0.5, "1-2": 1.0, "3+": 0.0}}
    assert Path("p.png").exists()
    _, out, _ = command("relevant-passages", "passages.txt", "map.tsv")
    assert ["1-2", "100%"] in [line.split() for line in out.splitlines()]
    write_qrels({"1": {"d": 0, "e": 2}}, "documents.txt")
    arguments = ["relevant-passages", "passages.txt", "map.tsv", "--qrels", "documents.txt"]
    _, out, _ = command(*arguments)
    assert out.splitlines()[0] == "1 document"
    _, out, _ = command(*arguments, "--min-document-grade", "0")
    assert out.splitlines()[0] == "2 documents"


def test_differences(command: Command) -> None:
    arguments = ["differences", "first.txt", "second.txt", "--qrels", "qrels.txt", "--measure", "RR"]
    code, out, _ = command(*arguments, "--json", "--plot", "differences.png")
    assert code == 0
    assert [(entry["query"], entry["difference"]) for entry in json.loads(out)] == [
        (entry.query, entry.value) for entry in differences(QRELS, FIRST, SECOND, "RR")
    ]
    assert Path("differences.png").exists()
    _, out, _ = command(*arguments)
    assert ["2", "0.5000", "1.0000", "+0.5000"] in [line.split() for line in out.splitlines()]


def test_agreement(command: Command) -> None:
    code, out, _ = command("agreement", "first.txt", "second.txt", "--json")
    assert code == 0
    assert json.loads(out)["overlap"] == pytest.approx((1 / 3 + 1 / 2) / 2)
    _, out, _ = command("agreement", "first.txt", "first.txt")
    assert ["same", "ranking", "2"] in [line.split() for line in out.splitlines()]


MISTAKES = {
    "depths": (
        ["unique-relevant", "first.txt", "second.txt", "--qrels", "qrels.txt", "--depths", "10.5"],
        "--depths is '10.5', and must be whole numbers separated by spaces.",
    ),
    "depth": (
        ["unique-relevant", "first.txt", "second.txt", "--qrels", "qrels.txt", "--depths", "0"],
        "depth must be at least 1",
    ),
    "picture": (
        ["differences", "first.txt", "second.txt", "--qrels", "qrels.txt", "--plot", "p.doc"],
        "p.doc: the name of a picture must end in one of",
    ),
    "folder of the picture": (
        ["differences", "nothing.txt", "second.txt", "--qrels", "qrels.txt", "--plot", "no/p.png"],
        "--plot no/p.png cannot be written: the folder ",
    ),
    "measures": (
        ["differences", "first.txt", "second.txt", "--qrels", "qrels.txt", "--measure", "AP RR"],
        "'AP RR' names 2 measures; name one.",
    ),
    "judgments of other queries": (
        ["unique-relevant", "first.txt", "second.txt", "--qrels", "other.txt"],
        "no query of first.txt has judgments; name the judgments of its collection.",
    ),
    "grade of no judgments": (
        ["relevant-passages", "qrels.txt", "map.tsv", "--min-document-grade", "0"],
        "--min-document-grade needs judgments of documents; add --qrels.",
    ),
}


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_one_sentence(command: Command, arguments: list[str], sentence: str) -> None:
    write_qrels({"77": {"a": 1}}, "other.txt")
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"docparade: {sentence}")
    assert len(err.splitlines()) == 1
