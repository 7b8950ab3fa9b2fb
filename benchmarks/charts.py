"""Charts of what the benchmark measured; they need the `plots` extra."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docparade.retrieval.evaluation.plots import figure_axes
from docparade.retrieval.storage.files import check_output

from .growth import Growth

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@contextmanager
def chart_axes(path: Path | None) -> Iterator["Axes | None"]:
    """Axes of a chart, which is written if the block succeeds; a wrong file name is an error before the block runs."""
    if path is None:
        yield None
        return
    check_output(path, "--chart")
    with figure_axes(path, "", "") as axes:
        yield axes


def draw_speed(axes: "Axes", figures: Mapping[str, Mapping[str, Any]]) -> None:
    """A bar for each system that reads documents: real tokens per second."""
    axes.set_ylabel("real tokens per second")
    read = {name: system for name, system in figures.items() if "real_tokens_per_second" in system}
    speeds = [system["real_tokens_per_second"] for system in read.values()]
    bars = axes.bar(list(read), speeds, color=["#4477aa", *["#bbbbbb"] * (len(speeds) - 1)])
    axes.bar_label(bars, [f"{speed:,.0f}" for speed in speeds])


def draw_growth(axes: "Axes", growths: Sequence[Growth]) -> None:
    """Seconds over tokens, with the fitted line, for each thing that grows."""
    axes.set_xlabel("thousands of real tokens")
    axes.set_ylabel("seconds")
    for growth in growths:
        start, slope, explained = growth.fit
        tokens = [count / 1000 for count in growth.tokens]
        (line,) = axes.plot([0, *tokens], [start, *(start + slope * count for count in tokens)], linewidth=1)
        label = f"{growth.what}: {1000 * slope:.0f} ms per 1000 tokens, R² {explained:.4f}"
        axes.plot(tokens, growth.seconds, "o", color=line.get_color(), label=label)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
