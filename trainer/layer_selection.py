"""Making a student from a teacher by keeping some of its encoder's layers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import nn
from transformers import PreTrainedModel

from docparade.modeling import DocumentRanker
from docparade.retrieval.errors import InputError

Model = TypeVar("Model", bound=PreTrainedModel)


def take_layers(model: Model, layers: Sequence[int]) -> Model:
    """Copy a ranker or an encoder with only these encoder layers, counted from 0, in this order.

    Everything else (embeddings, head, aggregator) is copied unchanged.

    Example:
        ```python
        student = take_layers(teacher, [0, 2, 4])
        student.config.encoder_config.num_hidden_layers  # 3
        ```
    """
    student = copy.deepcopy(model)
    encoder = student.encoder if isinstance(student, DocumentRanker) else student
    config = encoder.config
    count = config.num_hidden_layers
    check_layers(layers, count)
    if isinstance(student, DocumentRanker) and student.config.matched_layers not in ([], [count]):
        raise InputError(
            f"layers: the ranker matches the states of the layers {student.config.matched_layers}, and its head does "
            "not fit others: build a ranker on an encoder that has fewer layers."
        )
    owner, name, all_layers = _find_layers(encoder, count)
    kept = nn.ModuleList(all_layers[layer] for layer in layers)
    setattr(owner, name, kept)
    # The configurations of some encoders list something for each layer.
    lists = {setting: getattr(config, setting, None) for setting in ("layer_types", "attention_window")}
    config.num_hidden_layers = len(layers)
    for setting, values in lists.items():
        if isinstance(values, list):
            setattr(config, setting, [values[layer] for layer in layers])
    _check_loadable(encoder, kept)
    return student


def check_layers(layers: Sequence[int], count: int) -> None:
    """Refuse layers that an encoder with `count` layers does not have."""
    if not layers:
        raise InputError("layers is empty: name the layers to keep, counted from 0, such as 0,2,4.")
    for layer in layers:
        if not 0 <= layer < count:
            raise InputError(f"layers names {layer}, and the encoder has the layers 0 to {count - 1}.")
    if len(set(layers)) < len(layers):
        raise InputError(f"layers names a layer twice: {', '.join(map(str, layers))}.")


def _check_loadable(encoder: PreTrainedModel, kept: nn.ModuleList) -> None:
    """Refuse layers whose weights an encoder built from the new configuration could not load."""
    with torch.device("meta"):
        _, _, expected = _find_layers(type(encoder)(copy.deepcopy(encoder.config)), len(kept))
    if expected.state_dict().keys() != kept.state_dict().keys():
        raise InputError(f"the first layer of {type(encoder).__name__} is unlike the others: keep layer 0 first.")


def _find_layers(encoder: nn.Module, count: int) -> tuple[nn.Module, str, nn.ModuleList]:
    """Find the list of the encoder's layers, the module that owns it, and its attribute name."""
    for owner in encoder.modules():
        for name, child in owner.named_children():
            if isinstance(child, nn.ModuleList) and len(child) == count and len({type(layer) for layer in child}) == 1:
                return owner, name, child
    raise InputError(f"{type(encoder).__name__} has no list of {count} layers, so layers cannot be selected.")
