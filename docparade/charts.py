"""Pictures of what the benchmark measured; they need the `plots` extra."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from docparade.growth import Growth
from docparade.retrieval.plots import figure_axes


def draw_speed(path: str | Path, figures: Mapping[str, Mapping[str, Any]]) -> None:
    """A bar for each system: real tokens a second."""
    with figure_axes(path, "", "real tokens a second") as axes:
        speeds = [system["real_tokens_per_second"] for system in figures.values()]
        bars = axes.bar(list(figures), speeds, color=["#4477aa", *["#bbbbbb"] * (len(speeds) - 1)])
        axes.bar_label(bars, [f"{speed:,.0f}" for speed in speeds])


def draw_growth(path: str | Path, growths: Sequence[Growth]) -> None:
    """Seconds over tokens, with the line that fits them, for each thing that grows."""
    with figure_axes(path, "thousands of real tokens", "seconds") as axes:
        for growth in growths:
            start, slope, explained = growth.fit
            tokens = [count / 1000 for count in growth.tokens]
            (line,) = axes.plot([0, *tokens], [start, *(start + slope * count for count in tokens)], linewidth=1)
            label = f"{growth.what}: {1000 * slope:.0f} ms for 1000 tokens, R² {explained:.4f}"
            axes.plot(tokens, growth.seconds, "o", color=line.get_color(), label=label)
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False)
