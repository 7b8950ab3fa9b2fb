"""The tables of Ghasemi and Hiemstra (2021), against a plain computation of what the paper defines."""

import json
import math
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from scipy.stats import ttest_rel

from docparade.retrieval import Gains, InputError, Qrels, Run, compare_full_ranking, write_qrels, write_run

Command = Callable[..., tuple[int, str, str]]
QUERIES, DOCUMENTS, LISTED, DEPTHS = 12, 80, 30, (5, 10, 30)


def make_world() -> tuple[Qrels, Run, Run, Run]:
    """Graded judgments, a first stage that finds nothing for one query, its reranking, and a ranking of everything."""
    draw = random.Random(5)
    qrels: Qrels = {}
    first, reranked, full = Run(), Run(), Run()
    for number in range(QUERIES):
        query = f"q{number}"
        ids = [f"d{place}" for place in range(DOCUMENTS)]
        qrels[query] = {name: draw.choice((-1, 0, 1, 2, 3, 4)) for name in draw.sample(ids, 20)}
        full[query] = {name: draw.random() + 0.4 * (qrels[query].get(name, 0) > 0) for name in ids}
        if number:
            listed = draw.sample(ids, LISTED)
            first[query] = {name: draw.random() for name in listed}
            reranked[query] = {name: draw.random() for name in listed}
    return qrels, first, reranked, full


QRELS, FIRST, RERANKED, FULL = make_world()


def top(run: Run, query: str, depth: int) -> list[str]:
    scores = run.get(query, {})
    return sorted(scores, key=lambda name: -scores[name])[:depth]


def average_precision(run: Run, query: str, depth: int) -> float:
    hits, total = 0, 0.0
    for rank, name in enumerate(top(run, query, depth), start=1):
        if QRELS[query].get(name, 0) > 0:
            hits += 1
            total += hits / rank
    return total / sum(grade > 0 for grade in QRELS[query].values())


def ndcg(run: Run, query: str, depth: int) -> float:
    """With every relevant grade counted as 1."""
    relevant = sum(grade > 0 for grade in QRELS[query].values())
    found = [QRELS[query].get(name, 0) > 0 for name in top(run, query, depth)]
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(relevant, depth) + 1))
    return sum(hit / math.log2(rank + 1) for rank, hit in enumerate(found, start=1)) / ideal


def test_effectiveness_and_significance() -> None:
    compared = compare_full_ranking(QRELS, FIRST, RERANKED, FULL, "AP@30 nDCG@20", DEPTHS, gains=Gains(binary=True))
    for name, by_formula, depth in (("AP@30", average_precision, 30), ("nDCG@20", ndcg, 20)):
        values = {
            label: [by_formula(run, query, depth) for query in QRELS]
            for label, run in (("first stage", FIRST), ("re-ranker", RERANKED), ("full ranker", FULL))
        }
        for label, expected in values.items():
            assert compared.evaluations[label].means[name] == pytest.approx(sum(expected) / QUERIES)
            if label != "first stage":
                test = compared.tests[label][name]
                assert test.corrected == test.p_value
                assert test.p_value == pytest.approx(ttest_rel(expected, values["first stage"]).pvalue)
    assert compared.tests["full ranker"]["nDCG@20"].marker


def test_unique_relevant_documents_their_degrees_and_what_is_new() -> None:
    compared = compare_full_ranking(QRELS, FIRST, RERANKED, FULL, depths=DEPTHS)
    runs = {"first stage": FIRST, "re-ranker": RERANKED, "full ranker": FULL}
    assert len(compared.unique) == 4
    for (by, other), entries in compared.unique.items():
        for depth, entry in zip(DEPTHS, entries, strict=True):
            retrieved, new, degrees = 0, 0, Counter[int]()
            for query, grades in QRELS.items():
                mine, theirs = (set(top(runs[label], query, depth)) for label in (by, other))
                retrieved += len(mine)
                new += len(mine - theirs)
                degrees.update(grade for name in mine - theirs if (grade := grades.get(name, 0)) > 0)
            unique = sum(degrees.values())
            assert unique > 3 and set(degrees) <= {1, 2, 3, 4}
            assert (entry.depth, entry.share, entry.new_share) == (depth, unique / retrieved, new / retrieved)
            assert entry.grade_shares == {grade: count / unique for grade, count in sorted(degrees.items())}
    # The re-ranker has the documents of the first stage.
    assert compared.unique["full ranker", "re-ranker"][-1] == compared.unique["full ranker", "first stage"][-1]
    assert compared.unique["full ranker", "re-ranker"][0] != compared.unique["full ranker", "first stage"][0]


