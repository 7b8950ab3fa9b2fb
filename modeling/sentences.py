"""Where the sentences of a text begin and end, by rules: nothing to download, nothing to install.

A checkpoint contains this file, so that it splits texts the same way wherever it is loaded.
"""

from __future__ import annotations

import re

# Words that end in a period inside a sentence, in lower case, without the period.
_ABBREVIATIONS = """
adm al approx apr assn aug ave ca capt cf ch cmdr co col corp dec dept dr ed eds eq eqs est etc feb fig figs gen gov hon
inc jan jr lt ltd maj mr mrs ms mt no nos nov oct op p pp pres prof rep rev sec sen sep sept sgt sr st supt univ v vol
vols vs
"""
ABBREVIATIONS = frozenset(_ABBREVIATIONS.split())

# A sentence can end at ASCII marks (and closing quotes or brackets) before white space, at CJK marks, at a blank line.
# White space is checked after the match: in the pattern, a long run of marks would be scanned once for each mark.
_CANDIDATE = re.compile(r"""(?P<mark>[.!?…]+)["'”’)\]]*|[。！？]+[」』”’）]*|(?P<blank>\n[^\S\n]*\n)""")
_LAST_WORD = re.compile(r"[^\s(\[\"'“‘]+$")


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Character spans of the sentences of a text, in order, without the white space around them.

    Every character that is not white space is in exactly one span.

    Example:
        >>> [text[a:b] for text in ["Dr. Li left. Who came?"] for a, b in sentence_spans(text)]
        ['Dr. Li left.', 'Who came?']
    """
    spans, start = [], 0
    for candidate in _CANDIDATE.finditer(text):
        if _ends_sentence(text, candidate):
            spans.append((start, candidate.end()))
            start = candidate.end()
    spans.append((start, len(text)))
    return [stripped for span in spans if (stripped := _strip(text, *span))]


def _ends_sentence(text: str, candidate: re.Match[str]) -> bool:
    if candidate["blank"] or candidate["mark"] is None:
        return True
    if not text[candidate.end() : candidate.end() + 1].isspace():
        return False
    following = _next_visible(text, candidate.end(), len(text))
    if text[following : following + 1].islower():
        return False
    return candidate["mark"] != "." or not _is_abbreviation(text, candidate.start())


def _is_abbreviation(text: str, period: int) -> bool:
    # No abbreviation is longer than this window, which bounds the work.
    word = _LAST_WORD.search(text, max(0, period - 24), period)
    if word is None:
        return False
    last = word[0].lower()
    return last in ABBREVIATIONS or (last.isalpha() and len(last) == 1) or re.fullmatch(r"(\w\.)+\w", last) is not None


def _next_visible(text: str, position: int, end: int) -> int:
    while position < end and text[position].isspace():
        position += 1
    return position


def _strip(text: str, start: int, end: int) -> tuple[int, int] | None:
    start = _next_visible(text, start, end)
    while end > start and text[end - 1].isspace():
        end -= 1
    return (start, end) if start < end else None
