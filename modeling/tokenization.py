"""From texts to token ids, and the position of each token in its text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

# The result of a tokenizer takes about a hundred times the memory of the text: longer texts are tokenized in pieces.
PIECE_LENGTH = 100_000
# The length of a piece where there is no space to cut at.
LONGEST_PIECE = 400_000

TokenizedText = tuple[np.ndarray, np.ndarray]
"""The ids of a text's tokens, and their character spans, `(tokens, 2)`."""


def token_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """The ids of a text's tokens, without special tokens."""
    ids: list[int] = _call(tokenizer, [text])["input_ids"][0]
    return ids


def first_token_ids(tokenizer: PreTrainedTokenizerBase, text: str, count: int) -> tuple[list[int], bool]:
    """The ids of a text's first tokens, at most `count` of them, and whether the text has more.

    The tokens are as in the whole text, although only its beginning is tokenized. A cut can change the tokens near it,
    so the beginning ends at a single space, or has twice as many tokens. Text after `LONGEST_PIECE` characters is left
    out.
    """
    characters = 16 * count
    while True:
        characters = min(characters, LONGEST_PIECE)
        end = _end_of_piece(text, 0, characters, min(2 * characters, LONGEST_PIECE))
        ids = token_ids(tokenizer, text[:end])
        if end == len(text) or end == LONGEST_PIECE or len(ids) >= 2 * count:
            return ids[:count], len(ids) > count or end < len(text)
        characters *= 4


def lowercases(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether uppercase and lowercase texts have the same tokens."""
    return token_ids(tokenizer, "ABC") == token_ids(tokenizer, "abc")


def tokenize_texts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[TokenizedText]:
    """Tokenize texts, in as few calls of the tokenizer as memory allows."""
    pieces = [cut_at_spaces(text, PIECE_LENGTH, LONGEST_PIECE) for text in texts]
    tokenized = _tokenize_pieces(tokenizer, [piece for of_text in pieces for piece in of_text])
    return [_concatenate(of_text, list(islice(tokenized, len(of_text)))) for of_text in pieces]


def _tokenize_pieces(tokenizer: PreTrainedTokenizerBase, pieces: Sequence[str]) -> Iterator[TokenizedText]:
    for group in _group(pieces, LONGEST_PIECE):
        encoded = _call(tokenizer, group, return_offsets_mapping=True)
        for ids, spans in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
            yield np.array(ids, np.int32), np.array(spans, np.int64).reshape(-1, 2)


def _call(tokenizer: PreTrainedTokenizerBase, texts: list[str], **options: Any) -> Any:
    return tokenizer(
        texts,
        add_special_tokens=False,
        padding=False,
        truncation=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
        **options,
    )


def _group(pieces: Sequence[str], characters: int) -> Iterator[list[str]]:
    """Pieces in groups of at most so many characters, or of one piece."""
    group: list[str] = []
    length = 0
    for piece in pieces:
        if group and length + len(piece) > characters:
            yield group
            group, length = [], 0
        group.append(piece)
        length += len(piece)
    if group:
        yield group


def _concatenate(pieces: Sequence[str], tokenized: Sequence[TokenizedText]) -> TokenizedText:
    """The tokens of a text, from the tokens of its pieces."""
    starts = np.cumsum([0, *map(len, pieces[:-1])])
    ids = [ids for ids, _ in tokenized]
    spans = [spans + start for start, (_, spans) in zip(starts, tokenized, strict=True)]
    return np.concatenate(ids), np.concatenate(spans)


_SINGLE_SPACE = re.compile(r"(?<=\S) (?=\S)")


def cut_at_spaces(text: str, longest: int, at_most: int) -> list[str]:
    """Cut a text into pieces of about `longest` characters, before single spaces, or after `at_most` if there is none.

    Tokenizers first split at spaces, so the pieces have the tokens of the text. (A run of spaces can be one
    token, and is not cut.) Where there is no space, a token at the cut can differ.

    Example:
        >>> cut_at_spaces("one two three", 5, at_most=100)
        ['one two', ' three']
        >>> cut_at_spaces("onetwothree", 5, at_most=6)
        ['onetwo', 'three']
    """
    pieces, start = [], 0
    while start < len(text):
        end = _end_of_piece(text, start, longest, at_most)
        pieces.append(text[start:end])
        start = end
    return pieces or [text]


def _end_of_piece(text: str, start: int, longest: int, at_most: int) -> int:
    if len(text) - start <= longest:
        return len(text)
    space = _SINGLE_SPACE.search(text, start + longest, start + at_most + 1)
    return min(start + at_most, len(text)) if space is None else space.start()
