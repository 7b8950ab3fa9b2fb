"""`InputError`: a user's mistake, in one sentence."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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


@contextmanager
def errors_at(place: str) -> Iterator[None]:
    """Put a place, such as a recipe's file and key, before the message of every `InputError` raised inside.

    Example:
        >>> with errors_at("recipe.yaml, data"):
        ...     raise InputError("there are no queries.")
        Traceback (most recent call last):
        docparade.retrieval.errors.InputError: recipe.yaml, data: there are no queries.
    """
    try:
        yield
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


def check_choice(value: str, choices: Sequence[Choice], name: str) -> Choice:
    """The value, if it is one of the choices; otherwise an `InputError` with the argument's name.

    >>> check_choice("minmax", ["none", "minmax"], "normalization")
    'minmax'
    """
    for choice in choices:
        if value == choice:
            return choice
    raise InputError(f"{name} is '{value}', and must be one of {', '.join(choices)}.")
