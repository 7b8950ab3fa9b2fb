"""The configuration of a ranker: `MaxPConfig` (aggregates scores) and `ParadeConfig` (aggregates vectors)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar, Literal, TypeGuard, get_args

from transformers import AutoConfig, PreTrainedConfig

from .aggregators import SCORE_AGGREGATORS, VECTOR_AGGREGATORS, Aggregator
from .checks import MOST_MODULES, MOST_WIDTH, check_choice, check_counts, check_whole
from .encoders import NOT_REPEATABLE
from .reader import Reader, ReaderSettings
from .reader_encoder_decoder import SEQ2SEQ_TYPES
from .readers import READERS, make_settings

PassageScore = Literal["logit", "probability", "log_probability"]
"""What an encoder with two labels, an encoder-decoder or a decoder gives a passage; see `MaxPConfig`."""
PassageVector = Literal["cls", "pooler"]
"""Which of the encoder's vectors represents a passage; see `ParadeConfig`."""

# Where transformers finds the pipeline in a checkpoint's own folder.
_PIPELINES = {"text-ranking": {"impl": "pipeline.TextRankingPipeline", "pt": ["AutoModelForSequenceClassification"]}}


class RankerConfig(PreTrainedConfig):
    """The configuration that all families share.

    Args:
        encoder_config: The encoder's own configuration, of any model type that transformers knows.
        aggregation: How passages are combined: a key of the family's table in `aggregators.py`.
        int8: Whether the encoder's linear layers hold 8-bit integers; see `to_int8`.
        reader: How passages are read: its `kind`, a key of `READERS`, and the settings of that kind, as `from_encoder`,
            `from_cross_encoder` and `from_bi_encoder` set them; `None` is the family's default.
    """

    sub_configs: ClassVar[dict[str, Any]] = {"encoder_config": AutoConfig}
    aggregators: ClassVar[dict[str, type[Aggregator]]] = {}
    aggregator_table: ClassVar[str] = ""
    """Name of the table of the family's aggregations in `docparade.modeling`."""
    feature: ClassVar[Literal["score", "vector", "matches"]]
    """The feature of a passage that the family uses: a score, a vector, or how its tokens match the query's tokens."""
    default_reader: ClassVar[str] = "cross_encoder"
    aggregations_are_exchangeable: ClassVar[bool] = False
    """Whether a checkpoint can be loaded with another aggregation than the one that it was trained with."""

    encoder_config: PreTrainedConfig
    aggregation: str
    int8: bool
    reader: ReaderSettings

    def __init__(
        self,
        encoder_config: PreTrainedConfig | dict[str, Any] | None = None,
        aggregation: str = "max",
        *,
        int8: bool = False,
        reader: Mapping[str, Any] | ReaderSettings | None = None,
        **kwargs: Any,
    ) -> None:
        self.encoder_config = as_config(encoder_config)
        self.aggregation = aggregation
        self.int8 = int8
        self.reader = make_settings({"kind": self.default_reader} if reader is None else reader)
        # transformers sets the encoder's attention to the ranker's, so the default is what the encoder has already.
        kwargs.setdefault("attn_implementation", self.encoder_config._attn_implementation)
        kwargs.setdefault("num_labels", 1)
        # Checked here, because PreTrainedConfig makes a name for each label.
        check_whole(f"{type(self).__name__}: num_labels", kwargs["num_labels"], least=1, most=MOST_MODULES)
        kwargs.setdefault("custom_pipelines", _PIPELINES)
        own = self.aggregators[aggregation].settings if aggregation in self.aggregators else {}
        super().__init__(**{**own, **kwargs})
        self._check()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as config.json has them."""
        return {**super().to_dict(), "reader": {"kind": self.reader.kind, **asdict(self.reader)}}

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Read a configuration from the dictionary of a checkpoint of this family.

        Keyword arguments override fields of the dictionary, and are checked as in the constructor.
        """
        model_type = config_dict.get("model_type", cls.model_type)
        if model_type != cls.model_type:
            raise ValueError(
                f"This is a checkpoint of a {model_type!r} model, and {cls.__name__} is for {cls.model_type!r}: to "
                f"build a ranker on an encoder, use from_encoder."
            )
        # When a model is loaded, `max_passages` is for its processor; the size of the weights is in the file.
        loads_model = kwargs.get("return_unused_kwargs", False)
        held = {"max_passages": kwargs.pop("max_passages")} if loads_model and "max_passages" in kwargs else {}
        names = inspect.signature(cls).parameters.keys() - {"encoder_config", "kwargs"}
        changes = {name: kwargs.pop(name) for name in names & kwargs.keys()}
        loaded: Any = super().from_dict(cls._changed(config_dict, changes), **kwargs)
        return (loaded[0], {**loaded[1], **held}) if loads_model else loaded

    @classmethod
    def _changed(cls, config_dict: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
        return {**config_dict, **changes}

    @classmethod
    def scores_passages(cls) -> bool:
        """Whether every single passage has a score, of which the aggregation makes that of the document."""
        return cls.feature == "score"

    @classmethod
    def fitting_readers(cls) -> dict[str, type[Reader]]:
        """The readers that give what the family takes of a passage, by their kind."""
        return {kind: reader for kind, reader in READERS.items() if cls.feature in reader.features}

    @property
    def reader_class(self) -> type[Reader]:
        """The class that reads passages."""
        return READERS[self.reader.kind]

    def fits(self, family: str, aggregation: str | None) -> bool:
        """Whether a checkpoint with this configuration can be loaded as it is for a family and an aggregation.

        Otherwise, only its encoder can be used. `None` is the checkpoint's own aggregation.
        """
        trained = aggregation in (None, self.aggregation) or self.aggregations_are_exchangeable
        return family == self.model_type and trained

    @classmethod
    def own_settings(cls) -> dict[str, Any]:
        """The settings that single aggregations of the family have of their own, with their default values."""
        return {name: value for kind in cls.aggregators.values() for name, value in kind.settings.items()}

    @property
    def passage_limit(self) -> int | None:
        """How many passages of a document the aggregation can read; `None` if it has no limit."""
        return self.aggregators[self.aggregation].passage_limit(self)

    @property
    def scores_are_logits(self) -> bool:
        """Whether the sigmoid of a score is a probability; false if passage scores are probabilities already."""
        return True

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None) -> PreTrainedConfig:
        """The encoder's configuration: it has the vocabulary."""
        return self.encoder_config

    @property
    def hidden_size(self) -> int:
        """Width of the encoder's vectors."""
        return self.encoder_config.hidden_size

    @property
    def weight_means(self) -> str:
        """The meaning of a passage's weight in this aggregation."""
        return self.aggregators[self.aggregation].weight_means

    @property
    def matched_layers(self) -> list[int]:
        """The encoder's layers whose states are kept until the end, to be matched; 0 is its embeddings."""
        return []

    def _check(self) -> None:
        if self.encoder_config.model_type in NOT_REPEATABLE:
            raise ValueError(
                f"The encoder is of the type {self.encoder_config.model_type}, which gives an input another score "
                "each time, or after other inputs. Use another encoder."
            )
        if self.reader.kind not in self.fitting_readers():
            raise ValueError(
                f"reader: {self.reader.kind} gives no {self.feature} of a passage, which {type(self).__name__} needs: "
                f"use {' or '.join(self.fitting_readers())}."
            )
        if self.aggregation not in self.aggregators:
            raise ValueError(
                f"{type(self).__name__}: aggregation is {self.aggregation!r}, and has to be one of "
                f"{', '.join(self.aggregators)}. To use a method of your own, "
                f"first import the module that adds it to docparade.modeling.{self.aggregator_table}."
            )


