"""`CardFields`: what a card says and only a person knows."""

from __future__ import annotations

from dataclasses import dataclass


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
    license: str | None = None
    """The license of the weights, by the Hub's identifier: `apache-2.0`."""
    language: tuple[str, ...] = ()
    """Codes of the languages: `en`."""
    base_model: str | None = None
    """The encoder's name on the Hub."""
