"""The sentence splitter: ordinary English, the usual traps, and any text at all."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from docparade.modeling.sentences import sentence_spans


def split(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


@pytest.mark.parametrize(
    "text, sentences",
    [
        ("It rains. We stay.", ["It rains.", "We stay."]),
        ("Really?! Yes.", ["Really?!", "Yes."]),
        ('He said "go." She went.', ['He said "go."', "She went."]),
        (
            "Dr. J. Li of the U.S. Army left at 3.5 p.m. on Monday.",
            ["Dr. J. Li of the U.S. Army left at 3.5 p.m. on Monday."],
        ),
        ("See Fig. 3 and Smith et al. 2019. It works.", ["See Fig. 3 and Smith et al. 2019.", "It works."]),
        ("THE ALLIES MET. MR. KENNEDY SPOKE.", ["THE ALLIES MET.", "MR. KENNEDY SPOKE."]),
        ("A heading\n\nIts text", ["A heading", "Its text"]),
        ("One line\nand the next.", ["One line\nand the next."]),
        ("今天下雨。我们在家！好吗？", ["今天下雨。", "我们在家！", "好吗？"]),
        ("version 2.0 is out... or so", ["version 2.0 is out... or so"]),
        ("", []),
        (" \n\n ", []),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    assert split(text) == sentences


@given(st.text(alphabet=st.sampled_from("aB.!?…。 \n\"'()\u202eش😀"), max_size=60) | st.text(max_size=60))
def test_every_visible_character_lies_in_one_sentence(text: str) -> None:
    spans = sentence_spans(text)
    covered = [position for start, end in spans for position in range(start, end)]
    assert covered == sorted(set(covered))
    visible = {position for position, character in enumerate(text) if not character.isspace()}
    assert visible <= set(covered)
    assert all(not text[start].isspace() and not text[end - 1].isspace() for start, end in spans)


@pytest.mark.parametrize("size", [10, 1_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "piece, sentences",
    [(".", 1), ('."', 1), ("\n", 0), (" \n", 0), ("a.", 1), (".\n", None), ("。", 1), ("<a", 1), ("A. ", None)],
)
def test_long_runs_are_read_once(piece: str, sentences: int | None, size: int) -> None:
    """A run that is read anew from each of its characters would take hours at the greatest size."""
    spans = sentence_spans(piece * size)
    assert sentences is None or len(spans) == sentences
    assert not spans or spans[-1][1] == len((piece * size).rstrip())
