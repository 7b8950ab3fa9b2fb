"""`InputError`, the one exception of this room, and checks that raise it."""

from collections.abc import Sequence
from typing import TypeVar

Choice = TypeVar("Choice", bound=str)

LONGEST = 2000
"""Characters of a message; the middle of a longer one is left out."""


class InputError(ValueError):
    """A user's mistake, in one sentence that names the file, line, field or argument and says what to do.

    The command line prints the sentence alone and exits with code 2; a library user catches it like any ValueError.
    """

    def __init__(self, sentence: str = "") -> None:
        half = LONGEST // 2
        super().__init__(sentence if len(sentence) <= LONGEST else f"{sentence[:half]} … {sentence[-half:]}")


def check_choice(value: str, choices: Sequence[Choice], name: str) -> Choice:
    """The value, if it is one of the choices; otherwise an `InputError` with the argument's name.

    >>> check_choice("minmax", ["none", "minmax"], "normalization")
    'minmax'
    """
    for choice in choices:
        if value == choice:
            return choice
    raise InputError(f"{name} is '{value}', and must be one of {', '.join(choices)}.")
