"""Recipes that train and rerank on the kept vectors of a bi-encoder."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from support.recipes import fail, recipe_folder, succeed, tiny_recipe, updated
from torch import Tensor
from transformers import AutoModel

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.modeling import Document
from docparade.reranking.caches.fingerprints import hash_document
from docparade.reranking.caches.vector_store import VectorStore
from docparade.retrieval import cut, load_collection, read_run

VECTORS = {
    "model": {"encoder": None, "bi_encoder": "bi", "family": "parade", "aggregation": "attn"},
    "training": {"vectors": "float32", "learning_rate": "1e-2"},
    "rerank": {"vectors": "float32"},
}


@pytest.fixture(scope="module")
def world(tiny_ranker: Callable[..., DocumentRanker], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a collection, a recipe that trains PARADE on kept vectors, a bi-encoder and a cross-encoder."""
    recipe = tiny_recipe("bi", VECTORS)
    del recipe["model"]["encoder"]
    with recipe_folder(tmp_path_factory.mktemp("vectors"), recipe) as folder:
        tiny_ranker(MaxPForSequenceClassification, "max", pooling="mean").save_pretrained("bi")
        tiny_ranker(MaxPForSequenceClassification, "max").save_pretrained("cross")
        yield folder


def write(name: str, changes: Mapping[str, Any]) -> str:
    """Another recipe: the folder's own with some changes; nothing (`None`) removes a key."""
    recipe = updated(yaml.safe_load(Path("tiny.yaml").read_text()), changes)
    recipe["model"] = {key: value for key, value in recipe["model"].items() if value is not None}
    Path(f"{name}.yaml").write_text(yaml.safe_dump({**recipe, "name": name}))
    return f"{name}.yaml"


def assert_run_is_the_models(folder: Path) -> None:
    """The test run's scores are those that the saved model gives the documents' texts."""
    model = AutoModel.from_pretrained(folder / "model")
    collection = load_collection("small")
    for query, found in cut(read_run(folder / "runs/test.txt"), 8).items():
        pairs = [(collection.queries()[query], vars(collection.document(name))) for name in found]
        assert list(found.values()) == pytest.approx(model.score(pairs), abs=1e-5)


def test_training_and_testing_on_kept_vectors(world: Path) -> None:
    out = world / "outputs/tiny"
    succeed("train", "tiny.yaml", "--data.fold", "1", "--output", str(out))
    trained, start = load_file(out / "model/model.safetensors"), load_file("bi/model.safetensors")
    of_encoder = [name for name in start if name.startswith(("encoder.", "reader."))]
    assert of_encoder
    assert all(torch.equal(trained[name], start[name]) for name in of_encoder)
    assert len(json.loads((out / "model/measured.json").read_text())["history"]) == 3
    assert_run_is_the_models(out)


@pytest.mark.slow
def test_a_trained_encoder_is_tested_on_its_own_vectors(world: Path) -> None:
    changes = {"model": {"family": "maxp", "aggregation": "max"}, "training": {"vectors": None}}
    recipe = write("encoder", updated(changes, {"training": {"in_batch_negatives": True, "loss": "listwise_softmax"}}))
    out = world / "outputs/encoder"
    succeed("train", recipe, "--data.fold", "1", "--output", str(out))
    trained, start = load_file(out / "model/model.safetensors"), load_file("bi/model.safetensors")
    assert not torch.equal(
        trained["encoder.embeddings.word_embeddings.weight"], start["encoder.embeddings.word_embeddings.weight"]
    )
    assert_run_is_the_models(out)


@pytest.mark.slow
def test_the_encoder_first_and_then_parade_on_its_vectors(world: Path) -> None:
    stages = {
        "encoder": {
            "model": {"family": "maxp", "aggregation": "max"},
            "data": {"folds": None, "validation_share": 0.3},
            "training": {"vectors": None, "in_batch_negatives": True, "num_train_epochs": 1},
        },
        "parade": {},
    }
    out = world / "outputs/stages"
    succeed("train", write("stages", {"stages": stages}), "--stages.parade.data.fold", "1", "--output", str(out))
    first, last = (load_file(folder / "model/model.safetensors") for folder in (out / "stages/encoder", out))
    assert all(torch.equal(last[name], first[name]) for name in first if name.startswith("encoder."))
    assert any(name.startswith("projection.") for name in last)
    assert_run_is_the_models(out)


