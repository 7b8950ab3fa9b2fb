"""The encoder's inputs: query and passage with the special tokens around them, padded to a batch.

The formats are the tokenizer's own, found by encoding a text or a pair with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from .processing_settings import prompt_parts
from .tokenization import token_ids


@dataclass(frozen=True)
class PairTemplate:
    """The tokens before, between and after query and passage (special tokens, and a prompt), and the segments."""

    before: list[int]
    between: list[int]
    after: list[int]
    segments: list[int]
    """Segments of: before, query, between, passage, after."""

    @property
    def length(self) -> int:
        """Number of tokens beside query and passage."""
        return len(self.before) + len(self.between) + len(self.after)

    def join(self, query_ids: Sequence[int], passage_ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """Join query and passage with the tokens around them: ids and segments, of shape `(2, length)`."""
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


def make_prompt_template(tokenizer: PreTrainedTokenizerBase, prompt: str) -> PairTemplate:
    """The prompt, in the tokenizer's own format of one text."""
    before, between, after = prompt_parts(prompt)
    single = find_single_template(tokenizer)
    return PairTemplate(
        before=[*single.before, *token_ids(tokenizer, before)],
        between=token_ids(tokenizer, f" {between}"),
        after=[*token_ids(tokenizer, f" {after}"), *single.after],
        segments=[0] * 5,
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
