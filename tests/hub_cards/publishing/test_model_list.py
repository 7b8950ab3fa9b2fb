"""The models that are published, and how their folders are built."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard
from support.recipes import fail, succeed
from transformers import AutoModel

from docparade.hub_cards import list_models
from docparade.hub_cards.cards.old_card import NOTES_START


@pytest.fixture
def models(world: Path, tmp_path: Path) -> Path:
    """A folder with the file of one model, which is built from the trained one."""
    folder = tmp_path / "models"
    folder.mkdir()
    content = {"repo_id": "docparade/tiny", "folder": str(world / "out"), "license": "mit", "language": "en"}
    (folder / "tiny.yaml").write_text(yaml.safe_dump(content))
    return folder


def test_docparades_own_files_are_in_order() -> None:
    for model in list_models():
        assert model.fields.license and model.figures()


def test_models_without_figures_are_listed_without(models: Path) -> None:
    assert "not measured" in succeed("models", "--files", str(models))


def test_one_command_builds_folder_card_and_figures(world: Path, models: Path, tmp_path: Path) -> None:
    output = tmp_path / "published"
    listed = succeed("models", "--files", str(models), "--build", "--output", str(output))
    made = output / "tiny"
    measured = json.loads((made / "measured.json").read_text())["test"][0]["runs"]
    for run in ("first stage", "reranked"):
        assert all(f"{value:.4f}" in listed for value in measured[run]["means"].values())
    assert ModelCard.load(made / "README.md").data.license == "mit"
    query, text = "grant patent", "a patent license is granted"
    models_there = [AutoModel.from_pretrained(place) for place in (made, world / "out/model")]
    assert models_there[0].score([(query, text)]) == pytest.approx(models_there[1].score([(query, text)]), abs=1e-5)
    assert not list(output.glob(".*"))
    [entry] = json.loads(succeed("models", "--files", str(models), "--json"))
    assert entry["tests"][0]["measures"]["nDCG@5"]["value"] == measured["reranked"]["means"]["nDCG@5"]


def test_compact_weights_stay_compact(world: Path, models: Path, tmp_path: Path) -> None:
    succeed("export", "--form", "compact", "--model", str(world / "out/model"), "--output", str(tmp_path / "compact"))
    fields = {"repo_id": "docparade/compact", "folder": str(tmp_path / "compact"), "license": "mit", "language": "en"}
    (models / "compact.yaml").write_text(yaml.safe_dump(fields))
    succeed("models", "compact", "--files", str(models), "--build", "--output", str(tmp_path / "published"))
    names = [tmp_path / place / "model.safetensors" for place in ("compact", "published/compact")]
    assert names[0].read_bytes() == names[1].read_bytes()


def test_notes_survive_building_again(models: Path, tmp_path: Path) -> None:
    command = ("models", "tiny", "--files", str(models), "--build", "--output", str(tmp_path / "published"))
    succeed(*command)
    card = tmp_path / "published/tiny/README.md"
    card.write_text(card.read_text().replace(NOTES_START, f"{NOTES_START}\nMine."))
    succeed(*command)
    assert "\nMine.\n" in card.read_text()
    card.write_text(card.read_text() + "Mine, elsewhere.")
    assert "edited by hand" in fail(*command)
    assert "Mine, elsewhere." in card.read_text()


BAD = {
    "license: mit\nlanguage: en\nfolder: x\n": "lacks repo_id",
    "repo_id: a/b\nlanguage: en\nfolder: x\n": "lacks license",
    "repo_id: a/b\nlicense: mit\nlanguage: en\n": "lacks recipe or folder",
    "repo_id: a/b\nlicense: mit\nlanguage: en\nfolder: x\ncolor: red\n": "'color' is not a field",
    "repo_id: a/b\nlicense: 3\nlanguage: en\nfolder: x\n": "license is 3",
    "- a\n": "has to be a mapping",
    "a: [\n": "is not YAML",
}


@pytest.mark.parametrize("content", BAD)
def test_bad_files_are_named_in_one_sentence(content: str, models: Path) -> None:
    (models / "bad.yaml").write_text(content)
    message = fail("models", "--files", str(models))
    assert BAD[content] in message and "bad.yaml" in message


def test_what_is_missing_is_said_before_anything_is_built(models: Path, tmp_path: Path) -> None:
    shutil.copy(models / "tiny.yaml", models / "a.yaml")
    (models / "b.yaml").write_text("repo_id: a/b\nlicense: mit\nlanguage: en\nrecipe: quickstart\n")
    message = fail("models", "--files", str(models), "--build", "--output", str(tmp_path / "published"))
    assert "make it with docparade train quickstart" in message
    assert not (tmp_path / "published").exists()
    assert "there is no model 'c'; there are: a, b, tiny" in fail("models", "c", "--files", str(models))
    assert "is not a folder" in fail("models", "--files", str(tmp_path / "nowhere"))
