"""Packing: the inputs of a batch in one row, without padding, and attention only within each of them.

BERT and similar encoders compute on padding. Here a batch of inputs of different length goes through the encoder as one
long row: positions start again with each input, and our own attention function attends within one input at a time
(inputs of equal length are attended to together). All other layers work on single tokens and need no change.

Only the first vector of an input is used. So the last layer computes only that vector, which saves a sixth of the work
in an encoder of six layers.

ModernBERT is packed, too: its rotary positions start again with each input, and layers with a sliding window attend in
blocks, to tokens that are near enough.

On a GPU, in half precision, attention is flash attention over inputs of different length. GPUs without it, and single
precision, use padded inputs.

The attention function replaces transformers' `sdpa`, and calls it where there is no row. The row is an argument of the
encoder's forward, which transformers hands through to every layer and its attention: `encoder(**inputs, row=row)`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import accumulate, groupby
from typing import Any, TypeGuard, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.models.modernbert.modeling_modernbert import apply_rotary_pos_emb

from .encoders import scales_positions
from .offloading import computing_device, has_hooks

# transformers has one table of attention functions by name. Every checkpoint that is loaded with trust_remote_code has
# its own copy of this file, which may be of another version, so each copy registers its function under its own name.
_NAME = "docparade_sdpa"
PACKED_SDPA = f"{_NAME}_{blake2b(__name__.encode(), digest_size=6).hexdigest()}"
# Encoders with plain attention whose other layers work on single tokens. Other encoders read padded inputs.
PACKABLE = frozenset({"albert", "bert", "camembert", "distilbert", "electra", "modernbert", "roberta", "xlm-roberta"})


def _flash_attention_of_torch() -> Callable[..., Any] | None:
    """Flash attention over inputs of different length; `None` if torch has none that takes these arguments."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return (
        varlen_attn
        if {"scale", "num_splits", "window_size"} <= inspect.signature(varlen_attn).parameters.keys()
        else None
    )


varlen_attn = _flash_attention_of_torch()

# Names of the projections to keys and values where they are not `key` and `value`.
_PROJECTIONS = {"distilbert": ("k_lin", "v_lin")}


@dataclass(frozen=True)
class Row:
    """Inputs in one row, as an argument of the encoder's forward."""

    lengths: list[int]
    last_layer: nn.Module | None
    """The layer that computes only the first vector of each input; `None` if every layer computes all vectors."""
    borders: Tensor | None
    """Where each input begins and ends, for flash attention; `None` for other attention."""
    all_states: bool = False
    """Whether the encoder returns the states of all tokens."""
    takes_mean: bool = False
    """Whether the encoder's head takes the mean of an input's states, and not the first."""
    states: Tensor | None = None
    """The states of all tokens before the last layer, for its attention; the layer itself gets first tokens alone."""
    rotary: tuple[Tensor, Tensor] | None = None
    """For the last layer of an encoder with rotary positions: the cosines and sines of all tokens."""

    def first_tokens(self, states: Tensor) -> Tensor:
        """The vectors of each input's first token."""
        return states[:, [0, *accumulate(self.lengths[:-1])]]

    def pool(self, states: Tensor) -> Tensor:
        """One vector of each input, `(1, inputs, width)`, from the states that the encoder's body returns."""
        if self.takes_mean:
            return torch.stack([part.mean(dim=1) for part in states.split(self.lengths, dim=1)], dim=1)
        return states if self.last_layer is not None else self.first_tokens(states)


def prepare_packing(encoder: PreTrainedModel) -> None:
    """Let an encoder read packed inputs, if it can and no other attention was chosen. Doing it twice is harmless."""
    takes_positions = "position_ids" in inspect.signature(encoder.forward).parameters
    attention = encoder.config._attn_implementation or ""
    plain = attention == "sdpa" or attention.startswith(_NAME)
    packable = encoder.config.model_type in PACKABLE and not scales_positions(encoder)
    if packable and takes_positions and plain:
        encoder.config._attn_implementation = PACKED_SDPA
        body = encoder.base_model
        if _first_vectors not in body._forward_hooks.values():
            body.register_forward_hook(_first_vectors, with_kwargs=True)
            if hasattr(encoder.config, "layer_types"):
                body.register_forward_pre_hook(_leave_masks_out, with_kwargs=True)
        for layer in _layers(encoder) or []:
            if _narrow not in layer._forward_pre_hooks.values():
                layer.register_forward_pre_hook(_narrow, with_kwargs=True)


def can_pack(encoder: PreTrainedModel) -> bool:
    """Whether an encoder can read packed inputs in its current state and on its device."""
    if encoder.config._attn_implementation != PACKED_SDPA:
        return False
    # On a GPU, padding is faster than attention in pieces.
    return computing_device(encoder).type == "cpu" or has_flash_attention(encoder)


def has_flash_attention(encoder: PreTrainedModel) -> bool:
    """Whether flash attention can read rows: an Ampere GPU or later, half precision, and no dropout."""
    device = computing_device(encoder)
    if varlen_attn is None or device.type != "cuda" or torch.version.cuda is None or encoder.training:
        return False
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else encoder.dtype
    return dtype in (torch.float16, torch.bfloat16) and torch.cuda.get_device_capability(device) >= (8, 0)


