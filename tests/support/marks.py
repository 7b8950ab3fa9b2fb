"""Parametrizations of which scripts/test.sh --fast runs a part."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def others_slow(cases: Iterable[Any], fast: Container[int] = (0,)) -> list[Any]:
    """The cases, of which those at other places than the `fast` ones are marked slow."""
    return [case if place in fast else _slow(case) for place, case in enumerate(cases)]


def _slow(case: Any) -> Any:
    if hasattr(case, "marks"):  # made by pytest.param
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.slow], id=case.id)
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
