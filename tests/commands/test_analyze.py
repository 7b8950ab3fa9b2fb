"""`docparade analyze`, through the real entry point."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.collections import make_small_collection
from transformers import PreTrainedTokenizerBase

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


def test_relevant_passages_in_published_forms(command: Command) -> None:
    Path("fira.txt").write_text("1 Q0 D1_0 3\n1 Q0 D1_1 3\n1 Q0 D1_2 2\n1 Q0 D2_0 3\n", encoding="utf-8")
    code, out, err = command("relevant-passages", "fira.txt", "--form", "fira", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["documents"] == {"1": 1, "2": 1}
    _, out, _ = command("relevant-passages", "fira.txt", "--form", "fira", "--json", "--min-grade", "2")
    assert json.loads(out)["documents"] == {"1": 1, "3": 1}
    Path("genomics.tsv").write_text("160 1 0 9 0 NOT\n160 1 9 9 0 POSSIBLY\n", encoding="utf-8")
    _, out, _ = command("relevant-passages", "genomics.tsv", "--form", "genomics", "--json")
    assert json.loads(out)["documents"] == {"1": 1}
    sentences = "<EXCEL><SENTENCE>a b</SENTENCE></EXCEL><GOOD><SENTENCE>c</SENTENCE></GOOD>"
    ids = "<TARGET_QID>701</TARGET_QID><ORIGINAL_DOCNO>GX1</ORIGINAL_DOCNO>"
    Path("webap").write_text(f"<DOC>{ids}<TEXT>{sentences}</TEXT></DOC>", encoding="utf-8")
    _, out, _ = command("relevant-passages", "webap", "--form", "webap", "--json")
    assert json.loads(out)["documents"] == {"1": 1}


def test_passages_without_a_document_are_counted_and_left_out(command: Command) -> None:
    write_qrels({"1": {"p1": 3, "p2": 3, "p3": 0}}, "passages.txt")
    Path("map.tsv").write_text("p1\td\n", encoding="utf-8")
    code, out, err = command("relevant-passages", "passages.txt", "map.tsv", "--json")
    assert (code, json.loads(out)["documents"]) == (0, {"1": 1})
    assert err == "docparade: 1 of 2 relevant passages have no document in map.tsv: left out.\n"


def test_a_collection(command: Command, tokenizers: dict[str, PreTrainedTokenizerBase], tmp_path: Path) -> None:
    small = make_small_collection(tmp_path / "small")
    code, out, _ = command("collection", "--collection", "small", "--json")
    content = json.loads(out)
    assert code == 0
    assert content["queries"]["small"]["judgments"] == 4
    assert (content["documents"]["documents"], content["documents"]["tokens"]) == (6, None)
    tokenizer = tokenizers["wordpiece"]
    tokenizer.save_pretrained("tokenizer")
    arguments = ["--tokenizer", "tokenizer", "--preset", "li2023"]
    code, out, err = command("collection", "--collection", "small", *arguments, "--json")
    assert code == 0, err
    counts = [len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in small.texts.values()]
    found = json.loads(out)["documents"]
    assert (found["tokens"]["mean"], found["tokens"]["longest"]) == (sum(counts) / 6, max(counts))
    assert (found["passages"]["mean"], found["over_one_input"], found["unread"]) == (1.0, 0.0, 0.0)
    _, out, _ = command("collection", "--collection", "small", *arguments)
    assert "6 documents, 1 of them empty" in out
    assert "0.0% of the documents do not fit into one input; 0.0% have more than 16 passages" in out


def test_the_documents_of_a_run(command: Command, tmp_path: Path) -> None:
    small = make_small_collection(tmp_path / "small")
    write_run({"q1": {"d1": 2.0, "d2": 1.0}, "q2": {"d1": 3.0, "d4": 2.0}}, "run.txt")
    words = {name: len(text.split()) for name, text in small.texts.items()}
    for options, names in (([], "d1 d2 d4"), (["--depth", "1"], "d1")):
        _, out, _ = command("collection", "--collection", "small", "--run", "run.txt", *options, "--json")
        lengths = [words[name] for name in names.split()]
        assert json.loads(out)["documents"]["words"]["mean"] == sum(lengths) / len(lengths)


def test_several_sets_of_queries(command: Command, tmp_path: Path) -> None:
    make_small_collection(tmp_path / "small")
    other = make_small_collection(tmp_path / "other")
    (other.folder / "queries.tsv").write_text("q9\tthree more words\n", encoding="utf-8")
    (other.folder / "qrels.txt").unlink()
    _, out, err = command("collection", "--collection", "small", "--collection", "other", "--json")
    content = json.loads(out)
    assert {name: found["queries"] for name, found in content["queries"].items()} == {"small": 4, "other": 1}
    assert content["documents"]["documents"] == 12
    assert "no judgments are counted: the collection other has no qrels.txt" in err


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
    "form": (["relevant-passages", "p.txt", "--form", "xml"], "--form is 'xml', and must be one of trec, fira, webap"),
    "no mapping": (["relevant-passages", "qrels.txt"], "name the document of each passage: a file of lines"),
    "mapping": (["relevant-passages", "p.txt", "m.tsv", "--form", "fira"], "--form fira needs no mapping; leave out"),
    "preset": (["collection", "--collection", "cranfield", "--preset", "li2023"], "--preset needs --tokenizer"),
    "unknown preset": (
        ["collection", "--collection", "cranfield", "--preset", "li", "--tokenizer", "t"],
        "--preset is 'li', and must be one of whole, zhang2021",
    ),
    "depth without a run": (["collection", "--collection", "cranfield", "--depth", "5"], "--depth needs --run"),
    "tokenizer": (["collection", "--collection", "cranfield", "--tokenizer", "./none"], "--tokenizer"),
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
        "--min-document-grade needs judgments of documents; add --qrels or --collection.",
    ),
}


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_one_sentence(command: Command, arguments: list[str], sentence: str) -> None:
    write_qrels({"77": {"a": 1}}, "other.txt")
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"docparade: {sentence}")
    assert len(err.splitlines()) == 1
