"""Long texts are tokenized in pieces, and have the same tokens."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from support.project import LICENSE
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.modeling import tokenization
from docparade.modeling.tokenization import LONGEST_PIECE, cut_at_spaces, first_token_ids, token_ids, tokenize_texts

Tokenizers = dict[str, PreTrainedTokenizerBase]

messy_text = st.text(
    alphabet=st.sampled_from("abcde WORK license the.,!?()-'\"\n\t  éß漢字ش😀\u200b"), min_size=0, max_size=400
)


@given(st.text(alphabet="ab ", max_size=80), st.integers(1, 20))
def test_pieces_are_the_text(text: str, longest: int) -> None:
    pieces = cut_at_spaces(text, longest, at_most=100)
    assert "".join(pieces) == text
    assert all(piece[0] == " " and piece[1] != " " for piece in pieces[1:])
    assert all(longest <= len(piece) and piece[-1] != " " for piece in pieces[:-1])
    # No piece is longer than it has to be: no single space after its first `longest` characters.
    assert not any(re.search(r"\S \S", piece[longest - 1 :]) for piece in pieces if longest > 1)


@given(st.text(alphabet="ab ", max_size=120), st.integers(1, 10), st.integers(0, 10))
def test_no_piece_is_longer_than_it_may_be(text: str, longest: int, more: int) -> None:
    pieces = cut_at_spaces(text, longest, at_most=longest + more)
    assert "".join(pieces) == text
    assert all(len(piece) <= longest + more for piece in pieces)
    # Where there is a single space in reach, the cut is there.
    for before, after in pairwise(pieces):
        assert after[0] == " " or not re.search(r"\S \S", before[longest - 1 :] + after[:1]) or longest == 1


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "sentencepiece"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=messy_text | st.just(LICENSE[:3000]), longest=st.integers(5, 60))
def test_a_text_in_pieces_has_the_tokens_of_the_whole(
    kind: str, text: str, longest: int, tokenizers: Tokenizers
) -> None:
    [(ids, spans)] = tokenize_texts(tokenizers[kind], [text])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenization, "PIECE_LENGTH", longest)
        [(pieced_ids, pieced_spans)] = tokenize_texts(tokenizers[kind], [text])
    assert pieced_ids.tolist() == ids.tolist()
    assert pieced_spans[:, 1].tolist() == spans[:, 1].tolist()


@pytest.fixture(scope="session")
def own_tokenizers(tokenizers: Tokenizers, seq2seq_folder: Callable[..., Path]) -> Tokenizers:
    return {**tokenizers, "t5": AutoTokenizer.from_pretrained(seq2seq_folder("t5"))}


# Words, and what stands between them: single spaces, runs of white space, nothing, marks that belong to a letter.
gaps = st.sampled_from([" ", " ", " ", "  ", "\n", "\t \n", " " * 40, "", "\u0301", "\u200b", "。", " \u0301", "\xa0"])
words = st.sampled_from(["the", "License", "work's", "é", "漢字", "ش", "😀", "x" * 120, "12345", "a-b", "<pad>", "ﬁ"])
long_text = st.lists(st.tuples(words, gaps), max_size=60).map(lambda parts: "".join(map("".join, parts)))


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "sentencepiece", "t5"])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.sampled_from(["", " ", "\n" * 99]),
    text=long_text | messy_text,
    times=st.integers(1, 20),
    count=st.integers(1, 8),
)
def test_the_first_tokens_are_those_of_the_whole(
    kind: str, before: str, text: str, times: int, count: int, own_tokenizers: Tokenizers
) -> None:
    tokenizer, text = own_tokenizers[kind], before + text * times
    whole = token_ids(tokenizer, text)
    assert first_token_ids(tokenizer, text, count) == (whole[:count], len(whole) > count)


@pytest.mark.parametrize(
    "text",
    ["word " * 4_000_000, "word\n" * 4_000_000, "漢" * 20_000_000, " " * 20_000_000 + "x", "a" * 20_000_000],
    ids=["words", "lines", "letters", "spaces", "one word"],
)
def test_little_of_a_long_text_is_tokenized(text: str, tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    call = tokenization._call

    def record(tokenizer: PreTrainedTokenizerBase, texts: list[str], **options: Any) -> Any:
        read.extend(map(len, texts))
        return call(tokenizer, texts, **options)

    monkeypatch.setattr(tokenization, "_call", record)
    ids, has_more = first_token_ids(tokenizers["wordpiece"], text, 62)
    assert has_more and len(ids) <= 62
    assert sum(read) < 1.5 * LONGEST_PIECE
    if len(ids) == 62:
        assert sum(read) < 2500


@pytest.mark.slow
def test_text_without_spaces_takes_bounded_memory(
    tiny_ranker: Callable[..., DocumentRanker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer's result takes hundreds of bytes a character: it is never given too many of them at once."""
    model = tiny_ranker(MaxPForSequenceClassification, "max")
    sizes: list[int] = []
    call = tokenization._call

    def record(tokenizer: PreTrainedTokenizerBase, texts: list[str], **options: Any) -> Any:
        sizes.append(sum(map(len, texts)))
        return call(tokenizer, texts, **options)

    monkeypatch.setattr(tokenization, "_call", record)
    text = "漢字" * 600_000 + " " + "word " * 300_000
    [ranked] = model.rank("grant", [text])
    assert max(sizes) <= LONGEST_PIECE
    assert sum(sizes) == len("grant") + len(text)
    assert ranked.passages[-1].end == len(text.rstrip())