def pack(input_ids: Tensor, attention_mask: Tensor, first_position: int) -> tuple[dict[str, Tensor], list[int]]:
    """A padded batch as one row: ids and positions `(1, tokens)`, and the inputs' lengths.

    Args:
        input_ids: Token ids, `(inputs, length)`, padded on the right.
        attention_mask: 1 where a token is real.
        first_position: Number of an input's first position, which is not 0 for RoBERTa and its relatives.
    """
    real = attention_mask.bool()
    positions = torch.arange(input_ids.size(1), device=input_ids.device).expand_as(input_ids) + first_position
    row = {"input_ids": input_ids[real][None], "position_ids": positions[real][None]}
    return row, attention_mask.sum(dim=1).tolist()


def describe_row(lengths: list[int], encoder: PreTrainedModel, all_states: bool = False) -> Row:
    """The argument `row` of an encoder's forward, for a row of inputs of these lengths.

    With it, the encoder returns the first state of each input, `(inputs, 1, width)`, or with `all_states` the states
    of all tokens, `(1, tokens, width)`.
    """
    borders = None
    if has_flash_attention(encoder):
        borders = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=computing_device(encoder))
    has_head = encoder.base_model is not encoder
    takes_mean = has_head and getattr(encoder.config, "classifier_pooling", "cls") == "mean"
    layers = None if all_states or takes_mean else _layers(encoder)
    last = layers[-1] if layers else None
    if borders is not None and getattr(last, "attention_type", None) == "sliding_attention":
        last = None  # the window of flash attention is not at an input's first token
    return Row(lengths, last, borders, all_states, takes_mean)


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    row: Row | None = None,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention of `(1, heads, tokens, width)` within each input of the row; returns `(1, tokens, heads, width)`.

    In the last layer, only the first token of each input has a query and a result. With a sliding window, a token
    attends to tokens that are less than so many places away.
    """
    if row is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **options)
    if row.rotary is not None:
        key, value = _keys_with_positions(module, row, row.rotary, query.size(1))
    elif row.states is not None:
        to_keys, to_values = _projections(module)
        inference = not (module.training or torch.is_grad_enabled())
        if inference and row.borders is None and _has_weights(to_keys) and _has_weights(to_values):
            return _attend_without_keys(row, query, to_keys, to_values, scaling), None
        projected = (to_keys(row.states), to_values(row.states))
        key, value = (part.unflatten(-1, (query.size(1), -1)).transpose(1, 2) for part in projected)
    if row.borders is not None:
        return _flash_attention(row, row.borders.to(query.device), query, key, value, scaling, sliding_window), None
    outputs = []
    query_start = start = 0
    for length, inputs in groupby(row.lengths):
        count = len(list(inputs))
        queries = count * (length if row.states is None else 1)
        q = _inputs(query, query_start, query_start + queries, count)
        k, v = (_inputs(part, start, start + length * count, count) for part in (key, value))
        if sliding_window is None or length <= sliding_window:
            attended = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=scaling)
        else:
            attended = _attend_near(q, k, v, sliding_window - 1, dropout, scaling)
        outputs.append(attended.transpose(1, 2).flatten(0, 1))
        query_start, start = query_start + queries, start + length * count
    return torch.cat(outputs)[None], None


def _flash_attention(
    row: Row,
    borders: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scaling: float | None,
    sliding_window: int | None,
) -> Tensor:
    """`attend` in one kernel, given where each input begins."""
    assert varlen_attn is not None
    q, k, v = (part.squeeze(0).transpose(0, 1) for part in (query, key, value))
    longest = longest_query = max(row.lengths)
    query_borders = borders
    if row.states is not None:
        query_borders, longest_query = torch.arange(len(borders), dtype=torch.int32, device=borders.device), 1
    # Otherwise, the way an input's sums are split depends on the other inputs in the row.
    options: dict[str, Any] = {"scale": scaling, "num_splits": 1}
    if sliding_window is not None:
        options["window_size"] = (sliding_window - 1, sliding_window - 1)
    return varlen_attn(q, k, v, query_borders, borders, max_q=longest_query, max_k=longest, **options).unsqueeze(0)


def _attend_near(q: Tensor, k: Tensor, v: Tensor, reach: int, dropout: float, scaling: float | None) -> Tensor:
    """Attention of inputs `(inputs, heads, length, width)` to tokens at most `reach` away, in blocks of queries."""
    length, block = k.size(2), 2 * reach
    outputs = []
    for start in range(0, q.size(2), block):
        end = min(start + block, q.size(2))
        first, last = max(0, start - reach), min(length, end + reach)
        places = torch.arange(start, end, device=q.device)[:, None] - torch.arange(first, last, device=q.device)
        near = places.abs() <= reach
        attended = F.scaled_dot_product_attention(
            q[:, :, start:end],
            k[:, :, first:last],
            v[:, :, first:last],
            attn_mask=near,
            dropout_p=dropout,
            scale=scaling,
        )
        outputs.append(attended)
    return torch.cat(outputs, dim=2)


def _inputs(row: Tensor, start: int, end: int, count: int) -> Tensor:
    """Part of the row `(1, heads, tokens, width)` as inputs of equal length, `(inputs, heads, length, width)`."""
    return row[0, :, start:end].unflatten(1, (count, -1)).transpose(0, 1)


def _projections(attention: Any) -> tuple[nn.Module, nn.Module]:
    key, value = _PROJECTIONS.get(attention.config.model_type, ("key", "value"))
    return getattr(attention, key), getattr(attention, value)


def _keys_with_positions(attention: Any, row: Row, rotary: tuple[Tensor, Tensor], heads: int) -> tuple[Tensor, Tensor]:
    """Keys and values of all tokens, `(1, heads, tokens, width)`, of ModernBERT, whose projections are one."""
    fused, states = attention.Wqkv, row.states
    assert states is not None
    if _has_weights(fused):
        width = fused.out_features // 3
        projected = F.linear(states, fused.weight[width:], None if fused.bias is None else fused.bias[width:])
    else:
        projected = fused(states)
        projected = projected[..., projected.size(-1) // 3 :]
    key, value = projected.unflatten(-1, (2, heads, -1)).permute(2, 0, 3, 1, 4)
    return apply_rotary_pos_emb(key, key, *rotary)[1], value


def _has_weights(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a layer can be computed from its weights: it has no adapter, and no hook of accelerate."""
    return type(layer) is nn.Linear and not has_hooks(layer)


