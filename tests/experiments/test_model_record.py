"""Where a model comes from, by names that others can use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docparade.experiments import load_recipe
from docparade.experiments.model_record import describe_encoder, is_public, public_collection, public_model
from docparade.experiments.recipes.model_recipe import ModelRecipe
from docparade.experiments.recipes.recipe import Recipe


def test_only_names_that_others_can_use_are_public(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine/encoder").mkdir(parents=True)
    assert public_model("google/electra-base") == "google/electra-base"
    assert public_model("package:weights/model") == "package:weights/model"
    for name in ("mine/encoder", str(tmp_path), "./elsewhere", "~/models/mine", "a/b/c"):
        assert public_model(name) is None
    for name in ("cranfield", "msmarco-document/train", "hf:BeIR/scifact", "docparade:pydocs/train"):
        assert public_collection(name) == name
    for name in ("mine", "/data/somewhere", "../data", "qrels/test.tsv", "triples.jsonl.gz"):
        assert public_collection(name) is None


@pytest.mark.parametrize(
    "changes", [{"model.encoder": "./mine"}, {"data.collection": "./mine"}, {"data.qrels": "my.txt"}]
)
def test_a_recipe_with_local_files_is_not_public(changes: dict[str, str]) -> None:
    assert is_public(load_recipe("cranfield-minilm"))
    assert not is_public(_changed("cranfield-minilm", changes))


def _changed(name: str, changes: dict[str, str]) -> Recipe:
    return load_recipe(name, overrides=list(changes.items()))


def test_the_license_is_that_of_the_encoders_card(tmp_path: Path) -> None:
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    assert describe_encoder(ModelRecipe(encoder=str(encoder))) == {"used_as": "encoder"}
    for text in ("---\nlicense: [a, b]\n---\n", "---\n[\n---\n", "# no metadata\n"):
        (encoder / "README.md").write_text(text)
        assert describe_encoder(ModelRecipe(encoder=str(encoder))) == {"used_as": "encoder"}
    (encoder / "README.md").write_text("---\nlicense: mit\n---\n")
    assert describe_encoder(ModelRecipe(encoder=str(encoder)))["license"] == "mit"


def test_a_checkpoint_passes_on_its_encoder(tmp_path: Path) -> None:
    recorded = {"source": "user/encoder", "license": "mit"}
    (tmp_path / "measured.json").write_text(json.dumps({"encoder": recorded}))
    assert describe_encoder(ModelRecipe(checkpoint=str(tmp_path))) == recorded
