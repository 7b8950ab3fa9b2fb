"""Heads and aggregators compute in 32-bit floats, whatever the type of the encoder.

In half precision, a score has three digits: many documents would have equal scores. So these parts keep weights of 32
bits when a ranker is loaded in half precision or converted to it, and compute outside of autocast.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

HALF = (torch.float16, torch.bfloat16)

# The device type for which autocast is off until the head that is running ends.
_paused: ContextVar[str | None] = ContextVar("paused", default=None)


def at_least_single(vectors: Tensor) -> Tensor:
    """Vectors in single precision or better: similarities and scores in half precision are too coarse."""
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))


def heads_of(encoder: PreTrainedModel) -> dict[str, nn.Module]:
    """The parts of a classifier on top of its encoder, by name; none of a model without a head.

    A language-model head is not among them: its weights can be the word embeddings, and it converts those it uses.
    """
    body = encoder.base_model
    if body is encoder:
        return {}
    others = (body, encoder.get_output_embeddings())
    return {name: part for name, part in encoder.named_children() if part not in others}


def weights_type(module: nn.Module) -> torch.dtype:
    """The type of a module's weights; 32-bit floats if it has none."""
    return next((weights.dtype for weights in module.parameters()), torch.float32)


def keep_weights(modules: Iterable[nn.Module], before: dict[nn.Parameter, Tensor] | None = None) -> None:
    """Set weights in half precision back to 32 bits; `before` has the values from before their conversion, if known."""
    for weights in (weights for module in modules for weights in module.parameters()):
        if weights.dtype in HALF:
            exact = (before or {}).get(weights, weights.data)
            weights.data = (weights.data if exact.is_meta else exact).to(weights.device, torch.float32)


def compute_in_single(head: nn.Module) -> None:
    """Let an encoder's head compute in the type of its own weights, outside of autocast."""
    if _enter not in head._forward_pre_hooks.values():
        head.register_forward_pre_hook(_enter, with_kwargs=True)
        head.register_forward_hook(_leave, always_call=True)


def _enter(head: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    own = weights_type(head)

    def convert(value: Any) -> Any:
        is_states = isinstance(value, Tensor) and value.is_floating_point()
        return value.to(torch.promote_types(value.dtype, own)) if is_states else value

    states = next(value for value in (*arguments, *options.values()) if isinstance(value, Tensor))
    if torch.is_autocast_enabled(states.device.type):
        torch.set_autocast_enabled(states.device.type, False)
        _paused.set(states.device.type)
    return tuple(map(convert, arguments)), {name: convert(value) for name, value in options.items()}


def _leave(head: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
    if (device := _paused.get()) is not None:
        torch.set_autocast_enabled(device, True)
        _paused.set(None)
