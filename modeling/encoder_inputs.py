"""The encoder's inputs: query and passage with the special tokens around them, padded to a batch.

The formats are the tokenizer's own, found by encoding a text or a pair with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from .processing_settings import prompt_parts
from .tokenization import token_ids

# How many tokens before a line break are tokenized again with it.
_SEAM = 8


class LineBreak:
    """A line break after a text that is tokenized apart: in many tokenizers, it is part of a token such as `?\\n`.

    Args:
        tokenizer: The tokenizer.
        text: The line break, with spaces around it; it may be empty.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, text: str) -> None:
        self.tokenizer, self.text = tokenizer, text
        self.ids = token_ids(tokenizer, text) if text else []

    def add_to(self, ids: Sequence[int] | np.ndarray) -> Sequence[int] | np.ndarray:
        """The tokens of a text with the line break after it, as if both were tokenized together."""
        if not self.ids:
            return ids
        for start in range(max(0, len(ids) - _SEAM), len(ids)):
            tail = [int(one) for one in ids[start:]]
            text = cast(str, self.tokenizer.decode(tail, clean_up_tokenization_spaces=False))
            # Where the text begins inside of a character, or loses its first space, fewer tokens may be a whole text.
            if token_ids(self.tokenizer, text) == tail:
                joined = token_ids(self.tokenizer, text + self.text)
                if len(joined) <= len(tail) + len(self.ids):
                    return np.concatenate([ids[:start], joined]).astype(np.int64)
        return np.concatenate([ids, self.ids]).astype(np.int64)


@dataclass(frozen=True)
class PairTemplate:
    """The tokens before, between and after query and passage (special tokens, and a prompt), and the segments."""

    before: list[int]
    between: list[int]
    after: list[int]
    segments: list[int]
    """Segments of: before, query, between, passage, after."""
    query_break: LineBreak | None = None
    """The line break between the query and `between`, which is part of the query's tokens."""
    passage_break: LineBreak | None = None
    """The line break between the passage and `after`."""

    @property
    def length(self) -> int:
        """Number of tokens beside query and passage."""
        ending = 0 if self.passage_break is None else len(self.passage_break.ids)
        return len(self.before) + len(self.between) + ending + len(self.after)

    def join(self, query_ids: Sequence[int], passage_ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """Join query and passage with what stands around them: ids and segments, of shape `(2, length)`."""
        if self.passage_break is not None:
            passage_ids = self.passage_break.add_to(passage_ids)
        parts = (self.before, query_ids, self.between, passage_ids, self.after)
        lengths = [len(part) for part in parts]
        joined = np.empty((2, sum(lengths)), dtype=np.int64)
        joined[0] = np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])
        joined[1] = np.repeat(self.segments, lengths)
        return joined


def find_single_template(tokenizer: PreTrainedTokenizerBase) -> PairTemplate:
    """The tokenizer's own format of one text, found by encoding one."""
    single = tokenizer("a")
    owners = single.sequence_ids(0)
    start, end = owners.index(0), len(owners) - owners[::-1].index(0)
    return PairTemplate(single["input_ids"][:start], [], single["input_ids"][end:], [0] * 5)


def find_pair_template(tokenizer: PreTrainedTokenizerBase) -> PairTemplate:
    """The tokenizer's own pair format, found by encoding a pair."""
    pair = tokenizer("a", "b", return_token_type_ids=True)
    owners = pair.sequence_ids(0)
    ids, segments = pair["input_ids"], pair["token_type_ids"]
    query, passage = owners.index(0), owners.index(1)
    query_end = len(owners) - owners[::-1].index(0)
    passage_end = len(owners) - owners[::-1].index(1)
    places = (0, query, query_end, passage, len(ids) - 1)
    return PairTemplate(ids[:query], ids[query_end:passage], ids[passage_end:], [segments[place] for place in places])


def make_prompt_template(tokenizer: PreTrainedTokenizerBase, prompt: str, instruction: str) -> PairTemplate:
    """The prompt, in the tokenizer's own format of one text, unless it has these special tokens itself."""
    parts = prompt_parts(prompt, instruction)
    _check_borders(tokenizer, prompt)
    single = find_single_template(tokenizer)
    before, after = token_ids(tokenizer, parts.before), token_ids(tokenizer, parts.after)
    if before[: len(single.before)] != single.before:
        before = [*single.before, *before]
    if after[len(after) - len(single.after) :] != single.after:
        after = [*after, *single.after]
    return PairTemplate(
        before,
        token_ids(tokenizer, parts.between) if parts.between else [],
        after,
        segments=[0] * 5,
        query_break=LineBreak(tokenizer, parts.query_break),
        passage_break=LineBreak(tokenizer, parts.document_break),
    )


def _check_borders(tokenizer: PreTrainedTokenizerBase, prompt: str) -> None:
    """Refuse a prompt in which query or document could share a token with the words around them."""
    tokens = tuple({*cast(Any, tokenizer).get_added_vocab(), *tokenizer.all_special_tokens})
    for place in ("{query}", "{document}"):
        before, after = prompt.split(place)
        ends, begins = before[-1].isspace() or before.endswith(tokens), after[0].isspace() or after.startswith(tokens)
        if not (ends and begins):
            raise ValueError(
                f"prompt is {prompt!r}, and has to have a space, a line break or a special token before and after "
                f"{place}."
            )


def pad_inputs(inputs: Sequence[np.ndarray], padding: int, with_segments: bool) -> dict[str, torch.Tensor]:
    """Pad joined inputs to one batch `(inputs, length)`.

    Args:
        inputs: From `PairTemplate.join`.
        padding: The padding token.
        with_segments: Whether the encoder has `token_type_ids`.
    """
    shape = (len(inputs), max(joined.shape[1] for joined in inputs))
    batch = {
        "input_ids": np.full(shape, padding),
        "attention_mask": np.zeros(shape, dtype=np.int64),
        "token_type_ids": np.zeros(shape, dtype=np.int64),
    }
    for row, (ids, segments) in enumerate(inputs):
        batch["input_ids"][row, : len(ids)] = ids
        batch["attention_mask"][row, : len(ids)] = 1
        batch["token_type_ids"][row, : len(ids)] = segments
    if not with_segments:
        del batch["token_type_ids"]
    return {name: torch.from_numpy(array) for name, array in batch.items()}


def stack_passages(flat: dict[str, torch.Tensor], counts: Sequence[int], padding: int) -> dict[str, torch.Tensor]:
    """Stack a batch of the passages of several documents to `(documents, passages, length)`, with a `passage_mask`.

    Args:
        flat: From `pad_inputs`.
        counts: How many passages each document has.
        padding: The padding token.
    """
    passage_mask = torch.arange(max(counts)) < torch.tensor(counts)[:, None]
    stacked = {}
    for name, values in flat.items():
        filler = padding if name == "input_ids" else 0
        stacked[name] = values.new_full((*passage_mask.shape, values.size(1)), filler)
        stacked[name][passage_mask] = values
    return {**stacked, "passage_mask": passage_mask}
