"""What is written about the runs on a test set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docparade.experiments.experiment_results import Results, measure, write_measures
from docparade.experiments.output_folder import OutputFolder
from docparade.experiments.recipes.rerank_recipe import SignificanceRecipe
from docparade.retrieval import Qrels, Run

QUERIES = [f"q{number}" for number in range(6)]
QRELS: Qrels = {query: {"a": 1, "b": 0} for query in QUERIES}
# The first stage is right about the first query alone, the ranker about all but the last.
FIRST: Run = {query: {"a": 2.0 if query == "q0" else 1.0, "b": 1.5} for query in QUERIES}
RERANKED: Run = {query: {"a": 1.0 if query == "q5" else 2.0, "b": 1.5} for query in QUERIES}


@pytest.fixture
def results() -> Results:
    return measure("dev", {"first stage": FIRST, "reranked": RERANKED}, QRELS, "P@1 RR@2", weight=0.3)


def test_runs_are_measured_and_compared_with_the_first_stage(results: Results) -> None:
    content = results.to_dict()
    assert (content["queries"], content["baseline"], content["first_stage_weight"]) == (6, "first stage", 0.3)
    first, reranked = content["runs"]["first stage"], content["runs"]["reranked"]
    assert first["means"] == pytest.approx({"P@1": 1 / 6, "RR@2": (1 + 5 * 0.5) / 6})
    assert reranked["means"] == pytest.approx({"P@1": 5 / 6, "RR@2": (5 + 0.5) / 6})
    assert reranked["per_query"]["P@1"] == {**dict.fromkeys(QUERIES, 1.0), "q5": 0.0}
    assert first["significance"] == {}
    assert reranked["significance"].keys() == {"P@1", "RR@2"}


def test_the_files_hold_every_test_set(results: Results, tmp_path: Path) -> None:
    other = measure("test", {"first stage": FIRST}, {"q0": QRELS["q0"]}, "P@1")
    write_measures([results, other], OutputFolder(tmp_path))
    text = (tmp_path / "measures.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"dev": results.to_dict(), "test": other.to_dict()}
    lines = (tmp_path / "measures.md").read_text(encoding="utf-8").splitlines()
    assert lines[:4] == [
        "| dev | P@1 | RR@2 |",
        "|---|---|---|",
        "| first stage | 0.1667 | 0.5833 |",
        "| reranked | 0.8333 | 0.9167 |",
    ]
    assert "6 judged queries, against the first stage: † p < .05" in lines[5] and "over 2 tests" in lines[5]
    assert lines[7:10] == ["| test | P@1 |", "|---|---|", "| first stage | 1.0000 |"]


def test_an_interpolated_run_is_tested_if_asked_for() -> None:
    runs = {"first stage": FIRST, "reranked": RERANKED, "interpolated": RERANKED}
    alone = measure("dev", {"first stage": FIRST, "reranked": RERANKED}, QRELS, "P@1 RR@2")
    default = measure("dev", runs, QRELS, "P@1 RR@2")
    assert default.tests == alone.tests and default.caption == alone.caption
    assert list(default.evaluations) == list(runs)
    counted = measure("dev", runs, QRELS, "P@1 RR@2", significance=SignificanceRecipe(interpolated=True))
    p = alone.tests["reranked"]["P@1"].p_value
    assert alone.tests["reranked"]["P@1"].corrected == pytest.approx(2 * p)
    assert counted.tests["reranked"]["P@1"].corrected == pytest.approx(4 * p)
    assert counted.tests["interpolated"] == counted.tests["reranked"]
    uncorrected = measure("dev", runs, QRELS, "P@1 RR@2", significance=SignificanceRecipe(correction="none"))
    assert uncorrected.tests["reranked"]["P@1"].corrected == p
    assert uncorrected.to_dict()["correction"] == "none" and uncorrected.caption.endswith("2 tests, not corrected)")


def test_significant_differences_are_marked() -> None:
    better = {query: {"a": 2.0 if query != "q0" else 1.0, "b": 1.5} for query in QUERIES}
    worse = {query: {"a": 1.0, "b": 1.5} for query in QUERIES}
    rows = measure("dev", {"first stage": worse, "reranked": better}, QRELS, "P@1").rows()
    assert [row[1] for row in rows] == ["0.0000 ", "0.8333‡"]
