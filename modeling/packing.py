"""Real tokens only: the inputs of a batch in one row, without padding, and attention inside each of them.

Encoders of the BERT kind compute on padding. Here a batch of inputs of different length goes through the encoder as one
long row; positions start anew with each input, and an attention function of our own looks at one input at a time (at
all of the same length together). Every other layer works on tokens one by one and does not notice.
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

PACKED = "docparade_packed"
# Encoders whose layers, but for attention, take tokens one by one, and whose attention is plain. Others are padded.
PACKABLE = frozenset({"albert", "bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta"})

# Lengths of the inputs in the row that is in the encoder now.
_lengths: ContextVar[list[int] | None] = ContextVar("lengths", default=None)


def can_pack(encoder: PreTrainedModel) -> bool:
    """Whether an encoder can read packed inputs."""
    takes_positions = "position_ids" in inspect.signature(encoder.forward).parameters
    return encoder.config.model_type in PACKABLE and takes_positions


def prepare_packing(encoder: PreTrainedModel) -> None:
    """Let an encoder that can pack give one vector an input, whatever stands on top of it."""
    encoder.base_model.register_forward_hook(_first_vectors)


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
def packed(encoder: PreTrainedModel, lengths: list[int]) -> Iterator[None]:
    """While this lasts, what the encoder reads is a row of inputs of these lengths."""
    config = encoder.config
    usual = config._attn_implementation
    token = _lengths.set(lengths)
    config._attn_implementation = PACKED
    try:
        yield
    finally:
        config._attn_implementation = usual
        _lengths.reset(token)


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of `(1, heads, tokens, width)` inside each input of the row; gives `(1, tokens, heads, width)`."""
    outputs = []
    start = 0
    for length, inputs in groupby(_lengths.get() or [query.size(2)]):
        count = len(list(inputs))
        end = start + length * count
        q, k, v = (part[0, :, start:end].unflatten(1, (count, length)).transpose(0, 1) for part in (query, key, value))
        attended = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=scaling)
        outputs.append(attended.transpose(1, 2).flatten(0, 1))
        start = end
    return torch.cat(outputs)[None], None


def _no_mask(*_: Any, **__: Any) -> None:
    """Inputs are kept apart by `packed_attention` itself."""


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


AttentionInterface.register(PACKED, packed_attention)
AttentionMaskInterface.register(PACKED, _no_mask)
