"""`InputError`: a user's mistake, in one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

LONGEST = 2000
"""Characters of a message; of a longer one, which quotes a long input, the middle is left out."""


class InputError(ValueError):
    """A user's mistake, told in one sentence that names the file, line, field or argument and what to do.

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
