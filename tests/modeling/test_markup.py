"""What is HTML, what is read of it, and that passages point at the source."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from transformers import PreTrainedTokenizerBase

from docparade import DocumentProcessor
from docparade.modeling.markup import blank_tags, is_html, make_readable, read_page

Tokenizers = dict[str, PreTrainedTokenizerBase]

PAGE = """<!-- saved -->
<!DOCTYPE html>
<html lang="en"><head><title>Rain &amp; sun</title><style>p > b {color: red}</style>
<script>if (a < b) document.write("<p>no</p>")</script></head>
<body class='x > y'><h1>Rain</h1><p>It <b>rai</b>ns caf&eacute;s.<br>1 &lt; 2</p>
<!-- hidden <p> --><svg><title>icon</title></svg><ul><li>one<li>two</ul></body></html>"""
VISIBLE = "Rain & sun\nRain\nIt rains cafés.\n1 < 2\none\ntwo"


@pytest.mark.parametrize(
    "text",
    [
        PAGE,
        "<html><body>Rain",
        '\ufeff<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0//EN" "x.dtd">\n<html><p>Rain',
        "<p>It <em>rains</em>.</p>\n",
        "<div class='a'><p>It rains.<br></p></div>",
    ],
)
def test_html(text: str) -> None:
    assert is_html(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It rains.",
        "1 < 2 and 3 > 2",
        "#include <stdio.h>\nint main(void) { return a<b; }",
        "<?php echo '<p>Rain</p>'; ?>",
        '<?xml version="1.0"?><rain><p>It rains.</p></rain>',
        "<article><para>DocBook</para></article>",
        "<DOC>\n<DOCNO>1</DOCNO><TEXT><p>It rains.</p></TEXT>\n</DOC>",
        "<template><p>Vue</p></template>\n<script>export default {}</script>",
        "<svg xmlns='x'><title>icon</title></svg>",
        "<html> is the root element of a page.",
        "<!DOCTYPE html> stands at the beginning of a page.",
        "<p> begins a paragraph.",
        "<div>{items.map(item => <Item key={item} />)}</div>",
        "<list><item>",
        "Vec<p> and List<div>",
        "# Title\n\n<p>Markdown</p>",
        "<b>bold</b> words begin this text, and <i>others</i>",
    ],
)
def test_what_is_not_html_stays(text: str) -> None:
    assert not is_html(text)
    assert make_readable(text, "html").text == text


def test_a_page_is_read_as_it_is_seen() -> None:
    page = read_page(PAGE)
    assert (page.text, page.title) == (VISIBLE, "Rain & sun")
    assert make_readable(PAGE, False).text == PAGE


def test_tags_of_other_markup_leave_their_place_behind() -> None:
    text = "<DOC>a <b c='d'>e</b> 1 < 2 > 0 <!-- x -->"
    blank = blank_tags(text)
    assert len(blank) == len(text)
    assert blank.split() == ["a", "e", "1", "<", "2", ">", "0"]
    assert make_readable(text, True).text == blank and make_readable(text, "html").text == text


@pytest.mark.parametrize("broken", ["<!--", "<p class='", '<p class="', "<script>", "<!", "<p ", "<title ", "&#1"])
def test_what_is_not_closed_takes_no_time(broken: str) -> None:
    """Each search goes on from where the last one ended: with one for each place, this would take hours."""
    assert len(read_page("<html><p>Rain" + broken * 200_000).text) >= len("Rain")


@settings(max_examples=200)
@given(st.lists(st.sampled_from(["<", ">", "p", "/", "!", "-", '"', "'", "&", "lt;", " ", "\n", "é", "script"])))
def test_every_character_has_its_place(parts: list[str]) -> None:
    text = "".join(parts)
    page = read_page(text)
    assert page.starts is not None and page.ends is not None
    assert len(page.starts) == len(page.ends) == len(page.text)
    assert (np.diff(page.starts) >= 0).all() and (np.diff(page.ends) >= 0).all()
    for character, start, end in zip(page.text, page.starts, page.ends, strict=True):
        assert text[start:end] == character or character.isspace() or text[start] == "&"


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "sentencepiece"])
@pytest.mark.parametrize("unit, window", [("token", 6), ("word", 3), ("sentence", 1)])
def test_passages_of_a_page_point_at_the_source(kind: str, unit: str, window: int, tokenizers: Tokenizers) -> None:
    """The tokens are those of the visible text, and the spans are places in the source."""
    processor = DocumentProcessor(tokenizers[kind], unit=unit, window=window, max_length=64, max_query_tokens=8)
    [page] = processor.encode_documents([PAGE])
    [seen] = processor.encode_documents([VISIBLE])
    assert page.token_ids.tolist() == seen.token_ids.tolist() and page.bounds.tolist() == seen.bounds.tolist()
    passages, _ = processor.split(page, 4)
    for passage, same in zip(passages, processor.split(seen, 4)[0], strict=True):
        readable = read_page(PAGE).between(passage.start, passage.end)
        assert (
            readable
            == VISIBLE[same.start : same.end]
            == processor.passage_text(page.document, passage.start, passage.end)
        )
    assert PAGE[: passages[-1].end].endswith("<li>two")
