"""Decoder-only models as passage scorers, as in Qwen3-Reranker.

The model reads a prompt with the query and the passage, and what counts is the next word: the logit of one word
("yes"), or how much it is above that of another ("no"). Of the language-model head, only the rows of these words are
computed, and only for the last position. Copies with a classification head in its place read the same prompt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from .checks import check_whole
from .decoder_prompts import DecoderPrompt, chat_prompt, known_prompt
from .encoders import encoder_for, last_places
from .processing_settings import INSTRUCTION
from .ranker_source import Source, Start
from .reader import Reader, ReaderSettings
from .reader_cross_encoder import check_labels, refuse_missing, score_answer
from .token_head import check_different, narrow_head, resize_tokens, word_id

if TYPE_CHECKING:
    from .configuration_ranker import RankerConfig
    from .modeling_ranker import DocumentRanker
    from .processing_document import DocumentProcessor

DECODER_TYPES = frozenset({"gemma", "llama", "mistral", "qwen2", "qwen3"})
"""Model types of decoders that can score passages: those whose logits are the head's, without any change."""

_WORDS = ("true_token", "false_token")
# Prompt, query and a passage of 225 tokens; the default of 256 would cut passages.
_LENGTH = 512


@dataclass(frozen=True)
class DecoderOnlySettings(ReaderSettings):
    """The words whose logits are the score, and the ids of their tokens; without any, a classification head gives it.

    Without a false token, the score is the logit of the true one.
    """

    kind = "decoder_only"

    true_token: str | None = None
    false_token: str | None = None
    true_id: int | None = None
    false_id: int | None = None

    def __post_init__(self) -> None:
        for name in ("true_id", "false_id"):
            if getattr(self, name) is not None:
                check_whole(f"reader: {name}", getattr(self, name), least=0)
        if self.false_id is None:
            return
        if self.true_id is None:
            raise ValueError("reader: false_id needs true_id: the score is the logit of the true token.")
        check_different(str(self.true_token), self.true_id, str(self.false_token), self.false_id)

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, words: Mapping[str, str | None]) -> DecoderOnlySettings:
        """The settings for one or two words, each of which has to be one token."""
        ids = {name: None if words.get(name) is None else word_id(tokenizer, name, words[name]) for name in _WORDS}
        return cls(words.get("true_token"), words.get("false_token"), ids["true_token"], ids["false_token"])

    @property
    def words(self) -> dict[int, str]:
        """The words by their tokens' ids: the false one, if there is one, and the true one."""
        pairs = ((self.false_id, self.false_token), (self.true_id, self.true_token))
        return {number: str(word) for number, word in pairs if number is not None}


