"""The colors of the page have enough contrast, in light and in dark; scores are told by lightness, not by hue."""

from __future__ import annotations

import re

import pytest
from support.project import PROJECT

STYLE = (PROJECT / "hub_cards" / "space" / "page.css").read_text(encoding="utf-8")
# Foreground, background, and the contrast that WCAG 2.2 asks for: 4.5 for text, 3 for what is no text.
PAIRS = [
    ("ink", "card", 7.0),
    ("ink", "page", 7.0),
    ("soft", "card", 4.5),
    ("soft", "page", 4.5),
    ("on-accent", "accent", 4.5),
    ("accent", "card", 3.0),
    ("error", "card", 3.0),
    ("hot", "cold", 3.0),
    ("hot", "card", 3.0),
]


def read_colors(scheme: str) -> dict[str, str]:
    block = STYLE[STYLE.index(f"{scheme} {{") :]
    return dict(re.findall(r"--dp-([\w-]+): (#[0-9a-f]{6});", block[: block.index("}")]))


def luminance(color: str) -> float:
    channels = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [":root", ".dark"])
@pytest.mark.parametrize(("front", "back", "least"), PAIRS)
def test_contrast(scheme: str, front: str, back: str, least: float) -> None:
    colors = read_colors(scheme)
    low, high = sorted((luminance(colors[front]), luminance(colors[back])))
    assert (high + 0.05) / (low + 0.05) >= least


@pytest.mark.parametrize("scheme", [":root", ".dark"])
def test_highlighted_text_is_legible(scheme: str) -> None:
    colors = read_colors(scheme)
    # As strong as the highlight can be: the wash of the hottest color, mixed in sRGB.
    share = int(re.search(rf"{re.escape(scheme)} \{{[^}}]*--dp-wash: (\d+)%", STYLE)[1]) / 100  # type: ignore[index]
    mixed = [
        round(int(colors["card"][i : i + 2], 16) * (1 - share) + int(colors["hot"][i : i + 2], 16) * share)
        for i in (1, 3, 5)
    ]
    low, high = sorted((luminance("#" + "".join(f"{value:02x}" for value in mixed)), luminance(colors["ink"])))
    assert (high + 0.05) / (low + 0.05) >= 4.5
