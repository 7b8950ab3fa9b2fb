"""The score family: the encoder scores every passage, and the scores are aggregated."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.utils import logging

from .aggregators import SCORE_AGGREGATORS
from .bi_encoder import (
    BiEncoderFiles,
    Calibration,
    Pooling,
    Similarity,
    at_least_single,
    match_tokens,
    similarity,
    similarity_matrix,
    without_tokens,
)
from .checkpoint_files import TRUST_NO_CODE, check_config_file, naming_damaged_weights
from .configuration_ranker import RANKER_TYPES, MaxPConfig, ScoreAggregation, check_labels
from .modeling_ranker import DocumentRanker, encoder_of
from .processing_settings import MONOT5_PROMPT, Preset
from .ranker_options import MaxPOptions, PathLike, SortedOptions, pick_source_options, sort_options
from .seq2seq import answer_settings, is_seq2seq_scorer

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.get_logger(__name__)

MaxP = TypeVar("MaxP", bound="MaxPForSequenceClassification")

# Models on the Hub whose head is a linear layer. As an ELECTRA classifier they would have another layer before it, with
# weights that were not trained.
LINEAR_HEADS = frozenset({"Capreolus/electra-base-msmarco"})


class MaxPForSequenceClassification(DocumentRanker):
    """FirstP, MaxP, SumP, AvgP, K-Max-AvgP and Birch over a cross-encoder's passage scores.

    The encoder is a sequence classifier with one or two labels, so any cross-encoder can be used with its head; or an
    encoder-decoder that answers a prompt with one of two words, as monoT5 does.

    Example:
        ```python
        model = MaxPForSequenceClassification.from_cross_encoder(
            "cross-encoder/ms-marco-MiniLM-L6-v2", aggregation="max"
        )
        model.rank("why is the sky blue", long_documents)
        ```
    """

    config_class = MaxPConfig
    aggregators = SCORE_AGGREGATORS
    # The scale and the bias belong to the passages' scores.
    of_passages = ("vector_head", "calibration")
    config: MaxPConfig

    def _add_vector_head(self, settings: dict[str, Any]) -> None:
        super()._add_vector_head(settings)
        self.calibration = Calibration(settings.get("late_interaction", False))

    def relate(self, queries: Tensor, passages: Tensor) -> Tensor:
        """The similarity of query and passage, times a learned scale, plus a learned bias.

        Vectors with those of tokens are also compared by late interaction.
        """
        assert self.config.bi_encoder is not None
        name = self.config.bi_encoder["similarity"]
        queries, passages = at_least_single(queries), at_least_single(passages)
        # In mixed precision, matrix products would be in half precision.
        with torch.autocast(queries.device.type, enabled=False):
            similarities = similarity(name, without_tokens(queries), without_tokens(passages))
            matches = match_tokens(queries[:, 1:], passages[:, 1:]) if passages.dim() == 3 else None
            return self.calibration(similarities, matches)

    def relate_all(self, queries: Tensor, passages: Tensor) -> Tensor:
        """The same for all pairs of a query and a passage, `(queries, passages)`: one matrix product."""
        if passages.dim() == 3:
            return super().relate_all(queries, passages)
        assert self.config.bi_encoder is not None
        name = self.config.bi_encoder["similarity"]
        with torch.autocast(queries.device.type, enabled=False):
            return self.calibration(similarity_matrix(name, at_least_single(queries), at_least_single(passages)))

    @classmethod
    def _new_encoder(cls, config: MaxPConfig) -> PreTrainedModel:  # type: ignore[override]
        if config.bi_encoder is not None:
            return AutoModel.from_config(config.encoder_config)
        if config.seq2seq is not None:
            return AutoModelForSeq2SeqLM.from_config(config.encoder_config)
        return AutoModelForSequenceClassification.from_config(config.encoder_config)

    @classmethod
    def _load_encoder(cls, source: PathLike, *, num_labels: int = 1, **options: Any) -> PreTrainedModel:
        config = AutoConfig.from_pretrained(source, **TRUST_NO_CODE, **pick_source_options(options))
        if config.model_type in RANKER_TYPES:
            ranker = AutoModel.from_pretrained(source, **TRUST_NO_CODE, **options)
            return _with_new_head(encoder_of(ranker, source), num_labels)
        load = partial(
            AutoModelForSequenceClassification.from_pretrained, source, use_safetensors=True, **TRUST_NO_CODE, **options
        )
        if any(name.endswith("ForSequenceClassification") for name in config.architectures or ()):
            return _with_new_head(load(), num_labels)
        return load(num_labels=num_labels)

    @classmethod
    def from_encoder(  # type: ignore[override]
        cls: type[MaxP],
        source: PathLike,
        aggregation: ScoreAggregation | None = None,
        preset: Preset | None = None,
        *,
        num_labels: Literal[1, 2] | None = None,
        **options: Unpack[MaxPOptions],
    ) -> MaxP:
        """Build a ranker on a pretrained encoder, with a new head; see `DocumentRanker.from_encoder`.

        Args:
            source: As there.
            aggregation: As there.
            preset: As there.
            num_labels: Outputs of the new head. `None` is two if `passage_score` is a probability, and else one.
            **options: As there.
        """
        kind = options.get("passage_score", "logit")
        labels = num_labels if num_labels is not None else (1 if kind == "logit" else 2)
        check_labels(labels, kind)
        sorted_options = sort_options(options, cls.config_class)
        check_config_file(source, pick_source_options(sorted_options.loading))
        with naming_damaged_weights(source):
            encoder = cls._load_encoder(source, num_labels=labels, **sorted_options.loading)
        return cls._assemble(source, encoder, aggregation, preset, sorted_options)

    @classmethod
    def from_bi_encoder(  # type: ignore[override]
        cls: type[MaxP],
        source: PathLike,
        aggregation: ScoreAggregation | None = None,
        preset: Preset | None = None,
        *,
        pooling: Pooling | None = None,
        similarity: Similarity | None = None,
        late_interaction: bool | None = None,
        **options: Unpack[MaxPOptions],
    ) -> MaxP:
        """Build a ranker on a bi-encoder; it needs no training. See `DocumentRanker.from_bi_encoder`.

        Args:
            source: As there.
            aggregation: As there.
            preset: As there.
            pooling: As there.
            similarity: As there.
            late_interaction: Whether the score adds how well the passage's tokens match those of the query: the mean,
                over the query's tokens, of the greatest cosine with a token of the passage, times a learned weight.
                `None` is as in the source, if that is a ranker's checkpoint, and else false.
            **options: As there.
        """
        return super().from_bi_encoder(
            source,
            aggregation,
            preset,
            pooling=pooling,
            similarity=similarity,
            late_interaction=late_interaction,
            **options,
        )

    @classmethod
    def from_cross_encoder(
        cls: type[MaxP],
        source: PathLike,
        aggregation: ScoreAggregation = "max",
        preset: Preset | None = None,
        *,
        true_token: str | None = None,
        false_token: str | None = None,
        **options: Unpack[MaxPOptions],
    ) -> MaxP:
        """Build a ranker on a cross-encoder with its own head; it needs no training.

        Args:
            source: Hub id or folder of a sequence classifier with one or two labels; of an encoder-decoder (T5, mT5,
                UMT5) such as monoT5, which answers a prompt with a word; or of a MaxP ranker, whose passage scorer is
                used.
            aggregation: How passage scores are combined.
            preset: Input settings, as in `from_encoder`.
            true_token: For an encoder-decoder: the word for a relevant passage; `None` is "true", or a ranker's own.
            false_token: The word for one that is not relevant; `None` is "false", or a ranker's own.
            **options: As in `from_encoder`. For an encoder-decoder, `passage_score` is "log_probability" and `prompt`
                that of monoT5 by default.

        Example:
            ```python
            MaxPForSequenceClassification.from_cross_encoder("castorini/monot5-base-msmarco", max_length=512)
            ```
        """
        sorted_options = sort_options(options, cls.config_class)
        check_head(source)
        check_config_file(source, pick_source_options(sorted_options.loading))
        config = AutoConfig.from_pretrained(source, **TRUST_NO_CODE, **pick_source_options(sorted_options.loading))
        _refuse_headless(source, config, sorted_options)
        auto = AutoModelForSeq2SeqLM if is_seq2seq_scorer(config) else AutoModelForSequenceClassification
        with naming_damaged_weights(source):
            encoder, info = auto.from_pretrained(
                source, use_safetensors=True, output_loading_info=True, **TRUST_NO_CODE, **sorted_options.loading
            )
        missing = sorted(info["missing_keys"])
        if missing == ["classifier.dense.bias", "classifier.dense.weight"] and encoder.config.model_type == "electra":
            raise ValueError(_explain_linear_head(source))
        if missing:
            raise ValueError(
                f"{source} is not a cross-encoder: it has no {missing[0]}. Use from_encoder, which adds a new head."
            )
        if encoder.config.model_type in RANKER_TYPES and encoder.config.model_type != cls.config_class.model_type:
            raise ValueError(
                f"{source} is a {encoder.config.model_type.upper()} ranker, whose encoder gives vectors and no scores. "
                f"Use from_encoder, which adds a new head."
            )
        if getattr(encoder.config, "bi_encoder", None) is not None:
            raise ValueError(
                f"{source} is a ranker on a bi-encoder, whose encoder gives vectors and no scores. Use from_encoder, "
                f"which adds a new head."
            )
        if encoder.config.model_type == "maxp":
            sorted_options.config.setdefault("passage_score", encoder.config.passage_score)
        words = {"true_token": true_token, "false_token": false_token}
        given = {name: word for name, word in words.items() if word is not None}
        if is_seq2seq_scorer(config) or getattr(encoder.config, "seq2seq", None) is not None:
            _add_answers(source, encoder, given, sorted_options)
        elif given:
            raise ValueError(
                f"{next(iter(given))} is for encoder-decoders, and {source} is a {config.model_type} model with a head "
                "of its own: leave it out."
            )
        encoder = encoder_of(encoder, source)
        return cls._assemble(source, encoder, aggregation, preset, sorted_options)

    def _features(self, encoded: Any) -> Tensor:
        # Sums, means and ties of half-precision scores are not reliable.
        logits: Tensor = encoded.logits.float()
        if logits.size(-1) == 1:
            return logits[:, 0]
        if self.config.passage_score == "logit":
            # The logits of a vocabulary mean something only against each other.
            return logits[:, 1] if self.config.seq2seq is None else logits[:, 1] - logits[:, 0]
        if self.config.passage_score == "probability":
            return logits.softmax(dim=-1)[:, 1]
        return logits.log_softmax(dim=-1)[:, 1]

    def passage_scores(self, features: Tensor) -> Tensor:
        """The passages' own scores: the encoder's."""
        return features

    def _own_scores(self, features: Tensor) -> Tensor:
        return features


def check_head(source: PathLike) -> None:
    """Refuse a model whose head transformers would not load as it was trained."""
    if str(source) in LINEAR_HEADS:
        raise ValueError(_explain_linear_head(source))


def _refuse_headless(source: PathLike, config: PreTrainedConfig, options: SortedOptions) -> None:
    """Refuse a model without a head before it is loaded: transformers would first report all that it does not have."""
    names = config.architectures or []
    if config.model_type in RANKER_TYPES or is_seq2seq_scorer(config):
        return
    if any(name.endswith("ForSequenceClassification") for name in names):
        return
    if BiEncoderFiles(source, pick_source_options(options.loading)).pooling:
        raise ValueError(f"{source} is a bi-encoder, not a cross-encoder: use from_bi_encoder.")
    if names:
        raise ValueError(
            f"{source} is not a cross-encoder: it is a {names[0]}, which has no head. Use from_encoder, which adds a "
            "new one, or from_bi_encoder with a pooling."
        )


def _explain_linear_head(source: PathLike) -> str:
    return (
        f"The head of {source} is one linear layer, which is not ELECTRA's: convert it with docparade convert {source} "
        "--linear-head --output FOLDER, and name that folder."
    )


def _add_answers(source: PathLike, model: PreTrainedModel, given: dict[str, str], options: SortedOptions) -> None:
    """Add what a ranker on an encoder-decoder needs: the two words, the prompt, and how they become a score.

    Args:
        source: Where the model is from.
        model: The encoder-decoder, or a ranker on one, whose words and prompt are kept.
        given: The words that the user chose.
        options: The options of the new ranker, to which they are added.
    """
    own, prompt = {}, MONOT5_PROMPT
    if model.config.model_type in RANKER_TYPES:
        processor = cast(DocumentRanker, model).require_processor()
        own, prompt, tokenizer = model.config.seq2seq, processor.prompt, processor.tokenizer
    else:
        tokenizer = AutoTokenizer.from_pretrained(source, **TRUST_NO_CODE, **pick_source_options(options.loading))
    words = {"true_token": "true", "false_token": "false", **own, **given}
    options.config["seq2seq"] = answer_settings(tokenizer, words["true_token"], words["false_token"])
    options.config.setdefault("passage_score", "log_probability")
    options.processor.setdefault("prompt", prompt)


def _with_new_head(encoder: PreTrainedModel, num_labels: int) -> PreTrainedModel:
    """A sequence classifier with this encoder's body, and a new head."""
    config = copy.deepcopy(encoder.config)
    config.num_labels = num_labels
    classifier: PreTrainedModel = AutoModelForSequenceClassification.from_config(config)
    missing, _ = classifier.base_model.load_state_dict(encoder.base_model.state_dict(), strict=False)
    if missing:
        logger.warning(f"The ranker's encoder has no {missing[0]}: it has new weights, as part of the head.")
    return nn.Module.to(classifier, device=encoder.device, dtype=encoder.dtype)


MaxPConfig.register_for_auto_class()
MaxPForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
