"""Checks of a model's files before they are published: the card, the weights, and private data."""

from __future__ import annotations

import json
import re
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from docparade.retrieval.errors import InputError

from .card import missing_card_fields
from .private_data import PrivateData
from .published_files import CARD, VOCABULARIES, PublishedFiles

# What libraries write into the cards that nobody has filled in.
PLACEHOLDER = "[More Information Needed]"
IMAGES = (".png", ".jpg", ".webp")


def check_publication(files: PublishedFiles, repo_id: str, token: str | None = None) -> None:
    """Refuse files that must not be published, with the reason in one sentence. The fast checks come first."""
    check_card(next((path for path in files.published if path.name == CARD), None))
    private = PrivateData.of_this_machine(_public_words(files.published, repo_id), token)
    for path in files.published:
        _check_private_data(path, private)
    for path in files.published:
        if path.suffix == ".safetensors":
            _check_weights(path)


def check_card(card: Path | None) -> None:
    """Refuse a card that is missing or not complete."""
    if card is None:
        raise InputError(f"there is no card: write {CARD} with docparade.hub_cards.write_card.")
    if missing := missing_card_fields(card.parent):
        raise InputError(f"{card.name} has no {', '.join(missing)}; add the missing fields, and push again.")
    if PLACEHOLDER in card.read_text(encoding="utf-8", errors="replace"):
        raise InputError(f"{card.name} still says {PLACEHOLDER}; complete it, and push again.")


def _public_words(paths: list[Path], repo_id: str) -> set[str]:
    """Words that say nothing about this machine even if they are its name: those of the code and of the model's id."""
    code = " ".join(path.read_text(encoding="utf-8") for path in paths if path.suffix == ".py")
    return set(re.findall(r"[A-Za-z]+", code)) | set(re.split(r"[/._-]", repo_id)) | set(repo_id.split("/"))


def _check_private_data(path: Path, private: PrivateData) -> None:
    if path.suffix in IMAGES or path.suffix == ".model":
        return
    text = _read_header(path) if path.suffix == ".safetensors" else path.read_text(encoding="utf-8", errors="replace")
    if (found := private.find(text, is_vocabulary=path.name in VOCABULARIES)) is None:
        return
    line, what = found
    place = "its header" if path.suffix == ".safetensors" else f"line {line}"
    raise InputError(f"{path.name}, {place}: contains {what}; remove it before the model is published.")


def _read_header(path: Path) -> str:
    """The names of a safetensors file's tensors and its metadata."""
    try:
        with safe_open(path, "pt") as file:
            return json.dumps([list(file.keys()), file.metadata() or {}], ensure_ascii=False)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path.name} is damaged or incomplete ({error}); save the model again.") from None


def _check_weights(path: Path) -> None:
    """Refuse weights that are not finite numbers; one tensor is read at a time."""
    with safe_open(path, "pt") as file:
        for name in file.keys():  # noqa: SIM118 (safe_open is not a mapping)
            tensor = file.get_tensor(name)
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor.float()).all()):
                raise InputError(
                    f"{path.name}: {name} has weights that are not finite numbers; train the model again, with a lower "
                    "learning rate or without fp16."
                )
