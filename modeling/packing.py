"""Real tokens only: the inputs of a batch in one row, without padding, and attention inside each of them.

Encoders of the BERT kind compute on padding. Here a batch of inputs of different length goes through the encoder as one
long row; positions start anew with each input, and an attention function of our own looks at one input at a time (at
all of the same length together). Every other layer works on tokens one by one and does not notice.

The function takes the place of transformers' `sdpa`, and is that wherever no row is being read. What is being read is
known to the thread that reads it alone, so that threads may share a model.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

PACKED_SDPA = "docparade_sdpa"
# Encoders whose layers, but for attention, take tokens one by one, and whose attention is plain. Others are padded.
PACKABLE = frozenset({"albert", "bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta"})

# Lengths of the inputs in the row that is in the encoder now.
_lengths: ContextVar[list[int] | None] = ContextVar("lengths", default=None)


def prepare_packing(encoder: PreTrainedModel) -> None:
    """Let an encoder read packed inputs, if it is one that can and has not been told to use other attention."""
    takes_positions = "position_ids" in inspect.signature(encoder.forward).parameters
    if encoder.config.model_type in PACKABLE and takes_positions and encoder.config._attn_implementation == "sdpa":
        encoder.config._attn_implementation = PACKED_SDPA
        encoder.base_model.register_forward_hook(_first_vectors)


def can_pack(encoder: PreTrainedModel) -> bool:
    """Whether an encoder can read packed inputs now."""
    # Gradient checkpointing reads a second time, when the row is gone.
    return encoder.config._attn_implementation == PACKED_SDPA and not encoder.is_gradient_checkpointing


def pack(input_ids: Tensor, attention_mask: Tensor, first_position: int) -> tuple[dict[str, Tensor], list[int]]:
    """A padded batch as one row: ids and positions `(1, tokens)`, and the inputs' lengths.

    Args:
        input_ids: Token ids, `(inputs, length)`, padded on the right.
        attention_mask: 1 where a token is real.
        first_position: Number of an input's first position: RoBERTa and its kin do not begin at 0.
    """
    real = attention_mask.bool()
    positions = torch.arange(input_ids.size(1), device=input_ids.device).expand_as(input_ids) + first_position
    row = {"input_ids": input_ids[real][None], "position_ids": positions[real][None]}
    return row, attention_mask.sum(dim=1).tolist()


@contextmanager
def packed(lengths: list[int]) -> Iterator[None]:
    """While this lasts, what this thread's encoders read is a row of inputs of these lengths."""
    token = _lengths.set(lengths)
    try:
        yield
    finally:
        _lengths.reset(token)


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention of `(1, heads, tokens, width)` inside each input of the row; gives `(1, tokens, heads, width)`."""
    lengths = _lengths.get()
    if lengths is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **options)
    outputs = []
    start = 0
    for length, inputs in groupby(lengths):
        count = len(list(inputs))
        end = start + length * count
        q, k, v = (part[0, :, start:end].unflatten(1, (count, length)).transpose(0, 1) for part in (query, key, value))
        attended = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=scaling)
        outputs.append(attended.transpose(1, 2).flatten(0, 1))
        start = end
    return torch.cat(outputs)[None], None


def packed_mask(*arguments: Any, **options: Any) -> Tensor | None:
    """The mask that `sdpa` takes; none for a row, in which `packed_attention` itself keeps inputs apart."""
    return sdpa_mask(*arguments, **options) if _lengths.get() is None else None


def _first_vectors(body: nn.Module, _: Any, output: Any) -> Any:
    """Of a packed row, what the encoder's body gives: each input's first vector, as an input of one token."""
    lengths = _lengths.get()
    if lengths is None:
        return output
    firsts = torch.tensor([0, *lengths[:-1]], device=output.last_hidden_state.device).cumsum(0)
    output.last_hidden_state = output.last_hidden_state[0, firsts][:, None]
    if getattr(body, "pooler", None) is not None:
        output.pooler_output = _pool(body, output.last_hidden_state)
    return output


def _pool(body: Any, vectors: Tensor) -> Tensor:
    if body.config.model_type == "albert":  # its pooler is a linear layer, with the rest of it in `forward`
        return body.pooler_activation(body.pooler(vectors[:, 0]))
    return body.pooler(vectors)


AttentionInterface.register(PACKED_SDPA, packed_attention)
AttentionMaskInterface.register(PACKED_SDPA, packed_mask)
