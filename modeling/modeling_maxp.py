"""The score family: the encoder scores every passage, and the scores are aggregated."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)
from transformers.utils import logging

from .aggregators import SCORE_AGGREGATORS
from .checkpoint_files import TRUST_NO_CODE
from .configuration_ranker import MaxPConfig, is_ranker
from .loading_options import PathLike, pick_source_options
from .modeling_ranker import DocumentRanker, encoder_of
from .processing_settings import Preset
from .ranker_options import MaxPOptions
from .reader_bi_encoder import BiEncoder, Pooling, Similarity
from .reader_cross_encoder import CrossEncoder, check_head, check_labels
from .single_precision import at_least_single

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.get_logger(__name__)

MaxP = TypeVar("MaxP", bound="MaxPForSequenceClassification")
Compare = Callable[[Tensor, Tensor], tuple[Tensor, ...]]


class MaxPForSequenceClassification(DocumentRanker):
    """FirstP, MaxP, SumP, AvgP, K-Max-AvgP and Birch over a cross-encoder's passage scores.

    The encoder is a sequence classifier with one or two labels, so any cross-encoder can be used with its head; or an
    encoder-decoder or a decoder that answers a prompt with one of two words, as monoT5 and Qwen3-Reranker do.

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
    relation = ("calibration",)
    config: MaxPConfig

    def _add_relation(self) -> None:
        self.calibration = cast(BiEncoder, self.reader).new_calibration()

    def relate(self, queries: Tensor, passages: Tensor) -> Tensor:
        """The reader's similarity of query and passage, times a learned scale, plus a learned bias."""
        return self._calibrate(cast(BiEncoder, self.reader).compare, queries, passages)

    def relate_all(self, queries: Tensor, passages: Tensor) -> Tensor:
        """The calibrated similarities of all pairs of a query and a passage, `(queries, passages)`."""
        return self._calibrate(cast(BiEncoder, self.reader).compare_all, queries, passages)

    def _calibrate(self, compare: Compare, queries: Tensor, passages: Tensor) -> Tensor:
        # In mixed precision, matrix products would be in half precision.
        with torch.autocast(queries.device.type, enabled=False):
            return self.calibration(*compare(at_least_single(queries), at_least_single(passages)))

    @classmethod
    def _load_encoder(cls, source: PathLike, *, num_labels: int = 1, **options: Any) -> PreTrainedModel:
        config = AutoConfig.from_pretrained(source, **TRUST_NO_CODE, **pick_source_options(options))
        if is_ranker(config):
            ranker = AutoModel.from_pretrained(source, **TRUST_NO_CODE, **options)
            return _with_new_head(encoder_of(ranker, source), num_labels)
        load = partial(
            AutoModelForSequenceClassification.from_pretrained, source, use_safetensors=True, **TRUST_NO_CODE, **options
        )
        if CrossEncoder.takes_head(config):
            return _with_new_head(load(), num_labels)
        return load(num_labels=num_labels)

    @classmethod
    def from_encoder(  # type: ignore[override]
        cls: type[MaxP],
        source: PathLike,
        aggregation: str | None = None,
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
        return cls._build_anew(source, aggregation, preset, options, num_labels=labels)

    @classmethod
    def from_bi_encoder(  # type: ignore[override]
        cls: type[MaxP],
        source: PathLike,
        aggregation: str | None = None,
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
            late_interaction: Whether the score adds how well the passage's tokens match the query's tokens: the mean,
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
        aggregation: str = "max",
        preset: Preset | None = None,
        *,
        true_token: str | None = None,
        false_token: str | None = None,
        **options: Unpack[MaxPOptions],
    ) -> MaxP:
        """Build a ranker on a cross-encoder with its own head; it needs no training.

        Args:
            source: Hub id or folder of a sequence classifier with one or two labels; of an encoder-decoder (T5, mT5,
                UMT5) such as monoT5, or of a decoder (Gemma, Llama, Mistral, Qwen2, Qwen3) such as Qwen3-Reranker,
                which answer a prompt with a word; or of a MaxP ranker, whose passage scorer is used.
            aggregation: How passage scores are combined.
            preset: Input settings, as in `from_encoder`.
            true_token: The word for a relevant passage; `None` is the model's own: a ranker's, "true" for an
                encoder-decoder, and for a decoder what its files or its name say.
            false_token: The word for one that is not relevant, as `true_token`. For a decoder that is given a
                `true_token` alone, the score is the logit of this one word.
            **options: As in `from_encoder`. For an encoder-decoder, `passage_score` is "log_probability" and `prompt`
                that of monoT5 by default. For a decoder, `prompt` is what its files or its name say, and `instruction`
                is what stands at `{instruction}` in it.

        Example:
            ```python
            MaxPForSequenceClassification.from_cross_encoder("castorini/monot5-base-msmarco", max_length=512)
            ```
        """
        check_head(source)
        wanted = {"true_token": true_token, "false_token": false_token}
        return cls._build(False, source, wanted, aggregation, preset, options)

    def passage_scores(self, features: Tensor) -> Tensor:
        """The passages' own scores: the encoder's."""
        return features

    def _own_scores(self, features: Tensor) -> Tensor:
        return features


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
