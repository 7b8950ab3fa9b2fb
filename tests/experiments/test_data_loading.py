"""From a recipe's data section to a query set: what the grades of its judgments count."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.collections import make_small_collection

from docparade.experiments import data_loading
from docparade.experiments.data_loading import load_query_set
from docparade.experiments.output_folder import OutputFolder
from docparade.experiments.recipes.data_recipe import DataRecipe
from docparade.retrieval import InputError, Qrels


def judgments(tmp_path: Path, **keys: object) -> Qrels:
    data = DataRecipe.of({"collection": str(tmp_path / "small"), **keys}, "data")
    return load_query_set(data, OutputFolder(tmp_path / "out"), "data").qrels


def test_gains_are_those_of_the_recipe(tmp_path: Path) -> None:
    grades = make_small_collection(tmp_path / "small").qrels
    assert judgments(tmp_path) == grades
    assert judgments(tmp_path, gains="1=2,2=1") == {"q1": {"d1": 1, "d2": 0}, "q2": {"d4": 2, "d6": 2}}
    assert judgments(tmp_path, binary=True) == {"q1": {"d1": 1, "d2": 0}, "q2": {"d4": 1, "d6": 1}}
    assert judgments(tmp_path, binary=True, gains="0=3")["q1"] == {"d1": 1, "d2": 1}
    with pytest.raises(InputError, match=r"data\.gains: .*grade 1"):
        judgments(tmp_path, gains="2=1")


def test_codes_that_are_no_gains_are_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_small_collection(tmp_path / "small")
    monkeypatch.setattr("docparade.retrieval.evaluation.gains.LOWEST_IS_BEST", (str(tmp_path / "small"),))
    data_loading._say_misread.cache_clear()
    for keys in ({"binary": True}, {"gains": "1=2,2=1"}, {"qrels": str(tmp_path / "small/qrels.txt")}, {}, {}):
        judgments(tmp_path, **keys)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "upside down" in said and " data: " in said
