"""Cross-encoders: one encoder reads the query together with each passage, and gives a score or a vector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor
from transformers import AutoModel, AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedModel

from .loading_options import PathLike
from .ranker_source import Source, Start
from .reader import Reader, ReaderSettings, drop_pooler

if TYPE_CHECKING:
    from .configuration_ranker import RankerConfig


# Models on the Hub whose head is a linear layer. As an ELECTRA classifier they would have another layer before it, with
# weights that were not trained.
LINEAR_HEADS = frozenset({"Capreolus/electra-base-msmarco"})


class LinearHeadError(ValueError):
    """An ELECTRA was trained with a linear layer for a head: it has to be converted before it is loaded."""

    def __init__(self, source: Source | PathLike) -> None:
        super().__init__(
            f"The head of {source} is one linear layer, which is not ELECTRA's: convert the model (docs/loading.md, "
            "Converting pickled weights), and name its new folder."
        )


class CrossEncoderSettings(ReaderSettings):
    """A cross-encoder has no settings beside its family's."""

    kind = "cross_encoder"


class CrossEncoder(Reader):
    """For the score family, a sequence classifier with one or two labels; for the vector family, any encoder."""

    settings_class = CrossEncoderSettings
    features = frozenset({"score", "vector"})

    def __init__(self, config: RankerConfig, encoder: PreTrainedModel) -> None:
        super().__init__(config, encoder)
        if config.feature == "vector":
            if config.passage_vector == "cls":
                drop_pooler(encoder)
            elif getattr(encoder, "pooler", None) is None:
                raise ValueError(f"{type(encoder).__name__} has no pooler: use passage_vector='cls'.")

    @classmethod
    def encoder_class(cls, config: RankerConfig) -> Any:
        """A classifier where scores are wanted."""
        return AutoModelForSequenceClassification if config.feature == "score" else AutoModel

    @classmethod
    def check(cls, config: RankerConfig) -> None:
        """Refuse a classifier whose labels do not give the chosen score."""
        if config.feature == "score":
            check_labels(config.encoder_config.num_labels, config.passage_score)

    @classmethod
    def takes_head(cls, config: PreTrainedConfig) -> bool:
        """Whether it is a classifier's."""
        return any(name.endswith("ForSequenceClassification") for name in config.architectures or ())

    @classmethod
    def start(cls, source: Source, wanted: Mapping[str, Any]) -> Start | None:
        """A classifier with its head; the last reader to be asked, so a model without one is refused."""
        cls.refuse(source, wanted)
        if not source.has_head("ForSequenceClassification"):
            # Before it is loaded: transformers would first report all that it does not have.
            if source.files.pooling:
                raise ValueError(f"{source} is a bi-encoder, not a cross-encoder: use from_bi_encoder.")
            for name in source.architectures:
                raise ValueError(
                    f"{source} is not a cross-encoder: it is a {name}, which has no head. Use from_encoder, which adds "
                    "a new one, or from_bi_encoder with a pooling."
                )
        encoder, missing = source.load_whole(AutoModelForSequenceClassification)
        if missing == ["classifier.dense.bias", "classifier.dense.weight"] and encoder.config.model_type == "electra":
            raise LinearHeadError(source)
        refuse_missing(source, missing)
        return Start(encoder, CrossEncoderSettings())

    def lengths_apart(self, encoder: PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor | None:
        """As for all readers; classifiers of encoder-decoders refuse inputs with different numbers of end tokens."""
        apart = super().lengths_apart(encoder, inputs)
        if apart is None and encoder.config.is_encoder_decoder:
            return (inputs["input_ids"] == encoder.config.eos_token_id).sum(dim=1)
        return apart

    def features_of(self, output: Any, inputs: dict[str, Tensor]) -> Tensor:
        """The classifier's score, or the vector of the first token."""
        if self.config.feature == "vector":
            return output.pooler_output if self.config.passage_vector == "pooler" else output.last_hidden_state[:, 0]
        # Sums, means and ties of half-precision scores are not reliable.
        logits: Tensor = output.logits.float()
        if logits.size(-1) == 1:
            return logits[:, 0]
        return logits[:, 1] if self.config.passage_score == "logit" else score_answer(logits, self.config.passage_score)


def refuse_missing(source: Source, missing: list[str]) -> None:
    """Refuse a model that lacks weights."""
    if missing:
        raise ValueError(
            f"{source} is not a cross-encoder: it has no {missing[0]}. Use from_encoder, which adds a new head."
        )


def check_head(source: PathLike) -> None:
    """Refuse a model whose head transformers would not load as it was trained."""
    if str(source) in LINEAR_HEADS:
        raise LinearHeadError(source)


def score_answer(logits: Tensor, passage_score: str) -> Tensor:
    """The probability of the second of two answers, its logarithm, or the difference of the two logits."""
    if passage_score == "logit":
        return logits[:, 1] - logits[:, 0]
    if passage_score == "probability":
        return logits.softmax(dim=-1)[:, 1]
    return logits.log_softmax(dim=-1)[:, 1]


def check_labels(labels: int | None, passage_score: str) -> None:
    """Refuse an encoder whose number of labels does not fit a passage scorer, or this score of it."""
    if labels not in (1, 2):
        raise ValueError(f"The encoder has {labels} labels; a passage scorer has 1 or 2.")
    if labels == 1 and passage_score != "logit":
        raise ValueError(
            f"passage_score={passage_score!r} needs an encoder with 2 labels, and this one has 1: use 'logit'."
        )
