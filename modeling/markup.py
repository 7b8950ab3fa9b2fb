"""Documents with markup: whether one is HTML, and the text that a reader of the page sees."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

# Elements that begin a new line of the page; together with the next list, all elements of HTML.
# fmt: off
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "br", "caption", "center", "col", "colgroup", "dd",
    "details", "dialog", "dir", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "frame",
    "frameset", "h1", "h2", "h3", "h4", "h5", "h6", "head", "header", "hgroup", "hr", "html", "legend", "li",
    "link", "main", "menu", "meta", "nav", "ol", "optgroup", "option", "p", "pre", "search", "section", "select",
    "summary", "table", "tbody", "td", "textarea", "tfoot", "th", "thead", "title", "tr", "ul",
})
_INLINE = frozenset({
    "a", "abbr", "acronym", "area", "audio", "b", "base", "bdi", "bdo", "big", "button", "canvas", "cite", "code",
    "data", "datalist", "del", "dfn", "em", "embed", "font", "i", "iframe", "img", "input", "ins", "kbd", "label",
    "map", "mark", "meter", "nobr", "noframes", "object", "output", "param", "picture", "progress", "q", "rp", "rt",
    "ruby", "s", "samp", "slot", "small", "source", "span", "strike", "strong", "sub", "sup", "time", "track", "tt",
    "u", "var", "video", "wbr",
})
# fmt: on
_HIDDEN = "script|style|noscript|template|svg"
# An element that is not closed goes on to the end of the text, as in browsers.
_MARKUP = re.compile(
    rf"""<!--.*?(?:-->|\Z)
    |<({_HIDDEN})(?=[\s/>]).*?(?:</\1(?=[\s/>])[^>]*(?:>|\Z)|\Z)
    |<[!?][^>]*(?:>|\Z)
    |<(/?)([a-z][^\s/>]*)[^>"']*(?:(?:"[^"]*(?:"|\Z)|'[^']*(?:'|\Z))[^>"']*)*(?:>|\Z)
    |&(?:\#\d{{1,7}}|\#x[\da-f]{{1,6}}|[a-z][a-z\d]{{1,31}});""",
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)
_COMMENTS = r"\s*(?:<!--(?:(?!-->).)*-->\s*)*"
_PAGE = re.compile(
    rf"\ufeff?{_COMMENTS}(?:<\?xml[^<>]*>{_COMMENTS})?(?:<!doctype\s+html[^<>]*>|<html(?:\s[^<>]*)?>){_COMMENTS}<[a-z]",
    re.DOTALL | re.IGNORECASE,
)
_FRAGMENT = re.compile(rf"{_COMMENTS}<([a-z][a-z\d]*)[\s/>]", re.DOTALL | re.IGNORECASE)
_ODD_SPACE = re.compile(r"\s{2,}|[^\S\n ]")


@dataclass(frozen=True)
class ReadableText:
    """A document's text without its markup, and where each character stands in the document."""

    text: str
    starts: np.ndarray | None = None
    """The start of each character in the document; `None` if all characters keep their positions."""
    ends: np.ndarray | None = None
    title: str = ""
    """The title of a page, with which its text begins."""

    def find(self, spans: np.ndarray) -> np.ndarray:
        """The places in the document of spans of the text, `(spans, 2)`."""
        if self.starts is None or self.ends is None or not len(self.starts):
            return spans
        ends = np.where(spans[:, 1] > 0, self.ends[spans[:, 1] - 1], 0)
        starts = self.starts[np.minimum(spans[:, 0], len(self.starts) - 1)]
        return np.stack([np.where(spans[:, 0] < spans[:, 1], starts, ends), ends], axis=1)

    def between(self, start: int, end: int) -> str:
        """The text of a part of the document."""
        if self.starts is None or self.ends is None:
            return self.text[start:end]
        return self.text[int(np.searchsorted(self.starts, start)) : int(np.searchsorted(self.ends, end, side="right"))]


def make_readable(text: str, strip_tags: bool | str) -> ReadableText:
    """A document's text as the processor's `strip_tags` says.

    Example:
        >>> make_readable("<p>Rain &amp; <b>sun</b></p>", "html").text, make_readable("<F P=1> Rain", True).text
        ('Rain & sun', '        Rain')
    """
    if strip_tags and is_html(text):
        return read_page(text)
    return ReadableText(blank_tags(text) if strip_tags is True else text)


def is_html(text: str) -> bool:
    """Whether a text is HTML: a page, or a piece of one that begins and ends with a tag and has only HTML's tags.

    XML, source code and texts about HTML are not.

    Example:
        >>> is_html("<!DOCTYPE html><p>Rain"), is_html("<ul><li>Rain</li></ul>"), is_html("<rain>1 < 2</rain>")
        (True, True, False)
    """
    if _PAGE.match(text):
        return True
    begin = _FRAGMENT.match(text)
    if begin is None or begin[1].lower() not in _BLOCKS or not text.rstrip().endswith(">"):
        return False
    tags = [found for found in _MARKUP.finditer(text) if found[3]]
    return all(tag[3].lower() in _BLOCKS | _INLINE for tag in tags) and tags[-1].end() == len(text.rstrip())


def read_page(page: str) -> ReadableText:
    """The text of HTML, one line for each block, without scripts and styles.

    Example:
        >>> read_page("<title>Rain</title><style>p {}</style><p>It <b>rai</b>ns.<br>1 &lt; 2").text.splitlines()
        ['Rain', 'It rains.', '1 < 2']
    """
    text, starts, ends = _rewrite(page, _MARKUP, _read_markup)
    text, of_starts, of_ends = _rewrite(text, _ODD_SPACE, lambda space: "\n" if "\n" in space[0] else " ")
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    starts, ends = starts[of_starts][first:last], ends[of_ends - 1][first:last]
    text = text[first:last]
    return ReadableText(text, starts, ends, _find_title(page, text))


def _find_title(page: str, text: str) -> str:
    """The title of a page whose text begins with it."""
    found = re.search(r"<title(?:\s[^<>]*)?>([^<]*)</title", page, re.IGNORECASE)
    title = " ".join(html.unescape(found[1]).split()) if found else ""
    return title if text.startswith(title) else ""


def _read_markup(found: re.Match[str]) -> str:
    """Markup as a reader sees it: the character that `&lt;` stands for, or a new line."""
    if found[0].startswith("&"):
        return html.unescape(found[0])
    return "\n" if found[1] or (found[3] or "").lower() in _BLOCKS else ""


def _rewrite(
    text: str, pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str]
) -> tuple[str, np.ndarray, np.ndarray]:
    """Replace the matches of a pattern; also where each character of the result starts and ends in the text."""
    pieces, starts, ends = [], [], []
    last = 0
    for found in pattern.finditer(text):
        new = replace(found)
        pieces += [text[last : found.start()], new]
        starts += [np.arange(last, found.start()), np.full(len(new), found.start())]
        ends += [np.arange(last, found.start()) + 1, np.full(len(new), found.end())]
        last = found.end()
    rest = np.arange(last, len(text))
    return "".join([*pieces, text[last:]]), np.concatenate([*starts, rest]), np.concatenate([*ends, rest + 1])


def blank_tags(text: str) -> str:
    """Replace the characters of markup tags by spaces, so that positions stay the same.

    Example:
        >>> blank_tags("<p>1 < 2</p>")
        '   1 < 2    '
    """
    return re.sub(r"</?[A-Za-z!][^<>]*>", lambda tag: " " * len(tag[0]), text)
