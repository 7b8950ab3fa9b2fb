"""Encoder-decoders as passage scorers, as in monoT5 (Nogueira et al., 2020).

The encoder reads a prompt with the query and the passage. The decoder is asked for one word. The score compares the
probabilities of two words, "true" and "false". So a passage takes one pass through the encoder and one
step of the decoder. Of the language-model head, only the rows of these two words are computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from torch import Tensor, nn
from transformers import AutoModelForSeq2SeqLM, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from .checks import check_whole
from .processing_settings import MONOT5_PROMPT
from .ranker_source import Source, Start
from .reader import Reader, ReaderSettings
from .reader_cross_encoder import CrossEncoder, refuse_missing, score_answer
from .token_head import check_different, narrow_head, resize_tokens, word_id

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
        check_different(self.true_token, self.true_id, self.false_token, self.false_id)

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, true_token: str, false_token: str) -> EncoderDecoderSettings:
        """The settings for two words, each of which has to be one token."""
        ids = (word_id(tokenizer, "true_token", true_token), word_id(tokenizer, "false_token", false_token))
        return cls(true_token, false_token, *ids)


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
        narrow_head(encoder, list(self.words))

    @property
    def words(self) -> dict[int, str]:
        """The words of the answer by their tokens' ids: the false one, and the true one."""
        return {self.settings.false_id: self.settings.false_token, self.settings.true_id: self.settings.true_token}

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
        return resize_tokens(encoder, self.words, *options)

    def read_padded(self, encoder: PreTrainedModel, inputs: dict[str, Tensor], **wanted: bool) -> Any:
        """Take one step of the decoder; the output's `logits` are `(inputs, 2)`."""
        config, ids = encoder.config, inputs["input_ids"]
        start = getattr(config, "decoder_start_token_id", None)
        # T5 begins with padding, whether the configuration says so or not.
        first = ids.new_full((len(ids), 1), config.pad_token_id if start is None else start)
        return encoder(**inputs, decoder_input_ids=first, use_cache=False)

    def features_of(self, output: Any, inputs: dict[str, Tensor]) -> Tensor:
        """The score of the true token against the false one; a logit alone means nothing."""
        return score_answer(output.logits[:, 0].float(), self.config.passage_score)

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
