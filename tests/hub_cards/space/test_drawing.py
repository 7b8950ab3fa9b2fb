"""Rankings as HTML: nothing of a document becomes markup, and everything has a text for those who do not see it."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

pytest.importorskip("pypdf", reason="pypdf is not installed: pip install '.[space]'")

from hypothesis import given, settings, strategies as st
from support.space import make_ranking

from docparade.hub_cards.space.drawing import CELLS_IN_ROW, counted_most, draw_error, draw_rankings, word_emphasizer

EVIL = "<img src=x onerror=alert(1)> \"'><script>alert(2)</script> &amp; ${1+1} {{value}} `x` </details></mark>"
# fmt: off
TAGS = {
    "section", "h2", "h3", "h4", "q", "div", "p", "span", "ol", "li", "nav", "a", "details", "summary", "em", "mark",
}
ATTRIBUTES = {
    "class", "id", "href", "title", "style", "tabindex", "role", "open", "data-columns", "data-passages",
    "aria-hidden", "aria-label",
}
# fmt: on


class Markup(HTMLParser):
    """The elements, attributes and text of a piece of HTML."""

    def __init__(self, drawn: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.open = "", []
        self.feed(drawn)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def of_class(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.elements if name in (attributes.get("class") or "").split()]


def test_nothing_becomes_markup() -> None:
    ranking = make_ranking(
        EVIL + EVIL, [(0, 40), (40, 90)], [1.0, 2.0], name=EVIL, origin=EVIL, weight_means=EVIL, label=EVIL
    )
    markup = Markup(draw_rankings(EVIL, [ranking, ranking]))
    assert {tag for tag, _ in markup.elements} <= TAGS
    assert {name for _, attributes in markup.elements for name in attributes} <= ATTRIBUTES
    assert markup.text.count(EVIL) == 2 * 4 + 1  # label, name, origin, text (twice in it); and the query
    assert Markup(draw_error(EVIL)).text == EVIL


@given(st.text(max_size=60), st.text(max_size=20), st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=60)
def test_the_whole_text_is_there(text: str, query: str, start: int, end: int) -> None:
    start, end = sorted((min(start, len(text)), min(end, len(text))))
    ranking = make_ranking(text, [(start, end), (0, end)], [0.5, 0.1])
    drawn = draw_rankings(query, [ranking])
    body = drawn[drawn.index('<details class="dp-text"') :]
    shown = re.sub(r'<span id="[^"]*" class="dp-anchor".*?</span>', "", body, flags=re.DOTALL)
    # The parser, as a browser does, reads line ends of all kinds as they are in the text.
    assert Markup(f"<ol><li><div>{shown[: shown.index('</li>')]}</div></li></ol>").text == "Whole text" + text


def test_cells_have_their_length_color_and_description() -> None:
    ranking = make_ranking("x" * 100, [(0, 60), (60, 90), (90, 100)], [-1.0, 3.0, 1.0])
    cells = Markup(draw_rankings("x", [ranking])).of_class("dp-cell")
    assert [cell["style"] for cell in cells] == [
        "flex-grow:60;--heat:0.000",
        "flex-grow:30;--heat:1.000",
        "flex-grow:10;--heat:0.500",
    ]
    assert cells[1]["aria-label"] == "Passage 2 of 3, score 3.000, weight 1.00, counted most"
    assert [cell["tabindex"] for cell in cells] == ["-1", "0", "-1"]
    assert [cell["class"] for cell in cells] == ["dp-cell", "dp-cell dp-counted", "dp-cell"]


def test_every_cell_leads_to_its_passage() -> None:
    ranking = make_ranking("One. Two. Three.", [(0, 9), (5, 16)], [0.2, 0.1])
    markup = Markup(draw_rankings("two", [ranking, ranking]))
    ids = [attributes["id"] for _, attributes in markup.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = [cell["href"] for cell in markup.of_class("dp-cell")]
    assert len(targets) == 4 and {target.removeprefix("#") for target in targets if target} <= set(ids)


def test_passages_that_overlap() -> None:
    ranking = make_ranking("One. Two. Three. Four.", [(0, 9), (5, 16)], [0.2, 0.1], unread=1)
    markup = Markup(draw_rankings("x", [ranking]))
    pieces = [
        (attributes["data-passages"], tag) for tag, attributes in markup.elements if "data-passages" in attributes
    ]
    assert pieces == [("0", "mark"), ("0 1", "mark"), ("1", "span")]
    assert len(markup.of_class("dp-unread")) == 1 and "1 further passage not read" in markup.text


def test_a_long_strip_has_rows_of_the_same_scale() -> None:
    count = CELLS_IN_ROW + 8
    ranking = make_ranking(
        "x" * 10 * count, [(i * 10, i * 10 + 10) for i in range(count)], list(map(float, range(count)))
    )
    drawn = draw_rankings("x", [ranking])
    assert drawn.count('class="dp-row"') == 2
    assert f'<span style="flex-grow:{10 * (CELLS_IN_ROW - 8)}"></span>' in drawn


def test_equal_scores_and_empty_texts() -> None:
    markup = Markup(draw_rankings("x", [make_ranking("", [(0, 0)], [0.0])]))
    [cell] = markup.of_class("dp-cell")
    assert cell["style"] == "flex-grow:1;--heat:0.500"


def test_what_counted_most() -> None:
    spans = [(i, i + 1) for i in range(5)]
    scores = [0.1, 0.5, 0.4, 0.3, 0.2]

    def counted(weights: list[float]) -> list[int]:
        [document] = make_ranking("abcde", spans, scores, weights).documents
        return counted_most(document)

    assert counted([1.0, 0, 0, 0, 0]) == [0]  # FirstP
    assert counted([0, 1.0, 0, 0, 0]) == [1]  # MaxP
    assert counted([0.2] * 5) == [1, 2, 3]  # AvgP: the best three
    assert counted([-0.5, -0.1, -0.2, -0.3, -0.4]) == [1]  # PARADE-CNN's weights can be negative


def test_the_second_ranking_says_what_the_first_said() -> None:
    ranking = make_ranking("It rains.", [(0, 9)], [1.0])
    drawn = draw_rankings("rain", [ranking, ranking])
    assert drawn.count("also rank 1 in the other ranking") == 1 and 'data-columns="2"' in drawn


def test_words_of_the_query_are_emphasized_whatever_their_endings() -> None:
    emphasize = word_emphasizer("Why do planes fly?")
    assert emphasize("A plane's wing, flying <high>") == "A <em>plane's</em> wing, <em>flying</em> &lt;high&gt;"
