"""Lists of each fold: parameters tuned on its own queries against a plain search, and runs that are named for it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.recipes import fail, read_files, recipe_folder, succeed, tiny_recipe

from docparade.experiments import runner
from docparade.experiments.cross_validation import cross_validate
from docparade.experiments.data_loading import load_query_set
from docparade.experiments.fold_lists import with_lists_of_fold, with_tested_lists
from docparade.experiments.output_folder import OutputFolder
from docparade.experiments.query_splits import make_folds
from docparade.experiments.recipes.data_recipe import DataRecipe
from docparade.experiments.recipes.merging import merge as merge_recipes
from docparade.experiments.recipes.recipe_loading import load_recipe
from docparade.hub_cards.cards.result_tables import result_tables
from docparade.hub_cards.cards.saved_model import SavedModel
from docparade.retrieval import (
    FirstStage,
    Run,
    load_collection,
    ranking,
    read_qrels,
    read_run,
    retrieve,
    write_run,
)
from docparade.retrieval.errors import InputError
from docparade.retrieval.folds import Fold, read_folds, write_folds
from docparade.retrieval.index.first_stage import PARAMETERS

K1, B = [0.1, 0.9, 3.0], [0.0, 0.4, 1.0]
TUNE = {"k1": K1, "b": B, "queries": "train", "measure": "AP"}
TUNED = {"method": "bm25", "hits": 20, "tune": TUNE}
FAST = {"num_train_epochs": 1, "pairs_per_epoch": 4}


@pytest.fixture(scope="module")
def world(encoder_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    changes = {"data": {"first_stage": TUNED}, "training": FAST}
    with recipe_folder(tmp_path_factory.mktemp("folds"), tiny_recipe(encoder_folder("bert"), changes)) as folder:
        yield folder


@pytest.fixture(scope="module")
def done(world: Path) -> Path:
    """A finished cross-validation."""
    succeed("crossval", "tiny.yaml", "--output", "done")
    return world / "done"


def average_precision(scores: dict[str, float], grades: dict[str, int]) -> float:
    hits, total = 0, 0.0
    for rank, document in enumerate(ranking(scores), start=1):
        if grades.get(document, 0) > 0:
            hits += 1
            total += hits / rank
    return total / sum(grade > 0 for grade in grades.values())


def tune_by_hand(queries: tuple[str, ...]) -> tuple[float, float, Run]:
    """The best k1 and b on some queries, the first of equals, and the lists of all queries with them."""
    judged = read_qrels("small/qrels.txt")
    best: tuple[float, float, float, Run] = (-1.0, 0.0, 0.0, {})
    for k1, b in product(K1, B):
        run = retrieve(load_collection("small"), FirstStage("bm25", k1=k1, b=b), hits=20, progress=False)
        value = sum(average_precision(run.get(query, {}), judged[query]) for query in queries if query in judged)
        if value > best[0] + 1e-12:
            best = (value, k1, b, run)
    return best[1:]


def only_list(folder: Path) -> Run:
    [path] = (folder / "first-stage").glob("small-bm25-*.txt")
    return read_run(path)


@pytest.mark.slow
def test_each_fold_uses_the_best_parameters_on_its_training_queries(done: Path) -> None:
    folds = read_folds(done / "folds.json")
    chosen = set()
    for name, fold in folds.items():
        k1, b, run = tune_by_hand(fold.train)
        [record] = (done / f"fold-{name}/first-stage").glob("*.json")
        content = json.loads(record.read_text())
        assert content["chosen"] == {"method": "bm25", "k1": k1, "b": b}
        assert (content["fold"], content["queries"], content["measure"]) == (name, "train", "AP")
        assert [(trial["k1"], trial["b"]) for trial in content["trials"]] == list(product(K1, B))
        found = only_list(done / f"fold-{name}")
        assert {query: ranking(scores) for query, scores in found.items()} == {
            query: ranking(scores) for query, scores in run.items() if scores
        }
        chosen.add((k1, b))
    assert len(chosen) > 1, "the folds should disagree, or the test shows nothing"


@pytest.mark.slow
def test_the_card_says_what_was_tuned(done: Path) -> None:
    measured = json.loads((done / "fold-s1/model/measured.json").read_text())
    tuned = {"parameters": ["k1", "b"], "queries": "train", "measure": "AP"}
    expected = {"method": "bm25", "hits": 20, "engine": "embedded", "tuned": tuned}
    assert measured["test"][0]["first_stage"] == measured["stages"][0]["data"]["first_stage"] == expected
    [table] = result_tables(SavedModel.read(done / "fold-s1/model"), "org/name")
    assert "First stage: BM25 (k1, b tuned on the train queries of each fold)." in table.about


@pytest.mark.slow
def test_the_first_stage_that_is_measured_is_that_of_the_fold_that_tests(done: Path) -> None:
    first, reranked = read_run(done / "runs/first-stage.txt"), read_run(done / "runs/reranked.txt")
    judged = read_qrels("small/qrels.txt")
    for name, fold in read_folds(done / "folds.json").items():
        own = only_list(done / f"fold-{name}")
        for query in fold.test:
            assert first.get(query) == own.get(query)
            assert set(reranked.get(query, {})) == set(own.get(query, {}))
    values = json.loads((done / "measures.json").read_text())["test"]["runs"]["first stage"]["per_query"]["AP@100"]
    assert values == pytest.approx({q: average_precision(first.get(q, {}), judged[q]) for q in values}, abs=1e-4)


@pytest.mark.slow
def test_lists_that_are_lost_are_made_again_from_the_trials_that_are_left(done: Path, world: Path) -> None:
    again = world / "again"
    shutil.copytree(done, again)
    shutil.rmtree(again / "fold-s2/first-stage")
    [folder] = (again / "first-stage").glob("*-tuning")
    trials = sorted(folder.iterdir())
    assert len(trials) == len(K1) * len(B)
    first, second = trials[:2]
    first.unlink()
    succeed("crossval", "tiny.yaml", "--output", "again")
    assert read_files(again, "first-stage/*/*", "fold-*/first-stage/*", "runs/*") == read_files(
        done, "first-stage/*/*", "fold-*/first-stage/*", "runs/*"
    )
    # A trial that is there is not measured again: the fold believes what it says.
    content = json.loads(second.read_text())
    content["per_query"] = dict.fromkeys(content["per_query"], 2.0)
    second.write_text(json.dumps(content))
    shutil.rmtree(again / "fold-s2/first-stage")
    data = load_recipe("tiny.yaml").data
    queries = load_query_set(data, OutputFolder(again), "data")
    fold = read_folds(again / "folds.json")["s2"]
    with_lists_of_fold(data, queries, "s2", fold, OutputFolder(again / "fold-s2"), OutputFolder(again), "data")
    [record] = (again / "fold-s2/first-stage").glob("*.json")
    assert json.loads(record.read_text())["chosen"] == content["first_stage"]


@pytest.mark.slow
def test_merging_needs_the_folders_of_the_folds_alone(done: Path, world: Path) -> None:
    merged = world / "merged"
    merged.mkdir()
    for fold in ("fold-s1", "fold-s2", "fold-s3"):
        shutil.copytree(done / fold, merged / fold)
    for file in ("resolved.yaml", "versions.json"):
        shutil.copy(done / file, merged / file)
    succeed("crossval", "tiny.yaml", "--output", "merged", "--merge")
    assert read_files(merged, "runs/*", "measures.*") == read_files(done, "runs/*", "measures.*")
    assert not (merged / "first-stage").exists()


@pytest.mark.slow
def test_a_run_that_is_named_for_the_fold_is_its_list(done: Path, world: Path) -> None:
    (world / "lists").mkdir()
    for name in ("s1", "s2", "s3"):
        [path] = (done / f"fold-{name}/first-stage").glob("*.txt")
        shutil.copy(path, world / f"lists/{name}.txt")
    succeed("crossval", "tiny.yaml", "--output", "named", "--data.run", "lists/{fold}.txt", "--fold", "2")
    # The same lists, so the same model and runs.
    assert read_files(world / "named/fold-s2", "runs/*", "model/*.safetensors") == read_files(
        done / "fold-s2", "runs/*", "model/*.safetensors"
    )
    (world / "lists/s3.txt").unlink()
    missing = fail("crossval", "tiny.yaml", "--output", "x", "--data.run", "lists/{fold}.txt")
    assert "tiny.yaml, data.run: lists/s3.txt does not exist" in missing


def test_a_test_set_has_the_list_of_each_query_from_the_fold_that_tests_it(world: Path, tmp_path: Path) -> None:
    section = {"collection": "small", "folds": {"count": 3, "seed": 5}, "birch": [1, 2]}
    tuned = DataRecipe.of({**section, "first_stage": {**TUNED, "tune": {**TUNE, "queries": "train+dev"}}}, "test.1")
    output = OutputFolder(tmp_path)
    queries = load_query_set(tuned, output, "test.1").select_judged()
    assert queries.run == {}
    folds = make_folds(tuned, queries, "test.1")
    found = with_tested_lists(tuned, queries, folds, lambda name: output, output, "test.1")
    assert set(found.run) <= set(queries.queries)
    for name, fold in folds.items():
        _, _, expected = tune_by_hand((*fold.train, *fold.dev))
        for query in fold.test:
            assert ranking(found.run.get(query, {})) == ranking(expected[query])
        write = tmp_path / f"{name}.txt"
        [path] = (tmp_path / "first-stage").glob(f"*-{name}.txt")
        shutil.copy(path, write)
    named = DataRecipe.of({**section, "run": str(tmp_path / "{fold}.txt")}, "test.1")
    assert with_tested_lists(named, queries, folds, lambda name: output, output, "test.1").run == found.run


@pytest.mark.parametrize("other", [{"qrels": "few.txt"}, {"sample": {"style": "shallow", "rate": 0.5}}])
def test_other_judgments_choose_another_list(world: Path, tmp_path: Path, other: dict[str, Any]) -> None:
    lines = Path("small/qrels.txt").read_text().splitlines()
    Path("few.txt").write_text("\n".join(lines[::2]) + "\n")
    output, fold = OutputFolder(tmp_path), Fold(("q0", "q1", "q2"), (), ("q3",))
    stage = {**TUNED, "tune": {**TUNE, "k1": [0.1], "b": [0.0, 1.0]}}
    for change in ({}, other):
        data = DataRecipe.of({"collection": "small", "folds": {"count": 3}, "first_stage": stage, **change}, "data")
        queries = load_query_set(data, output, "data")
        with_lists_of_fold(data, queries, "s1", fold, output, output, "data")
    assert len(list(output.first_stage.glob("*-s1.txt"))) == 2


# The queries q6 and q7 are trained on by both, and tested by none; the query q8 is in no fold.
PARTIAL = {
    "s1": Fold(("q0", "q1", "q6"), ("q2", "q7"), ("q3", "q4", "q5")),
    "s2": Fold(("q3", "q4", "q6"), ("q5", "q7"), ("q0", "q1", "q2")),
}


@pytest.mark.parametrize(("birch", "kept"), [([], 6), ([1], 8)])
def test_queries_that_no_fold_tests_are_left_out_of_a_test_set(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, birch: list[int], kept: int
) -> None:
    write_folds(PARTIAL, "partial.json")
    tested = {"name": "some", "collection": "small", "first_stage": TUNED, "folds": {"file": "partial.json"}}
    content = yaml.safe_load((world / "tiny.yaml").read_text()) | {"data": {"collection": "small"}}
    (world / "partial.yaml").write_text(yaml.safe_dump({**content, "test": {**tested, "birch": birch}}))
    said: list[str] = []
    monkeypatch.setattr(runner.logger, "warning", said.append)
    [queries], settings = runner._load_test_sets(load_recipe("partial.yaml"), OutputFolder(tmp_path))
    assert list(queries.queries) == [f"q{number}" for number in range(kept)] == list(queries.judged())
    assert set(queries.run) <= {query for fold in PARTIAL.values() for query in fold.test}
    assert settings.keys() == ({"some"} if birch else set())
    untested = "test.1.folds: 3 judged queries are tested by no fold, and are not measured: q6, q7, q8."
    assert said == [f"partial.yaml, {untested}"]


def test_lists_that_are_made_again_to_merge_are_tuned_on_the_same_queries(world: Path, tmp_path: Path) -> None:
    write_folds(PARTIAL, "partial.json")
    recipe = load_recipe("tiny.yaml", "", [("data.folds", "{file: partial.json}")])
    before, merged = OutputFolder(tmp_path / "before"), OutputFolder(tmp_path / "merged")
    queries = load_query_set(recipe.data, before, "data")
    for name, fold in PARTIAL.items():
        with_lists_of_fold(recipe.data, queries, name, fold, before.fold(name), before, "data")
        own = merged.fold(name)
        own.runs.mkdir(parents=True)
        own.measures.write_text('{"test": {"first_stage_weight": null}}')
        write_run({query: {"d1": 1.0} for query in fold.test}, own.runs / "test.txt", "x")
    merged.resolved.write_text(recipe.to_yaml())
    cross_validate(recipe, merged.path, merge_only=True)
    lists = ("first-stage/*/*", "fold-*/first-stage/*")
    assert read_files(merged.path, *lists) == read_files(before.path, *lists)


def test_without_lists_of_their_own_folds_share_them(world: Path, tmp_path: Path) -> None:
    data = DataRecipe.of({"collection": "small", "folds": {"count": 3}}, "data")
    queries = load_query_set(data, OutputFolder(tmp_path), "data")
    fold = Fold((), (), ())
    assert with_lists_of_fold(data, queries, "s1", fold, OutputFolder(tmp_path), OutputFolder(tmp_path), "") is queries


def test_another_method_lays_aside_what_it_does_not_use() -> None:
    grid = {"k1": [0.9], "b": [0.4], "feedback_terms": [10, 20], "queries": "dev"}
    below = {"method": "bm25+rm3", "tune": grid}
    assert merge_recipes(below, {"method": "bm25"})["tune"] == {"k1": [0.9], "b": [0.4], "queries": "dev"}
    assert merge_recipes(below, {"hits": 5})["tune"] == grid
    assert merge_recipes(below, {"tune": None})["tune"] is None


def test_every_parameter_can_be_tuned_and_is_kept(world: Path) -> None:
    stage = load_recipe("tiny.yaml").data.first_stage
    assert stage is not None and stage.tune is not None
    assert stage.tune.grid == {"k1": tuple(K1), "b": tuple(B)}
    assert set(PARAMETERS) <= set(vars(stage.tune))
    content = yaml.safe_load(load_recipe("tiny.yaml").to_yaml())
    assert DataRecipe.of(content["stages"]["training"]["data"], "data") == load_recipe("tiny.yaml").data


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "tuning without folds": ({"first_stage": TUNED}, "first_stage.tune is for folds"),
    "a fold's run without folds": ({"run": "{fold}.txt"}, "run is for folds"),
    "a parameter of another method": (
        {"folds": {"count": 3}, "first_stage": {"tune": {"mu": [10]}}},
        "first_stage: tune: mu in the grid belongs to ql",
    ),
    "no parameter": ({"folds": {"count": 3}, "first_stage": {"tune": {"queries": "dev"}}}, "tune: the grid is empty"),
    "no values": ({"folds": {"count": 3}, "first_stage": {"tune": {"k1": []}}}, "tune: the grid is empty"),
    "a value out of range": ({"folds": {"count": 3}, "first_stage": {"tune": {"b": [2.0]}}}, "tune: b must be"),
    "two measures": (
        {"folds": {"count": 3}, "first_stage": {"tune": {"b": [0.4], "measure": "AP P@5"}}},
        "names 2 measures",
    ),
}


@pytest.mark.parametrize(("section", "sentence"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_named_when_the_recipe_is_read(section: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=r"recipe\.yaml, data") as caught:
        DataRecipe.of({"collection": "small", **section}, "recipe.yaml, data")
    assert sentence in str(caught.value)


def test_tuning_on_dev_queries_needs_some(world: Path) -> None:
    options = ("--data.folds.count", "2", "--data.first_stage.tune.queries", "dev", "--output", "x")
    refused = fail("crossval", "tiny.yaml", *options)
    assert "data.first_stage.tune.queries: the folds have no dev queries; tune on train" in refused
