"""`Table`: the measures of all variants of a recipe, in the rows and columns that a layout says."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from statistics import fmean, median
from typing import Any

from docparade.experiments.experiment_results import FIRST_STAGE, RERANKED, UNTRAINED
from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.measure_table import caption
from docparade.retrieval.evaluation.measures import parse_measures
from docparade.retrieval.evaluation.significance import Correction, PairedTest, paired_t_test

from .layout import Layout
from .measurements import (
    RUN,
    SET,
    Measurement,
    measures,
    other_numbers,
    possible_runs,
    read_measurements,
    test_sets,
)
from .variants import Variant

UNTRAINED_RUNS = (FIRST_STAGE, UNTRAINED)
"""Runs that owe nothing to the training, and may be the same for many variants."""
MISSING = "missing"

Labels = dict[str, str]


@dataclass(frozen=True)
class Cell:
    """One number of the table, or its absence."""

    value: float | None
    found: int
    """How many variants the number is of."""
    missing: int
    """How many variants that belong here are not done."""
    measured: Measurement | None = None
    """What the number was measured on, if it is that of a single variant."""
    test: PairedTest | None = None
    """The comparison with the baseline."""


@dataclass(frozen=True)
class Column:
    """What the numbers of a column have in common."""

    labels: Labels
    measure: str


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    labels: Labels
    cells: list[Cell]
    shown: Labels
    """The labels without those of axes on which it does not depend."""
    is_alone: bool = False
    """Whether its variants have no other line, so that its run need not be named."""

    @property
    def name(self) -> str:
        """How the line is called."""
        return ", ".join(label for axis, label in self.shown.items() if not (self.is_alone and axis == RUN))


@dataclass(frozen=True)
class Table:
    """The measures of all variants of a recipe.

    Example:
        ```python
        table = build_table("zhang2021-table1", list_variants("zhang2021-table1"), Layout(columns=("data",)))
        print(table.to_markdown())
        ```
    """

    name: str
    layout: Layout
    columns: list[Column]
    rows: list[Row]
    fixed: Labels
    """The labels of axes that have only one."""
    variants: int
    missing: list[str]
    """The names of the variants that are not done."""
    measures: list[str]
    correction: Correction = "bonferroni"
    """Of the tests against the baseline, as the recipe says."""
    others: list[str] = field(default_factory=list)
    """Numbers beside the measures."""

    @property
    def title(self) -> str:
        """What the numbers are."""
        parts = [" ".join(self.measures) if len(self.measures) == 1 else "", *self.fixed.values()]
        if self.layout.summary:
            parts.append(f"{self.layout.summary} over {', '.join(self.layout.summarized)}")
        return f"{self.name}: {', '.join(filter(None, parts))}".removesuffix(": ")

    @property
    def caption(self) -> str:
        """What the marks mean, and what is missing."""
        tests = {row.name: {str(i): cell.test for i, cell in enumerate(row.cells) if cell.test} for row in self.rows}
        marks = caption(", ".join(self.layout.baseline), tests, self.correction)
        gap = f"{len(self.missing)} of {self.variants} variants are {MISSING}" if self.missing else ""
        return "; ".join(filter(None, (marks, gap)))

    @property
    def header(self) -> list[str]:
        """The names of the columns; the first one is that of the lines."""
        # The only measure is in the title.
        named = [one.measure if len(self.measures) > 1 or not one.labels else "" for one in self.columns]
        labels = [", ".join(one.labels.values()) for one in self.columns]
        names = [", ".join(filter(None, each)) for each in zip(labels, named, strict=True)]
        return [", ".join(self.layout.rows) or "recipe", *names]

    def lines(self) -> list[list[str]]:
        """The lines as text: the name, and the numbers with their marks."""
        tested = any(cell.test for row in self.rows for cell in row.cells)
        return [
            [
                row.name or self.name,
                *(self._text(cell, one, tested) for cell, one in zip(row.cells, self.columns, strict=True)),
            ]
            for row in self.rows
        ]

    def to_markdown(self) -> str:
        """The table in Markdown."""
        head = [f"| {' | '.join(self.header)} |", "|---|" + "---:|" * len(self.columns)]
        body = [f"| {' | '.join(cell.strip() for cell in line)} |" for line in self.lines()]
        return (
            "\n".join([f"{self.title}", "", *head, *body, *(["", f"{self.caption}."] if self.caption else [])]) + "\n"
        )

    def to_csv(self) -> str:
        """The numbers with all their digits, as comma-separated values; an axis of the rows is a column of its own."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*self.layout.rows, *self.header[1:]])
        for row in self.rows:
            names = [row.shown.get(axis, "") for axis in self.layout.rows]
            writer.writerow([*names, *("" if cell.value is None else cell.value for cell in row.cells)])
        return text.getvalue()

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "recipe": self.name,
            "fixed": self.fixed,
            "summary": self.layout.summary,
            "summarized": list(self.layout.summarized),
            "baseline": list(self.layout.baseline),
            "variants": self.variants,
            "missing": self.missing,
            "rows": [
                {
                    "labels": row.shown,
                    "cells": [
                        {"labels": one.labels, "measure": one.measure, **self._describe(cell)}
                        for cell, one in zip(row.cells, self.columns, strict=True)
                    ],
                }
                for row in self.rows
            ],
        }

    def _describe(self, cell: Cell) -> dict[str, Any]:
        of = {"of": self._best_labels(cell)} if self.layout.best else {}
        test = {"test": asdict(cell.test)} if cell.test else {}
        return {"value": cell.value, "found": cell.found, "missing": cell.missing, **of, **test}

    def _text(self, cell: Cell, column: Column, tested: bool) -> str:
        if cell.value is None:
            return MISSING if cell.missing else ""
        if column.measure in self.others:
            return f"{cell.value:,}" if isinstance(cell.value, int) else f"{cell.value:.4g}"
        text = f"{cell.value:.4f}"
        if tested:
            text += f"{cell.test.marker if cell.test else '':1}"
        if best := self._best_labels(cell):
            text += f" ({', '.join(best.values())})"
        return text + (f" ({cell.found} of {cell.found + cell.missing})" if cell.missing else "")

    def _best_labels(self, cell: Cell) -> Labels:
        """Which variant is the best; the first stage's run is the same for all."""
        if cell.measured is None or cell.measured.labels[RUN] in UNTRAINED_RUNS:
            return {}
        return {axis: cell.measured.labels[axis] for axis in self.layout.best}


