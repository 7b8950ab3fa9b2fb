"""`docparade retrieve` through the command line's real entry point."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from docparade.retrieval.collections.catalog import load_collection
from docparade.retrieval.index.first_stage import FirstStage, retrieve
from docparade.retrieval.runs import read_run

Command = Callable[..., tuple[int, str, str]]


def test_the_run_of_the_example(command_line: Command, cranfield: str) -> None:
    arguments = "--collection cranfield --method bm25 --k1 1.5 --b 0.75 --hits 1000 --output bm25.txt"
    code, out, err = command_line("retrieve", *arguments.split())
    assert (code, out) == (0, "")
    assert "bm25.txt: 200561 documents for 225 queries." in err
    assert read_run("bm25.txt") == retrieve(load_collection(cranfield), FirstStage("bm25", k1=1.5, b=0.75))
    assert Path("bm25.txt").read_text(encoding="utf-8").splitlines()[0].split()[-1] == "bm25"


def test_every_method_and_option_reaches_the_search(command_line: Command, small: Any) -> None:
    options = "--method ql+rm3 --mu 50 --feedback-documents 2 --feedback-terms 3 --original-weight 0.7 --hits 2"
    code, _, err = command_line("retrieve", "--collection", str(small.folder), *options.split(), "--output", "run.gz")
    assert code == 0
    stage = FirstStage("ql+rm3", mu=50, feedback_documents=2, feedback_terms=3, original_weight=0.7)
    expected = retrieve(load_collection(small.folder), stage, hits=2)
    assert read_run("run.gz") == {query: found for query, found in expected.items() if found}
    assert "no document was found for 2 queries (q3, q4): left out of the run." in err


def test_one_document_for_one_query(command_line: Command, small: Any) -> None:
    (small.folder / "queries.tsv").write_text("q1\twing\n", encoding="utf-8")
    _, _, err = command_line("retrieve", "--collection", str(small.folder), "--hits", "1", "--output", "run.txt")
    assert err == "docparade: run.txt: 1 document for 1 query.\n"


def test_no_document_for_any_query(command_line: Command, small: Any) -> None:
    (small.folder / "queries.tsv").write_text("q3\tunknown\n", encoding="utf-8")
    code, _, err = command_line("retrieve", "--collection", str(small.folder), "--output", "run.txt")
    assert code == 2
    sentence = f"no document was found for any query of {small.folder}; check its texts."
    assert err == f"docparade: {sentence}\n"


def test_tuning_counts_named_gains(command_line: Command, small: Any) -> None:
    arguments = ["retrieve", "--collection", str(small.folder), "--output", "run.txt", "--tune", "b=1,0", "--json"]
    values = {}
    for options in ("", "--binary", "--gains 1=0,2=1"):
        code, out, err = command_line(*arguments, *options.split())
        assert code == 0, err
        values[options] = [trial["nDCG@20"] for trial in json.loads(out)["tuning"]]
    assert values[""] != values["--gains 1=0,2=1"]
    code, _, err = command_line(*arguments, "--gains", "-1=out")
    assert code == 2 and "--gains: 'out'" in err


def test_tuning_shows_what_was_tried_and_uses_the_best(command_line: Command, small: Any) -> None:
    Path("train.txt").write_text("q2\n", encoding="utf-8")
    arguments = ["--collection", str(small.folder), "--output", "run.txt", "--measure", "RR@10", "--k1", "1.2"]
    code, out, err = command_line("retrieve", *arguments, "--tune", "b=1,0", "--tune-on", "train.txt", "--json")
    assert code == 0
    report = json.loads(out)
    assert [(trial["b"], trial["k1"]) for trial in report["tuning"]] == [(1.0, 1.2), (0.0, 1.2)]
    best = max(report["tuning"], key=lambda trial: trial["RR@10"])
    assert report["stage"] == {"method": "bm25", "k1": 1.2, "b": best["b"]}
    assert report["empty"] == ["q3", "q4"]
    assert "tuning on all queries" not in err
    code, out, err = command_line("retrieve", *arguments, "--tune", "b=1,0")
    assert code == 0
    assert out.split()[:3] == ["Tuning", "b", "RR@10"]
    assert "tuning on all queries" in err
    assert f"chose b {best['b']:g}." in err
    code, out, err = command_line("retrieve", *arguments, "--tune", "b=0.5")
    assert out.split()[:3] == ["Tuning", "b", "RR@10"]
    assert "chose b 0.5." in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--method tfidf --output x", "--method is 'tfidf', and must be one of bm25, bm25+rm3, ql, ql+rm3."),
        ("--engine elastic --output x", "--engine is 'elastic', and must be one of embedded, lucene."),
        ("--b 3 --output x", "b must be from 0 to 1, and is 3.0"),
        ("--hits 0 --output x", "hits must be at least 1"),
        ("--field title --output x", "queries.tsv, line 1: query q1 has no field title; it has query_id, text."),
        ("--output no/folder/x --tune k1=9", "no/folder/x cannot be written: the folder"),
        (f"--output {'x' * 300} --tune k1=9", "cannot be written: File name too long; name another place."),
        ("--output . --tune k1=9", ". is not a regular file; name a file to write to."),
        ("--tune-on train.txt --output x", "--tune-on is only for tuning; add a grid with --tune, or leave it out."),
        ("--measure AP --output x", "--measure is only for tuning; add a grid with --tune, or leave it out."),
        ("--binary --output x", "--binary is only for tuning; add a grid with --tune, or leave it out."),
        ("--gains 1=1 --output x", "--gains is only for tuning; add a grid with --tune, or leave it out."),
        ("--mu 500 --output x", "--mu belongs to ql, and the method is bm25; leave it out, or choose ql or ql+rm3."),
        ("--method ql --b 0.4 --output x", "--b belongs to bm25, and the method is ql; leave it out"),
        ("--feedback-terms 5 --output x", "--feedback-terms belongs to rm3, and the method is bm25; leave it out"),
        ("--method ql --original-weight 0.5 --output x", "--original-weight belongs to rm3, and the method is ql;"),
        ("--engine lucene --mu 500 --output x", "--mu belongs to ql, and the method is bm25;"),
        ("--tune mu=500,1000 --output x", "mu in the grid belongs to ql, and the method is bm25; leave it out"),
        ("--k1 1 --tune k1=0.9,1.5 --output x", "--k1 gives one value of k1, and --tune several; leave one of them"),
        ("--tune b=0.5 --measure AP,RR --output x", "'AP,RR' names 2 measures; name one."),
        ("--method ql+rm3 --tune feedback_terms=nan --output x", "feedback_terms must be a whole number, and is nan"),
        ("--tune b=0.5 --tune-on small/queries.tsv --output x", "small/queries.tsv, line 1: 'q1"),
        ("--tune b=0.5 --tune-on none.txt --output x", "none.txt does not exist"),
        ("--tune b=0.5 --measure nothing --output x", "'nothing' is not a measure"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_no_file(
    command_line: Command, small: Any, arguments: str, message: str
) -> None:
    code, out, err = command_line("retrieve", "--collection", str(small.folder), *arguments.split())
    assert (code, out) == (2, "")
    assert message in err.splitlines()[-1]
    assert err.splitlines()[-1].startswith("docparade: ")
    assert "--output" not in arguments.split()[0] or "tuning" not in err  # told before any work
    assert not Path("x").exists()


def test_a_collection_that_is_nowhere(command_line: Command) -> None:
    code, _, err = command_line("retrieve", "--collection", "nowhere", "--output", "x")
    assert code == 2
    assert err == "docparade: nowhere is neither a folder here nor an id that ir_datasets knows.\n"


def test_what_is_read_is_not_replaced(small: Any, command_line: Command) -> None:
    documents = Path(small.folder) / "docs.jsonl"
    before = documents.read_bytes()
    code, _, err = command_line("retrieve", "--collection", str(small.folder), "--output", str(documents))
    assert code == 2 and "is the same as docs.jsonl of --collection; name another file." in err
    assert documents.read_bytes() == before
