"""`docparade fuse`, through the real entry point."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from docparade.retrieval import (
    Fold,
    cross_validate_birch,
    cross_validate_weights,
    interpolate,
    k_folds,
    read_run,
    reciprocal_rank_fusion,
    write_folds,
    write_passage_scores,
    write_qrels,
    write_run,
)

FIRST = {str(query): {f"d{document}": float((document * query) % 7) for document in range(6)} for query in range(1, 7)}
SECOND = {query: {f"d{document}": 1.0 / (document + 1) for document in range(3, 9)} for query in FIRST if query != "6"}
QRELS = {query: {f"d{document}": int(document in (2, 4)) for document in range(9)} for query in FIRST}
PASSAGES = {
    query: {document: [int(document[1:]) % 5 / 5, 0.1 * int(query)] for document in scores}
    for query, scores in FIRST.items()
}

THIRD = {query: {f"d{document}": float(document == 2) for document in range(6)} for query in FIRST}

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(command_line: Command) -> Command:
    """`docparade fuse` in a folder with these files."""
    write_run(FIRST, "first.txt")
    write_run(SECOND, "second.txt.gz")
    write_qrels(QRELS, "qrels.txt")
    write_passage_scores(PASSAGES, "passages.jsonl")
    return partial(command_line, "fuse")


def test_linear(command: Command) -> None:
    code, _, err = command(
        "linear",
        "first.txt",
        "second.txt.gz",
        "--weights",
        "0.3, 0.7",
        "--normalize",
        "zscore",
        "--output",
        "fused.txt.gz",
    )
    assert code == 0
    assert read_run("fused.txt.gz") == interpolate([FIRST, SECOND], [0.3, 0.7], "zscore")
    assert "second.txt.gz does not have 1 query (6) of the other runs, and adds nothing there." in err
    assert "fused.txt.gz: 6 queries, at most 1000 documents each." in err


def test_equal_weights_by_default_and_a_limit(command: Command) -> None:
    command("linear", "first.txt", "second.txt.gz", "--output", "fused.txt", "--hits", "2")
    fused = interpolate([FIRST, SECOND], [0.5, 0.5], "minmax")
    found = read_run("fused.txt")
    assert {len(scores) for scores in found.values()} == {2}
    assert all(fused[query][document] == score for query, scores in found.items() for document, score in scores.items())


def test_reciprocal_ranks(command: Command) -> None:
    code, _, _ = command("rrf", "first.txt", "second.txt.gz", "--k", "10", "--output", "fused.txt")
    assert code == 0
    assert read_run("fused.txt") == reciprocal_rank_fusion([FIRST, SECOND], k=10)


def test_birch(command: Command) -> None:
    code, out, _ = command(
        "birch",
        "first.txt",
        "passages.jsonl",
        "--qrels",
        "qrels.txt",
        "--count",
        "2",
        "--folds",
        "3",
        "--output",
        "b.txt",
        "--json",
    )
    run, weights = cross_validate_birch(FIRST, PASSAGES, QRELS, k_folds(FIRST, 3), count=2)
    assert code == 0
    assert read_run("b.txt") == run
    assert json.loads(out) == {
        name: {"document": found.document, "passages": list(found.passages)} for name, found in weights.items()
    }


def test_weights_are_tuned_on_the_folds(command: Command) -> None:
    write_run(THIRD, "third.txt")
    folds = k_folds(FIRST, 3, seed=7)
    write_folds(folds, "folds.json")
    arguments = ["linear", "first.txt", "second.txt.gz", "third.txt", "--tune", "--qrels", "qrels.txt"]
    arguments += ["--measure", "AP", "--normalize", "zscore", "--step", "0.5", "--tune-on", "dev"]
    code, out, err = command(*arguments, "--fold-file", "folds.json", "--output", "f.txt", "--json")
    runs = [FIRST, SECOND, THIRD]
    fused, weights = cross_validate_weights(runs, QRELS, folds, "AP", "zscore", "dev", step=0.5)
    assert code == 0, err
    assert read_run("f.txt") == fused
    assert json.loads(out) == {fold: list(values) for fold, values in weights.items()}
    code, out, _ = command(*arguments, "--folds", "3", "--seed", "7", "--output", "g.txt")
    assert code == 0
    assert Path("g.txt").read_text() == Path("f.txt").read_text()
    rows = [line.split() for line in out.splitlines() if line.split()[:1] in (["s1"], ["s2"], ["s3"])]
    assert rows == [[fold, *(f"{value:g}" for value in values)] for fold, values in weights.items()]
    assert "f.txt: weights chosen by AP".replace("f.", "g.") in out


def test_birch_with_a_fold_file(command: Command) -> None:
    write_folds({"only": Fold(("1", "2"), ("3",), ("4", "5"))}, "folds.json")
    code, out, err = command(
        "birch",
        "first.txt",
        "passages.jsonl",
        "--qrels",
        "qrels.txt",
        "--count",
        "1",
        "--fold-file",
        "folds.json",
        "--output",
        "b.txt",
    )
    assert code == 0
    assert set(read_run("b.txt")) == {"4", "5"}
    assert "no test fold has 4 queries (1, 2, 3, …) of first.txt: left out." in err
    assert "only" in out


MISTAKES = {
    "one run": (["rrf", "first.txt", "--output", "f.txt"], "fusion needs at least two runs."),
    "weights": (
        ["linear", "first.txt", "second.txt.gz", "--weights", "1", "--output", "f.txt"],
        "there must be a weight for each run (runs: 2, weights: 1).",
    ),
    "no numbers": (
        ["linear", "first.txt", "second.txt.gz", "--weights", "much little", "--output", "f.txt"],
        "--weights is 'much little', and must be numbers separated by spaces.",
    ),
    "no weights": (
        ["linear", "first.txt", "second.txt.gz", "--weights", "", "--output", "f.txt"],
        "--weights is '', and must be numbers separated by spaces.",
    ),
    "weights of nothing": (
        ["linear", "first.txt", "second.txt.gz", "--weights", "0 0", "--output", "f.txt"],
        "weights are 0.0, 0.0; they must be finite numbers, and not all 0.",
    ),
    "infinite weights": (
        ["linear", "first.txt", "second.txt.gz", "--weights", "1 nan", "--output", "f.txt"],
        "weights are 1.0, nan; they must be finite numbers, and not all 0.",
    ),
    "judgments of other queries": (
        ["birch", "first.txt", "passages.jsonl", "--qrels", "other.txt", "--output", "f.txt"],
        "none of the training queries has judgments; weights are chosen by them.",
    ),
    "normalization": (
        ["linear", "first.txt", "second.txt.gz", "--normalize", "max", "--output", "f.txt"],
        "--normalize is 'max', and must be one of none, minmax, zscore.",
    ),
    "tuning without --tune": (
        ["linear", "first.txt", "second.txt.gz", "--measure", "AP", "--output", "f.txt"],
        "--measure is for choosing weights; add --tune, or leave it out.",
    ),
    "weights and tuning": (
        ["linear", "first.txt", "second.txt.gz", "--tune", "--weights", "1 1", "--output", "f.txt"],
        "--weights gives the weights, and --tune chooses them; leave one of them out.",
    ),
    "a step that does not divide 1": (
        [
            "linear",
            "first.txt",
            "second.txt.gz",
            "--tune",
            "--qrels",
            "qrels.txt",
            "--step",
            "0.3",
            "--output",
            "f.txt",
        ],
        "step is 0.3, and must divide 1, such as 0.1 or 0.05.",
    ),
    "too many combinations": (
        ["linear", *["first.txt"] * 4, "--tune", "--qrels", "qrels.txt", "--step", "0.02", "--output", "f.txt"],
        "at most 5000 are tried; take a larger step, or fewer runs.",
    ),
    "tuning on no judgments": (
        ["linear", "first.txt", "second.txt.gz", "--tune", "--qrels", "other.txt", "--output", "f.txt"],
        "fold s1, train+dev queries: none of them has judgments; weights are chosen by them.",
    ),
    "folds and a fold file": (
        [
            "birch",
            "first.txt",
            "passages.jsonl",
            "--qrels",
            "qrels.txt",
            "--fold-file",
            "f.json",
            "--folds",
            "5",
            "--output",
            "f.txt",
        ],
        "--folds makes folds, and --fold-file reads them; leave one of them out.",
    ),
    "seed and a fold file": (
        [
            "birch",
            "first.txt",
            "passages.jsonl",
            "--qrels",
            "qrels.txt",
            "--fold-file",
            "f.json",
            "--seed",
            "0",
            "--output",
            "f.txt",
        ],
        "--seed makes folds, and --fold-file reads them; leave one of them out.",
    ),
    "folder": (["rrf", "first.txt", "first.txt", "--output", "no/f.txt"], "; make it first."),
}


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_one_sentence_and_writes_nothing(command: Command, arguments: list[str], sentence: str) -> None:
    write_qrels({"77": {"d1": 1}}, "other.txt")
    before = sorted(Path().iterdir())
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].endswith(sentence)
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize("kind", ["rrf", "linear"])
def test_a_run_that_is_read_is_not_replaced(kind: str, command: Command) -> None:
    before = Path("first.txt").read_bytes()
    for output in ("first.txt", "./first.txt"):
        code, _, err = command(kind, "first.txt", "second.txt.gz", "--output", output)
        assert code == 2 and "is the same as the run first.txt; name another file." in err
    assert Path("first.txt").read_bytes() == before
