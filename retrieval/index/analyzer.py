"""From text to index terms, as in Lucene's English analyzer.

Unicode word breaks, lower case, no possessive 's, Lucene's 33 stop words, Porter's stemmer. The stemmer is Snowball's
(PyStemmer); the word breaks, and the three differences between Lucene's Porter stemmer and Snowball's, are here. Two
details of Lucene are not: it indexes emoji and symbols such as ®, and lets quotation marks join Hebrew letters.
"""

import re
from functools import lru_cache

import regex
import Stemmer

VERSION = 1
"""Incremented when a text may get different terms, so that no old index is used."""

# fmt: off
STOP_WORDS = (
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not", "of",
    "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "will", "with",
)
# fmt: on
POSSESSIVES = ("'s", "’s", "＇s")


# Stop words are dropped before possessives are removed: hence "it's" here.
_STOPPED = frozenset(word + ending for word in STOP_WORDS for ending in ("", *POSSESSIVES))


def analyze(text: str) -> list[str]:
    """The index terms of a text, in order.

    >>> analyze("The plane's technologies")
    ['plane', 'technolog']
    """
    return [stem(word) for word in split_words(text.lower()) if word not in _STOPPED]


class Vocabulary:
    """The index terms of many texts, numbered in the order in which they first occur.

    >>> vocabulary = Vocabulary()
    >>> vocabulary.analyze("The plane's technologies"), vocabulary.analyze("planes")
    ([0, 1], [0])
    >>> vocabulary.terms
    {'plane': 0, 'technolog': 1}
    """

    def __init__(self) -> None:
        self.terms: dict[str, int] = {}
        # Word -> number of its term, or None for a stop word: no word is stemmed twice.
        self._words: dict[str, int | None] = dict.fromkeys(_STOPPED)

    def analyze(self, text: str) -> list[int]:
        """The numbers of a text's terms, in order; a new term gets the next number."""
        numbers = []
        for word in split_words(text.lower()):
            if word in self._words:
                number = self._words[word]
            else:
                number = self._words[word] = self.terms.setdefault(stem(word), len(self.terms))
            if number is not None:
                numbers.append(number)
        return numbers


def split_words(text: str) -> list[str]:
    """The words of a text by the word-break rules of Unicode (UAX 29), as Lucene reads them.

    >>> split_words("the u.s. paid 1,000.50 for rock'n'roll and/or x_1")
    ['the', 'u.s', 'paid', '1,000.50', 'for', "rock'n'roll", 'and', 'or', 'x_1']
    """
    return _ASCII_WORD.findall(text) if text.isascii() else _unicode_word().findall(text)


# The same rules for ASCII text, several times faster: letters, digits and _ stay together; . ' : join two letters, and
# . , ; ' two digits; a word has a letter or a digit. A sequence of _ is matched from its first one only, so that the
# time for a long sequence without a word after it is linear in its length.
_ASCII_WORD = re.compile(
    r"(?:(?<!_)_+)?[a-zA-Z0-9]\w*(?:[.':,;](?:(?<=[a-zA-Z][.':])(?=[a-zA-Z])|(?<=[0-9][.,;'])(?=[0-9]))\w+)*", re.ASCII
)


@lru_cache(maxsize=1)
def _unicode_word() -> "regex.Pattern[str]":
    """Compiled when the first text that is not ASCII is analyzed."""
    ignored = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*+"
    letter = rf"[\p{{WB=ALetter}}\p{{WB=Hebrew_Letter}}]{ignored}"
    digit = rf"\p{{WB=Numeric}}{ignored}"
    katakana = rf"\p{{WB=Katakana}}{ignored}"
    joiner = rf"\p{{WB=ExtendNumLet}}{ignored}"
    # In newer versions of Unicode, a colon does not join letters; in Lucene, it still does.
    between_letters = rf"[\p{{WB=MidLetter}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}:]{ignored}"
    between_digits = rf"[\p{{WB=MidNum}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]{ignored}"
    letters = rf"{letter}(?:(?:{between_letters})?{letter})*"
    digits = rf"{digit}(?:(?:{between_digits})?{digit})*"
    part = rf"(?:(?:{letters}|{digits})+|(?:{katakana})+)"
    # As above, a run of joiners is read from its first one only, and without backtracking (++).
    joiners = rf"(?:{joiner})++"
    word = rf"(?:(?<!{joiner}){joiners})?+{part}(?:{joiners}{part})*+(?:{joiners})?+"
    # Scripts without spaces: runs of South-East Asian letters stay whole, Chinese and Hiragana go sign by sign. So does
    # whatever else is a letter or a digit: no word is lost.
    south_east_asian = rf"(?:\p{{LB=SA}}{ignored})+"
    sign = rf"[\p{{Han}}\p{{Hiragana}}\p{{L}}\p{{Nd}}]{ignored}"
    return regex.compile(f"{word}|{south_east_asian}|{sign}")


_porter = Stemmer.Stemmer("porter", 0)  # 0: no cache of its own, a vocabulary remembers every word
_VOWEL_THEN_CONSONANT = re.compile(r"(?:[aeiou]|(?<=[^aeiou])y)(?:[^aeiouy]|(?<=[aeiou])y)")


def stem(word: str) -> str:
    """Porter's stemmer on a word without its possessive, as Lucene applies it.

    Lucene's version, like Porter's own program, does not change words of two letters, and turns -logi into -log and
    -bli into -ble; the published algorithm, which Snowball implements, does not.

    >>> [stem(word) for word in ("flying", "plane's", "as", "possibly", "psychology")]
    ['fly', 'plane', 'as', 'possibl', 'psycholog']
    """
    if word.endswith(POSSESSIVES):
        word = word[:-2]
    if len(word) <= 2:
        return word
    stemmed: str = _porter.stemWord(word)
    # A word in -ie loses its e in the last step, too late for either rule.
    if stemmed.endswith("logi") and not word.endswith("ie") and _VOWEL_THEN_CONSONANT.search(stemmed[:-4]):
        return stemmed[:-1]
    if stemmed.endswith("bli") and not word.endswith("ie") and _VOWEL_THEN_CONSONANT.search(stemmed[:-3]):
        return str(_porter.stemWord(stemmed[:-1] + "e"))
    return stemmed
