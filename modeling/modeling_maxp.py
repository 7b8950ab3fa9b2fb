"""The score family: the encoder gives every passage a number, and the numbers are aggregated."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import Tensor
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from .configuration import MaxPConfig
from .ranker import DocumentRanker, PathLike

MaxP = TypeVar("MaxP", bound="MaxPForSequenceClassification")


class MaxPForSequenceClassification(DocumentRanker):
    """FirstP, MaxP, SumP, AvgP, K-Max-AvgP and Birch over a cross-encoder's passage scores.

    The encoder is a sequence classifier with one or two labels, so that the head of any cross-encoder is used as it is.

    Example:
        >>> model = MaxPForSequenceClassification.from_cross_encoder(
        ...     "cross-encoder/ms-marco-MiniLM-L6-v2", aggregation="max"
        ... )  # doctest: +SKIP
        >>> model.rank("why is the sky blue", long_documents)  # doctest: +SKIP
    """

    config_class = MaxPConfig
    config: MaxPConfig

    @classmethod
    def _new_encoder(cls, config: MaxPConfig) -> PreTrainedModel:  # type: ignore[override]
        return AutoModelForSequenceClassification.from_config(config.encoder_config)

    @classmethod
    def _load_encoder(cls, source: PathLike, num_labels: int = 1, **options: Any) -> PreTrainedModel:
        return AutoModelForSequenceClassification.from_pretrained(
            source, num_labels=num_labels, use_safetensors=True, **options
        )

    @classmethod
    def from_cross_encoder(
        cls: type[MaxP], source: PathLike, aggregation: str = "max", preset: str = "li2023", **options: Any
    ) -> MaxP:
        """Let an existing cross-encoder read long documents, with its own head and no training.

        Args:
            source: Hub id or folder of a sequence classifier with one or two labels.
            aggregation: How passage scores are put together.
            preset: Input settings of a paper: a key of `PRESETS`.
            **options: As in `from_encoder`.
        """
        config_options, processor_options, encoder_options = cls._sort_options(options)
        encoder, info = AutoModelForSequenceClassification.from_pretrained(
            source, use_safetensors=True, output_loading_info=True, **encoder_options
        )
        if missing := sorted(info["missing_keys"]):
            raise ValueError(
                f"{source} is no cross-encoder: it has no {missing[0]}. Use from_encoder, which puts a new head on it."
            )
        return cls._assemble(source, encoder, aggregation, preset, config_options, processor_options, encoder_options)

    def _features(self, encoded: Any) -> Tensor:
        # Sums, means and ties of half-precision scores are not to be trusted.
        logits: Tensor = encoded.logits.float()
        if logits.size(-1) == 1:
            return logits[:, 0]
        if self.config.passage_score == "logit":
            return logits[:, 1]
        if self.config.passage_score == "probability":
            return logits.softmax(dim=-1)[:, 1]
        return logits.log_softmax(dim=-1)[:, 1]

    def passage_scores(self, features: Tensor) -> Tensor:
        """The passages' own scores: what the encoder gave."""
        return features


MaxPConfig.register_for_auto_class()
MaxPForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
