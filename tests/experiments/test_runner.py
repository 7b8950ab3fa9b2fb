"""Recipes that are really run: tiny encoder, tiny collection, the real commands."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from peft import PeftModel
from safetensors.torch import load_file
from support.project import PROJECT, WORDS
from support.recipes import QUERIES, RESULTS, fail, read_files, recipe_folder, succeed, tiny_recipe
from transformers import AutoModel

from docparade.experiments.model_building import build_model
from docparade.experiments.recipes.recipe_loading import load_recipe
from docparade.hub_cards import write_card
from docparade.retrieval import (
    cut,
    evaluate,
    interpolate,
    k_folds,
    load_collection,
    read_folds,
    read_qrels,
    read_run,
    retrieve,
    write_run,
)
from docparade.retrieval.birch import cross_validate_birch, read_passage_scores
from docparade.retrieval.collections.union import CollectionUnion
from docparade.retrieval.storage.files import read_lines


@pytest.fixture(scope="module")
def world(encoder_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with recipe_folder(tmp_path_factory.mktemp("world"), tiny_recipe(encoder_folder("bert"))) as folder:
        yield folder


@pytest.fixture(scope="module")
def whole(world: Path) -> Path:
    """The run that nobody stopped."""
    succeed("train", "tiny.yaml", "--data.fold", "1", "--output", "whole")
    return world / "whole"


def test_a_run_leaves_its_recipe_versions_and_history(whole: Path) -> None:
    recipe = load_recipe(whole / "resolved.yaml")
    assert recipe.to_yaml() == (whole / "resolved.yaml").read_text()
    assert recipe.data.fold == "1"
    assert set(json.loads((whole / "versions.json").read_text())) >= {"python", "torch", "transformers", "docparade"}
    assert len(list((whole / "first-stage").glob("small-bm25-*.txt"))) == 1
    measured = json.loads((whole / "model" / "measured.json").read_text())
    assert [entry["epoch"] for entry in measured["history"]] == [1, 2, 3]
    assert measured["recipe"] == "tiny"
    assert measured["parameters"] == sum(
        tensor.numel() for tensor in load_file(whole / "model" / "model.safetensors").values()
    )
    assert measured["best"]["nDCG@5"] == max(entry["nDCG@5"] for entry in measured["history"])
    assert measured["test"][0]["runs"]["reranked"]["means"]["nDCG@5"] == measures(whole)["reranked"]["nDCG@5"]
    assert not (whole / "model" / "training_args.bin").exists()


def measures(folder: Path, name: str = "test") -> dict[str, dict[str, float]]:
    content = json.loads((folder / "measures.json").read_text())[name]
    return {run: entry["means"] for run, entry in content["runs"].items()}


def test_what_was_measured_is_what_the_runs_measure(whole: Path) -> None:
    fold = k_folds(load_collection("small").qrels(), 3)["s1"]
    judged = {query: grades for query, grades in read_qrels("small/qrels.txt").items() if query in fold.test}
    reranked = read_run(whole / "runs/test.txt")
    assert set(reranked) <= set(fold.test)
    [path] = (whole / "first-stage").glob("*.txt")
    first = {query: scores for query, scores in read_run(path).items() if query in fold.test}
    found = measures(whole)
    assert found["first stage"] == evaluate(judged, first, "nDCG@5 AP@100").means
    assert found["reranked"] == evaluate(judged, reranked, "nDCG@5 AP@100").means
    fused = read_run(whole / "runs/test-interpolated.txt")
    assert found["interpolated"] == evaluate(judged, fused, "nDCG@5 AP@100").means
    assert f"{found['reranked']['nDCG@5']:.4f}" in (whole / "measures.md").read_text()


def test_the_interpolation_is_that_of_the_documents_that_were_read(whole: Path) -> None:
    weight = json.loads((whole / "measures.json").read_text())["test"]["first_stage_weight"]
    assert weight in [step / 10 for step in range(11)]
    reranked = cut(read_run(whole / "runs/test.txt"), 8)
    [path] = (whole / "first-stage").glob("*.txt")
    first = read_run(path)
    among = {query: {d: first[query][d] for d in found} for query, found in reranked.items()}
    expected = interpolate([among, reranked], [weight, 1 - weight], "zscore")
    fused = cut(read_run(whole / "runs/test-interpolated.txt"), 8)
    for query, scores in expected.items():
        assert fused[query] == pytest.approx(scores)


def test_the_test_run_is_what_the_saved_model_gives(whole: Path) -> None:
    model = AutoModel.from_pretrained(whole / "model")
    collection = load_collection("small")
    [(query, scores), *_] = cut(read_run(whole / "runs/test.txt"), 8).items()
    pairs = [(collection.queries()[query], vars(collection.document(name))) for name in scores]
    assert model.score(pairs) == pytest.approx(list(scores.values()), abs=1e-5)


def test_what_is_done_is_not_repeated(whole: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.suffix in (".safetensors", ".txt")}
    results = read_files(whole, *RESULTS)
    succeed("train", "tiny.yaml", "--data.fold", "1", "--output", "whole")
    unchanged = [path for path, changed in before.items() if path.stat().st_mtime_ns == changed]
    assert {path.relative_to(whole).as_posix() for path in before.keys() - unchanged} <= {"runs/test-interpolated.txt"}
    assert read_files(whole, *RESULTS) == results


@pytest.mark.slow
def test_two_processes_measure_what_one_does(world: Path, encoder_folder: Callable[..., Path]) -> None:
    # Dropout is drawn for each process apart: without it, both learn the same.
    shutil.copytree(encoder_folder("bert"), world / "steady")
    config = json.loads((world / "steady/config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (world / "steady/config.json").write_text(json.dumps(config))
    words = ["tiny.yaml", "--data.fold", "1", "--model.encoder", "steady"]
    succeed("train", *words, "--output", "one")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    script = [str(PROJECT / "scripts/train.py"), *words, "--output", "two"]
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run([*launcher, *script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    settings = json.loads((world / "two/model/measured.json").read_text())["arguments"]
    assert settings["per_device_train_batch_size"] == 2  # of 4 pairs
    assert done.stdout.count("judged queries") == 1
    assert measures(world / "two") == measures(world / "one")
    one, two = (read_run(world / name / "runs/test.txt") for name in ("one", "two"))
    assert all(two[query] == pytest.approx(scores, abs=1e-3) for query, scores in one.items())


@pytest.fixture(scope="module")
def folds(world: Path) -> Path:
    succeed("crossval", "tiny.yaml", "--output", "folds")
    return world / "folds"


def test_cross_validation_tests_every_query_once(folds: Path) -> None:
    made = read_folds(folds / "folds.json")
    judged = read_qrels("small/qrels.txt")
    assert made == k_folds(judged, 3)
    reranked = read_run(folds / "runs/reranked.txt")
    for name, fold in made.items():
        tested = read_run(folds / f"fold-{name}/runs/test.txt")
        assert set(tested) <= set(fold.test)
        assert all(reranked[query] == scores for query, scores in tested.items())
    found = measures(folds)
    for label in ("reranked", "interpolated"):
        run = read_run(folds / f"runs/{label}.txt")
        assert found[label] == pytest.approx(evaluate(judged, run, "nDCG@5 AP@100").means)
    assert first_stage_weight(folds) == {name: first_stage_weight(folds / f"fold-{name}") for name in made}


def first_stage_weight(folder: Path) -> Any:
    return json.loads((folder / "measures.json").read_text())["test"]["first_stage_weight"]


def test_two_folds_leave_no_queries_to_choose_a_weight_on(world: Path) -> None:
    succeed("crossval", "tiny.yaml", "--data.folds.count", "2", "--output", "two-folds")
    assert set(measures(world / "two-folds")) == {"first stage", "reranked"}
    assert first_stage_weight(world / "two-folds") == {"s1": None, "s2": None}
    assert {path.name for path in (world / "two-folds/runs").iterdir()} == {"first-stage.txt", "reranked.txt"}
    another = fail("crossval", "tiny.yaml", "--data.folds.count", "2", "--seed", "7", "--output", "two-folds")
    assert "two-folds holds the results of another recipe (seed is 7, and was 42)" in another


def test_a_full_ranker_learns_from_whole_lists_without_a_dev_part(world: Path) -> None:
    """As in Ghasemi and Hiemstra (2021); the first stage found nothing for the query q0."""
    lists = retrieve(load_collection("small"), hits=30)
    write_run({query: found for query, found in lists.items() if query != "q0"}, world / "lists.txt")
    changes = {
        "data": {"name": "small", "collection": "small", "run": "lists.txt", "folds": {"count": 3, "dev": False}},
        "training": {"examples": "lists", "loss": "cross_entropy", "max_rank": 8, "num_train_epochs": 1},
        "rerank": {"candidates": "all"},
    }
    succeed("crossval", recipe_with(world, "full-folds", **changes))
    folder = world / "outputs/full-folds"
    judged = read_qrels("small/qrels.txt")
    made = read_folds(folder / "folds.json")
    assert made == k_folds(judged, 3, dev=False)
    assert set(measures(folder)) == {"first stage", "reranked"}
    full = read_run(folder / "runs/reranked.txt")
    assert full.keys() == judged.keys() and "q0" in full
    assert all(len(found) == 30 for found in full.values())
    for name, fold in made.items():
        # One pass over the lists, and the last model is taken.
        examples = sum(min(8, len(lists[query])) for query in fold.train if query != "q0")
        last = folder / f"fold-{name}/checkpoints/checkpoint-{math.ceil(examples / 8)}/model.safetensors"
        assert last.read_bytes() == (folder / f"fold-{name}/model/model.safetensors").read_bytes()
        assert json.loads((folder / f"fold-{name}/model/measured.json").read_text())["history"] == []


def test_a_fold_is_trained_as_train_does(folds: Path, whole: Path) -> None:
    same = ("runs/*", "model/*.safetensors", "measures.*")
    assert read_files(folds / "fold-s1", *same) == read_files(whole, *same)


@pytest.mark.slow
def test_folds_of_several_machines_are_merged_to_the_same(folds: Path, world: Path) -> None:
    succeed("crossval", "tiny.yaml", "--output", "machine1", "--fold", "1")
    succeed("crossval", "tiny.yaml", "--output", "machine2", "--fold", "s2")
    lacking = fail("crossval", "tiny.yaml", "--output", "machine1", "--merge")
    assert "machine1 lacks the folds s2, s3" in lacking
    shutil.copytree(world / "machine2/fold-s2", world / "machine1/fold-s2")
    trained = read_files(world / "machine1/fold-s2", "model/*")
    # The folds that are there are not repeated, the third is run.
    succeed("crossval", "tiny.yaml", "--output", "machine1")
    assert read_files(world / "machine1/fold-s2", "model/*") == trained
    expected = read_files(folds, *RESULTS)
    assert read_files(world / "machine1", *RESULTS) == expected
    shutil.rmtree(world / "machine1/runs")
    out = succeed("crossval", "tiny.yaml", "--output", "machine1", "--merge", "--json")
    assert json.loads(out) == json.loads(expected["measures.json"])
    assert read_files(world / "machine1", *RESULTS) == expected


def test_a_fold_file_decides_the_folds(world: Path, folds: Path) -> None:
    content = json.loads((folds / "folds.json").read_text())
    content["s1"], content["s3"] = content["s3"], content["s1"]
    (world / "swapped.json").write_text(json.dumps(content))
    succeed("crossval", "tiny.yaml", "--data.folds.file", "swapped.json", "--output", "swapped", "--fold", "3")
    same = ("runs/*", "model/*.safetensors")
    assert read_files(world / "swapped/fold-s3", *same) == read_files(folds / "fold-s1", *same)


def recipe_with(world: Path, name: str, **changes: Any) -> str:
    content = yaml.safe_load((world / "tiny.yaml").read_text())
    (world / f"{name}.yaml").write_text(yaml.safe_dump({**content, "name": name, **changes}, sort_keys=False))
    return f"{name}.yaml"


def test_a_stage_starts_from_the_best_checkpoint_of_the_last(world: Path) -> None:
    lines = [{"query": WORDS[i], "positive": f"{WORDS[i]} {WORDS[i + 1]}", "negatives": [WORDS[-i]]} for i in range(20)]
    (world / "triples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    # A learning rate that changes no weight: what comes out is what went in.
    stages = {
        "triples": {"data": {"triples": "triples.jsonl"}},
        "documents": {
            "model": {"aggregation": "kmax_avg", "k": 2},
            "data": {"collection": "small", "validation_share": 0.3},
            "training": {"learning_rate": 1e-30},
        },
    }
    path = recipe_with(world, "staged", stages=stages, data=None, test={"name": "all", "collection": "small"})
    succeed("train", path)
    folder = world / "outputs/staged"
    first, last = (
        load_file(path / "model.safetensors") for path in (folder / "stages/triples/model", folder / "model")
    )
    assert all(torch.equal(first[name], last[name]) for name in first)
    fresh = build_model(load_recipe(path).stages[0].model, path).state_dict()
    assert not torch.equal(first["encoder.classifier.weight"], fresh["encoder.classifier.weight"])
    config = AutoModel.from_pretrained(folder / "model").config
    assert (config.aggregation, config.k) == ("kmax_avg", 2)
    # A run that was killed in the second stage does not repeat the first.
    stamp = (folder / "stages/triples/model/model.safetensors").stat().st_mtime_ns
    results = read_files(folder, *RESULTS)
    for made in ("model", "runs", "checkpoints"):
        shutil.rmtree(folder / made)
    (world / "triples.jsonl").rename(world / "elsewhere.jsonl")
    succeed("train", path)
    (world / "elsewhere.jsonl").rename(world / "triples.jsonl")
    assert (folder / "stages/triples/model/model.safetensors").stat().st_mtime_ns == stamp
    assert read_files(folder, *RESULTS) == results


def test_the_best_passages_are_learned_from(world: Path) -> None:
    passage_filter = {"scorer": "first", "keep": 2, "max_passages": 3}
    stages = {
        "first": {"data": {"triples": "one.jsonl"}},
        "filtered": {
            "model": {"selection": "first"},
            "data": {"collection": "small", "passage_filter": passage_filter, "validation_share": 0.3},
        },
    }
    (world / "one.jsonl").write_text('{"query": "a", "positive": "b", "negatives": ["c"]}\n')
    succeed("train", recipe_with(world, "filtered", stages=stages, data=None, test={"collection": "small"}))
    folder = world / "outputs/filtered"
    lines = [json.loads(line) for _, line in read_lines(folder / "passages.jsonl.gz")]
    collection = load_collection("small")
    texts = {document.id: document.text for document in collection.documents()}
    relevant = {
        text: [texts[name] for name, grade in collection.qrels().get(query, {}).items() if grade > 0]
        for query, text in collection.queries().items()
    }
    # Two passages, of twelve tokens each, of every relevant document of the training queries.
    trained = Counter(line["query"] for line in lines)
    assert trained == {query: 2 * len(relevant[query]) for query in trained}
    assert 0 < len(trained) < sum(map(bool, relevant.values()))
    for line in lines:
        # The first three of twelve tokens each, one every eight tokens.
        assert any(line["positive"] in " ".join(text.split()[:28]) for text in relevant[line["query"]])
        assert len(line["positive"].split()) <= 12
    first, last = (load_file(path / "model/model.safetensors") for path in (folder / "stages/first", folder))
    assert any(not torch.equal(first[name], last[name]) for name in first)


def test_distillation_from_layers_of_the_teacher(whole: Path, world: Path) -> None:
    teacher = str(whole / "model")
    succeed("distill", "tiny.yaml", "--teacher", teacher, "--layers", "1", "--data.fold", "1")
    folder = world / "outputs/tiny-distilled"
    student = AutoModel.from_pretrained(folder / "model")
    assert student.config.encoder_config.num_hidden_layers == 1
    assert len(list(folder.glob("checkpoints/teacher_scores/*/part-*.json"))) >= 1
    resolved = load_recipe(folder / "resolved.yaml").stages[0]
    assert (resolved.teacher, resolved.training["loss"], resolved.model.layers) == (teacher, "distillation", (1,))
    assert "name the student" in fail("distill", "tiny.yaml", "--teacher", teacher)


def test_lora_saves_an_adapter_that_loads(world: Path) -> None:
    succeed("train", "tiny.yaml", "--data.fold", "1", "--lora", "true", "--output", "lora")
    folder = world / "lora"
    stage = load_recipe(folder / "resolved.yaml").stages[0]
    plain = build_model(stage.model, "model")
    pair = [("a query", "a document")]
    before = plain.score(pair)
    adapted = PeftModel.from_pretrained(plain, folder / "adapter")
    trained = AutoModel.from_pretrained(folder / "model")
    assert adapted.get_base_model().score(pair) == pytest.approx(trained.score(pair), abs=1e-5)
    assert before != pytest.approx(trained.score(pair), abs=1e-5)
    frozen = "encoder.bert.embeddings.word_embeddings.weight"
    assert torch.equal(trained.state_dict()[frozen], build_model(stage.model, "model").state_dict()[frozen])


def test_all_documents_are_candidates_of_a_full_ranker(world: Path, whole: Path) -> None:
    succeed("train", "tiny.yaml", "--data.fold", "1", "--rerank.candidates", "all", "--output", "full")
    full = read_run(world / "full/runs/test.txt")
    assert all(len(found) == 30 for found in full.values())
    assert read_files(world / "full", "model/*.safetensors") == read_files(whole, "model/*.safetensors")
    for query, scores in cut(read_run(whole / "runs/test.txt"), 8).items():
        assert {name: full[query][name] for name in scores} == pytest.approx(scores, abs=1e-5)


@pytest.mark.parametrize("candidates", ["first_stage", "all"])
def test_sentences_are_interpolated_by_birchs_grid(candidates: str, world: Path) -> None:
    test = {"name": "birch", "collection": "small", "folds": {"count": 3}, "birch": [1, 3]}
    data = {"collection": "small", "validation_share": 0.3}
    rerank = {"depth": 8, "candidates": candidates, "processor": {"preset": "yang2019", "max_length": 32}}
    succeed("train", recipe_with(world, f"birch-{candidates}", data=data, test=test, rerank=rerank))
    folder = world / f"outputs/birch-{candidates}"
    [path] = (folder / "first-stage").glob("birch-*.txt")
    first, passages = cut(read_run(path), 8), read_passage_scores(folder / "runs/birch-passages.jsonl")
    judged = read_qrels("small/qrels.txt")
    found = measures(folder, "birch")
    assert set(found) == {"first stage", "reranked", "interpolated", "birch-1s", "birch-3s"}
    recorded = json.loads((folder / "measures.json").read_text())["birch"]["birch_weights"]
    # One training and one reading of the sentences give the runs for every number of them.
    for count in (1, 3):
        label = f"birch-{count}s"
        expected, weights = cross_validate_birch(first, passages, judged, k_folds(judged, 3), count)
        run = read_run(folder / f"runs/birch-{label}.txt")
        assert run.keys() == expected.keys() == first.keys()
        assert all(run[query] == pytest.approx(scores, rel=1e-6) for query, scores in expected.items())
        assert found[label] == pytest.approx(evaluate(judged, run, "nDCG@5 AP@100").means)
        assert recorded[label] == {
            fold: {"document": one.document, "passages": list(one.passages)} for fold, one in weights.items()
        }


def test_collections_are_taken_together_and_left_out_in_turn(world: Path) -> None:
    other = world / "other"
    shutil.copytree(world / "small", other)
    for name in ("queries.tsv", "qrels.txt"):
        (other / name).write_text((other / name).read_text().replace("q", "r"))
    (other / "docs.jsonl").write_text((other / "docs.jsonl").read_text().replace(': "d', ': "e'))
    (other / "qrels.txt").write_text((other / "qrels.txt").read_text().replace(" d", " e"))
    union = CollectionUnion([load_collection("small"), load_collection("other")])
    assert len(union) == 60
    assert len(union.queries()) == 2 * QUERIES
    assert union.document("e3").text == union.document("d3").text
    data = {"collection": ["small", "other"], "folds": {"leave_one_out": True, "dev_share": 0.3}}
    succeed("crossval", recipe_with(world, "years", data=data), "--fold", "2")
    folds = read_folds(world / "outputs/years/folds.json")
    assert set(folds["s2"].test) == set(load_collection("other").qrels())
    assert not set(folds["s2"].train) & set(folds["s2"].dev)
    assert set(read_run(world / "outputs/years/fold-s2/runs/test.txt")) <= set(folds["s2"].test)


def test_a_sample_of_the_queries_is_measured(world: Path, whole: Path) -> None:
    [first] = (whole / "first-stage").glob("*.txt")
    data = {"collection": "small"}
    validation = {"name": "few", "collection": "small", "run": str(first), "max_queries": 3}
    test = {"name": "some", "collection": "small", "max_queries": 5}
    succeed("train", recipe_with(world, "sample", data=data, validation=validation, test=test))
    folder = world / "outputs/sample"
    assert len(read_run(folder / "runs/validation-few.txt")) == 3
    content = json.loads((folder / "measures.json").read_text())["some"]
    assert content["queries"] == 5
    assert set(read_run(folder / "runs/some.txt")) <= set(content["runs"]["reranked"]["per_query"]["nDCG@5"])


def test_mistakes_are_reported_in_one_sentence(world: Path, whole: Path) -> None:
    assert "data.folds: there are several; train on one with --data.fold 1" in fail("train", "tiny.yaml")
    assert "there is no fold 7; the folds are s1, s2, s3" in fail("train", "tiny.yaml", "--data.fold", "7")
    another = fail("train", "tiny.yaml", "--data.fold", "1", "--seed", "7", "--output", "whole")
    assert "whole holds the results of another recipe (seed is 7, and was 42)" in another
    assert "--seed has no value" in fail("train", "tiny.yaml", "--seed")
    assert "'seven' is not an option" in fail("train", "tiny.yaml", "seven")
    assert "there is no key trainig; did you mean training?" in fail("train", "tiny.yaml", "--trainig.seed", "7")
    missing = fail("train", "tiny.yaml", "--data.fold", "1", "--data.run", "bm52.txt", "--output", "x")
    assert "tiny.yaml, data.run: bm52.txt does not exist" in missing
    encoder = fail("train", "tiny.yaml", "--data.fold", "1", "--model.encoder", "./nowhere", "--output", "x")
    assert "tiny.yaml, model.encoder: ./nowhere cannot be loaded: there is no such folder." in encoder
    package = fail(
        "train", "tiny.yaml", "--data.fold", "1", "--model.encoder", "package:no_such/model", "--output", "x"
    )
    assert "the package no_such, which has these weights, is not installed" in package
    shutil.copytree(world / "small", world / "unjudged")
    (world / "unjudged/qrels.txt").unlink()
    unjudged = fail("train", "tiny.yaml", "--data.fold", "1", "--data.collection", "unjudged", "--output", "x")
    assert "tiny.yaml, data.collection: the collection unjudged has no qrels.txt; add the file." in unjudged
    (world / "taken").mkdir()
    (world / "taken/something").write_text("")
    taken = fail("train", "tiny.yaml", "--data.fold", "1", "--output", "taken")
    assert "taken is not empty, and holds no results of a recipe" in taken
    (world / "file").write_text("")
    for output in ("file", "file/below"):
        made = fail("train", "tiny.yaml", "--data.fold", "1", "--output", output)
        assert f"--output {output} cannot be made: " in made and "file is a file; name another folder." in made
    (world / "taken/resolved.yaml").write_text("{[")
    damaged = fail("train", "tiny.yaml", "--data.fold", "1", "--output", "taken")
    assert "taken/resolved.yaml cannot be read; restore it from a copy, or choose another folder" in damaged
    odd = fail("train", "tiny.yaml", "--data.fold", "1", "--training.gradient_accumulation_steps", "3", "--output", "x")
    assert "training.batch_size: 4 pairs cannot be divided evenly among 1 processes" in odd
    assert "use one of them" in fail("crossval", "tiny.yaml", "--fold", "1", "--merge")
    assert "data.folds: are missing" in fail("crossval", recipe_with(world, "none", data={"collection": "small"}))


def test_lists_with_documents_that_are_not_there(world: Path, whole: Path) -> None:
    [first] = (whole / "first-stage").glob("*.txt")
    (world / "strange.txt").write_text(first.read_text().replace(" d1 ", " d99 "))
    strange = ("--data.run", "strange.txt", "--output", "strange")
    assert "tiny.yaml, data: small/docs.jsonl has no document d99." in fail(
        "train", "tiny.yaml", "--data.fold", "1", *strange
    )
    # Judged, but not retrieved: it is read if all judged documents are trained on.
    (world / "strange.qrels").write_text((world / "small/qrels.txt").read_text() + "q3 0 d98 1\n")
    judged = ("--data.qrels", "strange.qrels", "--training.unretrieved_positives", "true", "--output", "judged")
    assert "tiny.yaml, data: small/docs.jsonl has no document d98." in fail(
        "train", "tiny.yaml", "--data.fold", "1", *judged
    )
    test = {"name": "strange", "collection": "small", "run": "strange.txt"}
    path = recipe_with(world, "strange-test", data={"collection": "small", "validation_share": 0.3}, test=test)
    told = fail("train", path)
    assert "strange-test.yaml, test.1.run: query " in told and "has no document d99." in told
    assert not (world / "outputs/strange-test/checkpoints").exists()  # nothing was trained before


def test_a_fold_that_was_copied_badly(folds: Path, world: Path) -> None:
    shutil.copytree(folds, world / "copied")
    (world / "copied/fold-s2/measures.json").write_text("{")
    told = fail("crossval", "tiny.yaml", "--output", "copied", "--merge")
    assert "copied/fold-s2/measures.json is damaged; copy the fold's folder again" in told


def test_a_training_that_diverges(world: Path) -> None:
    told = fail("train", "tiny.yaml", "--data.fold", "1", "--training.learning_rate", "1e30", "--output", "diverged")
    assert "validation set dev: The score of document d" in told
    assert "Training has diverged: lower learning_rate." in told


def test_without_epochs_an_encoder_decoder_is_measured_as_it_is(
    world: Path, seq2seq_folder: Callable[..., Path]
) -> None:
    source = ("--model.cross_encoder", str(seq2seq_folder()), "--model.max_length", "64")
    once = ("train", "tiny.yaml", "--data.fold", "1", *source)
    succeed(*once, "--training.num_train_epochs", "0", "--output", "zero-shot")
    recipe = load_recipe(world / "zero-shot" / "resolved.yaml")
    plain = build_model(recipe.stages[0].model, "here")
    trained = AutoModel.from_pretrained(world / "zero-shot" / "model")
    documents = [document.text for document in load_collection("small").documents()]
    pairs = [("license work", text) for text in documents[:4]]
    assert trained.score(pairs) == pytest.approx(plain.score(pairs), abs=1e-6)
    assert json.loads((world / "zero-shot" / "model" / "measured.json").read_text())["stages"] == []
    assert measures(world / "zero-shot")["reranked"]["nDCG@5"] > 0
    text = write_card(world / "zero-shot" / "model").read_text()
    assert "trained on" not in text and "learning_rate" not in text
    succeed(*once, "--training.num_train_epochs", "1", "--output", "trained")
    assert AutoModel.from_pretrained(world / "trained" / "model").score(pairs) != pytest.approx(plain.score(pairs))


@pytest.mark.slow
def test_spawned_workers_build_the_same_batches(world: Path) -> None:
    """As on macOS, Windows and Python 3.14, where workers get everything by pickle."""
    once = ("tiny.yaml", "--data.fold", "1", "--training.num_train_epochs", "1")
    succeed("train", *once, "--output", "no-workers")
    spawn = ("--training.dataloader_num_workers", "1")  # which are spawned, as forked ones could hang
    succeed("train", *once, *spawn, "--output", "workers")
    assert read_files(world / "workers", "model/*.safetensors") == read_files(
        world / "no-workers", "model/*.safetensors"
    )
