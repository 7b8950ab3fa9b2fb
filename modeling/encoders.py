"""Facts about an encoder that architectures name differently."""

from __future__ import annotations

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel


def feed_forward_size(config: PreTrainedConfig) -> int:
    """Width of the feed-forward nets inside an encoder's layers."""
    sizes = (getattr(config, name, None) for name in ("intermediate_size", "hidden_dim"))
    return next((size for size in sizes if size is not None), 4 * config.hidden_size)


def position_limit(encoder: PreTrainedModel) -> int | None:
    """How many tokens an encoder has positions for; `None` where nothing says so."""
    embeddings = _position_embeddings(encoder)
    if embeddings is None:
        return getattr(encoder.config, "max_position_embeddings", None)
    return embeddings.num_embeddings - first_position(encoder)


def first_position(encoder: PreTrainedModel) -> int:
    """Number of an input's first position: RoBERTa and its relatives count from after the padding index."""
    embeddings = _position_embeddings(encoder)
    return 0 if embeddings is None or embeddings.padding_idx is None else embeddings.padding_idx + 1


def _position_embeddings(encoder: PreTrainedModel) -> nn.Embedding | None:
    modules = encoder.named_modules()
    found = (module for name, module in modules if name.endswith("position_embeddings"))
    return next((module for module in found if isinstance(module, nn.Embedding)), None)
