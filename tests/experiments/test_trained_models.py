"""A variant that differs only in its tests takes the model of the other one, and is as if it had been trained."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.recipes import RESULTS, read_files, recipe_folder, succeed, tiny_recipe

from docparade.experiments import trained_models
from docparade.experiments.recipes.merging import variants
from docparade.experiments.recipes.recipe_loading import load_recipe
from docparade.experiments.trained_models import training_of

SMALLER = {
    "model": {"max_passages": 2},
    "training": {"num_train_epochs": 1, "pairs_per_epoch": 4, "rerank_depth": 2},
    "rerank": {"depth": 3},
    "measures": "nDCG@5",
}
OTHER_TESTS = ("--rerank.depth", "4", "--rerank.processor.max_passages", "1", "--measures", "AP nDCG@5")
TAKEN = "was trained the same, and is taken"


@pytest.fixture(scope="module")
def world(encoder_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with recipe_folder(tmp_path_factory.mktemp("taken"), tiny_recipe(encoder_folder("bert"), SMALLER)) as folder:
        # Contents of the encoder are changed below.
        shutil.copytree(encoder_folder("bert"), folder / "encoder")
        content = yaml.safe_load((folder / "tiny.yaml").read_text())
        content["model"]["encoder"] = "encoder"
        (folder / "tiny.yaml").write_text(yaml.safe_dump(content))
        yield folder


@pytest.fixture(scope="module")
def base(world: Path) -> Path:
    run("train", "outputs/base")
    return world / "outputs/base"


def run(command: str, output: str, *words: str, recipe: str = "tiny.yaml") -> str:
    """What the module says while a command succeeds; `train` trains the first fold."""
    fold = ("--data.fold", "1") if command == "train" and recipe == "tiny.yaml" else ()
    with pytest.MonkeyPatch.context() as patch:
        said: list[str] = []
        patch.setattr(trained_models.logger, "warning", said.append)
        succeed(command, recipe, "--output", output, *fold, *words)
    return "\n".join(said)


def was_trained(folder: Path) -> bool:
    return (folder / "checkpoints").exists()


def test_a_variant_in_its_tests_alone_takes_the_model(base: Path, world: Path) -> None:
    said = run("train", "outputs/read", *OTHER_TESTS)
    assert said.count(TAKEN) == 1 and "outputs/base" in said
    taken = world / "outputs/read"
    assert not was_trained(taken)
    record = json.loads((taken / "trained.json").read_text())
    assert record["taken_from"] == "base"
    # All of it is what training it would have given, also after its model was taken in turn.
    run("train", "elsewhere/read", *OTHER_TESTS)
    trained = world / "elsewhere/read"
    assert was_trained(trained)
    assert read_files(taken, *RESULTS) == read_files(trained, *RESULTS)
    assert read_files(taken, "runs/*") != read_files(base, "runs/*")
    assert set(read_files(taken, "model/*")) == set(read_files(trained, "model/*"))
    shutil.move(base, world / "away")
    try:
        assert TAKEN in run("train", "outputs/again", *OTHER_TESTS, "--rerank.depth", "5")
    finally:
        shutil.move(world / "away", base)
    weights = base / "model/model.safetensors"
    assert (taken / "model/model.safetensors").samefile(weights), "variants share the space"


def takes(folder: Path, *changes: tuple[str, str]) -> bool:
    """Whether a variant in this folder takes the model of `base`; nothing is trained."""
    recipe = load_recipe("tiny.yaml", "", [("data.fold", "1"), *changes])
    output = trained_models.OutputFolder(folder / "variant")
    output.path.mkdir(exist_ok=True)
    output.resolved.write_text(recipe.to_yaml())
    trained_models.take_trained(recipe, recipe.stages[-1], output, "s1")
    return output.model.is_dir()


DEEPER = ("rerank.depth", "4")


def test_a_change_in_training_trains_again(base: Path, tmp_path: Path) -> None:
    shutil.copytree(base, tmp_path / "base")
    assert not takes(tmp_path, DEEPER, ("training.learning_rate", "1e-2"))
    assert takes(tmp_path, DEEPER)


def test_the_same_recipe_in_another_folder_is_trained_again(base: Path, tmp_path: Path) -> None:
    """A repetition, even if there is a variant with the model."""
    shutil.copytree(base, tmp_path / "base")
    assert not takes(tmp_path)
    assert takes(tmp_path, DEEPER)
    (tmp_path / "variant").rename(tmp_path / "deeper")
    assert not takes(tmp_path)
    assert not takes(tmp_path, DEEPER)


def training(*changes: tuple[str, str]) -> Any:
    recipe = load_recipe("tiny.yaml", "", changes)
    return training_of(recipe.to_dict(), recipe.stages[-1].name)


@pytest.mark.parametrize(
    "change",
    [
        ("name", "other"),
        ("measures", "P@5"),
        ("significance.correction", "none"),
        ("reproduces", "a table"),
        ("rerank.depth", "7"),
        ("rerank.processor", "{window: 9}"),
        ("rerank.candidates", "all"),
    ],
    ids=lambda change: change[0],
)
def test_what_the_model_does_not_depend_on(world: Path, change: tuple[str, str]) -> None:
    assert training(change) == training()


@pytest.mark.parametrize(
    "change",
    [
        ("seed", "7"),
        ("lora", "true"),
        ("model.max_passages", "3"),
        ("model.window", "11"),
        ("model.aggregation", "sum"),
        ("data.first_stage.b", "0.3"),
        ("data.first_stage.tune", "{b: [0.3, 0.4]}"),
        ("data.folds.seed", "7"),
        ("data.sample", "{style: deep, rate: 0.5}"),
        ("training.learning_rate", "2e-3"),
        # Both choose the checkpoint.
        ("training.measure", "AP"),
        ("training.rerank_depth", "3"),
    ],
    ids=lambda change: change[0],
)
def test_what_the_model_depends_on(world: Path, change: tuple[str, str]) -> None:
    assert training(change) != training()


@pytest.mark.parametrize(
    ("name", "stage", "models"),
    [
        ("li2023-table10", -1, 4),  # 4 x 4 cells
        ("ghasemi2021", -1, 2),  # two ways to count the judgments
        ("cip2021", 0, 1),
    ],
)
def test_how_many_models_the_variants_of_a_table_need(name: str, stage: int, models: int) -> None:
    recipes = [load_recipe(name, ",".join(labels)) for labels in product(*variants(name).values())]
    trainings = {json.dumps(training_of(recipe.to_dict(), recipe.stages[stage].name)) for recipe in recipes}
    assert len(trainings) == models < len(recipes)


def test_versions_count(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(base, tmp_path / "base")
    with monkeypatch.context() as patch:
        patch.setattr(trained_models, "find_versions", lambda: {"torch": "another"})
        assert not takes(tmp_path, DEEPER)
    assert takes(tmp_path, DEEPER)


@pytest.mark.parametrize("file", ["small/qrels.txt", "small/docs.jsonl", "encoder/model.safetensors"])
def test_a_file_that_has_changed_since_is_trained_on_again(base: Path, world: Path, tmp_path: Path, file: str) -> None:
    shutil.copytree(base, tmp_path / "base")
    path = world / file
    (path.parent / "README.md").write_text("A card, which is written later.")
    path.write_bytes(path.read_bytes())
    assert not takes(tmp_path, DEEPER)
    for folder in (base, tmp_path / "base"):
        (folder / "resolved.yaml").touch()
    assert takes(tmp_path, DEEPER)


def write_in(world: Path, file: str, text: str) -> None:
    (world / file).parent.mkdir(parents=True, exist_ok=True)
    (world / file).write_text(text)


@pytest.mark.parametrize(
    ("name", "file", "counts"),
    [
        ("lists/deep/named.txt", "lists/deep/named.txt", True),
        ("lists/deep/named.tsv", "lists/deep/log.txt", False),
        ("lists/deep/named.tsv", "lists/log.txt", False),
        ("beir/qrels/train.tsv", "beir/corpus.jsonl.gz", True),
        ("beir/qrels/train.tsv", "beir/queries.jsonl", True),
        ("saved", "saved/corpus/train/data.arrow", True),
        ("saved", "saved/measured.json", False),
        ("saved", "saved/README.md", False),
    ],
)
def test_which_files_count(world: Path, name: str, file: str, counts: bool) -> None:
    write_in(world, file, "")
    if not (world / name).is_dir():
        write_in(world, name, "")
    assert (world / file in trained_models._files(world / name)) == counts


def test_files_are_named_anywhere_in_a_recipe(world: Path) -> None:
    write_in(world, "lists/named-s1.txt", "")
    content = {"seed": 1, "stages": [("first", {"data": {"run": "lists/named-{fold}.txt"}, "teacher": ""})]}
    now = (world / "lists/named-s1.txt").stat().st_ctime
    assert trained_models._changed_since(now - 1, content, "s1")
    assert not trained_models._changed_since(now, content, "s1")
    assert not trained_models._changed_since(now - 1, content, "s2")


def remove_model(base: Path) -> None:
    shutil.rmtree(base / "model")


def remove_record(base: Path) -> None:
    (base / "model/measured.json").unlink()


def damage_record(base: Path) -> None:
    (base / "model/measured.json").write_text('{"versions":')


def damage_recipe(base: Path) -> None:
    (base / "resolved.yaml").write_text("name: [")


@pytest.mark.parametrize("damage", [remove_model, remove_record, damage_record, damage_recipe])
def test_a_model_that_is_not_finished_is_not_taken(base: Path, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    shutil.copytree(base, tmp_path / "base")
    damage(tmp_path / "base")
    assert not takes(tmp_path, DEEPER)


@pytest.mark.parametrize("stop_at", [0, 1, 3])
def test_a_copy_that_was_stopped_is_made_again(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    shutil.copytree(base, tmp_path / "base")
    stop_copying(monkeypatch, stop_at)
    with pytest.raises(KeyboardInterrupt):
        takes(tmp_path, DEEPER)
    monkeypatch.undo()
    variant = tmp_path / "variant"
    assert not (variant / "model").exists() and not (variant / "trained.json").exists()
    (variant / "model.unfinished/stray.txt").write_text("of another process")
    assert takes(tmp_path, DEEPER)
    found = {path.name for path in (variant / "model").iterdir()}
    assert found == {path.name for path in (base / "model").iterdir()} - {"recipe.yaml"}


def stop_copying(monkeypatch: pytest.MonkeyPatch, stop_at: int) -> None:
    original, made = trained_models._link_or_copy, []

    def stop(source: str, target: str) -> None:
        if len(made) == stop_at:
            raise KeyboardInterrupt
        made.append(target)
        original(source, target)

    monkeypatch.setattr(trained_models, "_link_or_copy", stop)


def test_every_fold_is_taken(world: Path) -> None:
    run("crossval", "folds/base")
    said = run("crossval", "folds/read", *OTHER_TESTS)
    folds = sorted((world / "folds/read").glob("fold-*"))
    assert said.count(TAKEN) == len(folds) == 3
    assert not any(was_trained(fold) for fold in folds)
    same = read_files(world / "folds/read", "fold-*/model/*.safetensors")
    assert same == read_files(world / "folds/base", "fold-*/model/*.safetensors")
    assert len(set(same.values())) == 3


def test_earlier_stages_chosen_passages_and_adapters_are_taken(world: Path) -> None:
    (world / "triples.jsonl").write_text('{"query": "a", "positive": "b", "negatives": ["c"]}\n')
    content = yaml.safe_load((world / "tiny.yaml").read_text()) | {
        "name": "staged",
        "lora": True,
        "data": {"triples": "triples.jsonl"},
        "stages": {
            "first": {},
            "last": {"data": {"collection": "small", "passage_filter": {"scorer": "first", "keep": 1}}},
        },
        "test": {"collection": "small"},
    }
    (world / "staged.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    run("train", "staged/base", recipe="staged.yaml")
    assert run("train", "staged/read", *OTHER_TESTS, recipe="staged.yaml").count(TAKEN) == 2
    files = ("stages/first/model/*.safetensors", "model/*.safetensors", "adapter/*", "passages.jsonl.gz")
    taken = read_files(world / "staged/read", *files)
    assert taken == read_files(world / "staged/base", *files)
    assert {Path(name).parts[0] for name in taken} == {"stages", "model", "adapter", "passages.jsonl.gz"}
    # Another last stage takes the first one alone.
    last = ("--stages.last.model.aggregation", "sum")
    assert run("train", "staged/other", *last, recipe="staged.yaml").count(TAKEN) == 1
    assert was_trained(world / "staged/other") and not was_trained(world / "staged/other/stages/first")