def test_queries_that_the_full_ranker_was_not_asked_for() -> None:
    some = {query: FULL[query] for query in ("q0", "q1")}
    compared = compare_full_ranking(QRELS, FIRST, RERANKED, some)
    assert compared.not_ranked == [f"q{number}" for number in range(2, QUERIES)]
    assert compared.evaluations["first stage"].queries == ["q0", "q1"]
    assert compared.unique["first stage", "full ranker"][-1].retrieved == LISTED
    with pytest.raises(InputError, match="full ranker has judgments"):
        compare_full_ranking(QRELS, FIRST, RERANKED, {"other": {"d1": 1.0}})


def test_gains_count_in_both_tables() -> None:
    relevant = {query: {d: abs(grade) for d, grade in grades.items()} for query, grades in QRELS.items()}
    found = compare_full_ranking(QRELS, FIRST, RERANKED, FULL, depths=DEPTHS, gains=Gains.of("-1=1", binary=True))
    expected = compare_full_ranking(relevant, FIRST, RERANKED, FULL, depths=DEPTHS, gains=Gains(binary=True))
    assert found == expected
    as_labeled = compare_full_ranking(QRELS, FIRST, RERANKED, FULL, depths=DEPTHS, gains=Gains(binary=True))
    assert found.unique != as_labeled.unique

    runs = [
        {query: {d: score for d, score in scores.items() if QRELS[query].get(d) != -1} for query, scores in run.items()}
        for run in (FIRST, RERANKED, FULL)
    ]
    out = compare_full_ranking(QRELS, FIRST, RERANKED, FULL, depths=DEPTHS, gains=Gains.of("-1=out", binary=True))
    assert out == compare_full_ranking(QRELS, *runs, depths=DEPTHS, gains=Gains(binary=True))
    assert out.evaluations != as_labeled.evaluations


def test_the_command(command_line: Command) -> None:
    for name, run in (("bm25", FIRST), ("reranked", RERANKED), ("full", FULL)):
        write_run(run, f"{name}.txt")
    write_qrels(QRELS, "qrels.txt")
    words = ["analyze", "full-ranking", "bm25.txt", "reranked.txt", "full.txt", "--qrels", "qrels.txt", "--binary"]
    words += ["--depths", "5 10 30"]
    code, out, err = command_line(*words, "--json", "--plot", "one.png", "--plot-reranked", "two.png")
    assert (code, err) == (0, "docparade: the plot is in one.png.\ndocparade: the plot is in two.png.\n")
    assert Path("one.png").read_bytes() != Path("two.png").read_bytes()
    compared = compare_full_ranking(QRELS, FIRST, RERANKED, FULL, "AP@100 nDCG@20", DEPTHS, gains=Gains(binary=True))
    content = json.loads(out)
    assert content["runs"]["full ranker"]["means"] == pytest.approx(compared.evaluations["full ranker"].means)
    by_pair = {(entry["found_by"], entry["not_by"], entry["depth"]): entry["share"] for entry in content["unique"]}
    entries = compared.unique["re-ranker", "full ranker"]
    assert [by_pair["re-ranker", "full ranker", depth] for depth in DEPTHS] == [entry.share for entry in entries]
    code, out, _ = command_line(*words)
    lines = [line.split() for line in out.splitlines()]
    assert code == 0 and "not corrected" in out
    assert ["re-ranker,", "not", "full", "ranker", "5", f"{entries[0].share:.4f}"] in [line[:6] for line in lines]
    code, _, err = command_line(*words, "--plot", "full.txt")
    assert code == 2 and "--plot full.txt is the same as FULL" in err