def build_table(name: str, found: Sequence[Variant], layout: Layout, place: str = "table") -> Table:
    """Read what the variants left, and put it into a table.

    Args:
        name: The recipe's name.
        found: As `list_variants` returns them; those that are not done are shown as missing.
        layout: What goes where.
        place: Where the layout stands, for errors.
    """
    missing = [one for one in found if one.find_state() != "done"]
    gaps = {_key(one.labels, one.labels) for one in missing}
    measured = [each for one in found if _key(one.labels, one.labels) not in gaps for each in read_measurements(one)]
    axes = _find_axes(found, place) | {RUN: list(layout.runs)}
    known = list(dict.fromkeys(one.labels[RUN] for one in measured))
    if missing:
        known = list(dict.fromkeys([*known, *possible_runs(found)]))
    if unknown := [run for run in layout.runs if run not in known]:
        raise InputError(f"{place}: no variant has the run {unknown[0]}; the runs are {', '.join(known)}.")
    layout = layout.complete(axes, place)
    names = _choose_measures(measures(found), layout, place)
    columns = [Column(labels, one) for labels in _combine(layout.columns, axes) for one in names]
    cells = _Cells(axes, layout, measured, gaps)
    rows = [
        Row(labels, [cells.at(labels | one.labels, one.measure) for one in columns], labels)
        for labels in _combine(layout.rows, axes)
    ]
    placed = (*layout.rows, *layout.columns, *layout.summarized, RUN)
    fixed = {axis: labels[0] for axis, labels in axes.items() if axis not in placed}
    not_done = [one.recipe.name for one in missing]
    correction = found[0].recipe.significance.correction
    table = Table(name, layout, columns, _name_rows(_merge_rows(rows)), fixed, len(found), not_done, names, correction)
    table = _compare(table, cells, axes, known, place) if layout.baseline else table
    return _with_others(table, measured, other_numbers(measured, measures(found)))