class DecoderOnly(Reader):
    """Reads query and passage in a prompt, and scores what a decoder says at its end."""

    settings_class = DecoderOnlySettings
    features = frozenset({"score"})
    processor_settings: ClassVar[dict[str, Any]] = {"prompt": "", "instruction": ""}
    drawn_encoder = "decoder"

    def __init__(self, config: RankerConfig, encoder: PreTrainedModel) -> None:
        super().__init__(config, encoder)
        self.settings = cast(DecoderOnlySettings, config.reader)
        if self.settings.words:
            narrow_head(encoder, list(self.settings.words))

    @classmethod
    def encoder_class(cls, config: RankerConfig) -> Any:
        """A model with a language-model head, or with a classification head."""
        answers = cast(DecoderOnlySettings, config.reader).words
        return AutoModelForCausalLM if answers else AutoModelForSequenceClassification

    @classmethod
    def check(cls, config: RankerConfig) -> None:
        """Refuse a probability of one number."""
        count = len(cast(DecoderOnlySettings, config.reader).words)
        if not count:
            check_labels(config.encoder_config.num_labels, config.passage_score)
        elif count == 1 and config.passage_score != "logit":
            raise ValueError(
                f"passage_score={config.passage_score!r} needs two words, and there is no false_token: use 'logit'."
            )

    @classmethod
    def takes_head(cls, config: PreTrainedConfig) -> bool:
        """Whether a model is a decoder that scores passages by its next word, or with a classification head."""
        names = config.architectures or ()
        return config.model_type in DECODER_TYPES and any(
            name.endswith(("ForCausalLM", "ForSequenceClassification")) for name in names
        )

    @classmethod
    def start(cls, source: Source, wanted: Mapping[str, Any]) -> Start | None:
        """A decoder that answers or classifies: with the prompt and words of its files or of its name."""
        if not cls.takes_head(source.config):
            return None
        answers = source.has_head("ForCausalLM")
        cls.refuse(source, {name: value for name, value in wanted.items() if name not in _WORDS or not answers})
        tokenizer = source.load_tokenizer()
        found = _find_prompt(source, tokenizer)
        settings = _find_settings(source, tokenizer, wanted, found) if answers else DecoderOnlySettings()
        encoder, missing = source.load_whole(AutoModelForCausalLM if answers else AutoModelForSequenceClassification)
        refuse_missing(source, missing)
        inputs = {"prompt": found.prompt, "instruction": found.instruction, "max_length": _LENGTH}
        return Start(encoder, settings, processor=inputs)

    @classmethod
    def restart(cls, source: Source, ranker: DocumentRanker, wanted: Mapping[str, Any], feature: str) -> Start:
        """Keeps the prompt, and the words unless others are wanted."""
        start = super().restart(source, ranker, {name: wanted[name] for name in wanted if name not in _WORDS}, feature)
        if wanted:
            own = cast(DecoderOnlySettings, ranker.config.reader)
            if not own.words:
                cls.refuse(source, wanted)
            words = {name: wanted.get(name, getattr(own, name)) for name in _WORDS}
            start.reader = DecoderOnlySettings.of(ranker.require_processor().tokenizer, words)
        return start

    def check_processor(self, processor: DocumentProcessor, encoder: PreTrainedModel) -> None:
        """Refuse a processor without a prompt."""
        if not processor.prompt:
            raise ValueError("prompt='': a decoder reads query and passage in the prompt that it was trained with.")

    def describe(self) -> str:
        """The kind of model, with the words it answers with."""
        words = " against ".join(repr(word) for word in reversed(self.settings.words.values()))
        return f"decoder, which scores a passage by {f'its answer {words}' if words else 'its classification head'}"

    def resize_tokens(self, encoder: PreTrainedModel, *options: Any) -> nn.Embedding:
        """Change how many tokens the decoder knows; its narrow head keeps the weights of all of them."""
        if not self.settings.words:
            return super().resize_tokens(encoder, *options)
        return resize_tokens(encoder, self.settings.words, *options)

    def read_padded(self, encoder: PreTrainedModel, inputs: dict[str, Tensor], **wanted: bool) -> Any:
        """The body's output, with the `logits` of the last position of each input."""
        encoder = encoder_for(encoder, inputs["input_ids"].size(1))
        head = cast(Any, encoder.get_output_embeddings() if self.settings.words else cast(Any, encoder).score)
        output = encoder.base_model(**inputs, use_cache=False, **wanted)
        states = output.last_hidden_state
        last = last_places(inputs["attention_mask"]) - 1
        output.logits = head(states[torch.arange(len(states), device=states.device), last])
        return output

    def features_of(self, output: Any, inputs: dict[str, Tensor]) -> Tensor:
        """The logit of the true token or the only label, or what it is against that of the other one."""
        logits: Tensor = output.logits.float()
        if logits.size(-1) == 1:
            return logits[:, 0]
        return score_answer(logits, self.config.passage_score)

    @classmethod
    def describe_reading(cls, feature: str, config: Mapping[str, Any], processor: Mapping[str, Any]) -> str:
        """The prompt, and what the score is made of."""
        true, false = config["reader"]["true_token"], config["reader"]["false_token"]
        kind = config.get("passage_score", "logit")
        if true is None:
            score = "the output of its classification head at the last position"
        elif false is None:
            score = f"the logit of the word “{true}” as the next one"
        elif kind == "logit":
            score = f"the logit of the word “{true}” as the next one minus that of “{false}”"
        else:
            part = "the probability" if kind == "probability" else "the logarithm of the probability"
            score = f"{part} of the word “{true}” against “{false}” as the next one"
        # In one line of code, whatever is in the prompt.
        prompt = json.dumps(processor.get("prompt", ""), ensure_ascii=False)
        instruction = processor.get("instruction", "")
        instructed = f", with the instruction “{instruction}”" if instruction else ""
        return (
            f"A decoder reads the query together with each passage in the prompt ``{prompt}``{instructed}; a passage's "
            f"score is {score}."
        )


