"""Where the output is redirected, long work says in lines how far it is."""

from __future__ import annotations

import sys

import pytest
from tqdm.auto import tqdm

from docparade.retrieval import progress
from docparade.retrieval.progress import ProgressLines, show_progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that have passed, which tests set."""
    seconds = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: seconds[0])
    return seconds


def test_a_line_every_half_minute(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    shown = show_progress(range(4), "reading", unit=" documents")
    assert isinstance(shown, ProgressLines)
    for _ in shown:
        clock[0] += 20
    assert capsys.readouterr().err.splitlines() == [
        "reading: 2 of 4 documents after 40 s, about 40 s left",
        "reading: 4 of 4 documents after 1 min 20 s, about 0 s left",
    ]


def test_work_of_unknown_length(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(desc="reading", unit=" lines") as shown:
        clock[0] += 100
        shown.update(1200)
    assert capsys.readouterr().err == "reading: 1,200 lines after 1 min 40 s\n"


def test_short_work_says_nothing(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    assert list(show_progress([1, 2])) == [1, 2]
    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with show_progress(total=1) as shown:
        assert isinstance(shown, tqdm) and not shown.disable
    with show_progress(total=1, hide=True) as shown:
        assert isinstance(shown, tqdm) and shown.disable
