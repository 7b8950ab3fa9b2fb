"""A ranking as HTML: for each document a heat strip, its best passages, and its text with the passages marked.

Everything that comes from a user or a document is escaped. `page.css` has the style, `page.js` what keys and clicks do.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from docparade.modeling.engine_results import RankedDocument, RankedPassage
from docparade.retrieval.index.analyzer import analyze, split_words, stem

from .ranking import Ranking
from .sources import SourceDocument

CELLS_IN_ROW = 32
"""A strip with more passages has several rows, so that cells stay wide enough to be touched on a phone."""
TOP_PASSAGES = 3

Emphasize = Callable[[str], str]
"""From a text to HTML in which the query's words are emphasized."""


def draw_rankings(query: str, rankings: Sequence[Ranking]) -> str:
    """Draw one ranking, or several side by side, as safe HTML.

    ```python
    IPython.display.HTML(f"<style>{read_style()}</style>{draw_rankings(query, rankings)}")
    ```
    """
    emphasize = word_emphasizer(query)
    first = {document.index: rank for rank, document in enumerate(rankings[0].documents, start=1)}
    columns = [
        _draw_column(column, ranking, emphasize, first if column else {}) for column, ranking in enumerate(rankings)
    ]
    return (
        f'<section class="dp-results" data-columns="{len(columns)}" aria-label="Results">'
        f'<h2 id="dp-heading" class="dp-heading" tabindex="-1">Ranked for <q>{html.escape(query)}</q></h2>'
        f'<div class="dp-columns">{"".join(columns)}</div></section>'
    )


def draw_error(sentence: str) -> str:
    """Draw a sentence that says what is wrong, as safe HTML."""
    return f'<p class="dp-error" role="alert" tabindex="-1">{html.escape(sentence)}</p>'


def _draw_column(column: int, ranking: Ranking, emphasize: Emphasize, first: dict[int, int]) -> str:
    scale = Scale.of(ranking.documents)
    cards = [
        _Card(f"dp-{column}-{document.index}", rank, document, ranking.sources[document.index], scale, emphasize).draw(
            first.get(document.index)
        )
        for rank, document in enumerate(ranking.documents, start=1)
    ]
    passages = sum(len(document.passages) for document in ranking.documents)
    facts = [
        count(len(ranking.documents), "document"),
        count(passages, "passage"),
        count(ranking.tokens, "token"),
        f"{ranking.seconds:.2f} s",
    ]
    return (
        f'<div class="dp-column"><h3 class="dp-method">{html.escape(ranking.label)}</h3>'
        f'<p class="dp-facts">{" · ".join(facts)}</p>{_draw_legend(scale, ranking.weight_means)}'
        f'<ol class="dp-cards">{"".join(cards)}</ol></div>'
    )


def _draw_legend(scale: Scale, weight_means: str) -> str:
    return (
        '<div class="dp-legend"><span>Passage score</span>'
        f"<span>{scale.low:.2f}</span><span class='dp-ramp' aria-hidden='true'></span><span>{scale.high:.2f}</span>"
        f'<span class="dp-counted-key" title="Weight: {html.escape(weight_means)}">'
        '<span class="dp-dot" aria-hidden="true"></span>counted most</span></div>'
    )


class Scale:
    """Places the scores of all passages of a ranking between 0, the lowest, and 1, the highest.

    >>> Scale(-2.0, 6.0).place(4.0)
    0.75
    """

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    @classmethod
    def of(cls, documents: Sequence[RankedDocument]) -> Scale:
        scores = [passage.score for document in documents for passage in document.passages]
        return cls(min(scores, default=0.0), max(scores, default=0.0))

    def place(self, score: float) -> float:
        """Where a score is between the lowest and the highest; if all are equal, in the middle."""
        return (score - self.low) / (self.high - self.low) if self.high > self.low else 0.5


def counted_most(document: RankedDocument) -> list[int]:
    """The numbers of the passages that made the document's score, best first: those with the greatest weights."""
    numbers = _best_first(document)[:TOP_PASSAGES]
    return [number for number in numbers if document.passages[number].weight > 0] or numbers[:1]


