"""Plots of the analyses, as PNG, SVG or PDF by the file's name; needs the `plots` extra (matplotlib)."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docparade.retrieval.errors import InputError
from docparade.retrieval.storage.files import atomic_path

from .analyses import Difference, RankBin, UniqueRelevant

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colors, which color-blind readers can distinguish, also in gray.
BLUE, ORANGE, GREEN, GRAY = "#0072B2", "#E69F00", "#009E73", "#999999"
COLORS = (BLUE, ORANGE, GREEN, "#D55E00", "#CC79A7", "#56B4E9", "#000000")
MARKERS = "osD^vP*X"
DASHES = ("--", ":", "-.")


@dataclass(frozen=True)
class Panel:
    """One of several plots beside each other: lines over the same positions."""

    title: str
    x_label: str
    positions: Sequence[float]
    ticks: Sequence[str]
    """What stands at the positions."""
    lines: Mapping[str, Sequence[float | None]]
    """Name -> a value for each position; where there is none, the line has a gap."""
    levels: Mapping[str, float]
    """Name -> a value that does not depend on the position."""
    log: bool = False


def plot_unique_relevant(
    path: str | Path, first: Sequence[UniqueRelevant], second: Sequence[UniqueRelevant], names: tuple[str, str]
) -> None:
    """Share of unique relevant documents of two runs, by depth.

    ```python
    plot_unique_relevant("unique.png", of_full, of_bm25, names=("full ranker", "BM25"))
    ```
    """
    with figure_axes(path, "depth", "unique relevant, % of retrieved") as axes:
        for shares, name, color, mark in zip((first, second), names, (BLUE, ORANGE), ("o", "s"), strict=True):
            axes.plot(
                [found.depth for found in shares],
                [100 * found.share for found in shares],
                color=color,
                marker=mark,
                label=f"found by {name} only",
            )
        depths = [found.depth for found in first]
        axes.set_xscale("log")  # on a linear scale, depths such as 10, 20, 100, 1000 would crowd on the left
        axes.set_xticks(depths, [str(depth) for depth in depths])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.legend()


def plot_relevant_by_rank(path: str | Path, bins: Sequence[RankBin], title: str, names: tuple[str, str]) -> None:
    """Relevant documents by rank, stacked by which of two first stages retrieves them.

    ```python
    plot_relevant_by_rank("bins.png", bins, title="PARADE on BM25", names=("BM25", "BM25+RM3"))
    ```
    """
    parts = {
        "both": ([found.both for found in bins], BLUE),
        f"only {names[0]}": ([found.only_first for found in bins], ORANGE),
        f"only {names[1]}": ([found.only_second for found in bins], GREEN),
        "neither": ([found.neither for found in bins], GRAY),
    }
    with figure_axes(path, "rank", "relevant documents per query") as axes:
        ground = [0.0] * len(bins)
        for name, (heights, color) in parts.items():
            if any(heights):
                axes.bar(range(len(bins)), heights, bottom=ground, color=color, label=name, width=0.8)
                ground = [low + height for low, height in zip(ground, heights, strict=True)]
        axes.set_ylim(0, 1.08 * max(ground) or 1)
        labels = [f"{found.first}–{found.last}" for found in bins]
        axes.set_xticks(range(len(bins)), labels, rotation=45, ha="right", rotation_mode="anchor", fontsize=8)
        if bins[-1].last > 100:
            first_wide = next(place for place, found in enumerate(bins) if found.last - found.first > 10)
            axes.axvline(first_wide - 0.5, color="black", linewidth=0.8, linestyle=":")
            axes.annotate(
                " wider bins: 100 ranks", (first_wide - 0.5, 0.97), xycoords=("data", "axes fraction"), va="top"
            )
        axes.set_title(title)
        axes.legend(title="retrieved by")


def plot_relevant_passages(path: str | Path, counts: Mapping[int, int]) -> None:
    """Share of documents by their number of relevant passages.

    >>> plot_relevant_passages("passages.png", {1: 60, 2: 20, 3: 5})
    """
    total = sum(counts.values())
    with figure_axes(path, "relevant passages in the document", "% of documents") as axes:
        bars = axes.bar(list(counts), [100 * count / total for count in counts.values()], color=BLUE, width=0.8)
        axes.bar_label(bars, fmt="%.0f", fontsize=8)
        axes.locator_params(axis="x", integer=True)


def plot_differences(path: str | Path, found: Sequence[Difference], measure: str, names: tuple[str, str]) -> None:
    """The gain of the second run over the first for each query, largest gain first.

    ```python
    plot_differences("differences.png", differences(qrels, bm25, rm3), "nDCG@20", names=("BM25", "RM3"))
    ```
    """
    values = [difference.value for difference in found]
    better, worse = sum(value > 0 for value in values), sum(value < 0 for value in values)
    with figure_axes(path, f"queries, sorted: {len(values)}", f"{measure}: {names[1]} − {names[0]}") as axes:
        axes.bar(range(len(values)), values, width=1.0, color=[BLUE if value > 0 else ORANGE for value in values])
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xlim(-0.5, len(values) - 0.5)
        axes.set_xticks(range(len(values)) if len(values) <= 30 else [])
        if len(values) <= 30:
            axes.set_xticklabels([difference.query for difference in found], rotation=90, fontsize=8)
        axes.set_title(f"{names[1]} better on {better}, equal on {len(values) - better - worse}, worse on {worse}")


def plot_panels(path: str | Path, panels: Sequence[Panel], y_label: str) -> None:
    """Lines in panels beside each other; a name has the same color and mark in all of them.

    ```python
    rates = Panel("Robust04", "rate", [0.1, 0.5], ["0.1", "0.5"], {"deep": [0.41, 0.44]}, {"BM25": 0.42})
    plot_panels("rates.png", [rates], "nDCG@20")
    ```
    """
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    levels = list(dict.fromkeys(name for panel in panels for name in panel.levels))
    with figure_panels(path, len(panels), y_label) as all_axes:
        for axes, panel in zip(all_axes, panels, strict=True):
            for name, values in panel.lines.items():
                number = names.index(name)
                axes.plot(
                    panel.positions,
                    [float("nan") if value is None else value for value in values],
                    color=COLORS[number % len(COLORS)],
                    marker=MARKERS[number % len(MARKERS)],
                    # With more names than colors, the second round is dashed.
                    linestyle=("-", *DASHES)[number // len(COLORS) % (1 + len(DASHES))],
                    label=name,
                )
            for name, value in panel.levels.items():
                dashes = DASHES[levels.index(name) % len(DASHES)]
                axes.axhline(value, color=GRAY, linestyle=dashes, label=name)
            if panel.log:
                axes.set_xscale("log")
            # Long labels would run into each other.
            slant: dict[str, Any] = (
                {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if len("".join(panel.ticks)) > 40 else {}
            )
            axes.set_xticks(panel.positions, panel.ticks, **slant)
            axes.minorticks_off()
            axes.set_xlabel(panel.x_label)
            axes.set_title(panel.title)
        _add_legend(all_axes)


def _add_legend(all_axes: Sequence["Axes"]) -> None:
    """One legend for all panels, to their right, where it covers no line."""
    entries: dict[str, Any] = {}
    for axes in all_axes:
        handles, names = axes.get_legend_handles_labels()
        entries = dict(zip(names, handles, strict=True)) | entries
    figure = all_axes[0].figure
    figure.legend(list(entries.values()), list(entries), loc="outside right center")


@contextmanager
def figure_axes(path: str | Path, x_label: str, y_label: str) -> Iterator["Axes"]:
    """Yield the axes to draw on; the picture is written when the block ends without an error."""
    with figure_panels(path, 1, y_label) as [axes]:
        axes.set_xlabel(x_label)
        yield axes


@contextmanager
def figure_panels(path: str | Path, count: int, y_label: str) -> Iterator[list["Axes"]]:
    """Yield the axes of panels beside each other, at most three in a row, as `figure_axes` does for one."""
    check_picture(path)
    # Not pyplot, which has global state and may open windows.
    from matplotlib.figure import Figure

    across = min(count, 3)
    down = -(-count // across)
    figure = Figure(figsize=(7 if count == 1 else 4.5 * across + 2, 4 * down), layout="constrained")
    panels = [figure.add_subplot(down, across, number) for number in range(1, count + 1)]
    for number, axes in enumerate(panels):
        axes.set_ylabel(y_label if number % across == 0 else "")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
    yield panels
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150)


def check_picture(path: str | Path) -> None:
    """Refuse a picture that could not be drawn: matplotlib is missing, or the name has an unknown ending."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ImportError:
        raise InputError("plots need matplotlib; install it with: pip install matplotlib.") from None
    known = FigureCanvasAgg.get_supported_filetypes()
    if Path(path).suffix[1:].lower() not in known:
        raise InputError(f"{path}: the name of a picture must end in one of .{', .'.join(sorted(known))}.")
