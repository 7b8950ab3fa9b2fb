"""Checks of settings: each refuses a wrong value in one sentence that names the setting."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Refuse a value that is none of the choices."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, and has to be one of {', '.join(choices)}.")


def check_whole(name: str, value: Any, least: int) -> None:
    """Refuse a value that is no whole number from `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**63:
        raise ValueError(f"{name} is {value!r}, and has to be a whole number from {least}.")


def check_positive(name: str, value: Any) -> None:
    """Refuse a value that is no number above 0."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
        raise ValueError(f"{name} is {value!r}, and has to be a number above 0.")


def check_limit(name: str, value: Any) -> None:
    """Refuse a limit that is no whole number from 1; `None` is no limit."""
    if value is not None:
        check_whole(name, value, least=1)


def check_flag(name: str, value: Any) -> None:
    """Refuse a value that is neither true nor false."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}, and has to be true or false.")