def _best_first(document: RankedDocument) -> list[int]:
    def value(number: int) -> tuple[float, float]:
        return document.passages[number].weight, document.passages[number].score

    return sorted(range(len(document.passages)), key=value, reverse=True)


class _Card:
    """One document of a ranking."""

    def __init__(
        self,
        key: str,
        rank: int,
        document: RankedDocument,
        source: SourceDocument,
        scale: Scale,
        emphasize: Emphasize,
    ) -> None:
        self.key, self.rank, self.document, self.source = key, rank, document, source
        self.scale, self.emphasize = scale, emphasize
        self.name = html.escape(source.name)
        self.passages = document.passages
        self.counted = counted_most(document)

    def draw(self, first_rank: int | None) -> str:
        return (
            f'<li class="dp-card" id="{self.key}">'
            f'<div class="dp-title"><span class="dp-rank" aria-label="Rank {self.rank}">{self.rank}</span>'
            f'<h4 class="dp-name">{self.name}</h4>'
            f'<span class="dp-score" title="Score">{self._draw_score()}</span></div>'
            f'<p class="dp-facts">{self._draw_facts(first_rank)}</p>'
            f"{self._draw_strip()}{self._draw_top_passages()}{self._draw_text()}</li>"
        )

    def _draw_score(self) -> str:
        return "no text, so last" if self.document.empty else f"{self.document.score:.3f}"

    def _draw_facts(self, first_rank: int | None) -> str:
        facts = [html.escape(self.source.origin)] if self.source.origin else []
        facts.append(count(len(self.document.text.split()), "word"))
        facts.append(count(len(self.passages), "passage"))
        if self.document.unread:
            facts.append(f"{count(self.document.unread, 'further passage')} not read: the model has a limit")
        if first_rank is not None:
            moved = "also" if first_rank == self.rank else "but"
            facts.append(f"{moved} rank {first_rank} in the other ranking")
        return " · ".join(facts)

    def _draw_strip(self) -> str:
        numbers = range(len(self.passages))
        rows = [list(numbers[start : start + CELLS_IN_ROW]) for start in range(0, len(numbers), CELLS_IN_ROW)]
        lengths = [sum(map(self._length, row)) for row in rows]
        drawn = [
            f'<div class="dp-row">{"".join(map(self._draw_cell, row))}{_draw_filler(max(lengths) - length)}</div>'
            for row, length in zip(rows, lengths, strict=True)
        ]
        return f'<nav class="dp-strip" aria-label="Passages of {self.name}">{"".join(drawn)}</nav>'

    def _length(self, number: int) -> int:
        return max(1, self.passages[number].end - self.passages[number].start)

    def _draw_cell(self, number: int) -> str:
        # One cell of a strip is reached by Tab, the others from there by the arrow keys.
        reached = "0" if number == self.counted[0] else "-1"
        counted = " dp-counted" if number in self.counted else ""
        described = self._describe(number)
        return (
            f'<a class="dp-cell{counted}" href="#{self.key}-{number}" tabindex="{reached}" title="{described}" '
            f'aria-label="{described}" style="flex-grow:{self._length(number)};{self._heat(number)}"></a>'
        )

    def _describe(self, number: int) -> str:
        passage = self.passages[number]
        place = f"Passage {number + 1} of {len(self.passages)}"
        counted = ", counted most" if number in self.counted else ""
        return f"{place}, score {passage.score:.3f}, weight {passage.weight:.2f}{counted}"

    def _heat(self, number: int) -> str:
        return f"--heat:{self.scale.place(self.passages[number].score):.3f}"

    def _draw_top_passages(self) -> str:
        top = _best_first(self.document)[:TOP_PASSAGES]
        drawn = []
        for place, number in enumerate(top):
            passage = self.passages[number]
            is_open = " open" if self.rank == 1 and place == 0 else ""
            counted = '<span class="dp-dot" aria-label="counted most"></span>' if number in self.counted else ""
            drawn.append(
                f'<details class="dp-passage" style="{self._heat(number)}"{is_open}><summary>'
                f'<span class="dp-number">Passage {number + 1}{counted}</span>'
                f'<span class="dp-begin">{html.escape(" ".join(self._excerpt(passage).split()[:16]))}</span>'
                f'<span class="dp-score">{passage.score:.3f}</span></summary>'
                f'<p class="dp-body">{self.emphasize(self._excerpt(passage))}</p></details>'
            )
        return f'<div class="dp-top">{"".join(drawn)}</div>'

    def _excerpt(self, passage: RankedPassage) -> str:
        """A passage's text; it can begin and end inside a sentence."""
        before = "… " if passage.start > 0 else ""
        after = " …" if passage.end < len(self.document.text.rstrip()) else ""
        return f"{before}{passage.text.strip().lstrip('.,;:!?)')}{after}".replace("…  ", "… ")

    def _draw_text(self) -> str:
        pieces = "".join(self._draw_piece(start, end) for start, end in pairwise(self._boundaries()))
        return (
            '<details class="dp-text"><summary>Whole text</summary>'
            f'<div class="dp-body dp-scroll" role="region" aria-label="Text of {self.name}" tabindex="0">{pieces}</div>'
            "</details>"
        )

    def _boundaries(self) -> list[int]:
        """Where passages begin and end. They can overlap, so the text is drawn in pieces between these positions."""
        inner = {position for passage in self.passages for position in (passage.start, passage.end)}
        return sorted({0, len(self.document.text), *inner})

    def _draw_piece(self, start: int, end: int) -> str:
        text = self.emphasize(self.document.text[start:end])
        covering = [n for n, passage in enumerate(self.passages) if passage.start <= start and end <= passage.end]
        if not covering:
            unread = bool(self.document.unread) and bool(self.document.text[start:end].strip())
            return f'<span class="dp-unread" title="Not read">{text}</span>' if unread else text
        anchors = "".join(
            f'<span id="{self.key}-{number}" class="dp-anchor" tabindex="-1" role="note" '
            f'aria-label="{self._describe(number)}">{number + 1}</span>'
            for number in covering
            if self.passages[number].start == start
        )
        best = max(covering, key=lambda number: self.passages[number].score)
        kind = "mark" if set(covering) & set(self.counted) else "span"
        numbers = " ".join(map(str, covering))
        return f'{anchors}<{kind} class="dp-piece" data-passages="{numbers}" style="{self._heat(best)}">{text}</{kind}>'


