"""Checks of a model's files before they are published: the card, the weights, and private data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open

from docparade.hub_cards.cards.model_card import missing_card_fields
from docparade.hub_cards.record_files import CARD_FILE
from docparade.retrieval.errors import InputError

from .file_contents import check_kind, decode_text, find_texts, holds_pickle, is_text, read_header
from .file_selection import VOCABULARIES, PublishedFiles, pickle_error
from .private_data import PrivateData

# What libraries write into a card that nobody has filled in.
PLACEHOLDER = "[More Information Needed]"
INSIDE = "among its bytes"


def check_publication(files: PublishedFiles, repo_id: str, token: str | None = None) -> None:
    """Refuse files that must not be published, with the reason in one sentence. The fast checks come first."""
    check_card(files.published[CARD_FILE])
    private = PrivateData.of_this_machine(_public_words(files, repo_id), token)
    for name, path in files.published.items():
        check_content(name, path, private)
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
    """Words of the code and of the model's id, which give nothing away even if this machine is named like one."""
    paths = [path for path in files.published.values() if path.suffix == ".py"]
    code = " ".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)
    return set(re.findall(r"[A-Za-z]+", code)) | set(re.split(r"[/._-]", repo_id)) | set(repo_id.split("/"))


def check_content(name: str, path: Path, private: PrivateData) -> None:
    """Refuse a file that is not what its name says, and private data anywhere in it."""
    if holds_pickle(path):
        raise pickle_error(name)
    check_kind(name, path)
    for place, text in _read(name, path):
        is_vocabulary = name in VOCABULARIES or (place == INSIDE and path.suffix in (".model", ".safetensors"))
        if found := private.find(text, is_vocabulary):
            line, what = found
            raise InputError(
                f"{name}, {place or f'line {line}'}: contains {what}; {_advise(path)} before the model is published."
            )


def _read(name: str, path: Path) -> Iterator[tuple[str, str]]:
    """Every text in a file, with its place; the place is empty if the line's number tells it."""
    if is_text(path):
        yield "", decode_text(name, path)
        return
    if path.suffix == ".safetensors":
        yield "its header", read_header(name, path)
    for text in find_texts(path):
        yield INSIDE, text


def _advise(path: Path) -> str:
    # It cannot be edited, and is not needed: the model is complete with tokenizer.json.
    return "remove the file, since tokenizer.json has all of the tokenizer," if path.suffix == ".model" else "remove it"


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
