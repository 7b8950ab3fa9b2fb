"""Many inputs through the encoder: sorted by length, in batches of as many tokens as the device likes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from transformers.utils import logging

from .streams import in_streams, stream_count

if TYPE_CHECKING:
    from .ranker import DocumentRanker

logger = logging.get_logger(__name__)

# On a CPU its cache decides, not its memory: more tokens are slower, fewer waste calls.
CPU_TOKENS = 2048
# Cores share the budget, but for this much. With less to do than this for each, they rather share every product.
LEAST_TOKENS_OF_A_STREAM = 1024
# Elsewhere a batch gets half of the free memory, within these bounds.
LEAST_TOKENS, MOST_TOKENS = 2048, 262_144

TakeRows = Callable[[Tensor, int], dict[str, Tensor]]
"""Gives the padded batch of some rows, and of the length that the longest of them has."""


def encode_by_length(model: DocumentRanker, lengths: np.ndarray, take: TakeRows, budget: int | None = None) -> Tensor:
    """The encoder's features of many inputs, in their order; inputs of like length go through it together.

    Args:
        model: Whose `encode` is called.
        lengths: Tokens of each input.
        take: Gives the padded batch of some rows.
        budget: Tokens of a batch, padding included; `None` suits the device.
    """
    budget = budget or default_budget(model)
    longest_first = np.argsort(-lengths, kind="stable")
    tokens, streams = int(lengths.sum()), stream_count(model.device)
    if streams > 1 and tokens >= streams * LEAST_TOKENS_OF_A_STREAM:
        # As many batches for each stream, and all of about the same size: they end together.
        share = min(budget, max(budget // streams, LEAST_TOKENS_OF_A_STREAM))
        rounds = -(-tokens // (streams * share))
        batches = _batches(longest_first, lengths, -(-tokens // (streams * rounds)))
        parts = in_streams(lambda batch: _encode_rows(model, take, *batch), batches, streams)
    else:
        parts = _encode_in_turn(model, lengths, take, longest_first, budget)
    back = torch.from_numpy(np.argsort(longest_first)).to(parts[0].device)
    return torch.cat(parts)[back]


def _batches(rows: np.ndarray, lengths: np.ndarray, budget: int) -> Iterator[tuple[np.ndarray, int]]:
    """Rows, the longest first, in batches of the budget's tokens, each with the length of its longest."""
    start = 0
    while start < len(rows):
        length = int(lengths[rows[start]])
        batch = rows[start : start + max(1, budget // max(length, 1))]
        yield batch, length
        start += len(batch)


def _encode_in_turn(
    model: DocumentRanker, lengths: np.ndarray, take: TakeRows, rows: np.ndarray, budget: int
) -> list[Tensor]:
    """The features of the rows, batch after batch; batches become smaller where memory runs out."""
    parts: list[Tensor] = []
    while len(rows):
        batch, length = next(_batches(rows, lengths, budget))
        try:
            parts.append(_encode_rows(model, take, batch, length))
        except torch.OutOfMemoryError:
            # While training, the memory is in the graph of what was read before: smaller batches would not help.
            if len(batch) == 1 or torch.is_grad_enabled():
                raise
            budget = model.batch_tokens = max(1, len(batch) // 2) * length
            logger.warning(f"Out of memory: from now on {budget} tokens go through the encoder at once.")
            if model.device.type == "cuda":
                torch.cuda.empty_cache()
        else:
            rows = rows[len(batch) :]
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
    feed_forward = getattr(encoder, "intermediate_size", None) or getattr(encoder, "hidden_dim", 4 * width)
    length = model.processor.max_length if model.processor is not None else 512
    return (6 * width + 2 * feed_forward + 2 * encoder.num_attention_heads * length) * model.dtype.itemsize
