"""Encoder-decoders as passage scorers, as in monoT5 (Nogueira et al., 2020).

The encoder reads a prompt with the query and the passage. The decoder is asked for one word, and what counts is how
probable it finds one word ("true") against another ("false"). So a passage takes one pass through the encoder and one
step of the decoder. Of the language-model head, only the rows of these two words are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from .bi_encoder import at_least_single
from .tokenization import token_ids

SEQ2SEQ_TYPES = frozenset({"mt5", "t5", "umt5"})
"""Model types of encoder-decoders that can score passages. T5 v1.1, Flan-T5 and UL2 are of the type t5."""

_SETTINGS = ("false_id", "false_token", "true_id", "true_token")


class TokenHead(nn.Module):
    """A language-model head that computes the logits of a few tokens. It keeps the weights of all tokens.

    Args:
        weight: The weights of the whole head, `(vocabulary, width)`; they may be those of the word embeddings.
        tokens: The ids of the tokens.

    Example:
        >>> import torch
        >>> TokenHead(nn.Parameter(torch.eye(4)), [2, 0])(torch.tensor([[1.0, 2.0, 3.0, 4.0]])).tolist()
        [[3.0, 1.0]]
    """

    def __init__(self, weight: nn.Parameter, tokens: Sequence[int]) -> None:
        super().__init__()
        self.weight = weight
        self.tokens = list(tokens)

    def forward(self, states: Tensor) -> Tensor:
        """The tokens' logits, `(..., tokens)`, of states `(..., width)`."""
        # In 32-bit floats: in half precision, many passages would have equal scores.
        with torch.autocast(states.device.type, enabled=False):
            return F.linear(at_least_single(states), at_least_single(self.weight[self.tokens]))


def is_seq2seq_scorer(config: PreTrainedConfig) -> bool:
    """Whether a model scores passages by a word that its decoder gives, and not with a classification head."""
    classifies = any(name.endswith("ForSequenceClassification") for name in config.architectures or ())
    return config.model_type in SEQ2SEQ_TYPES and not classifies


def narrow_head(encoder: PreTrainedModel, settings: dict[str, Any]) -> None:
    """Let the head of an encoder-decoder compute only the logits of the false and the true token, in this order."""
    head: Any = encoder.get_output_embeddings()
    encoder.set_output_embeddings(TokenHead(head.weight, [settings["false_id"], settings["true_id"]]))


def resize_tokens(encoder: PreTrainedModel, settings: dict[str, Any], count: int | None, *options: Any) -> nn.Embedding:
    """Change how many tokens an encoder-decoder with a narrow head knows; `options` are those of transformers."""
    if count is not None and count <= max(settings["true_id"], settings["false_id"]):
        raise ValueError(
            f"new_num_tokens is {count}, which leaves out {settings['true_token']!r} or {settings['false_token']!r}, "
            "the words that this ranker answers with."
        )
    weight = cast(Any, encoder.get_output_embeddings()).weight
    is_apart = weight is not cast(nn.Embedding, encoder.get_input_embeddings()).weight
    whole = nn.Linear(weight.size(1), weight.size(0), bias=False, device="meta")
    whole.weight = weight
    encoder.set_output_embeddings(whole)
    embeddings: nn.Embedding = encoder.resize_token_embeddings(count, *options)
    if is_apart:
        # transformers has tied the head to the embeddings, as T5's configuration says although it is not so.
        rows = embeddings.weight.detach().clone()
        kept = min(len(rows), len(weight))
        rows[:kept] = weight.detach()[:kept]
        cast(Any, encoder.get_output_embeddings()).weight = nn.Parameter(rows)
    narrow_head(encoder, settings)
    return embeddings


def read_first_step(encoder: PreTrainedModel, inputs: dict[str, Tensor]) -> Any:
    """Read inputs, and take one step of the decoder; the output's `logits` are `(inputs, tokens)`."""
    config, ids = encoder.config, inputs["input_ids"]
    start = getattr(config, "decoder_start_token_id", None)
    # T5 begins with padding, whether the configuration says so or not.
    first = ids.new_full((len(ids), 1), config.pad_token_id if start is None else start)
    output = encoder(**inputs, decoder_input_ids=first, use_cache=False)
    output.logits = output.logits[:, 0]
    return output


def answer_settings(tokenizer: PreTrainedTokenizerBase, true_token: str, false_token: str) -> dict[str, Any]:
    """The field `seq2seq` of a ranker's configuration: the two words and the ids of their tokens."""
    settings: dict[str, Any] = {"true_token": true_token, "false_token": false_token}
    for kind in ("true", "false"):
        word = settings[f"{kind}_token"]
        ids = token_ids(tokenizer, word) if isinstance(word, str) else []
        if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
            raise ValueError(
                f"{kind}_token is {word!r}, which is {len(ids)} tokens or unknown to the tokenizer: give a word that "
                "is one token."
            )
        settings[f"{kind}_id"] = ids[0]
    check_seq2seq(settings)
    return settings


def check_seq2seq(settings: dict[str, Any]) -> None:
    """Refuse settings of an encoder-decoder that are incomplete, unknown or of the wrong kind."""
    if not isinstance(settings, dict) or settings.keys() != set(_SETTINGS):
        found = sorted(settings) if isinstance(settings, dict) else settings
        raise ValueError(f"seq2seq has the keys {found}, and needs {', '.join(_SETTINGS)}.")
    if settings["true_id"] == settings["false_id"]:
        raise ValueError(
            f"true_token {settings['true_token']!r} and false_token {settings['false_token']!r} are the same token."
        )
