"""What a table of variants shows, and where: which axes are its rows and its columns, and over which it summarizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from docparade.experiments.experiment_results import FIRST_STAGE, RERANKED
from docparade.experiments.recipes.typed_values import build
from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.measures import parse_measures

from .measurements import RUN, SET

Summary = Literal["median", "mean", "best"]
SUMMARIES: tuple[Summary, ...] = ("median", "mean", "best")
_OF_AXES = ("rows", "columns", "x", *SUMMARIES)
_LISTS = (*_OF_AXES, "runs", "baseline")


@dataclass(frozen=True)
class Layout:
    """The `table` section of a recipe. Axes that it does not name become rows, test sets become columns.

    Example:
        >>> Layout.of({"rows": "encoder", "columns": ["data", "rate"], "median": "seed"}, "recipe.yaml, table").columns
        ('data', 'rate')
    """

    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    x: tuple[str, ...] = ()
    """In a plot, the axes of the columns that go from left to right; by default the last one."""
    median: tuple[str, ...] = ()
    mean: tuple[str, ...] = ()
    best: tuple[str, ...] = ()
    runs: tuple[str, ...] = (FIRST_STAGE, RERANKED)
    baseline: tuple[str, ...] = ()
    """Labels of the row that the others are tested against."""
    leave_out: tuple[tuple[str, ...], ...] = ()
    """Combinations of labels that are no variants (see `list_variants`)."""
    show: str | None = None
    """The measures to show, by default all."""

    def __post_init__(self) -> None:
        if sum(bool(getattr(self, kind)) for kind in SUMMARIES) > 1:
            raise InputError(f"give at most one of {', '.join(SUMMARIES)}.")
        placed = [*self.rows, *self.columns, *self.summarized]
        for axis in placed:
            if placed.count(axis) > 1:
                raise InputError(f"the axis {axis} is named twice; it has one place among rows, columns and summary.")
        if self.baseline and self.summary in ("median", "mean"):
            raise InputError(f"a {self.summary} has no values of single queries to test; leave out the baseline.")
        if not self.runs:
            raise InputError("runs: name at least one.")
        if self.show is not None:
            parse_measures(self.show)

    @property
    def summary(self) -> Summary | None:
        """How the values of the summarized axes become one."""
        return next((kind for kind in SUMMARIES if getattr(self, kind)), None)

    @property
    def summarized(self) -> tuple[str, ...]:
        """The axes of which the table shows one value for all labels."""
        return (*self.median, *self.mean, *self.best)

    @classmethod
    def of(cls, content: Mapping[str, Any], place: str) -> Layout:
        """Read the section; lists may be written as text with commas."""
        listed = {key: _split(value) if key in _LISTS else value for key, value in content.items() if value is not None}
        return build(cls, listed, place)

    def complete(self, axes: Mapping[str, list[str]], place: str) -> Layout:
        """The layout with every axis in its place.

        Args:
            axes: The axes of the variants with their labels, and `SET` and `RUN`.
            place: Where the layout stands, for errors.
        """
        for axis in (*self.rows, *self.columns, *self.summarized):
            if axis not in axes:
                raise InputError(f"{place}: there is no axis {axis}; the axes are {', '.join(axes)}.")
        for axis in self.x:
            if axis not in self.columns:
                raise InputError(f"{place}: x is {axis}, and has to be among the columns.")
        open_ = [axis for axis, labels in axes.items() if len(labels) > 1 and not self.places(axis)]
        columns = (*(axis for axis in open_ if axis == SET), *self.columns)
        rows = (*self.rows, *(axis for axis in open_ if axis not in (SET, RUN)))
        # The runs of a variant stand together.
        rows = (*(axis for axis in rows if axis != RUN), *(axis for axis in (*open_, *rows) if axis == RUN))
        return replace(self, rows=rows, columns=columns, x=self.x or columns[-1:])

    def places(self, axis: str) -> bool:
        """Whether the layout names an axis."""
        return axis in (*self.rows, *self.columns, *self.summarized)


def lay_over(section: Mapping[str, Any], options: Mapping[str, str | None]) -> dict[str, Any]:
    """A recipe's section, with options laid over it: an axis that an option names leaves its place in the section.

    Example:
        >>> lay_over({"rows": ["encoder", "style"], "median": ["seed"]}, {"columns": "style", "mean": "seed"})
        {'rows': ['encoder'], 'columns': ['style'], 'mean': ['seed']}
    """
    given = {key: _split(value) if key in _LISTS else value for key, value in options.items() if value is not None}
    moved = {axis for key in ("rows", "columns", *SUMMARIES) for axis in given.get(key, ())}
    below = {
        key: [axis for axis in _split(value) if axis not in moved] if key in _OF_AXES else value
        for key, value in section.items()
        if value is not None and not (key in SUMMARIES and given.keys() & set(SUMMARIES))
    }
    if "x" not in given and not set(below.get("x", ())) <= set(below.get("columns", ())):
        del below["x"]
    return {key: value for key, value in {**below, **given}.items() if value or key not in _OF_AXES}


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
