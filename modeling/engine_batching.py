"""Many inputs through the encoder: sorted by length, in batches of as many tokens as the device likes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from transformers.utils import logging

from .encoders import feed_forward_size
from .engine_packing import can_pack
from .engine_threads import in_streams, stream_count

if TYPE_CHECKING:
    from .modeling_ranker import DocumentRanker

logger = logging.get_logger(__name__)

# On a CPU its cache decides, not its memory: more tokens are slower, fewer waste calls.
CPU_TOKENS = 2048
# Cores share the budget, but each has at least this much at once.
TOKENS_OF_A_STREAM = 1536
# With less than this to do for each, they rather share every product.
LEAST_WORK_OF_A_STREAM = 1024
# Elsewhere a batch gets half of the free memory, within these bounds.
LEAST_TOKENS, MOST_TOKENS = 2048, 262_144

TakeRows = Callable[[Tensor, int], dict[str, Tensor]]
"""Gives the padded batch of some rows, and of the length that the longest of them has."""

Batch = tuple[np.ndarray, int]
"""Rows that go through the encoder together, and the length of the longest."""


def encode_by_length(model: DocumentRanker, lengths: np.ndarray, take: TakeRows, budget: int | None = None) -> Tensor:
    """The encoder's features of many inputs, in their order; inputs of like length go through it together.

    Args:
        model: Whose `encode` is called.
        lengths: Tokens of each input.
        take: Gives the padded batch of some rows.
        budget: About how many tokens are in the encoder at once, padding included; `None` suits the device.
    """
    batches, streams = plan_batches(model, lengths, budget)
    if streams > 1:
        parts = in_streams(lambda batch: _encode_rows(model, take, *batch), batches, streams)
    else:
        parts = _encode_in_turn(model, lengths, take, batches)
    back = np.argsort(_rows_of(batches))
    return torch.cat(parts)[torch.from_numpy(back).to(parts[0].device)]


def plan_batches(model: DocumentRanker, lengths: np.ndarray, budget: int | None = None) -> tuple[list[Batch], int]:
    """Which inputs go through the encoder together, the longest first, and in how many streams.

    Example:
        >>> batches, streams = plan_batches(model, np.array([30, 10, 20]), budget=40)  # doctest: +SKIP
        >>> [(rows.tolist(), length) for rows, length in batches], streams  # doctest: +SKIP
        ([([0], 30), ([2, 1], 20)], 1)
    """
    budget = budget or default_budget(model)
    longest_first = np.argsort(-lengths, kind="stable")
    tokens, streams = int(lengths.sum()), stream_count(model.device)
    if streams == 1 or tokens < streams * LEAST_WORK_OF_A_STREAM:
        return list(_cut(longest_first, lengths, budget)), 1
    share = min(budget, max(budget // streams, TOKENS_OF_A_STREAM))
    if not can_pack(model.encoder):
        return list(_cut(longest_first, lengths, share)), streams
    rounds = -(-tokens // (streams * share))
    return list(_cut_evenly(longest_first, lengths, streams * rounds)), streams


def _cut(rows: np.ndarray, lengths: np.ndarray, budget: int) -> Iterator[Batch]:
    """Rows, the longest first, in batches of the budget's tokens."""
    start = 0
    while start < len(rows):
        length = int(lengths[rows[start]])
        batch = rows[start : start + max(1, budget // max(length, 1))]
        yield batch, length
        start += len(batch)


def _cut_evenly(rows: np.ndarray, lengths: np.ndarray, count: int) -> Iterator[Batch]:
    """Rows, the longest first, in so many batches of about as many tokens each: streams that share them end together.

    A batch has the inputs whose middle lies in its part of all tokens, so it may be larger by one input. It is for
    packed rows: in a padded batch, each of many short inputs would grow to the length of a long one.
    """
    middles = np.cumsum(lengths[rows]) - lengths[rows] / 2
    number = (middles * count / lengths.sum()).astype(int)
    for batch in np.split(rows, np.flatnonzero(np.diff(number)) + 1):
        yield batch, int(lengths[batch[0]])


def _rows_of(batches: Iterable[Batch]) -> np.ndarray:
    return np.concatenate([rows for rows, _ in batches])


def _encode_in_turn(
    model: DocumentRanker, lengths: np.ndarray, take: TakeRows, batches: Iterable[Batch]
) -> list[Tensor]:
    """The features of the rows, batch after batch; batches become smaller where memory runs out."""
    parts: list[Tensor] = []
    waiting = deque(batches)
    while waiting:
        rows, length = waiting[0]
        try:
            parts.append(_encode_rows(model, take, rows, length))
        except torch.OutOfMemoryError:
            # While training, the memory is in the graph of what was read before: smaller batches would not help.
            if len(rows) == 1 or torch.is_grad_enabled():
                raise
            model.batch_tokens = max(1, len(rows) // 2) * length
            logger.warning(f"Out of memory: from now on {model.batch_tokens} tokens go through the encoder at once.")
            if model.device.type == "cuda":
                torch.cuda.empty_cache()
            waiting = deque(_cut(_rows_of(waiting), lengths, model.batch_tokens))
        else:
            waiting.popleft()
    return parts


def _encode_rows(model: DocumentRanker, take: TakeRows, rows: np.ndarray, length: int) -> Tensor:
    batch = take(torch.from_numpy(rows), length)
    return model.encode(**{name: tensor.to(model.device) for name, tensor in batch.items()})


def default_budget(model: DocumentRanker) -> int:
    """How many tokens go through the encoder at once where nobody says: what was found before, or suits the device."""
    if model.batch_tokens is not None:
        return model.batch_tokens
    if model.device.type == "cpu":
        return CPU_TOKENS
    if model.device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(model.device)
        return budget_for(free, bytes_per_token(model))
    return LEAST_TOKENS


def budget_for(free_bytes: int, token_bytes: int) -> int:
    """The largest power of two of tokens that takes no more than half of the free memory, within the bounds.

    Example:
        >>> budget_for(free_bytes=8 * 2**30, token_bytes=50_000)
        65536
    """
    fitting = max(1, free_bytes // 2 // token_bytes)
    return min(max(1 << (fitting.bit_length() - 1), LEAST_TOKENS), MOST_TOKENS)


def bytes_per_token(model: DocumentRanker) -> int:
    """What a token takes at the widest place of the encoder: the feed-forward net, its input and output, attention."""
    encoder = model.config.encoder_config
    width = encoder.hidden_size
    length = model.processor.max_length if model.processor is not None else 512
    numbers = 6 * width + 2 * feed_forward_size(encoder) + 2 * encoder.num_attention_heads * length
    return numbers * model.dtype.itemsize
