"""What differs between architectures of encoders: names of settings, attention, and what an input's length does."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

# Encoders that compute with padding although it is masked: an input's result depends on how far it is padded.
AFFECTED_BY_PADDING = frozenset({"canine", "convbert", "fnet", "funnel", "nystromformer", "xlnet", "yoso"})

# Encoders whose result for an input depends on what they read before, or on chance.
NOT_REPEATABLE = frozenset({"bigbird_pegasus", "reformer"})


def feed_forward_size(config: PreTrainedConfig) -> int:
    """Width of the feed-forward nets inside an encoder's layers."""
    sizes = (getattr(config, name, None) for name in ("intermediate_size", "hidden_dim", "d_ff"))
    return next((size for size in sizes if size is not None), 4 * config.hidden_size)


def position_limit(encoder: PreTrainedModel) -> int | None:
    """How many tokens an encoder has positions for; `None` where nothing says so."""
    embeddings = _position_embeddings(encoder)
    if embeddings is None:
        limit = getattr(encoder.config, "max_position_embeddings", None)
        return None if limit == -1 else limit  # XLNet has no limit
    return embeddings.num_embeddings - first_position(encoder)


def first_position(encoder: PreTrainedModel) -> int:
    """Number of an input's first position: RoBERTa and its relatives count from after the padding index."""
    embeddings = _position_embeddings(encoder)
    return 0 if embeddings is None or embeddings.padding_idx is None else embeddings.padding_idx + 1


def _position_embeddings(encoder: PreTrainedModel) -> nn.Embedding | None:
    modules = encoder.named_modules()
    found = (module for name, module in modules if name.endswith("position_embeddings"))
    return next((module for module in found if isinstance(module, nn.Embedding)), None)


def last_places(attention_mask: Tensor) -> Tensor:
    """The length of each input up to its last real token, `(inputs,)`: only what follows it is padding."""
    places = torch.arange(1, attention_mask.size(-1) + 1, device=attention_mask.device)
    return (attention_mask.bool() * places).amax(dim=-1)


def lengths_read_apart(encoder: PreTrainedModel, lengths: Tensor) -> Tensor | None:
    """A number for each input: those with different ones must not be padded to the same length. `None` if all may.

    Args:
        encoder: The encoder that is to read the inputs.
        lengths: Tokens of each input.
    """
    if encoder.config.model_type in AFFECTED_BY_PADDING:
        return lengths
    if (longest := _longest_unscaled(encoder)) is not None:
        return lengths.clamp(min=longest)
    if not _is_block_sparse(encoder):
        return None
    # All tokens see the last block, so the number of blocks matters. Short inputs have full attention.
    size = encoder.config.block_size
    return (lengths + size - 1).div(size, rounding_mode="floor").mul(size).clamp(min=_longest_full(encoder))


def encoder_for(encoder: PreTrainedModel, length: int) -> PreTrainedModel:
    """The encoder for inputs of this length.

    BigBird reads short inputs with full attention, and transformers then keeps full attention for all later inputs, so
    that the score of a long document would depend on what was read before. Here the attention depends on the length
    alone. A copy that shares all weights has the other attention: the encoder itself may be in use in another thread,
    or needed as it is for the gradients of a checkpoint.

    Rotary positions that are scaled by length keep the scale of the inputs before. A copy has one of its own.
    """
    if _longest_unscaled(encoder) is not None:
        return _share_weights(encoder)
    if not _is_block_sparse(encoder):
        return encoder
    attention = "original_full" if length <= _longest_full(encoder) else "block_sparse"
    if encoder.base_model.attention_type == attention:
        return encoder
    return _with_attention(encoder, attention)


def global_attention(encoder: PreTrainedModel, input_ids: Tensor) -> dict[str, Tensor]:
    """Longformer's argument that gives the first token and the query global attention; nothing for other encoders.

    The tokens of the passage attend to those around them, and to all tokens of the query, which attend to everything.
    The query ends at the first separator.

    Args:
        encoder: The encoder that is to read the inputs.
        input_ids: Queries joined with passages, `(inputs, length)`.
    """
    if encoder.config.model_type != "longformer":
        return {}
    separators = (input_ids == encoder.config.sep_token_id).cumsum(dim=1)
    return {"global_attention_mask": (separators == 0).long()}


def check_separator(encoder: PreTrainedModel, separators: Sequence[int]) -> None:
    """Refuse a tokenizer that does not separate query and passage by the token that `global_attention` looks for."""
    config = encoder.config
    if config.model_type == "longformer" and list(separators[:1]) != [config.sep_token_id]:
        raise ValueError(
            f"The tokenizer separates query and passage by the tokens {list(separators)}, and the encoder's "
            f"sep_token_id is {config.sep_token_id}: set it in the encoder's config.json."
        )


def scales_positions(encoder: PreTrainedModel) -> bool:
    """Whether an encoder's rotary positions are scaled by the length of its longest input."""
    return _longest_unscaled(encoder) is not None


def _longest_unscaled(encoder: PreTrainedModel) -> int | None:
    """The longest input whose rotary positions are not scaled by length; `None` if those of no input are."""
    parameters = getattr(encoder.config, "rope_parameters", None) or {}
    # Some encoders have parameters for each type of layer.
    groups = [parameters] if "rope_type" in parameters else [group for group in parameters.values() if group]
    limits = [
        group["original_max_position_embeddings"]
        if group["rope_type"] == "longrope"
        else encoder.config.max_position_embeddings
        for group in groups
        if group["rope_type"] in ("dynamic", "longrope")
    ]
    return min(limits, default=None)


def _is_block_sparse(encoder: PreTrainedModel) -> bool:
    return encoder.config.model_type == "big_bird" and encoder.config.attention_type == "block_sparse"


def _longest_full(encoder: PreTrainedModel) -> int:
    """The longest input that BigBird reads with full attention: sparse attention would cover it all."""
    return (5 + 2 * encoder.config.num_random_blocks) * encoder.config.block_size


def _with_attention(encoder: PreTrainedModel, attention: str) -> PreTrainedModel:
    """A BigBird with another attention and the same weights."""
    twin: PreTrainedModel = _share_weights(encoder)
    # The new attention modules take over the weights; their own, which are discarded, need no memory.
    with torch.device("meta"):
        body: Any = twin.base_model
        body.set_attention_type(attention)
    return twin


def without_collectors(module: nn.Module) -> nn.Module:
    """A copy that shares all weights, without the hooks that transformers adds when hidden states are first asked for.

    They are made again when they are needed.
    """
    twin: nn.Module = _share_weights(module)
    for part in twin.modules():
        part.__dict__.pop("_output_capturing_hooks_installed", None)
        for number, hook in list(part._forward_hooks.items()):
            if hook.__module__ == "transformers.utils.output_capturing":
                del part._forward_hooks[number]
    return twin


def _share_weights(module: nn.Module) -> Any:
    """A copy of a module and all modules in it, with the same parameters and buffers.

    A buffer that is replaced in the copy stays as it was in the module. Hooks that are added to the copy are its own.
    """
    twin = copy.copy(module)
    twin._buffers = dict(module._buffers)
    twin._forward_hooks = module._forward_hooks.copy()
    twin._modules = {name: child and _share_weights(child) for name, child in module._modules.items()}
    return twin
