"""How architectures of encoders differ: names of settings, attention, and the effect of an input's length."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

# Encoders that compute with padding although it is masked: an input's result depends on how far it is padded.
AFFECTED_BY_PADDING = frozenset({"canine", "convbert", "fnet", "funnel", "nystromformer", "xlnet", "yoso"})

# Encoders whose result for an input depends on earlier inputs, or on chance.
NOT_REPEATABLE = frozenset({"bigbird_pegasus", "reformer"})

# Encoders that take `global_attention`.
GLOBAL_ATTENTION = frozenset({"longformer"})


def feed_forward_size(config: PreTrainedConfig) -> int:
    """Width of the feed-forward nets inside an encoder's layers."""
    sizes = (getattr(config, name, None) for name in ("intermediate_size", "hidden_dim", "d_ff"))
    return next((size for size in sizes if size is not None), 4 * config.hidden_size)


def position_limit(encoder: PreTrainedModel) -> int | None:
    """How many tokens an encoder has positions for; `None` if its configuration does not say."""
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
    """The length of each input up to its last real token, `(inputs,)`: only later tokens are padding."""
    places = torch.arange(1, attention_mask.size(-1) + 1, device=attention_mask.device)
    return (attention_mask.bool() * places).amax(dim=-1)


def lengths_read_apart(encoder: PreTrainedModel, lengths: Tensor) -> Tensor | None:
    """A group number for each input: only inputs of one group may be padded together. `None` if all may be.

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
    that the score of a long document would depend on earlier inputs. Here the attention depends on the length alone.
    A copy that shares all weights has the other attention: the encoder itself may be in use in another thread,
    or needed as it is for the gradients of a checkpoint.

    Rotary positions that are scaled by length keep the scale of earlier inputs, so they are read by a copy, too.
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

    The tokens of the passage attend to tokens near them and to all tokens of the query, which attend to everything.
    The query ends at the first separator.

    Args:
        encoder: The encoder that is to read the inputs.
        input_ids: Queries joined with passages, `(inputs, length)`.
    """
    if encoder.config.model_type not in GLOBAL_ATTENTION:
        return {}
    separators = (input_ids == encoder.config.sep_token_id).cumsum(dim=1)
    return {"global_attention_mask": (separators == 0).long()}


def check_separator(encoder: PreTrainedModel, separators: Sequence[int]) -> None:
    """Refuse a tokenizer that does not separate query and passage by the token that `global_attention` looks for."""
    config = encoder.config
    if config.model_type in GLOBAL_ATTENTION and list(separators[:1]) != [config.sep_token_id]:
        raise ValueError(
            f"The tokenizer separates query and passage by the tokens {list(separators)}, and the encoder's "
            f"sep_token_id is {config.sep_token_id}: set it in the encoder's config.json."
        )


def scales_positions(encoder: PreTrainedModel) -> bool:
    """Whether an encoder's rotary positions are scaled by the length of its longest input."""
    return _longest_unscaled(encoder) is not None


def _longest_unscaled(encoder: PreTrainedModel) -> int | None:
    """The longest input whose rotary positions are not scaled; `None` if the encoder never scales positions."""
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
    # The new attention modules get the weights of the old ones; the weights they are made with need no memory.
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
