"""Pictures are drawn, in the format of the file's name, or not written at all."""

import subprocess
import sys
from pathlib import Path

import pytest

from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.analyses import Difference, RankBin, UniqueRelevant
from docparade.retrieval.evaluation.plots import (
    plot_differences,
    plot_relevant_by_rank,
    plot_relevant_passages,
    plot_unique_relevant,
)

pytest.importorskip("matplotlib")

SIGNATURES = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


def draw(path: Path, picture: str) -> None:
    if picture == "unique":
        found = [UniqueRelevant(depth, 100, 30, {1: 10, 2: depth}) for depth in (10, 20)]
        plot_unique_relevant(path, found, found, ("one", "other"))
    elif picture == "bins":
        bins = [RankBin(1, 10, 2.0, 1.0, 0.5, 0.0), RankBin(11, 20, 1.0, 0.0, 0.0, 0.0), RankBin(101, 200, 0, 0, 0, 0)]
        plot_relevant_by_rank(path, bins, "title", ("one", "other"))
    elif picture == "passages":
        plot_relevant_passages(path, {1: 60, 2: 20, 7: 5})
    else:
        plot_differences(path, [Difference("1", 0.1, 0.5), Difference("2", 0.4, 0.2)], "AP", ("one", "other"))


@pytest.mark.parametrize("suffix", SIGNATURES)
@pytest.mark.parametrize("picture", ["unique", "bins", "passages", "differences"])
def test_every_picture_in_every_format(tmp_path: Path, picture: str, suffix: str) -> None:
    path = tmp_path / f"{picture}{suffix}"
    draw(path, picture)
    assert path.read_bytes().startswith(SIGNATURES[suffix])
    assert list(tmp_path.iterdir()) == [path]


def test_labels_and_counts_stand_in_the_picture(tmp_path: Path) -> None:
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):  # letters, not outlines
        draw(tmp_path / "differences.svg", "differences")
        draw(tmp_path / "bins.svg", "bins")
    text = (tmp_path / "differences.svg").read_text(encoding="utf-8")
    assert "other better on 1, equal on 0, worse on 1" in text
    assert "AP: other − one" in text
    text = (tmp_path / "bins.svg").read_text(encoding="utf-8")
    assert all(label in text for label in ("only one", "only other", "1–10", "101–200", "wider bins"))
    assert "neither" not in text  # nothing of it to show


def test_an_unknown_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"figure\.bmp: .*\.png"):
        draw(tmp_path / "figure.bmp", "unique")
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_extra_is_named(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from docparade.retrieval import InputError, plot_relevant_passages\n"
        "try: plot_relevant_passages('figure.png', {1: 1})\n"
        "except InputError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "plots need matplotlib; install it with: pip install matplotlib.\n"
