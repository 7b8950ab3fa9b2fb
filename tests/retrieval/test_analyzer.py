"""The analyzer against what Lucene 10's English analyzer gave for the same texts."""

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from docparade.retrieval.analyzer import STOP_WORDS, _unicode_word, analyze, split_words

LUCENE = {
    "The U.S. Air Force's wing-body tests at Mach 2.5, 1,000 ft/s and 3.5%.": (
        "u. air forc wing bodi test mach 2.5 1,000 ft s 3.5"
    ),
    "It's O'Neill’s THEORIES; that's the technologies' possibly analogous ideologies": (
        "o'neil theori technolog possibl analog ideolog"
    ),
    "x_1 __init__ _ a_b.c 3.a a.3 b3.5c 1,5;2 a:b http://www.nasa.gov/x.html e-mail@host.com": (
        "x_1 __init__ a_b.c 3 3 b3.5c 1,5;2 a:b http www.nasa.gov x.html e mail host.com"
    ),
    "Aerodynamic heating, generalizations, running, flies, dying, happily, sky, agreed, relational": (
        "aerodynam heat gener run fli dy happili sky agre relat"
    ),
    "Größe naïve cafe\u0301 ΑΒΓ Привет мира": "größe naïv cafe\u0301 αβγ привет мира",
    "漢字かな カタカナ ไทยแลนด์ 한국어 हिन्दी": "漢 字 か な カタカナ ไทยแลนด์ 한국어 हिन्दी",
    "to be or not to be, with this such into": "",
    "as us is ay bs trilogy eulogy apology ecologie assembly reproducibly bibli": (
        "us ay bs trilogi eulogi apolog ecologi assembl reproduc bibli"
    ),
    "": "",
    " \t\n...": "",
    " 2024-01-02T03:04:05 3'4 4'' 5\" 1.2.3.4 a.b.c. v1.0a": "2024 01 02t03 04 05 3'4 4 5 1.2.3.4 a.b.c v1.0a",
}


@pytest.mark.parametrize("text", LUCENE)
def test_the_terms_are_lucenes(text: str) -> None:
    assert analyze(text) == LUCENE[text].split()


def test_there_are_33_stop_words() -> None:
    assert len(set(STOP_WORDS)) == 33
    assert analyze(" ".join(STOP_WORDS).upper()) == []


@given(st.text(alphabet="abXY01 .,:;'_-/@\n\"", max_size=40) | st.text(st.characters(max_codepoint=127)))
def test_the_fast_path_for_ascii_gives_the_same_words(text: str) -> None:
    assert split_words(text) == _unicode_word().findall(text)


@given(st.text())
def test_words_keep_every_letter_and_digit_in_order(text: str) -> None:
    kept = "".join(split_words(text))
    assert regex.sub(r"[^\p{L}\p{Nd}]", "", kept) == regex.sub(r"[^\p{L}\p{Nd}]", "", text)
