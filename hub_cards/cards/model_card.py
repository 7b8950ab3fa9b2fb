"""`write_card`: the README.md of a checkpoint, from what was saved while it was trained and measured."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from huggingface_hub import ModelCard

from docparade.hub_cards.record_files import CARD_FILE, RECIPE_FILE
from docparade.retrieval.errors import InputError
from docparade.retrieval.storage.files import atomic_write

from .card_data import build_card_data, hub_id
from .fields import CardFields
from .limits import describe_speed, find_limits, speed_table
from .markdown import as_table
from .methods import describe_method, describe_passages, draw_method, passage_settings
from .old_card import NOTES_END, NOTES_START, OldCard, stamp, write_notes
from .papers import BIBTEX
from .result_tables import recipe_command, result_tables
from .saved_model import SavedModel
from .training import (
    describe_hardware,
    describe_versions,
    draw_learning_curve,
    history_table,
    settings_table,
    training_data,
)

REQUIRED = ("license", "language")
"""Fields without which a model is not published."""
NO_NAME = "path/to/this/model"
SOFTWARE = """@software{docparade,
  title  = {docparade: reranking long documents},
  author = {{The docparade authors}},
  url    = {https://github.com/docparade/docparade}
}"""


class EditedCardError(InputError):
    """A card was edited by hand where the edits would be lost."""


def write_card(folder: str | Path, fields: CardFields | None = None, *, overwrite: bool = False) -> Path:
    """Write or refresh the card of a checkpoint, and return its path.

    Everything comes from the files of the folder, and from `fields`. Notes between `<!-- notes -->` and
    `<!-- /notes -->` are kept, and so is metadata that is not docparade's own.

    Args:
        folder: The checkpoint.
        fields: What only a person knows; what is left out is taken from the card that is there already.
        overwrite: Replace a card even if it was edited by hand outside its notes.

    Example:
        ```python
        write_card("outputs/quickstart/model", CardFields(license="apache-2.0", language=("en",)))
        ```
    """
    model, path = SavedModel.read(folder), Path(folder) / CARD_FILE
    old = OldCard.read(path)
    if old.is_edited and not overwrite:
        raise EditedCardError(
            f"{path} was edited by hand; move the text between {NOTES_START} and {NOTES_END}, where it is kept, or "
            "replace it with --overwrite."
        )
    known = (fields or CardFields()).filled_from(old.fields)
    content = render_card(model, known, old, draw_learning_curve(model, Path(folder)))
    with atomic_write(path) as file:
        file.write(content)
    return path


def missing_card_fields(folder: str | Path) -> list[str]:
    """The fields that a published card needs, and that the card of a checkpoint does not have yet.

    Example:
        ```python
        missing_card_fields("outputs/quickstart/model")  # ['license', 'language']
        ```
    """
    fields = OldCard.read(Path(folder) / CARD_FILE).fields
    return [name for name in REQUIRED if not getattr(fields, name)]


def render_card(model: SavedModel, fields: CardFields, old: OldCard, curve: str | None) -> str:
    """The card's text.

    Args:
        model: The checkpoint.
        fields: What only a person knows.
        old: The card before, whose notes and foreign metadata are kept.
        curve: The file of the learning curve.
    """
    method, name, title = describe_method(model), fields.repo_id or NO_NAME, make_title(model, fields)
    rendered = _template().render(
        card_data=build_card_data(model, fields, old.metadata, title).to_yaml(),
        title=title,
        name=name,
        has_name=fields.repo_id is not None,
        fields=fields,
        method=method,
        passages=describe_passages(model),
        encoding=model.reader.describe_reading(model.feature, model.config, model.processor),
        picture=draw_method(model),
        encoder=_describe_encoder(model, fields),
        size=_show_size(model.parameters) if model.parameters else "",
        notes=write_notes(old.notes),
        settings=_settings(model),
        results=result_tables(model, name),
        speed=speed_table(model),
        speed_about=describe_speed(model),
        training_data=training_data(model),
        training_settings=settings_table(model),
        hardware=describe_hardware(model),
        versions=describe_versions(model),
        recipe=RECIPE_FILE if model.has_recipe else "",
        recipe_command=recipe_command(model),
        curve=curve,
        history=history_table(model),
        limits=find_limits(model, fields),
        licenses=list(_licenses(model, fields)),
        citations=[*_papers(model), SOFTWARE],
    )
    head, body = _split_head(rendered.strip() + "\n\n")
    content = head + body + stamp(body, fields)
    ModelCard(content)  # what huggingface_hub cannot read is not written
    return content


def make_title(model: SavedModel, fields: CardFields) -> str:
    """The title that was given, the name on the Hub, or the method."""
    if fields.title or fields.repo_id:
        return fields.title or str(fields.repo_id).partition("/")[2]
    source = fields.base_model or hub_id(model)
    return f"{describe_method(model).name} on {source}" if source else f"A {describe_method(model).name} ranker"


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined, autoescape=False
    )
    source = files("docparade.hub_cards.cards") / "model_card.md.jinja"
    return environment.from_string(source.read_text(encoding="utf-8"))


def _split_head(content: str) -> tuple[str, str]:
    """The metadata with its lines, and the rest."""
    end = content.index("\n---\n", 4) + len("\n---\n")
    return content[:end], content[end:]


def _show_size(parameters: int) -> str:
    return f"{parameters / 1e6:.1f} million parameters" if parameters >= 1e6 else f"{parameters} parameters"


def _settings(model: SavedModel) -> str:
    rows = [(f"`{name}`", "" if value == "" else f"`{value}`") for name, value in passage_settings(model)]
    return as_table(["setting", "value"], rows) if rows else ""


def _describe_encoder(model: SavedModel, fields: CardFields) -> str:
    source = fields.base_model or hub_id(model)
    recorded = str(model.encoder.get("source", ""))
    named = f"[{source}](https://huggingface.co/{source})" if source else ""
    if not named and recorded:
        named = f"`{recorded}`"
    config = model.config.get("encoder_config", {})
    shape = [str(config["model_type"])] if config.get("model_type") else []
    if config.get("num_hidden_layers"):
        shape.append(f"{config['num_hidden_layers']} layers")
    if config.get("hidden_size"):
        shape.append(f"width {config['hidden_size']}")
    return f"{named} ({', '.join(shape)})" if named else ", ".join(shape)


def _licenses(model: SavedModel, fields: CardFields) -> Iterator[str]:
    if fields.license:
        shown = fields.license_name or fields.license
        yield f"Weights: {f'[{shown}]({fields.license_link})' if fields.license_link else shown}."
    if model.encoder.get("license"):
        yield f"The encoder they were trained from: {model.encoder['license']}."
    if fields.data_license:
        yield f"Training data: {fields.data_license.rstrip('.')}."
    yield "The code that comes with the weights: Apache-2.0 (docparade)."


def _papers(model: SavedModel) -> list[str]:
    """The papers of the model's method, and the one whose experiment its recipe repeats."""
    keys: list[Any] = [*describe_method(model).papers, model.record.get("paper")]
    return [BIBTEX[key] for key in dict.fromkeys(keys) if key in BIBTEX]