def _attend_without_keys(row: Row, query: Tensor, key: nn.Linear, value: nn.Linear, scaling: float | None) -> Tensor:
    """The last layer's attention on the states h, without computing keys and values of all tokens.

    With weights W and biases b: q·(W h + b) = (Wᵀ q)·h + q·b, whose last term is the same for all tokens and cancels
    in the softmax; and Σ a (W h + b) = W (Σ a h) + b. The heads take the place of queries.
    """
    heads, states = query.size(1), row.states
    assert states is not None
    queries = torch.bmm(query[0], key.weight.unflatten(0, (heads, -1))).transpose(0, 1)[:, None]
    outputs = []
    first = start = 0
    for length, inputs in groupby(row.lengths):
        count = len(list(inputs))
        h = states[0, start : start + length * count].unflatten(0, (count, 1, length))
        outputs.append(F.scaled_dot_product_attention(queries[first : first + count], h, h, scale=scaling))
        first, start = first + count, start + length * count
    attended = torch.cat(outputs)[:, 0].transpose(0, 1)
    values = torch.bmm(attended, value.weight.unflatten(0, (heads, -1)).transpose(1, 2)).transpose(0, 1)
    return (values if value.bias is None else values + value.bias.unflatten(0, (heads, -1)))[None]


def _layers(encoder: PreTrainedModel) -> nn.ModuleList | None:
    """The encoder's layers; `None` if layers share their weights (ALBERT)."""
    body: Any = encoder.base_model
    if hasattr(body, "layers"):
        return body.layers
    return getattr(getattr(body, "encoder", None) or body.transformer, "layer", None)


def _narrow(
    layer: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Give the last layer only the inputs' first vectors; its attention finds the others in the row."""
    row = options.get("row")
    if row is None or layer is not row.last_layer:
        return None
    states = arguments[0]
    if (rotary := options.get("position_embeddings")) is None:
        changed = {"row": replace(row, states=states)}
    else:
        # Its attention is given normalized states.
        positions = tuple(row.first_tokens(part) for part in rotary)
        normalized = cast(Any, layer).attn_norm(states)
        changed = {"row": replace(row, states=normalized, rotary=rotary), "position_embeddings": positions}
    return (row.first_tokens(states), *arguments[1:]), {**options, **changed}


def _leave_masks_out(
    body: Any, arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Make no masks for a row, which would be as large as the square of its length; each type of layer has one."""
    if options.get("row") is None:
        return None
    return arguments, {**options, "attention_mask": dict.fromkeys(body.config.layer_types)}


def _first_vectors(body: nn.Module, _: Any, options: dict[str, Any], output: Any) -> Any:
    """Reduce the output of the encoder's body for a row to one vector of each input, as an input of one token."""
    row = options.get("row")
    if row is None or row.all_states:
        return output
    output.last_hidden_state = row.pool(output.last_hidden_state)[0][:, None]
    if getattr(body, "pooler", None) is not None:
        output.pooler_output = _pool(body, output.last_hidden_state)
    return output


def _pool(body: Any, vectors: Tensor) -> Tensor:
    if body.config.model_type == "albert":  # its pooler is a linear layer; the activation is in `forward`
        return body.pooler_activation(body.pooler(vectors[:, 0]))
    return body.pooler(vectors)


AttentionInterface.register(PACKED_SDPA, packed_attention)
AttentionMaskInterface.register(PACKED_SDPA, sdpa_mask)