@pytest.mark.slow
def test_query_sets_of_one_collection_encode_a_document_once(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = Path("small/queries.tsv").read_text().splitlines(keepends=True)
    sets = ("train", "validation", "test")
    for number, name in enumerate(sets):
        shutil.copytree("small", f"{name}-set")
        Path(f"{name}-set/queries.tsv").write_text("".join(queries[number::3]))
    data, validation, test = ({"name": name, "collection": f"{name}-set"} for name in sets)
    content = yaml.safe_load(Path("tiny.yaml").read_text())
    Path("sets.yaml").write_text(yaml.safe_dump({**content, "data": data, "validation": validation, "test": test}))
    monkeypatch.setenv("DOCPARADE_CACHE", str(world / "empty cache"))
    read: Counter[tuple[int, ...]] = Counter()
    encode = ParadeForSequenceClassification.encode

    def count(self: DocumentRanker, input_ids: Tensor, attention_mask: Tensor, **rest: Any) -> Any:
        read.update(tuple(ids[mask > 0].tolist()) for ids, mask in zip(input_ids, attention_mask, strict=True))
        return encode(self, input_ids, attention_mask, **rest)

    monkeypatch.setattr(ParadeForSequenceClassification, "encode", count)
    succeed("train", "sets.yaml", "--output", "outputs/sets")
    [store] = (world / "empty cache/vectors").glob("[!.]*")
    kept = VectorStore(store, "float32")
    collection = load_collection("small")
    documents = [
        vars(one)
        for one in collection.documents()
        if kept.find([hash_document(Document.of(one, "collection"))])[0] >= 0
    ]
    assert 0 < len(documents) == len(kept)
    # What the encoder reads of these documents when each is read once; the others of its inputs are queries.
    in_recipe = read.copy()
    read.clear()
    AutoModel.from_pretrained("outputs/sets/model").encode_documents(documents)
    assert {passage: in_recipe[passage] for passage in read} == read


CROSS = {"bi_encoder": None, "encoder": "cross"}
TEXTS = {"vectors": None}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "type": (
        {"training": {"vectors": "float64"}},
        "training.vectors: is 'float64', and has to be one of float32, float16, int8",
    ),
    "cross-encoder": ({"model": CROSS}, "training.vectors: is for bi-encoders, and this model is none"),
    "cross-encoder, in-batch negatives": (
        {"model": CROSS, "training": {**TEXTS, "in_batch_negatives": True}},
        "training.in_batch_negatives: is for bi-encoders",
    ),
    "cross-encoder, rerank": ({"model": CROSS, "training": TEXTS}, "rerank.vectors: is for bi-encoders"),
    "checkpoint of another family": (
        {"model": {"bi_encoder": None, "checkpoint": "bi"}},
        "training.vectors: is for bi-encoders, and this model is none",
    ),
    "ranker on a cross-encoder": ({"model": {"bi_encoder": "cross"}}, "it is a ranker on a cross-encoder"),
    "encoder without pooling": ({"model": {"bi_encoder": "plain"}}, "it does not say how its vectors are pooled"),
    "lora": ({"lora": True}, "training.vectors: freezes the encoder, which lora trains"),
    "chunks": (
        {"training": {"chunk_passages": 4}},
        "training.chunk_passages does not go with training on kept vectors",
    ),
    "triples": (
        {"data": {"triples": "a.jsonl", "collection": [], "folds": None}},
        "training.vectors: needs documents of a collection",
    ),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_wrong_combinations_are_refused_before_any_work(
    mistake: str, world: Path, encoder_folder: Callable[..., Path]
) -> None:
    if not Path("plain").exists():
        Path("plain").symlink_to(encoder_folder("bert"))
    changes, message = REFUSED[mistake]
    if "data" not in changes:
        changes = {**changes, "data": {"fold": "1"}}
    assert message in fail("train", write("broken", changes), "--output", "broken")
    assert not Path("broken").exists()
