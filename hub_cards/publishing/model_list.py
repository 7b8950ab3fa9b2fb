"""The models that are published, one small file each in `hub_cards/models/`, and how their folders are built.

    repo_id: docparade/NAME             # the name on the Hub
    recipe: NAME                        # docparade train NAME makes it, in outputs/NAME
    folder: outputs/NAME                # if it is elsewhere: a recipe's output folder, or a checkpoint
    license: apache-2.0                 # and the other fields of a card (`CardFields`)
    language: en

Beside NAME.yaml, NAME.json has its figures, which `docparade models --build` writes.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from docparade.hub_cards.cards.fields import CardFields, read_yaml
from docparade.hub_cards.cards.methods import describe_method
from docparade.hub_cards.cards.model_card import REQUIRED, write_card
from docparade.hub_cards.cards.result_tables import best_run
from docparade.hub_cards.cards.saved_model import SavedModel, find_checkpoint
from docparade.hub_cards.record_files import (
    CARD_FILE,
    EVALUATIONS_FOLDER,
    LOG_FILE,
    RECIPE_FILE,
    RECORD_FILE,
    SPEED_FILE,
)
from docparade.reranking.loading import load_ranker
from docparade.retrieval.errors import InputError, errors_at
from docparade.retrieval.storage.files import atomic_write, make_folder

MODELS = Path(str(files("docparade.hub_cards"))) / "models"
"""The folder of docparade's own models."""


@dataclass(frozen=True)
class PublishedModel:
    """A model that is published, as its file describes it."""

    file: Path
    folder: Path
    """What it is built from: a recipe's output folder, or a checkpoint."""
    recipe: str | None
    fields: CardFields

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.file.stem

    @property
    def repo_id(self) -> str:
        """The name on the Hub."""
        return str(self.fields.repo_id)

    def figures(self) -> dict[str, Any]:
        """Method and results, as they were when the model was last built; empty if it was not."""
        path = self.file.with_suffix(".json")
        if not path.is_file():
            return {}
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise InputError(f"{path} is damaged; write it again with docparade models --build.") from None
        return content


def list_models(folder: Path = MODELS) -> list[PublishedModel]:
    """All models of a folder of YAML files.

    Example:
        ```python
        [model.repo_id for model in list_models()]
        ```
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder with the YAML files of models.")
    return [_read_model(path) for path in sorted(folder.glob("*.yaml"))]


def build_model_folder(model: PublishedModel, output: Path) -> Path:
    """Make the folder that is published: the weights, docparade's present code, and the card.

    Notes are kept: from the card that the folder had before, or else from the checkpoint's own card.

    Args:
        model: The model.
        output: The folder; replaced when the new one is complete.
    """
    checkpoint = find_source(model)
    unfinished = output.with_name(f".{output.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    make_folder(output.parent)
    try:
        load_ranker(str(checkpoint)).save_pretrained(unfinished)
        _copy_weights(checkpoint, unfinished)
        _copy_records(checkpoint, unfinished)
        for card in (output / CARD_FILE, checkpoint / CARD_FILE):
            if card.is_file() and not (unfinished / CARD_FILE).exists():
                shutil.copyfile(card, unfinished / CARD_FILE)
        write_card(unfinished, model.fields)
        shutil.rmtree(output, ignore_errors=True)
        unfinished.rename(output)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    _write_figures(model, SavedModel.read(output))
    return output


def find_source(model: PublishedModel) -> Path:
    """The checkpoint that a model is built from."""
    if not model.folder.is_dir():
        make = f"make it with docparade train {model.recipe}" if model.recipe else "name another as folder"
        raise InputError(f"{model.file}: {model.folder} does not exist here; {make}.")
    with errors_at(str(model.file)):
        return find_checkpoint(model.folder)


def _read_model(path: Path) -> PublishedModel:
    content = read_yaml(path)
    recipe, folder = content.pop("recipe", None), content.pop("folder", None)
    with errors_at(str(path)):
        fields = CardFields.of(content)
        missing = [name for name in ("repo_id", *REQUIRED) if not getattr(fields, name)]
        if missing:
            raise InputError(f"lacks {', '.join(missing)}.")
        if not recipe and not folder:
            raise InputError("lacks recipe or folder: what the model is built from.")
    return PublishedModel(path, Path(folder or Path("outputs") / str(recipe)), recipe, fields)


def _copy_weights(checkpoint: Path, target: Path) -> None:
    """Replace the saved weights by the checkpoint's files: a compact checkpoint would be saved as larger ones."""
    for saved in target.glob("*.safetensors*"):
        saved.unlink()
    for file in checkpoint.glob("*.safetensors*"):
        shutil.copyfile(file, target / file.name)


def _copy_records(checkpoint: Path, target: Path) -> None:
    """Copy what the card is made from; `save_pretrained` writes the rest."""
    for name in (RECORD_FILE, LOG_FILE, RECIPE_FILE, SPEED_FILE):
        if (checkpoint / name).is_file():
            shutil.copyfile(checkpoint / name, target / name)
    if (checkpoint / EVALUATIONS_FOLDER).is_dir():
        shutil.copytree(checkpoint / EVALUATIONS_FOLDER, target / EVALUATIONS_FOLDER)


def _write_figures(model: PublishedModel, built: SavedModel) -> None:
    tests = [_figures(test) for test in built.tests]
    content = {"method": describe_method(built).name, "parameters": built.parameters, "tests": tests}
    with atomic_write(model.file.with_suffix(".json")) as file:
        json.dump(content, file, indent=1)
        file.write("\n")


def _figures(test: dict[str, Any]) -> dict[str, Any]:
    own = best_run(test)
    base = test["runs"].get(test.get("baseline"), {})
    figures = {
        measure: {
            "value": value,
            "baseline": base.get("means", {}).get(measure),
            "p": own.get("significance", {}).get(measure, {}).get("corrected"),
        }
        for measure, value in own["means"].items()
    }
    return {"name": test["name"], "queries": test.get("queries"), "measures": figures}
