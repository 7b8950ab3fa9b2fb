"""`write_card`: the README.md of a checkpoint."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData

from docparade.retrieval.storage.files import atomic_write

from .fields import CardFields

CARD_FILE = "README.md"
REQUIRED = ("license", "language")


def write_card(folder: str | Path, fields: CardFields | None = None, *, overwrite: bool = False) -> Path:
    """Write or refresh the card of a checkpoint, and return its path.

    Args:
        folder: The checkpoint.
        fields: What only a person knows; what is left out is taken from the card that is there already.
        overwrite: Replace a card even if it was edited by hand outside its notes.
    """
    fields = fields or CardFields()
    data = ModelCardData(
        license=fields.license,
        language=list(fields.language) or None,
        base_model=fields.base_model,
        library_name="transformers",
        pipeline_tag="text-ranking",
    )
    path = Path(folder) / CARD_FILE
    with atomic_write(path) as file:
        file.write(f"---\n{data.to_yaml()}\n---\n\n# {fields.title or fields.repo_id or 'Ranker'}\n")
    return path


def missing_card_fields(folder: str | Path) -> list[str]:
    """The fields that a published card needs, and that the card of a checkpoint does not have yet."""
    path = Path(folder) / CARD_FILE
    if not path.is_file():
        return list(REQUIRED)
    data = ModelCard.load(path).data
    return [name for name in REQUIRED if not data.get(name)]
