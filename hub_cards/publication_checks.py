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
from .published_files import VOCABULARIES, PublishedFiles
from .saved_files import CARD_FILE

# What libraries write into the cards that nobody has filled in.
PLACEHOLDER = "[More Information Needed]"
IMAGES = (".png", ".jpg", ".webp")


def check_publication(files: PublishedFiles, repo_id: str, token: str | None = None) -> None:
    """Refuse files that must not be published, with the reason in one sentence. The fast checks come first."""
    check_card(files.published[CARD_FILE])
    private = PrivateData.of_this_machine(_public_words(files, repo_id), token)
    for name, path in files.published.items():
        _check_private_data(name, path, private)
    for name, path in files.published.items():
        if path.suffix == ".safetensors":
            _check_weights(name, path)


def check_card(card: Path) -> None:
    """Refuse a card that is not complete."""
    if missing := missing_card_fields(card.parent):
        options = " and ".join(f"--{name}" for name in missing)
        raise InputError(f"the card, {CARD_FILE}, has no {' and no '.join(missing)}: give {options}.")
    if PLACEHOLDER in card.read_text(encoding="utf-8", errors="replace"):
        raise InputError(f"the card, {CARD_FILE}, still says {PLACEHOLDER}: complete it.")


def _public_words(files: PublishedFiles, repo_id: str) -> set[str]:
    """Words that say nothing about this machine even if they are its name: those of the code and of the model's id."""
    code = " ".join(path.read_text(encoding="utf-8") for path in files.published.values() if path.suffix == ".py")
    return set(re.findall(r"[A-Za-z]+", code)) | set(re.split(r"[/._-]", repo_id)) | set(repo_id.split("/"))


def _check_private_data(name: str, path: Path, private: PrivateData) -> None:
    if path.suffix in IMAGES or path.suffix == ".model":
        return
    is_weights = path.suffix == ".safetensors"
    text = _read_header(name, path) if is_weights else path.read_text(encoding="utf-8", errors="replace")
    if (found := private.find(text, is_vocabulary=name in VOCABULARIES)) is None:
        return
    line, what = found
    place = "its header" if is_weights else f"line {line}"
    raise InputError(f"{name}, {place}: contains {what}; remove it before the model is published.")


def _read_header(name: str, path: Path) -> str:
    """The names of a safetensors file's tensors and its metadata."""
    try:
        with safe_open(path, "pt") as file:
            return json.dumps([list(file.keys()), file.metadata() or {}], ensure_ascii=False)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{name} is damaged or incomplete ({error}); save the model again.") from None


def _check_weights(name: str, path: Path) -> None:
    """Refuse weights that are not finite numbers; one tensor is read at a time."""
    with safe_open(path, "pt") as file:
        for weight in file.keys():  # noqa: SIM118 (safe_open is not a mapping)
            tensor = file.get_tensor(weight)
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor.float()).all()):
                raise InputError(
                    f"{name}: {weight} has weights that are not finite numbers; train the model again, with a lower "
                    "learning rate or without fp16."
                )