def _draw_filler(length: int) -> str:
    return f'<span style="flex-grow:{length}"></span>' if length else ""


def count(number: int, noun: str) -> str:
    """A number of things, in the singular or the plural.

    >>> count(1, "document"), count(1200, "token")
    ('1 document', '1,200 tokens')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def word_emphasizer(query: str) -> Emphasize:
    """A function that escapes a text and emphasizes the query's words in it, whatever their endings.

    >>> word_emphasizer("stale loaf")("Loaves & <b>stale</b>, one loaf's")
    "Loaves &amp; &lt;b&gt;<em>stale</em>&lt;/b&gt;, one <em>loaf's</em>"
    """
    terms = set(analyze(query))
    escaped: dict[str, str] = {}

    def escape_word(word: str) -> str:
        if word not in escaped:
            is_term = any(stem(part) in terms for part in split_words(word.lower()))
            plain = html.escape(word, quote=False)
            escaped[word] = f"<em>{plain}</em>" if is_term else plain
        return escaped[word]

    def emphasize(text: str) -> str:
        # Every second piece is a word.
        pieces = re.split(r"([^\W_][\w'’]*)", text)
        pieces[::2] = [html.escape(piece, quote=False) for piece in pieces[::2]]
        pieces[1::2] = map(escape_word, pieces[1::2])
        return "".join(pieces)

    return emphasize
