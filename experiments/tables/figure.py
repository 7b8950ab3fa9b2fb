"""`draw_table`: a table as lines in panels."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.plots import Panel, plot_panels

from .measurements import RUN
from .table import UNTRAINED_RUNS, Row, Table

# A label that names a value: r0.1, lr2e-5, passages16.
_VALUE = re.compile(r"(?P<name>[^\d.,]*)(?P<value>\d+(\.\d+)?(e[+-]?\d+)?)").fullmatch
_Ticks = dict[str, int]
"""Label on the axis -> number of the column."""


def draw_table(path: str | Path, table: Table) -> None:
    """Draw a table: a line for each of its rows, and the labels of the layout's `x` from left to right.

    Args:
        path: The picture, as PNG, SVG or PDF by its name.
        table: As `build_table` returns it; its layout has columns.
    """
    plot_panels(path, make_panels(table), table.measures[0] if len(table.measures) == 1 else "")


def make_panels(table: Table) -> list[Panel]:
    """The panels of a table: one for each label of the columns' axes but `x`, and for each measure.

    A row that does not depend on `x`, such as the first stage's, is a level. Labels that end in a number are placed by
    it; if they have different names before it (window150, window225, stride100), each name has a panel of its own.
    If all names differ (robust04, gov2), the numbers are no values, and the labels stand side by side.
    """
    if not table.layout.x:
        raise InputError("a plot needs an axis from left to right; name one with --columns.")
    x = table.layout.x
    ticks = {", ".join(column.labels[axis] for axis in x) for column in table.columns if column.labels}
    found = [match for match in map(_VALUE, ticks) if match]
    names = {match["name"] for match in found}
    # Some name has several values, and another name has others.
    is_split = len(found) == len(ticks) and 1 < len(names) < len(ticks)
    panels: dict[tuple[str, ...], _Ticks] = {}
    for number, column in enumerate(table.columns):
        if not column.labels:  # a number that is no measure
            continue
        tick = ", ".join(column.labels[axis] for axis in x)
        around = [label for axis, label in column.labels.items() if axis not in x]
        measure = [column.measure] if len(table.measures) > 1 else []
        value = _VALUE(tick) if is_split else None
        name = value["name"] if value else ", ".join(x)
        panels.setdefault((*around, *measure, name), {})[tick] = number
    return [_make_panel(table, title[:-1], title[-1], ticks) for title, ticks in panels.items()]


def _make_panel(table: Table, title: Sequence[str], name: str, ticks: _Ticks) -> Panel:
    found = {tick: match for tick in ticks if (match := _VALUE(tick))}
    # Labels without numbers, or with numbers of different things, stand at equal distances, in the recipe's order.
    is_numeric = len(found) == len(ticks) and len({match["name"] for match in found.values()}) == 1
    values = {tick: float(match["value"]) for tick, match in found.items()}
    ordered = sorted(ticks, key=lambda tick: values[tick]) if is_numeric else list(ticks)
    positions = [values[tick] if is_numeric else float(place) for place, tick in enumerate(ordered)]
    lines: dict[str, list[float | None]] = {}
    levels: dict[str, float] = {}
    for row in table.rows:
        heights = [row.cells[ticks[tick]].value for tick in ordered]
        if _is_level(row, heights):
            levels[row.name] = next(value for value in heights if value is not None)
        elif any(value is not None for value in heights):
            lines[row.name or table.name] = heights
    return Panel(
        title=", ".join(title),
        x_label=name,
        positions=positions,
        ticks=_shorten(ordered),
        lines=lines,
        levels=levels,
        log=is_numeric and _is_geometric(positions),
    )


def _shorten(ticks: Sequence[str]) -> list[str]:
    """The labels without the names before their numbers, where these are always the same.

    Example:
        >>> _shorten(["batch16, epochs2", "batch32, epochs2"]), _shorten(["bert", "r1"])
        (['16, 2', '32, 2'], ['bert', 'r1'])
    """
    parts = list(zip(*(tick.split(", ") for tick in ticks), strict=True))
    for place, labels in enumerate(parts):
        found = [match for match in map(_VALUE, labels) if match]
        if len(found) == len(labels) and len({match["name"] for match in found}) == 1:
            parts[place] = tuple(match["value"] for match in found)
    return [", ".join(labels) for labels in zip(*parts, strict=True)]


def _is_level(row: Row, values: Sequence[float | None]) -> bool:
    """Whether a row has nothing to do with the training, and so with what goes from left to right."""
    return row.labels.get(RUN) in UNTRAINED_RUNS and len({value for value in values if value is not None}) == 1


def _is_geometric(positions: Sequence[float]) -> bool:
    """Whether each position is the same multiple of the one before, as in 8, 16, 32, 64."""
    if len(positions) < 3 or positions[0] <= 0:
        return False
    ratios = [after / before for before, after in pairwise(positions)]
    return all(math.isclose(ratio, ratios[0], rel_tol=1e-6) for ratio in ratios)
