"""Plots of the analyses, as PNG, SVG or PDF by the file's name; needs the `plots` extra (matplotlib)."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from docparade.retrieval.errors import InputError
from docparade.retrieval.storage.files import atomic_path

from .analyses import Difference, RankBin, UniqueRelevant

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colors, which color-blind readers can distinguish, also in gray.
BLUE, ORANGE, GREEN, GRAY = "#0072B2", "#E69F00", "#009E73", "#999999"


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


@contextmanager
def figure_axes(path: str | Path, x_label: str, y_label: str) -> Iterator["Axes"]:
    """Yield the axes to draw on; the picture is written when the block ends without an error."""
    try:
        # Not pyplot, which has global state and may open windows.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("plots need matplotlib; install it with: pip install 'docparade[plots]'.") from None
    known = FigureCanvasAgg.get_supported_filetypes()
    if Path(path).suffix[1:].lower() not in known:
        raise InputError(f"{path}: the name of a picture must end in one of .{', .'.join(sorted(known))}.")
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot(xlabel=x_label, ylabel=y_label)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    yield axes
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150)
