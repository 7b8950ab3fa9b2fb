"""Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence


def as_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; the first column is text, the others are numbers.

    Example:
        >>> print(as_table(["run", "nDCG"], [["bm25", 0.5]]))
        | run | nDCG |
        |---|---:|
        | bm25 | 0.5 |
    """
    lines = [_line(columns), "|---|" + "---:|" * (len(columns) - 1), *map(_line, rows)]
    return "\n".join(lines)


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(" ".join(str(cell).replace("|", r"\|").split()) for cell in cells) + " |"
