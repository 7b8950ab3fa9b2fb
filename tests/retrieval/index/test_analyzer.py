"""The analyzer against what Lucene 10's English analyzer gave for the same texts."""

import re

import pytest
import regex
from hypothesis import given, strategies as st

from docparade.retrieval import load_collection
from docparade.retrieval.index.analyzer import STOP_WORDS, Vocabulary, _unicode_word, analyze, split_words

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


@given(st.lists(st.sampled_from([*LUCENE, "THE planes", "it's"]) | st.text(max_size=20), max_size=6))
def test_a_vocabulary_numbers_the_same_terms_as_they_come(texts: list[str]) -> None:
    vocabulary = Vocabulary()
    numbers = [vocabulary.analyze(text) for text in texts]
    terms = list(vocabulary.terms)
    assert [[terms[number] for number in text] for text in numbers] == [analyze(text) for text in texts]
    assert terms == list(dict.fromkeys(term for text in texts for term in analyze(text)))
    assert list(vocabulary.terms.values()) == list(range(len(terms)))


@given(st.text(alphabet="abXY01 .,:;'_-/@\n\"", max_size=40) | st.text(st.characters(max_codepoint=127)))
def test_the_fast_path_for_ascii_gives_the_same_words(text: str) -> None:
    assert split_words(text) == _unicode_word().findall(text)


@given(st.text())
def test_words_keep_every_letter_and_digit_in_order(text: str) -> None:
    kept = "".join(split_words(text))
    assert regex.sub(r"[^\p{L}\p{Nd}]", "", kept) == regex.sub(r"[^\p{L}\p{Nd}]", "", text)


# The rules in their plain form: a word may begin with joiners, from whichever of them one starts.
PLAIN_ASCII = re.compile(
    r"_*[a-zA-Z0-9]\w*(?:[.':,;](?:(?<=[a-zA-Z][.':])(?=[a-zA-Z])|(?<=[0-9][.,;'])(?=[0-9]))\w+)*", re.ASCII
)


def plain_unicode() -> "regex.Pattern[str]":
    ignored = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*+"
    letter = rf"[\p{{WB=ALetter}}\p{{WB=Hebrew_Letter}}]{ignored}"
    digit, katakana, joiner = (rf"\p{{WB={name}}}{ignored}" for name in ("Numeric", "Katakana", "ExtendNumLet"))
    between_letters = rf"[\p{{WB=MidLetter}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}:]{ignored}"
    between_digits = rf"[\p{{WB=MidNum}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]{ignored}"
    letters, digits = (
        rf"{sign}(?:(?:{between})?{sign})*" for sign, between in ((letter, between_letters), (digit, between_digits))
    )
    part = rf"(?:(?:{letters}|{digits})+|(?:{katakana})+)"
    word = rf"(?:{joiner})*{part}(?:(?:{joiner})+{part})*(?:{joiner})*"
    sign = rf"[\p{{Han}}\p{{Hiragana}}\p{{L}}\p{{Nd}}]{ignored}"
    return regex.compile(rf"{word}|(?:\p{{LB=SA}}{ignored})+|{sign}")


PLAIN_UNICODE = plain_unicode()
SIGNS = "_\u203f\u0301\u200d\u00ad aB1.,;:'\"·\u0e01\u0e31漢かカー한\u05d0é＿\n"


@given(st.text(alphabet="_aZ09.,:;' ", max_size=60) | st.text(st.characters(max_codepoint=127)))
def test_ascii_words_are_those_of_the_plain_pattern(text: str) -> None:
    assert split_words(text) == PLAIN_ASCII.findall(text)


@given(st.text(alphabet=SIGNS, max_size=60) | st.text())
def test_unicode_words_are_those_of_the_plain_pattern(text: str) -> None:
    assert _unicode_word().findall(text) == PLAIN_UNICODE.findall(text)


def test_the_words_of_real_text_are_those_of_the_plain_patterns(time_magazine: str) -> None:
    for document in load_collection(time_magazine).documents():
        text = document.contents()
        for variant in (text, text.lower(), text.replace(" ", "_"), text.replace("E", "É")):
            assert _unicode_word().findall(variant) == PLAIN_UNICODE.findall(variant)
            assert split_words(variant) == PLAIN_UNICODE.findall(variant)


# Text in which a pattern could start anew at each sign and read on to the end. At the larger size, time that grows with
# the square of the length would be hours.
REPEATED = [
    "_",
    "_\u0301",
    "\u0301_",
    "\u203f\u200d",
    "\u0301",
    "_.",
    "a_",
    "_a",
    "a.",
    "1,",
    "a'",
    "a.\u0301",
    "é_",
    "カ_",
    "漢_",
]


@pytest.mark.parametrize("size", [1_000, 1_000_000])
@pytest.mark.parametrize("before", ["", "a", "é"])
@pytest.mark.parametrize("repeated", REPEATED)
def test_long_runs_take_time_in_proportion(repeated: str, before: str, size: int) -> None:
    text = before + repeated * (size // len(repeated))
    words = split_words(text)
    letters = regex.findall(r"[\p{L}\p{Nd}]", "".join(words[:10]))
    assert bool(words) == bool(before or regex.search(r"[\p{L}\p{Nd}]", repeated))
    assert bool(letters) == bool(words)


def test_a_long_run_of_underscores_is_no_term() -> None:
    assert analyze("_" * 1_000_000) == []
    assert analyze("wing " + "_" * 1_000_000 + "\u203f" * 1000 + " lift") == ["wing", "lift"]
