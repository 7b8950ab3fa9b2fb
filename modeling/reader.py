"""`Reader`: one kind of passage scorer, from queries and passages to the features that an aggregation combines.

A kind is one subclass in a file of its own, and one line in `READERS` of `readers.py`. It owns its settings, which are
written into config.json as `reader`, the encoder that it needs, and how a batch goes through it. A reader that reads
query and passage apart (`separate`) also says how their vectors meet; a document's vectors can then be kept.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel

from .encoders import (
    GLOBAL_ATTENTION,
    check_separator,
    encoder_for,
    first_position,
    global_attention,
    last_places,
    lengths_read_apart,
)
from .engine_packing import can_pack, describe_row, pack
from .ranker_source import Source, Start

if TYPE_CHECKING:
    from .configuration_ranker import RankerConfig
    from .modeling_passages import PassageModel
    from .modeling_ranker import DocumentRanker
    from .processing_document import DocumentProcessor


@dataclass(frozen=True)
class ReaderSettings:
    """The settings of a reader, as config.json has them beside its `kind`. They check themselves when they are made."""

    kind: ClassVar[str]


class Reader(nn.Module):
    """Reads inputs in which query and passage are joined; subclasses make features of the encoder's output.

    The encoder is the model's, and an argument of each method.

    Args:
        config: The ranker's configuration.
        encoder: The encoder, which is prepared for this reader.
    """

    settings_class: ClassVar[type[ReaderSettings]]
    features: ClassVar[frozenset[str]]
    """The features of a passage that it can compute: `score`, `vector` or `matches`; see `RankerConfig.feature`."""
    separate: ClassVar[bool] = False
    """Whether query and passage are read apart, so that the vectors of documents can be kept."""
    single_vector: ClassVar[bool] = False
    """Whether one vector of a passage is all that a score needs."""
    rows_of_tokens: ClassVar[bool] = False
    """Whether the features of a passage have a row for each token of the query."""
    input_names: ClassVar[tuple[str, ...]] = ()
    """Arguments of `forward` that only this kind has."""
    processor_settings: ClassVar[dict[str, Any]] = {}
    """Settings of the processor that only this kind uses, with the values that they have for all other kinds."""
    exact: ClassVar[bool] = False
    """Whether its own weights stay in 32-bit floats whatever the encoder's type."""
    card_tag: ClassVar[str] = "cross-encoder"
    """What a card calls the kind of model."""
    card_limits: ClassVar[tuple[str, ...]] = ()
    """Sentences about limits on a card."""
    papers: ClassVar[tuple[str, ...]] = ()
    """Papers that a card names beside those of the aggregation, by their keys."""
    drawn_encoder: ClassVar[str] = "encoder"
    """The encoder's name in a card's picture."""

    def __init__(self, config: RankerConfig, encoder: PreTrainedModel) -> None:
        super().__init__()
        self.config = config
        self.reads_segments = "token_type_ids" in inspect.signature(encoder.forward).parameters
        self.first_position = first_position(encoder)

    @classmethod
    def encoder_class(cls, config: RankerConfig) -> Any:
        """The Auto class of the encoder."""
        return AutoModel

    @classmethod
    def check(cls, config: RankerConfig) -> None:
        """Refuse a configuration that does not fit this reader."""

    # --- Building ----------------------------------------------------------------------------------------------------

    @classmethod
    def takes_head(cls, config: PreTrainedConfig) -> bool:
        """Whether a plain model with this configuration has a head whose scores this reader gives."""
        return False

    @classmethod
    def start(cls, source: Source, wanted: Mapping[str, Any]) -> Start | None:
        """The parts and settings of a new ranker, from a plain model; `None` if the model is for another reader.

        Args:
            source: The model.
            wanted: The user's choices of readers' settings, such as `pooling` or `true_token`, without choices that
                are `None`. A reader refuses settings that it does not have.
        """
        return None

    @classmethod
    def restart(cls, source: Source, ranker: DocumentRanker, wanted: Mapping[str, Any], feature: str) -> Start:
        """The parts and settings of a new ranker, from a ranker with this reader.

        Args:
            source: Where the ranker is from.
            ranker: The ranker.
            wanted: As in `start`.
            feature: The feature of a passage that the new ranker's family uses.
        """
        cls.refuse(source, wanted)
        kept = {name: ranker.require_processor().settings[name] for name in cls.processor_settings}
        config = {"passage_score": ranker.config.passage_score} if feature == "score" else {}
        return Start(ranker.encoder, ranker.config.reader, config, kept)

    @classmethod
    def refuse(cls, source: Source, wanted: Mapping[str, Any]) -> None:
        """Refuse choices that this reader does not have."""
        for name in wanted:
            raise ValueError(
                f"{name} is not for {source}, which is read as a {cls.settings_class.kind.replace('_', '-')}: leave it "
                "out."
            )

    def check_processor(self, processor: DocumentProcessor, encoder: PreTrainedModel) -> None:
        """Refuse a processor that builds inputs of another kind."""
        if processor.separate:
            raise ValueError(
                "separate=True: a bi-encoder reads query and passage separately, and this ranker reads them together "
                "(separate=False)."
            )
        if processor.prompt:
            raise ValueError(
                f"prompt={processor.prompt!r}: an encoder-decoder reads query and passage in a prompt, and this ranker "
                "reads them in the tokenizer's pair format (prompt='')."
            )
        check_separator(encoder, processor.template.between)

    def use_format(self, processor: DocumentProcessor | None) -> None:
        """Note where the processor puts special tokens, if the reader has to know; `None` forgets it."""

    def resize_tokens(self, encoder: PreTrainedModel, *options: Any) -> nn.Embedding:
        """Change how many tokens the encoder knows, with the options of `resize_token_embeddings`."""
        return encoder.resize_token_embeddings(*options)

    def describe(self) -> str:
        """The kind of model in words, such as `bi-encoder`."""
        return self.settings_class.kind.replace("_", "-")

    # --- Reading -----------------------------------------------------------------------------------------------------

    @property
    def all_states(self) -> bool:
        """Whether the states of all tokens are needed, or only that of the first."""
        return False

    @property
    def outputs(self) -> dict[str, bool]:
        """Further outputs that the encoder is asked for."""
        return {}

    def features_of(self, output: Any, inputs: dict[str, Tensor]) -> Tensor:
        """The features of inputs from the encoder's output: `(inputs,)`, `(inputs, width)` or rows of numbers.

        Args:
            output: The encoder's output; without `all_states`, it may have the states of first tokens only.
            inputs: The padded inputs, as long as the states.
        """
        raise NotImplementedError

    def read(self, encoder: PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor:
        """The features of a flat batch of inputs `(inputs, length)`, padded on the right."""
        inputs = self._known(inputs)
        if can_pack(encoder):
            return self.features_of(*self._read_packed(encoder, inputs))
        apart = self.lengths_apart(encoder, inputs)
        if apart is None:
            return self.features_of(self.read_padded(encoder, inputs), inputs)
        groups = [(apart == length).nonzero()[:, 0] for length in apart.unique()]
        lengths = last_places(inputs["attention_mask"])
        parts = []
        for rows in groups:
            group = {name: tensor[rows, : int(lengths[rows].max())] for name, tensor in inputs.items()}
            parts.append(self.features_of(self.read_padded(encoder, group), group))
        return join_features(parts)[torch.cat(groups).argsort()]

    def read_showing(
        self, encoder: PreTrainedModel, inputs: dict[str, Tensor], wanted: dict[str, bool]
    ) -> tuple[Tensor, Any]:
        """The features of inputs in one padded batch, and the encoder's output, with the wanted outputs."""
        apart = lengths_read_apart(encoder, last_places(inputs["attention_mask"])) is not None
        if apart or encoder.config.is_encoder_decoder:
            raise ValueError(
                f"{next(iter(wanted))}: {type(encoder).__name__} does not read all inputs in one padded batch: "
                "call model.encoder on the inputs whose states you need."
            )
        inputs = self._known(inputs)
        output = self.read_padded(encoder, inputs, **wanted)
        return self.features_of(output, inputs), output

    def lengths_apart(self, encoder: PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor | None:
        """A group number for each input: only inputs of one group are padded together. `None` if all may be."""
        return lengths_read_apart(encoder, last_places(inputs["attention_mask"]))

    def read_padded(self, encoder: PreTrainedModel, inputs: dict[str, Tensor], **wanted: bool) -> Any:
        """The encoder's output for padded inputs; `wanted` are `output_hidden_states` and `output_attentions`."""
        encoder = encoder_for(encoder, inputs["input_ids"].size(1))
        return encoder(**inputs, **self.attention(encoder, inputs["input_ids"]), **{**self.outputs, **wanted})

    def attention(self, encoder: PreTrainedModel, input_ids: Tensor) -> dict[str, Tensor]:
        """Further arguments of the encoder about its attention."""
        return global_attention(encoder, input_ids)

    def _read_packed(self, encoder: PreTrainedModel, inputs: dict[str, Tensor]) -> tuple[Any, dict[str, Tensor]]:
        """The encoder's output without padding, from one row of all inputs; and the inputs, as long as the states."""
        real = inputs["attention_mask"].bool()
        row, lengths = pack(inputs["input_ids"], inputs["attention_mask"], self.first_position)
        if "token_type_ids" in inputs:
            row["token_type_ids"] = inputs["token_type_ids"][real][None]
        output = encoder(**row, row=describe_row(lengths, encoder, self.all_states), **self.outputs)
        if not self.all_states:
            return output, {name: tensor[:, :1] for name, tensor in inputs.items()}
        output.last_hidden_state = _unpack(output.last_hidden_state, lengths)
        if output.get("hidden_states") is not None:
            output.hidden_states = tuple(_unpack(states, lengths) for states in output.hidden_states)
        return output, {name: tensor[:, : max(lengths)] for name, tensor in inputs.items()}

    def _known(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """The inputs without segments if the encoder has none."""
        return {name: tensor for name, tensor in inputs.items() if name != "token_type_ids" or self.reads_segments}

    # --- Meeting the query -------------------------------------------------------------------------------------------

    def meet(self, model: PassageModel, passages: Tensor, counts: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        """The features of passages for the queries of their documents: here, they have been read with them.

        Args:
            model: The ranker.
            passages: The features that `read` returned for the passages, one document after another.
            counts: How many passages each document has.
            inputs: The arguments of `forward` that `input_names` lists.
        """
        return passages

    def read_queries(self, model: PassageModel, inputs: dict[str, Tensor]) -> Tensor:
        """The vectors of queries."""
        raise ValueError("score_all is for bi-encoders: a cross-encoder reads each pair of query and document.")

    def init_weights(self) -> None:
        """Initialize the parameters that are not part of a layer."""

    # --- On a card ---------------------------------------------------------------------------------------------------

    @classmethod
    def describe_reading(cls, feature: str, config: Mapping[str, Any], processor: Mapping[str, Any]) -> str:
        """How a passage is read, as sentences.

        Args:
            feature: What the family takes of a passage.
            config: The ranker's config.json.
            processor: Its processor_config.json.
        """
        reads = f"The encoder reads the query together with each passage and gives {_GIVEN[feature]} (a cross-encoder)."
        if config.get("encoder_config", {}).get("model_type") not in GLOBAL_ATTENTION:
            return reads
        return f"{reads} The first token and the query have global attention, the passage has attention in a window."

    @classmethod
    def draw_features(cls, feature: str, config: Mapping[str, Any], number: str) -> str:
        """What the encoder makes of a passage with this number, as letters of a picture."""
        return f"{LETTERS[feature]}{number}"


# What a card says that the encoder gives a passage.
_GIVEN = {
    "score": "a score for it",
    "vector": "a vector for it",
    "matches": "vectors of their tokens, whose cosines are counted",
}
LETTERS = {"score": "s", "vector": "p", "matches": "m"}
"""What stands for the features of a passage in a picture."""


def _unpack(states: Tensor, lengths: list[int]) -> Tensor:
    """Divide the states of a row, `(1, tokens, width)`, into padded inputs, `(inputs, length, width)`."""
    return pad_sequence(states[0].split(lengths), batch_first=True)


def join_features(parts: Sequence[Tensor]) -> Tensor:
    """Join the features of batches. Token vectors are padded with zeros to one length."""
    if parts[0].dim() == 3:
        longest = max(part.size(1) for part in parts)
        parts = [F.pad(part, (0, 0, 0, longest - part.size(1))) for part in parts]
    return torch.cat(list(parts))


def drop_pooler(encoder: PreTrainedModel) -> None:
    """Remove an encoder's pooler: distributed training fails on weights that do not contribute to the score."""
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None  # type: ignore[assignment]
