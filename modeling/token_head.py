"""`TokenHead`: a language-model head that computes only the logits of the words that a ranker's answer can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .single_precision import at_least_single
from .tokenization import token_ids


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


def word_id(tokenizer: PreTrainedTokenizerBase, name: str, word: Any) -> int:
    """The id of a word that has to be one token; `name` is the argument that it was given as."""
    found = token_ids(tokenizer, word) if isinstance(word, str) else []
    if len(found) != 1 or found[0] == tokenizer.unk_token_id:
        raise ValueError(
            f"{name} is {word!r}, which is {len(found)} tokens or unknown to the tokenizer: give a word that is one "
            "token."
        )
    return found[0]


def check_different(true_token: str, true_id: int, false_token: str, false_id: int) -> None:
    """Refuse an answer whose two words are one."""
    if true_id == false_id:
        raise ValueError(f"true_token {true_token!r} and false_token {false_token!r} are the same token.")


def narrow_head(encoder: PreTrainedModel, tokens: Sequence[int]) -> None:
    """Let the language-model head of an encoder compute only the logits of these tokens, in this order."""
    head: Any = encoder.get_output_embeddings()
    encoder.set_output_embeddings(TokenHead(head.weight, tokens))


def resize_tokens(encoder: PreTrainedModel, words: Mapping[int, str], count: int | None, *options: Any) -> nn.Embedding:
    """Change how many tokens an encoder with a narrow head knows; `options` are those of transformers.

    Args:
        encoder: The encoder.
        words: The words of the answer, by their tokens' ids, in the order of the head.
        count: How many tokens.
        *options: See `resize_token_embeddings` of transformers.
    """
    if count is not None and count <= max(words):
        raise ValueError(
            f"new_num_tokens is {count}, which leaves out {' or '.join(map(repr, words.values()))}, the words that "
            "this ranker answers with."
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
    narrow_head(encoder, list(words))
    return embeddings
