"""`CardFields`: what a card says and only a person knows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

from docparade.retrieval.errors import InputError, errors_at

_REPO_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", flags=re.ASCII).fullmatch
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]*").fullmatch
# ISO 639 codes, and the Hub's two other values.
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z]+)?|code|multilingual").fullmatch
_LINK = re.compile(r"https?://\S+|[\w.-]+").fullmatch


@dataclass(frozen=True)
class CardFields:
    """What a card says and only a person knows. What is left out is taken from the card that is there already.

    Example:
        >>> CardFields(license="apache-2.0", language=("en",)).license
        'apache-2.0'
    """

    repo_id: str | None = None
    """The model's name on the Hub: `user/name`."""
    title: str | None = None
    summary: str | None = None
    """One or two sentences below the title, in Markdown."""
    license: str | None = None
    """The license of the weights, by the Hub's identifier: `apache-2.0`, or `other`."""
    license_name: str | None = None
    """With the license `other`: its name."""
    license_link: str | None = None
    """With the license `other`: where its text is, a URL or a file of the folder."""
    data_license: str | None = None
    """The licenses of the training data, in Markdown."""
    language: tuple[str, ...] = ()
    """Codes of the languages: `en`."""
    base_model: str | None = None
    """The encoder's name on the Hub."""
    datasets: tuple[str, ...] = ()
    """Names of the training data on the Hub."""
    limits: tuple[str, ...] = ()
    """Known limits, a sentence each, in Markdown."""
    examples: tuple[dict[str, Any], ...] = ()
    """For the Hub's widget: `source_sentence` (the query), `sentences` (documents), `example_title`."""

    def __post_init__(self) -> None:
        for name in ("language", "datasets", "limits", "examples"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, (str, dict)) else tuple(value or ()))
        self._check_texts()
        _check("repo_id", self.repo_id, _REPO_ID, "a name on the Hub: user/name")
        _check("base_model", self.base_model, _REPO_ID, "the encoder's name on the Hub: user/name")
        _check("license", self.license, _LICENSE, "one of the Hub's identifiers, such as apache-2.0, mit or other")
        _check("license_link", self.license_link, _LINK, "a URL, or a file of the folder")
        for code in self.language:
            _check("language", code, _LANGUAGE, "an ISO 639 code such as en, or code or multilingual")
        for name in self.datasets:
            _check("datasets", name, re.compile(r"[\w.-]+(/[\w.-]+)?").fullmatch, "a dataset's name on the Hub")
        if self.license == "other" and not self.license_name:
            raise InputError("license is 'other', which needs license_name and license_link.")
        for example in self.examples:
            if not {"source_sentence", "sentences"} <= example.keys():
                raise InputError("examples: each needs source_sentence (the query) and sentences (the documents).")

    def _check_texts(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            items = value if isinstance(value, tuple) else (value,)
            for item in items:
                if item is not None and not isinstance(item, dict if one.name == "examples" else str):
                    raise InputError(f"{one.name} is {item!r}, and has to be a text.")
        if self.title is not None and ("\n" in self.title or not self.title.strip()):
            raise InputError("title has to be one line.")

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> CardFields:
        """Read fields from a file's content; an unknown key is an `InputError`.

        Example:
            >>> CardFields.of({"license": "mit", "language": "en"}).language
            ('en',)
        """
        known = [one.name for one in fields(cls)]
        for key in content:
            if key not in known:
                raise InputError(f"'{key}' is not a field of a card; the fields are {', '.join(known)}.")
        return cls(**content)

    def to_dict(self) -> dict[str, Any]:
        """The fields that are given, as JSON values."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items() if value
        }

    def filled_from(self, other: CardFields) -> CardFields:
        """These fields, with the other's values where a field is not given.

        Example:
            >>> CardFields(license="mit").filled_from(CardFields(license="apache-2.0", title="Mine")).title
            'Mine'
        """
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        # A license and what belongs to it are taken from one place.
        apart = ("license_name", "license_link") if self.license else ()
        given = {name: value for name, value in own.items() if value or name in apart}
        return replace(other, **given)


def read_fields(path: Path) -> CardFields:
    """The fields of a card from a YAML file."""
    content = read_yaml(path)
    with errors_at(str(path)):
        return CardFields.of(content)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping of names to values in a YAML file."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path} is not YAML ({' '.join(str(error).split())}).") from None
    if not isinstance(content, Mapping):
        raise InputError(f"{path} has to be a mapping of fields to values.")
    return dict(content)


def _check(name: str, value: str | None, fits: Any, form: str) -> None:
    if value is not None and not fits(value):
        raise InputError(f"{name} is {value!r}, and has to be {form}.")
