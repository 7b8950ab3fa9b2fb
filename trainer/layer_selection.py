"""Students made of a teacher: an encoder that keeps some of its layers."""

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
    """A copy of a ranker or an encoder that keeps only these layers of the encoder, counted from 0, in this order.

    The embeddings, what stands on top of the layers, and the aggregator are kept as they are.

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
    parent, name, found = _layer_list(encoder, count)
    kept = nn.ModuleList(found[layer] for layer in layers)
    setattr(parent, name, kept)
    # Some encoders have layers of several kinds, and the configuration says which is which.
    kinds = getattr(config, "layer_types", None)
    config.num_hidden_layers = len(layers)
    if kinds is not None:
        config.layer_types = [kinds[layer] for layer in layers]
    _check_places(encoder, kept)
    return student


def check_layers(layers: Sequence[int], count: int) -> None:
    """Refuse layers that an encoder of so many does not have."""
    if not layers:
        raise InputError("layers is empty: name the layers to keep, counted from 0, such as 0,2,4.")
    for layer in layers:
        if not 0 <= layer < count:
            raise InputError(f"layers names {layer}, and the encoder has the layers 0 to {count - 1}.")
    if len(set(layers)) < len(layers):
        raise InputError(f"layers names a layer twice: {', '.join(map(str, layers))}.")


def _check_places(encoder: PreTrainedModel, kept: nn.ModuleList) -> None:
    """Refuse layers that a new encoder of this kind would not have at their places, and so could not load."""
    with torch.device("meta"):
        _, _, made = _layer_list(type(encoder)(copy.deepcopy(encoder.config)), len(kept))
    if made.state_dict().keys() != kept.state_dict().keys():
        raise InputError(f"the first layer of {type(encoder).__name__} is unlike the others: keep layer 0 first.")


def _layer_list(encoder: nn.Module, count: int) -> tuple[nn.Module, str, nn.ModuleList]:
    """The list of the encoder's layers, with its owner and the name under which it stands there."""
    for owner in encoder.modules():
        for name, child in owner.named_children():
            if isinstance(child, nn.ModuleList) and len(child) == count and len({type(layer) for layer in child}) == 1:
                return owner, name, child
    raise InputError(f"{type(encoder).__name__} has no list of {count} layers of its own to take from.")