def _find_axes(found: Sequence[Variant], place: str) -> dict[str, list[str]]:
    """The axes of the variants with their labels, and that of the test sets if there are several."""
    axes = {axis: list(dict.fromkeys(one.labels[axis] for one in found)) for axis in found[0].labels}
    for own in (SET, RUN):
        if own in axes:
            raise InputError(f"{place}: {own} is an axis of every table; give the axis of the variants another name.")
    sets = test_sets(found)
    return axes | ({SET: sets} if len(sets) > 1 else {})


def _with_others(table: Table, measured: Sequence[Measurement], names: Sequence[str]) -> Table:
    """The table with what else is said of the models in numbers: a column each, unless all models have the same."""
    for name in names:
        found = [
            {one.means[name] for one in measured if row.labels.items() <= one.labels.items() and name in one.means}
            for row in table.rows
        ]
        # Of a row whose models differ, there is no number to show.
        values = [next(iter(one)) if len(one) == 1 else None for one in found]
        if len(set(values) - {None}) > 1:
            cells = [Cell(value, 0 if value is None else 1, 0) for value in values]
            rows = [replace(row, cells=[*row.cells, cell]) for row, cell in zip(table.rows, cells, strict=True)]
            others = [*table.others, name]
            table = replace(table, rows=rows, columns=[*table.columns, Column({}, name)], others=others)
    return table


def _choose_measures(known: list[str], layout: Layout, place: str) -> list[str]:
    if layout.show is None:
        return known
    wanted = list(parse_measures(layout.show))
    for name in wanted:
        if name not in known:
            raise InputError(f"{place}: {name} was not measured; the recipe's measures are {' '.join(known)}.")
    return wanted


def _combine(chosen: Sequence[str], axes: Mapping[str, list[str]]) -> Iterator[Labels]:
    """All combinations of the labels of some axes."""
    for labels in product(*(axes[axis] for axis in chosen)):
        yield dict(zip(chosen, labels, strict=True))


def _key(labels: Mapping[str, str], axes: Iterable[str]) -> tuple[str, ...]:
    return tuple(labels[axis] for axis in axes)


class _Cells:
    """The numbers, by the labels of what they were measured on."""

    def __init__(
        self,
        axes: Mapping[str, list[str]],
        layout: Layout,
        measured: Sequence[Measurement],
        missing: set[tuple[str, ...]],
    ) -> None:
        self.axes, self.summarized, self.summary = axes, layout.summarized, layout.summary
        self.own = [axis for axis in axes if axis not in (SET, RUN)]
        self.measured = {_key(one.labels, axes): one for one in measured}
        self.missing = missing

    def at(self, labels: Labels, measure: str) -> Cell:
        """The number of a place in the table; the labels are those of its row and its column."""
        single = {axis: known[0] for axis, known in self.axes.items() if axis not in self.summarized}
        places = [single | labels | more for more in _combine(self.summarized, self.axes)]
        of = [self.measured[key] for key in (_key(place, self.axes) for place in places) if key in self.measured]
        of = [one for one in of if measure in one.means]
        gaps = sum(_key(place, self.own) in self.missing for place in places)
        if not of:
            return Cell(None, 0, gaps)
        values = [one.means[measure] for one in of]
        if places[0][RUN] == FIRST_STAGE and len(set(values)) == 1:
            gaps = 0  # the missing variants would have the same; an untrained head depends on the seed
        if self.summary == "median":
            return Cell(median(values), len(of), gaps)
        if self.summary == "mean":
            return Cell(fmean(values), len(of), gaps)
        best = max(of, key=lambda one: one.means[measure])
        return Cell(best.means[measure], len(of), gaps, best)


