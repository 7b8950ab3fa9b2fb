"""The card that is in a folder already: what a person wrote in it is kept."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub.repocard import REGEX_YAML_BLOCK

from docparade.retrieval.errors import InputError, errors_at

from .fields import CardFields

NOTES_START, NOTES_END = "<!-- notes -->", "<!-- /notes -->"
_NOTES = re.compile(f"{re.escape(NOTES_START)}(.*?){re.escape(NOTES_END)}", flags=re.DOTALL)
_STAMP = re.compile(r"<!-- docparade-card: (\{.*\}) -->\s*\Z")
# Fields that people also change in the metadata, by hand or on the Hub.
_IN_METADATA = ("license", "license_name", "license_link", "language", "base_model", "datasets")


@dataclass(frozen=True)
class OldCard:
    """A card as it was found."""

    metadata: dict[str, Any] = field(default_factory=dict)
    fields: CardFields = field(default_factory=CardFields)
    notes: str = ""
    """What was written between the markers of notes."""
    is_edited: bool = False
    """Whether somebody changed what docparade wrote, apart from notes and metadata."""

    @classmethod
    def read(cls, path: Path) -> OldCard:
        """Read a card; one that does not exist is empty."""
        if not path.is_file():
            return cls()
        try:
            content = path.read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            raise InputError(f"{path} cannot be read ({error}); correct it, or move it away.") from None
        metadata, body = _split(content, path)
        stamp = _STAMP.search(body)
        stored = _read_stamp(stamp[1]) if stamp else {}
        body = body[: stamp.start()] if stamp else body
        with errors_at(f"{path}, metadata"):
            named = CardFields.of({name: metadata[name] for name in _IN_METADATA if metadata.get(name)})
        return cls(
            metadata=metadata,
            fields=named.filled_from(_stored_fields(stored)),
            notes=find_notes(body, path),
            is_edited=stored.get("sha256") != fingerprint(body),
        )


def find_notes(body: str, path: Path) -> str:
    """The text between the markers, of all pairs of markers if there are several."""
    rest = _NOTES.sub("", body)
    if NOTES_START in rest or NOTES_END in rest:
        raise InputError(
            f"{path}: notes begin with {NOTES_START} and end with {NOTES_END}, and one of them is missing."
        )
    return "\n\n".join(found for note in _NOTES.findall(body) if (found := note.strip("\r\n")).strip())


def write_notes(notes: str) -> str:
    """Notes between their markers."""
    return f"{NOTES_START}\n{notes}\n{NOTES_END}" if notes else f"{NOTES_START}\n{NOTES_END}"


def stamp(body: str, fields: CardFields) -> str:
    """The comment that ends a card: a fingerprint of its text, and the fields it was written with."""
    content = json.dumps({"sha256": fingerprint(body), "fields": fields.to_dict()})
    # A comment ends at the first `-->`.
    return f"<!-- docparade-card: {content.replace('>', chr(92) + 'u003e')} -->\n"


def fingerprint(body: str) -> str:
    """A hash of a card's text without notes; spaces at the ends of lines do not count."""
    lines = (line.rstrip() for line in _NOTES.sub("", body).strip().splitlines())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _split(content: str, path: Path) -> tuple[dict[str, Any], str]:
    match = REGEX_YAML_BLOCK.search(content)
    if match is None:
        return {}, content
    try:
        metadata = yaml.safe_load(match[2])
    except yaml.YAMLError as error:
        raise InputError(f"{path}: its metadata is not YAML ({' '.join(str(error).split())}); correct it.") from None
    if metadata is not None and not isinstance(metadata, dict):
        raise InputError(f"{path}: its metadata is not a mapping of keys to values; correct it.")
    return metadata or {}, content[match.end() :]


def _read_stamp(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _stored_fields(stored: Mapping[str, Any]) -> CardFields:
    try:
        return CardFields.of(stored.get("fields") or {})
    except (InputError, TypeError):
        # The comment was damaged by hand, which the fingerprint does not cover.
        return CardFields()