class MaxPConfig(RankerConfig):
    """Configuration of a ranker that aggregates passage scores.

    Args:
        encoder_config: The configuration of a sequence classifier with one or two labels, an encoder-decoder or a
            decoder.
        aggregation: `first`, `max`, `sum`, `avg`, `kmax_avg` or `birch`.
        k: How many of the best passages `kmax_avg` (default 4) and `birch` (default 3) use.
        passage_score: What an encoder with two labels gives a passage: the `logit` of class 1, its `probability`
            (softmax) or `log_probability`. An encoder with one label gives its logit. An encoder-decoder or a decoder
            gives the probability of its true token against the false one; there, `logit` is the difference of their
            logits, whose sigmoid is that probability.

    Example:
        >>> from transformers import BertConfig
        >>> MaxPConfig(BertConfig(num_labels=1), aggregation="kmax_avg").k
        4
    """

    model_type = "maxp"
    aggregators = SCORE_AGGREGATORS
    aggregator_table = "SCORE_AGGREGATORS"
    feature = "score"
    aggregations_are_exchangeable = True

    k: int
    passage_score: PassageScore

    def __init__(
        self,
        encoder_config: PreTrainedConfig | dict[str, Any] | None = None,
        aggregation: str = "max",
        k: int | None = None,
        passage_score: PassageScore = "logit",
        **kwargs: Any,
    ) -> None:
        self.k = k if k is not None else (3 if aggregation == "birch" else 4)
        self.passage_score = passage_score
        super().__init__(encoder_config, aggregation, **kwargs)

    @classmethod
    def _changed(cls, config_dict: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
        # Another aggregation has another default k.
        if changes.get("aggregation", config_dict.get("aggregation")) != config_dict.get("aggregation"):
            changes = {"k": None, **changes}
        return super()._changed(config_dict, changes)

    @property
    def scores_are_logits(self) -> bool:
        """Whether the passages' scores are logits."""
        return self.passage_score == "logit"

    def _check(self) -> None:
        super()._check()
        check_choice("MaxPConfig: passage_score", self.passage_score, get_args(PassageScore))
        check_whole("MaxPConfig: k", self.k, least=1, most=MOST_WIDTH)
        self.reader_class.check(self)


class ParadeConfig(RankerConfig):
    """Configuration of a ranker that aggregates passage vectors.

    Args:
        encoder_config: Any encoder's configuration.
        aggregation: `max`, `sum`, `avg`, `attn`, `cnn` or `transformer`.
        passage_vector: The encoder's first position (`cls`) or its tanh `pooler`.
        max_passages: How many passages of a document `cnn`, and `transformer` with `passage_positions`, can read: it
            sets the depth of `cnn` and the number of positions of `transformer`. Other aggregations have no limit.
        num_aggregator_layers: Layers of `transformer`.
        aggregator_activation: Activation inside the layers of `transformer`; `None` is the encoder's own (the paper has
            `relu`).
        passage_positions: Whether `transformer` adds learned positions to the passages.
        cnn_activation: Activation after each convolution and in the scoring net of `cnn`.
        cnn_hidden_size: Width of the hidden layer of the scoring net; `None` is the encoder's width.
        initializer_range: Standard deviation of all new weights.

    Example:
        >>> from transformers import ElectraConfig
        >>> ParadeConfig(ElectraConfig(), aggregation="transformer").max_passages
        16
    """

    model_type = "parade"
    aggregators = VECTOR_AGGREGATORS
    aggregator_table = "VECTOR_AGGREGATORS"
    feature = "vector"

    passage_vector: PassageVector
    max_passages: int
    num_aggregator_layers: int
    aggregator_activation: str | None
    passage_positions: bool
    cnn_activation: str
    cnn_hidden_size: int
    initializer_range: float

    def __init__(
        self,
        encoder_config: PreTrainedConfig | dict[str, Any] | None = None,
        aggregation: str = "transformer",
        passage_vector: PassageVector = "cls",
        max_passages: int = 16,
        num_aggregator_layers: int = 2,
        aggregator_activation: str | None = None,
        passage_positions: bool = True,
        cnn_activation: str = "relu",
        cnn_hidden_size: int | None = None,
        initializer_range: float = 0.02,
        **kwargs: Any,
    ) -> None:
        encoder_config = as_config(encoder_config)
        self.passage_vector = passage_vector
        self.max_passages = max_passages
        self.num_aggregator_layers = num_aggregator_layers
        self.aggregator_activation = aggregator_activation
        self.passage_positions = passage_positions
        self.cnn_activation = cnn_activation
        self.cnn_hidden_size = cnn_hidden_size if cnn_hidden_size is not None else encoder_config.hidden_size
        self.initializer_range = initializer_range
        super().__init__(encoder_config, aggregation, **kwargs)

    def _check(self) -> None:
        super()._check()
        refuse_seq2seq(self.encoder_config)
        check_choice("ParadeConfig: passage_vector", self.passage_vector, get_args(PassageVector))
        limits = {"max_passages": MOST_WIDTH, "num_aggregator_layers": MOST_MODULES, "cnn_hidden_size": MOST_WIDTH}
        for name, most in limits.items():
            check_whole(f"ParadeConfig: {name}", getattr(self, name), least=1, most=most)


def is_ranker(config: PreTrainedConfig) -> TypeGuard[RankerConfig]:
    """Whether this is the configuration of a ranker, whose class may be from another copy of this file."""
    return any(kind.__name__ == RankerConfig.__name__ for kind in type(config).__mro__)


def refuse_seq2seq(encoder_config: PreTrainedConfig) -> None:
    """Refuse an encoder-decoder, which scores passages and gives no vectors."""
    if encoder_config.model_type in SEQ2SEQ_TYPES:
        raise ValueError(
            f"The encoder is of the type {encoder_config.model_type}, an encoder-decoder, which scores passages: use "
            "MaxPForSequenceClassification.from_cross_encoder."
        )


def as_config(encoder_config: PreTrainedConfig | dict[str, Any] | None) -> PreTrainedConfig:
    """An encoder's configuration from its dictionary, as a checkpoint has it."""
    if encoder_config is None:
        # transformers builds every config without arguments, to find the default values.
        return AutoConfig.for_model("bert", num_labels=1)
    if isinstance(encoder_config, PreTrainedConfig):
        return encoder_config
    check_counts("encoder_config", encoder_config)
    fields = dict(encoder_config)
    model_type = fields.pop("model_type", None)
    try:
        return AutoConfig.for_model(model_type, **fields)
    except ValueError as error:
        raise ValueError(
            f"encoder_config has the model_type {model_type!r}, which this version of transformers does not know."
        ) from error