def _merge_rows(rows: list[Row]) -> list[Row]:
    """The rows without those that say nothing; the first stage, if many variants share it, has a single one."""
    merged: list[Row] = []
    for row in rows:
        if row.labels.get(RUN) not in UNTRAINED_RUNS:
            # A variant may lack a run, such as the interpolated one.
            if any(cell.value is not None or cell.missing for cell in row.cells):
                merged.append(row)
            continue
        if all(cell.value is None for cell in row.cells):
            continue
        same = next((i for i, other in enumerate(merged) if _is_same(row, other)), None)
        if same is None:
            merged.append(row)
        else:
            merged[same] = _join(merged[same], row)
    return merged


def _name_rows(rows: list[Row]) -> list[Row]:
    """The rows; those of rankers whose variants have no other row are called without the name of the run."""
    variants = [{axis: label for axis, label in row.shown.items() if axis != RUN} for row in rows]
    return [
        replace(row, is_alone=bool(own) and row.labels.get(RUN) == RERANKED and variants.count(own) == 1)
        for row, own in zip(rows, variants, strict=True)
    ]


def _is_same(row: Row, other: Row) -> bool:
    pairs = [(a.value, b.value) for a, b in zip(row.cells, other.cells, strict=True)]
    return row.labels[RUN] == other.labels[RUN] and all(a == b for a, b in pairs if a is not None and b is not None)


def _join(row: Row, other: Row) -> Row:
    cells = [a if a.value is not None else b for a, b in zip(row.cells, other.cells, strict=True)]
    return replace(
        row, cells=cells, shown={axis: label for axis, label in row.shown.items() if other.shown.get(axis) == label}
    )


def _compare(table: Table, cells: _Cells, axes: Mapping[str, list[str]], known_runs: list[str], place: str) -> Table:
    """The table with every number tested against the one that has the baseline's labels instead of its own."""
    # The baseline may be a run that is not shown.
    instead = _find_labels(table.layout.baseline, {**axes, RUN: known_runs}, place)
    if RUN not in instead and RERANKED in axes[RUN]:
        instead[RUN] = RERANKED
    found: dict[tuple[int, int], tuple[float, float]] = {}
    for i, row in enumerate(table.rows):
        for j, (cell, column) in enumerate(zip(row.cells, table.columns, strict=True)):
            own = row.labels | column.labels
            base = cells.at(own | instead, column.measure).measured
            if cell.measured is None or base is None or cell.measured is base:
                continue
            one, other = (measured.per_query[column.measure] for measured in (base, cell.measured))
            if one.keys() != other.keys():
                raise InputError(
                    f"{place}: the baseline {', '.join(table.layout.baseline)} has other queries than "
                    f"{', '.join(cell.measured.labels.values())}; choose a baseline with the same test queries."
                )
            difference = cell.measured.means[column.measure] - base.means[column.measure]
            found[i, j] = difference, paired_t_test(one, other)
    # Bonferroni counts all tests of the table.
    count = len(found) if table.correction == "bonferroni" else 1
    tests = {at: PairedTest(difference, p, min(1.0, p * count)) for at, (difference, p) in found.items()}
    rows = [
        replace(row, cells=[replace(cell, test=tests.get((i, j))) for j, cell in enumerate(row.cells)])
        for i, row in enumerate(table.rows)
    ]
    return replace(table, rows=rows)


def _find_labels(wanted: Sequence[str], axes: Mapping[str, list[str]], place: str) -> Labels:
    """The axes of the labels that name the baseline."""
    found: Labels = {}
    for label in wanted:
        axis = next((axis for axis, labels in axes.items() if label in labels and axis not in found), None)
        if axis is None:
            known = "; ".join(f"{axis}: {', '.join(labels)}" for axis, labels in axes.items())
            raise InputError(f"{place}: there is no baseline {label}; the labels are {known}.")
        found[axis] = label
    return found
