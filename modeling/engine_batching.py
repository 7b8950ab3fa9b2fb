"""Many inputs through the encoder: sorted by length, in batches with a budget of tokens that suits the device."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from transformers.utils import logging

from .encoders import feed_forward_size
from .engine_packing import can_pack
from .engine_threads import map_in_threads, thread_count
from .offloading import has_hooks
from .reader import join_features

if TYPE_CHECKING:
    from .modeling_passages import PassageModel

logger = logging.get_logger(__name__)

# Tokens of a batch on a CPU: larger batches do not fit its cache, and smaller ones need more calls.
CPU_TOKENS = 2048
# When threads divide these tokens, the batch of a thread still has this many.
LEAST_BATCH_OF_A_THREAD = 1536
# With fewer tokens for each thread, all threads share every matrix product instead.
LEAST_WORK_OF_A_THREAD = 1024
# On other devices, the tokens of a batch take half of the free memory, within these bounds.
LEAST_TOKENS, MOST_TOKENS = 2048, 262_144

TakeRows = Callable[[Tensor, int], dict[str, Tensor]]
"""Builds a padded batch from the numbers of its rows and the length of the longest row."""

UseFeatures = Callable[[np.ndarray, Tensor], tuple[np.ndarray, Tensor]]
"""Takes the rows of a batch and their features; returns sort keys and the features to keep, one key for each."""

Batch = tuple[np.ndarray, int]
"""Rows that go through the encoder together, and the length of the longest."""


class TokenBudget:
    """About how many tokens go through the encoder at once, padding included; less once memory has run out.

    Args:
        model: The ranker that reads.
        tokens: How many; `None` suits the device.
    """

    def __init__(self, model: PassageModel, tokens: int | None = None) -> None:
        self.tokens = tokens or default_budget(model)


def encode_by_length(
    model: PassageModel, lengths: np.ndarray, take: TakeRows, budget: TokenBudget | None = None
) -> Tensor:
    """The encoder's features of many inputs, in their order; inputs of similar length are encoded together.

    Args:
        model: The ranker whose `encode` is called.
        lengths: Tokens of each input.
        take: Builds the padded batch of some rows.
        budget: How many tokens go through the encoder at once; `None` suits the device.
    """
    return put_in_order(map_by_length(model, lengths, take, lambda rows, features: (rows, features), budget))


def map_by_length(
    model: PassageModel, lengths: np.ndarray, take: TakeRows, use: UseFeatures, budget: TokenBudget | None = None
) -> list[tuple[np.ndarray, Tensor]]:
    """Apply `use` to the features of each batch, and join the results: all features are never in memory at once.

    The other arguments are as in `encode_by_length`.
    """
    budget = budget or TokenBudget(model)
    batches, threads = plan_batches(model, lengths, budget.tokens)

    def encode(batch: Batch) -> tuple[np.ndarray, Tensor]:
        rows, length = batch
        inputs = take(torch.from_numpy(rows), length)
        return use(rows, model.encode(**{name: tensor.to(model.device) for name, tensor in inputs.items()}))

    if threads > 1:
        return map_in_threads(encode, batches, threads)
    return _encode_in_turn(budget, lengths, encode, batches)


def put_in_order(parts: Sequence[tuple[np.ndarray, Tensor]]) -> Tensor:
    """Join the features of batches, and sort them by their keys."""
    features = join_features([features for _, features in parts])
    order = np.argsort(np.concatenate([numbers for numbers, _ in parts]))
    return features[torch.from_numpy(order).to(features.device)]


def plan_batches(model: PassageModel, lengths: np.ndarray, budget: int | None = None) -> tuple[list[Batch], int]:
    """Which inputs go through the encoder together, the longest first, and in how many threads.

    Example:
        ```python
        batches, threads = plan_batches(model, np.array([30, 10, 20]), budget=40)
        [(rows.tolist(), length) for rows, length in batches], threads  # ([([0], 30), ([2, 1], 20)], 1)
        ```
    """
    budget = budget or default_budget(model)
    longest_first = np.argsort(-lengths, kind="stable")
    # With offloaded weights, one thread would drop weights that another thread has fetched.
    tokens, threads = int(lengths.sum()), 1 if any(map(has_hooks, model.modules())) else thread_count(model.device)
    if threads == 1 or tokens < threads * LEAST_WORK_OF_A_THREAD:
        return list(_cut(longest_first, lengths, budget)), 1
    share = min(budget, max(budget // threads, LEAST_BATCH_OF_A_THREAD))
    if not can_pack(model.encoder):
        return list(_cut(longest_first, lengths, share)), threads
    rounds = math.ceil(tokens / (threads * share))
    return list(_cut_evenly(longest_first, lengths, threads * rounds)), threads


def _cut(rows: np.ndarray, lengths: np.ndarray, budget: int) -> Iterator[Batch]:
    """Divide rows, the longest first, into batches within the budget of tokens."""
    start = 0
    while start < len(rows):
        length = int(lengths[rows[start]])
        batch = rows[start : start + max(1, budget // max(length, 1))]
        yield batch, length
        start += len(batch)


def _cut_evenly(rows: np.ndarray, lengths: np.ndarray, count: int) -> Iterator[Batch]:
    """Divide rows, the longest first, into `count` batches of about equal tokens: threads that share them end together.

    An input is in the batch in whose share of all tokens its middle lies, so a batch may be larger by one input. This
    is for packed inputs: in a padded batch, many short inputs would be padded to the length of a long one.
    """
    middles = np.cumsum(lengths[rows]) - lengths[rows] / 2
    number = (middles * count / lengths.sum()).astype(int)
    for batch in np.split(rows, np.flatnonzero(np.diff(number)) + 1):
        yield batch, int(lengths[batch[0]])


def _rows_of(batches: Iterable[Batch]) -> np.ndarray:
    return np.concatenate([rows for rows, _ in batches])


def _encode_in_turn(
    budget: TokenBudget,
    lengths: np.ndarray,
    encode: Callable[[Batch], tuple[np.ndarray, Tensor]],
    batches: Iterable[Batch],
) -> list[tuple[np.ndarray, Tensor]]:
    """The results of the batches, one after another; batches become smaller when memory runs out."""
    results: list[tuple[np.ndarray, Tensor]] = []
    waiting = deque(batches)
    while waiting:
        rows, length = waiting[0]
        try:
            results.append(encode((rows, length)))
        except torch.OutOfMemoryError:
            # In training, the graph of earlier batches holds the memory: smaller batches would not help.
            if len(rows) == 1 or torch.is_grad_enabled():
                raise
            budget.tokens = max(1, len(rows) // 2) * length
            logger.warning(f"Out of memory: from now on {budget.tokens} tokens go through the encoder at once.")
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            waiting = deque(_cut(_rows_of(waiting), lengths, budget.tokens))
        else:
            waiting.popleft()
    return results


def default_budget(model: PassageModel) -> int:
    """How many tokens are encoded at once by default: `model.batch_tokens`, or a number that suits the device."""
    if model.batch_tokens is not None:
        return model.batch_tokens
    if model.device.type == "cpu":
        return CPU_TOKENS
    if model.device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(model.device)
        return budget_for(free, bytes_per_token(model))
    return LEAST_TOKENS


def budget_for(free_bytes: int, token_bytes: int) -> int:
    """The largest power of two of tokens that takes at most half of the free memory, within the bounds.

    Example:
        >>> budget_for(free_bytes=8 * 2**30, token_bytes=50_000)
        65536
    """
    fitting = max(1, free_bytes // 2 // token_bytes)
    return min(max(1 << (fitting.bit_length() - 1), LEAST_TOKENS), MOST_TOKENS)


def bytes_per_token(model: PassageModel) -> int:
    """Memory of a token at the widest place of the encoder: feed-forward net, its input and output, attention.

    The states of all layers that CEDR matches are in memory, too.
    """
    encoder = model.config.encoder_config
    width = encoder.hidden_size
    length = model.processor.input_length if model.processor is not None else 512
    states = 6 + len(model.config.matched_layers)
    numbers = states * width + 2 * feed_forward_size(encoder) + 2 * encoder.num_attention_heads * length
    return numbers * model.dtype.itemsize
