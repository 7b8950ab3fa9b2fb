"""Encoder-decoders as passage scorers, as in monoT5 (Nogueira et al., 2020).

The encoder reads a prompt with the query and the passage. The decoder is asked for one word. The score compares the
probabilities of two words, "true" and "false". So a passage takes one pass through the encoder and one
step of the decoder. Of the language-model head, only the rows of these two words are computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModelForSeq2SeqLM, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from .checks import check_whole
from .processing_settings import MONOT5_PROMPT
from .ranker_source import Source, Start
from .reader import Reader, ReaderSettings
from .reader_cross_encoder import CrossEncoder, refuse_missing, score_answer
from .single_precision import at_least_single
from .tokenization import token_ids

if TYPE_CHECKING:
    from .configuration_ranker import RankerConfig
    from .modeling_ranker import DocumentRanker
    from .processing_document import DocumentProcessor

SEQ2SEQ_TYPES = frozenset({"mt5", "t5", "umt5"})
"""Model types of encoder-decoders that can score passages. T5 v1.1, Flan-T5 and UL2 are of the type t5."""

_WORDS = {"true_token": "true", "false_token": "false"}


@dataclass(frozen=True)
class EncoderDecoderSettings(ReaderSettings):
    """The two words that the decoder can answer with, and the ids of their tokens."""

    kind = "encoder_decoder"

    true_token: str
    false_token: str
    true_id: int
    false_id: int

    def __post_init__(self) -> None:
        for name in ("true_id", "false_id"):
            check_whole(f"reader: {name}", getattr(self, name), least=0)
        if self.true_id == self.false_id:
            raise ValueError(f"true_token {self.true_token!r} and false_token {self.false_token!r} are the same token.")

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, true_token: str, false_token: str) -> EncoderDecoderSettings:
        """The settings for two words, each of which has to be one token."""
        ids = {}
        for name, word in (("true_token", true_token), ("false_token", false_token)):
            found = token_ids(tokenizer, word) if isinstance(word, str) else []
            if len(found) != 1 or found[0] == tokenizer.unk_token_id:
                raise ValueError(
                    f"{name} is {word!r}, which is {len(found)} tokens or unknown to the tokenizer: give a word that "
                    "is one token."
                )
            ids[name] = found[0]
        return cls(true_token, false_token, ids["true_token"], ids["false_token"])


class EncoderDecoder(Reader):
    """Asks the decoder whether the passage is relevant, and scores its answer."""

    settings_class = EncoderDecoderSettings
    features = frozenset({"score"})
    processor_settings: ClassVar[dict[str, Any]] = {"prompt": ""}
    papers = ("nogueira2020",)
    drawn_encoder = "encoder-decoder"

    def __init__(self, config: RankerConfig, encoder: PreTrainedModel) -> None:
        super().__init__(config, encoder)
        self.settings = cast(EncoderDecoderSettings, config.reader)
        _narrow_head(encoder, self.settings)

    @classmethod
    def encoder_class(cls, config: RankerConfig) -> Any:
        """A model with a language-model head."""
        return AutoModelForSeq2SeqLM

    @classmethod
    def takes_head(cls, config: PreTrainedConfig) -> bool:
        """Whether it is a language-model head, and not a classifier's."""
        return config.model_type in SEQ2SEQ_TYPES and not CrossEncoder.takes_head(config)

    @classmethod
    def start(cls, source: Source, wanted: Mapping[str, Any]) -> Start | None:
        """An encoder-decoder without a classification head: monoT5's prompt and words, unless others are wanted."""
        if not cls.takes_head(source.config):
            return None
        cls.refuse(source, {name: value for name, value in wanted.items() if name not in _WORDS})
        encoder, missing = source.load_whole(AutoModelForSeq2SeqLM)
        refuse_missing(source, missing)
        settings = EncoderDecoderSettings.of(source.load_tokenizer(), **{**_WORDS, **wanted})
        return Start(encoder, settings, {"passage_score": "log_probability"}, {"prompt": MONOT5_PROMPT})

    @classmethod
    def restart(cls, source: Source, ranker: DocumentRanker, wanted: Mapping[str, Any], feature: str) -> Start:
        """Keeps the prompt, and the words unless others are wanted."""
        start = super().restart(source, ranker, {name: wanted[name] for name in wanted if name not in _WORDS}, feature)
        words = {name: getattr(ranker.config.reader, name) for name in _WORDS} | dict(wanted)
        start.reader = EncoderDecoderSettings.of(ranker.require_processor().tokenizer, **words)
        return start

    def check_processor(self, processor: DocumentProcessor, encoder: PreTrainedModel) -> None:
        """Refuse a processor without a prompt."""
        if not processor.prompt:
            raise ValueError("prompt='': an encoder-decoder reads query and passage in a prompt, such as monoT5's.")

    def describe(self) -> str:
        """The kind of model, with the words it answers with."""
        words = f"{self.settings.true_token!r} or {self.settings.false_token!r}"
        return f"encoder-decoder, which scores a passage by its answer {words}"

    def resize_tokens(self, encoder: PreTrainedModel, *options: Any) -> nn.Embedding:
        """Change how many tokens the encoder knows; its narrow head keeps the weights of all of them."""
        return _resize_tokens(encoder, self.settings, *options)

    def read_padded(self, encoder: PreTrainedModel, inputs: dict[str, Tensor], **wanted: bool) -> Any:
        """Take one step of the decoder; the output's `logits` are `(inputs, 2)`."""
        config, ids = encoder.config, inputs["input_ids"]
        start = getattr(config, "decoder_start_token_id", None)
        # T5 begins with padding, whether the configuration says so or not.
        first = ids.new_full((len(ids), 1), config.pad_token_id if start is None else start)
        return encoder(**inputs, decoder_input_ids=first, use_cache=False)

    def features_of(self, output: Any, inputs: dict[str, Tensor]) -> Tensor:
        """The score of the true token against the false one; a logit alone means nothing."""
        logits = output.logits[:, 0].float()
        if self.config.passage_score == "logit":
            return logits[:, 1] - logits[:, 0]
        return score_answer(logits, self.config.passage_score)

    @classmethod
    def describe_reading(cls, feature: str, config: Mapping[str, Any], processor: Mapping[str, Any]) -> str:
        """The prompt, and what the score is made of."""
        true, false = config["reader"]["true_token"], config["reader"]["false_token"]
        score = {
            "logit": "the difference of the two words' logits",
            "probability": f"the probability of “{true}” against “{false}”",
            "log_probability": f"the logarithm of the probability of “{true}” against “{false}”",
        }[config.get("passage_score", "logit")]
        return (
            f"An encoder-decoder reads the query together with each passage in the prompt "
            f"`{processor.get('prompt', '')}` (as monoT5 does); a passage's score is {score} as the first word of the "
            "answer."
        )


class TokenHead(nn.Module):
    """A language-model head that computes the logits of a few tokens. It keeps the weights of all tokens.

    Args:
        weight: The weights of the whole head, `(vocabulary, width)`; they may be shared with the word embeddings.
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


def _narrow_head(encoder: PreTrainedModel, settings: EncoderDecoderSettings) -> None:
    """Let the head of an encoder-decoder compute only the logits of the false and the true token, in this order."""
    head: Any = encoder.get_output_embeddings()
    encoder.set_output_embeddings(TokenHead(head.weight, [settings.false_id, settings.true_id]))


def _resize_tokens(
    encoder: PreTrainedModel, settings: EncoderDecoderSettings, count: int | None, *options: Any
) -> nn.Embedding:
    """Change how many tokens an encoder-decoder with a narrow head knows, with transformers' options."""
    if count is not None and count <= max(settings.true_id, settings.false_id):
        raise ValueError(
            f"new_num_tokens is {count}, which leaves out {settings.true_token!r} or {settings.false_token!r}, "
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
    _narrow_head(encoder, settings)
    return embeddings