def _find_prompt(source: Source, tokenizer: PreTrainedTokenizerBase) -> DecoderPrompt:
    """The prompt of a model: the user's, that of its files, or that of its name."""
    own, instruction = source.inputs.get("prompt"), source.inputs.get("instruction")
    known = known_prompt(source.name)
    if own:
        if INSTRUCTION in own and instruction is None:
            raise ValueError(f"instruction is missing: the prompt has a place {INSTRUCTION} for it.")
        words = known or DecoderPrompt("")
        return DecoderPrompt(own, "", words.true_token, words.false_token)
    files = source.files
    found = None
    if files.messages is not None:
        found = chat_prompt(tokenizer, files.messages, files.chat, files.instruction, bool(instruction))
        if found is not None:
            _check_special_tokens(source, tokenizer, found.prompt)
    found = found or known
    if found is None:
        answers = source.has_head("ForCausalLM")
        raise ValueError(
            f"{source} is a decoder, and nothing says in which prompt it reads query and passage: give prompt=, the "
            "text that it was trained with, with {query} and {document}"
            + (
                ", and true_token=, the word for a relevant passage (with false_token=, if its score is a difference)."
                if answers
                else "."
            )
        )
    return found


def _check_special_tokens(source: Source, tokenizer: PreTrainedTokenizerBase, prompt: str) -> None:
    """Refuse a chat template that leaves out what the tokenizer adds: a processor would add it."""
    ids, plain = (
        cast("list[int]", tokenizer(prompt, add_special_tokens=special)["input_ids"]) for special in (True, False)
    )
    added = len(ids) - len(plain)
    first = ids[:added] if ids[added:] == plain else []
    if added and first != plain[: len(first) or 1]:
        raise ValueError(
            f"The chat template of {source} does not begin with the special tokens {first or added} that its tokenizer "
            "adds: give the whole prompt= instead."
        )


def _find_settings(
    source: Source, tokenizer: PreTrainedTokenizerBase, wanted: Mapping[str, Any], found: DecoderPrompt
) -> DecoderOnlySettings:
    """The words of the answer: the user's, those of the model's files, or those of its name."""
    if "true_token" in wanted:
        return DecoderOnlySettings.of(tokenizer, wanted)
    if answer := source.files.answer:
        ids = [answer.get(f"{name}_id") for name in _WORDS]
        true, false = (None if one is None else str(tokenizer.decode([one])) for one in ids)
        own = DecoderOnlySettings(true, false, *ids)
        if "false_token" not in wanted:
            return own
        number = word_id(tokenizer, "false_token", wanted["false_token"])
        return DecoderOnlySettings(own.true_token, wanted["false_token"], own.true_id, number)
    known = found if found.true_token is not None else known_prompt(source.name)
    if known is None:
        raise ValueError(
            f"{source} is a decoder, and nothing says by which word it is scored: give true_token=, the word for a "
            "relevant passage (with false_token=, if its score is a difference)."
        )
    words = {name: getattr(known, name) for name in _WORDS}
    return DecoderOnlySettings.of(tokenizer, {**words, **wanted})
