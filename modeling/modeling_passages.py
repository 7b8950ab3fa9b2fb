"""The model that all families share, on tensors: an encoder that reads passages, and an aggregator over them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModel, PreTrainedModel
from transformers.utils import ModelOutput, can_return_tuple

from .aggregators import Aggregator
from .bi_encoder import VectorHead, join_features
from .checks import check_flag
from .configuration_ranker import RankerConfig
from .encoders import (
    check_separator,
    encoder_for,
    first_position,
    global_attention,
    last_places,
    lengths_read_apart,
    position_limit,
    without_collectors,
)
from .engine_batching import encode_by_length
from .engine_int8 import replace_linears
from .engine_packing import can_pack, describe_row, pack, prepare_packing
from .offloading import computing_device
from .processing_document import DocumentProcessor
from .seq2seq import narrow_head, read_first_step, resize_tokens
from .single_precision import compute_in_single, heads_of, keep_weights

Model = TypeVar("Model", bound="PassageModel")


@dataclass
class RankerOutput(ModelOutput):
    """What `forward` returns.

    Attributes:
        loss: Binary cross-entropy of the scores against `labels`, if those were given.
        logits: The documents' scores, `(documents, 1)`; with `compare_all`, `(queries, documents)`.
        passage_scores: The score of a document that consists of one passage, for each passage, `(documents,
            passages)`; zero for padding. `None` for PARADE and CEDR models in training, and with `compare_all`.
        passage_weights: Weight of each passage in its document, of the same shape; `config.weight_means` explains it.
        document_state: The documents' vectors, `(documents, width)`; `None` in the score family.
        hidden_states: With `output_hidden_states`, what the encoder returns for the passages: for each layer,
            `(documents, passages, length, width)`; zero for padding passages.
        attentions: The same with `output_attentions`: `(documents, passages, heads, length, length)`.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    passage_scores: Tensor | None = None
    passage_weights: Tensor | None = None
    document_state: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


class PassageModel(PreTrainedModel):
    """Reads passages with an encoder, and aggregates them to the score of their document.

    A family defines the features of a passage: a number, a vector, or rows of numbers.
    """

    config_class: type[RankerConfig] = RankerConfig
    base_model_prefix = "encoder"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    # The loss is a mean over the batch. Without this, Trainer would treat it as a sum over all processes.
    accepts_loss_kwargs = False
    aggregators: ClassVar[dict[str, type[Aggregator]]] = {}
    """The family's methods, by name."""

    config: RankerConfig
    encoder: PreTrainedModel
    aggregator: Aggregator
    _processor: DocumentProcessor | None = None
    batch_tokens: int | None = None
    """Tokens that go through the encoder at once by default; `None` suits the device."""

    def __init__(self, config: RankerConfig, encoder: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        self.encoder = encoder if encoder is not None else self._new_encoder(config)
        if config.seq2seq is not None:
            narrow_head(self.encoder, config.seq2seq)
        # The same object, so that changes of the encoder's configuration are saved with the ranker's.
        self.config.encoder_config = self.encoder.config
        # Not config.aggregators: a configuration loaded with trust_remote_code is from another copy of the code.
        self.aggregator = self.aggregators[config.aggregation](config)
        # A few encoders do not support it: enabling it would then have no effect, without an error.
        self.supports_gradient_checkpointing = self.encoder.supports_gradient_checkpointing
        self._reads_segments = "token_type_ids" in inspect.signature(self.encoder.forward).parameters
        self._first_position = first_position(self.encoder)
        self.vector_head: VectorHead | None = None
        if config.bi_encoder is not None:
            self._add_vector_head(config.bi_encoder)
        if config.int8:
            replace_linears(self.encoder)
        prepare_packing(self.encoder)
        for head in heads_of(self.encoder).values():
            compute_in_single(head)
        keep_weights(self._heads().values())
        self._keep_in_fp32_modules_strict = {name for name, head in self._heads().items() if head.state_dict()}
        self.post_init()

    def _add_vector_head(self, settings: dict[str, Any]) -> None:
        self._drop_pooler()
        width = self.config.hidden_size
        self.vector_head = VectorHead(
            width,
            settings["pooling"],
            settings["dense"],
            settings["normalize"],
            settings.get("late_interaction", False),
        )

    def _drop_pooler(self) -> None:
        """Remove the encoder's pooler: distributed training fails on weights that do not contribute to the score."""
        if getattr(self.encoder, "pooler", None) is not None:
            self.encoder.pooler = None  # type: ignore[assignment]

    def _heads(self) -> dict[str, nn.Module]:
        """The parts that are computed in 32-bit floats, by name."""
        parts = {name: part for name, part in self.named_children() if name not in ("encoder", "vector_head")}
        return parts | {f"encoder.{name}": part for name, part in heads_of(self.encoder).items()}

    def _apply(self: Model, fn: Any, recurse: bool = True) -> Model:
        # Moves and converts a model: `to`, `half`, `bfloat16`, ...
        heads = self._heads().values()
        before = {weights: weights.data for head in heads for weights in head.parameters()}
        super()._apply(fn, recurse)
        keep_weights(heads, before)
        return self

    @property
    def device(self) -> torch.device:
        """Where inputs belong: the device of the weights, or the one to which accelerate fetches them."""
        return computing_device(self)

    @property
    def keeps_tokens(self) -> bool:
        """Whether the features of a passage have a row for each token of the query."""
        return False

    @property
    def scores_by_vectors(self) -> bool:
        """Whether one vector of a passage is all that a score needs: true of bi-encoders without late interaction."""
        return self.vector_head is not None and not self.vector_head.late_interaction

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, Aggregator):
            module.init_weights(getattr(self.config, "initializer_range", 0.02))

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """Change how many tokens the encoder knows, as in `PreTrainedModel`; its configuration changes with it."""
        options = (new_num_tokens, pad_to_multiple_of, mean_resizing)
        if self.config.seq2seq is None:
            embeddings: nn.Embedding = self.encoder.resize_token_embeddings(*options)
        else:
            embeddings = resize_tokens(self.encoder, self.config.seq2seq, *options)
        self.vocab_size = embeddings.num_embeddings  # transformers sets it, too
        return embeddings

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copies: without the hooks by which transformers collects outputs, which cannot be pickled."""
        children = {name: child and without_collectors(child) for name, child in self._modules.items()}
        return {**self.__dict__, "_modules": children}

    # --- What a family defines ---------------------------------------------------------------------------------------

    @classmethod
    def _new_encoder(cls, config: RankerConfig) -> PreTrainedModel:
        """An encoder with new weights."""
        return AutoModel.from_config(config.encoder_config)

    def _features(self, encoded: Any) -> Tensor:
        """The features of passages, `(inputs,)` or `(inputs, width)`, from the encoder's output."""
        raise NotImplementedError

    def relate(self, queries: Tensor, passages: Tensor) -> Tensor:
        """For a bi-encoder: the features of passages from the vectors of queries and passages, row by row."""
        raise NotImplementedError

    def relate_all(self, queries: Tensor, passages: Tensor) -> Tensor:
        """For a bi-encoder: the features of all passages for each query, `(queries, passages, ...)`."""
        return torch.stack([self.relate(query.expand(len(passages), *query.shape), passages) for query in queries])

    def passage_scores(self, features: Tensor) -> Tensor:
        """The scores of documents that consist of one passage, `(inputs,)`, from the passages' features."""
        one = torch.ones(len(features), 1, dtype=torch.bool, device=features.device)
        return self.aggregator(features[:, None], one).score

    # --- Reading -----------------------------------------------------------------------------------------------------

    def encode(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """The features of a flat batch of inputs `(inputs, length)`, each a query joined with a passage.

        For a bi-encoder, an input is a query or a passage, and its features are its vector.
        """
        if not self._reads_segments:
            token_type_ids = None
        if can_pack(self.encoder):
            return self._encode_packed(input_ids, attention_mask, token_type_ids)
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            inputs["token_type_ids"] = token_type_ids
        lengths = last_places(attention_mask)
        apart = lengths_read_apart(self.encoder, lengths)
        if apart is None and self.encoder.config.is_encoder_decoder and self.config.seq2seq is None:
            # Classifiers of encoder-decoders refuse inputs with different numbers of end tokens.
            apart = (input_ids == self.encoder.config.eos_token_id).sum(dim=1)
        if apart is None:
            return self._encode_padded(inputs)
        groups = [(apart == length).nonzero()[:, 0] for length in apart.unique()]
        parts = [
            self._encode_padded({name: tensor[rows, : int(lengths[rows].max())] for name, tensor in inputs.items()})
            for rows in groups
        ]
        return join_features(parts)[torch.cat(groups).argsort()]

    def _encode_padded(self, inputs: dict[str, Tensor]) -> Tensor:
        """The features of inputs that may be padded to the same length."""
        return self._features_of(self._read_padded(inputs), inputs)

    def _read_padded(self, inputs: dict[str, Tensor], **wanted: bool) -> Any:
        """The encoder's output for padded inputs; `wanted` are `output_hidden_states` and `output_attentions`."""
        if self.config.seq2seq is not None:
            return read_first_step(self.encoder, inputs)
        encoder = encoder_for(self.encoder, inputs["input_ids"].size(1))
        attention = {} if self.vector_head is not None else global_attention(encoder, inputs["input_ids"])
        return encoder(**inputs, **attention, **wanted)

    def _features_of(self, encoded: Any, inputs: dict[str, Tensor]) -> Tensor:
        """The features of padded inputs, from the encoder's output."""
        if self.vector_head is None:
            return self._features(encoded)
        return self.vector_head(encoded.last_hidden_state, inputs["attention_mask"], self._special_tokens)

    def _encode_packed(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """The same without padding: the inputs go through the encoder in one row."""
        inputs, lengths = self._pack(input_ids, attention_mask, token_type_ids)
        if self.vector_head is None:
            return self._features(self.encoder(**inputs, row=describe_row(lengths, self.encoder)))
        row = describe_row(lengths, self.encoder, self.vector_head.needs_all_states)
        states = self.encoder(**inputs, row=row).last_hidden_state
        if self.vector_head.needs_all_states:
            states = nn.utils.rnn.pad_sequence(states[0].split(lengths), batch_first=True)
        # Not the given mask, which may be wider: padding is gone.
        real = torch.arange(states.size(1), device=states.device) < torch.tensor(lengths, device=states.device)[:, None]
        return self.vector_head(states, real, self._special_tokens)

    @property
    def _special_tokens(self) -> tuple[int, int]:
        """How many special tokens a bi-encoder's input begins and ends with, for late interaction."""
        if self.scores_by_vectors:
            return 0, 0
        template = self.require_processor().single_template
        return len(template.before), len(template.after)

    def _pack(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None
    ) -> tuple[dict[str, Tensor], list[int]]:
        row, lengths = pack(input_ids, attention_mask, self._first_position)
        if token_type_ids is not None:
            row["token_type_ids"] = token_type_ids[attention_mask.bool()][None]
        return row, lengths

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        passage_mask: Tensor | None = None,
        labels: Tensor | None = None,
        query_input_ids: Tensor | None = None,
        query_attention_mask: Tensor | None = None,
        passage_vectors: Tensor | None = None,
        query_vectors: Tensor | None = None,
        compare_all: bool = False,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **others: Any,
    ) -> RankerOutput:
        """Score a batch of documents as the processor builds it. Padding passages are not encoded.

        Args:
            input_ids: Token ids, `(documents, passages, length)`.
            attention_mask: 1 for real tokens, of the same shape; by default all tokens are real.
            token_type_ids: Segments, of the same shape, for encoders that have them.
            passage_mask: True for real passages, `(documents, passages)`; by default a passage is real if one of its
                tokens is.
            labels: Relevance from 0 to 1, `(documents,)`, for a pointwise cross-entropy loss.
            query_input_ids: For a bi-encoder: token ids of each document's query, `(documents, query length)`.
            query_attention_mask: 1 for their real tokens, of the same shape.
            passage_vectors: For a bi-encoder, instead of `input_ids`: the passages' vectors, `(documents, passages,
                width)`.
            query_vectors: Instead of `query_input_ids`: the queries' vectors, `(documents, width)`.
            compare_all: For a bi-encoder: whether every query is compared with every document; there may be fewer
                queries than documents then.
            output_hidden_states: Whether to return the states of the passages' tokens; all passages go through the
                encoder together then. `None` is as in the configuration.
            output_attentions: The same for their attention, of a model that was loaded with
                `attn_implementation="eager"`.
            **others: Further arguments of transformers' models, such as `inputs_embeds`: `None` or `False`.
        """
        _refuse_arguments(others)
        wanted = self._wanted_outputs(output_hidden_states, output_attentions)
        shown: dict[str, Any] = {}
        if passage_vectors is not None:
            passage_mask = self._check_vectors(passage_vectors, passage_mask)
            features = passage_vectors[passage_mask].to(self.dtype)
        else:
            input_ids, attention_mask = _check_ids(input_ids, attention_mask)
            passage_mask = _check_mask(attention_mask.any(dim=-1) if passage_mask is None else passage_mask.bool())
            inputs = _real_inputs(passage_mask, input_ids, attention_mask, token_type_ids)
            if wanted:
                features, shown = self._encode_showing(inputs, passage_mask, wanted)
            else:
                features = self._encode_real(inputs)
        counts = passage_mask.sum(dim=1, keepdim=True)
        if self.vector_head is not None:
            if query_vectors is not None:
                queries = query_vectors.to(self.dtype)
            else:
                queries = self.encode_queries(query_input_ids, query_attention_mask)
            if compare_all:
                return RankerOutput(logits=self.score_all(queries, features, counts[:, 0]), **shown)
            features = self.relate(queries.repeat_interleave(counts[:, 0], dim=0), features)
        elif compare_all:
            raise ValueError("compare_all is for bi-encoders: a cross-encoder reads each pair of query and document.")
        if labels is not None and not self.config.scores_are_logits:
            raise ValueError(
                "labels: the cross-entropy needs logits, and passage_score is not 'logit': leave them out."
            )
        aligned = _first_places(counts[:, 0])
        passages = features.new_zeros((*aligned.shape, *features.shape[1:]))
        passages[aligned] = features
        aggregated = self.aggregator(passages, aligned)
        logits = aggregated.score.unsqueeze(-1)
        own = self._own_scores(features)
        return RankerOutput(
            loss=None if labels is None else _cross_entropy(aggregated.score, labels),
            logits=logits,
            passage_scores=None if own is None else _spread(own, passage_mask),
            passage_weights=_spread(aggregated.weights[aligned], passage_mask),
            document_state=aggregated.state,
            **shown,
        )

    def score_all(self, queries: Tensor, passages: Tensor, counts: Tensor) -> Tensor:
        """For a bi-encoder: the scores of all documents for each query, `(queries, documents)`.

        Args:
            queries: The queries' vectors, `(queries, width)`.
            passages: The vectors of the documents' passages, one document after another, `(passages, width)`.
            counts: How many passages each document has, `(documents,)`.
        """
        return self.aggregate_all(self.relate_all(queries, passages), counts)

    def aggregate_all(self, features: Tensor, counts: Tensor) -> Tensor:
        """The scores of all documents for each query, from the features that `relate_all` returns."""
        aligned = _first_places(counts)
        padded = features.new_zeros((len(features), *aligned.shape, *features.shape[2:]))
        padded[:, aligned] = features
        scores = self.aggregator(padded.flatten(0, 1), aligned.repeat(len(features), 1)).score
        return scores.view(len(features), len(counts))

    def encode_queries(self, input_ids: Tensor | None, attention_mask: Tensor | None = None) -> Tensor:
        """For a bi-encoder: the vectors of queries, `(queries, width)`."""
        if input_ids is None:
            raise ValueError(
                "query_input_ids is missing: a bi-encoder reads query and passages separately; build its inputs with "
                "the model's processor."
            )
        return self.encode(input_ids, torch.ones_like(input_ids) if attention_mask is None else attention_mask)

    def _check_vectors(self, vectors: Tensor, passage_mask: Tensor | None) -> Tensor:
        """Refuse passage vectors that are not this model's; returns the mask of real passages."""
        if self.vector_head is None:
            raise ValueError("passage_vectors are for bi-encoders: a cross-encoder has no vectors of passages alone.")
        if vectors.dim() != 3 or vectors.size(-1) != self.vector_head.width:
            raise ValueError(
                f"passage_vectors has the shape {tuple(vectors.shape)}, and has to be (documents, passages, "
                f"{self.vector_head.width})."
            )
        everywhere = torch.ones(vectors.shape[:2], dtype=torch.bool, device=vectors.device)
        return _check_mask(everywhere if passage_mask is None else passage_mask.bool())

    def _encode_real(self, inputs: dict[str, Tensor]) -> Tensor:
        """The features of the real passages, in their order."""
        lengths = last_places(inputs["attention_mask"]).cpu().numpy()

        def take(rows: Tensor, length: int) -> dict[str, Tensor]:
            return {name: tensor[rows.to(tensor.device), :length] for name, tensor in inputs.items()}

        return encode_by_length(self, lengths, take)

    def _wanted_outputs(self, hidden_states: bool | None, attentions: bool | None) -> dict[str, bool]:
        """Which further outputs of the encoder are returned."""
        given = {"output_hidden_states": hidden_states, "output_attentions": attentions}
        default = {name: getattr(self.config, name) or False for name in given}
        chosen = {name: default[name] if value is None else value for name, value in given.items()}
        for name, value in chosen.items():
            check_flag(name, value)
        return {name: True for name, value in chosen.items() if value}

    def _encode_showing(
        self, inputs: dict[str, Tensor], passage_mask: Tensor, wanted: dict[str, bool]
    ) -> tuple[Tensor, dict[str, tuple[Tensor, ...]]]:
        """The features of the real passages, and the encoder's wanted outputs at the passages' places."""
        apart = lengths_read_apart(self.encoder, last_places(inputs["attention_mask"])) is not None
        if apart or self.encoder.config.is_encoder_decoder:
            raise ValueError(
                f"{next(iter(wanted))}: {type(self.encoder).__name__} does not read all inputs in one padded batch: "
                "call model.encoder on the inputs whose states you need."
            )
        if not self._reads_segments:
            inputs = {name: tensor for name, tensor in inputs.items() if name != "token_type_ids"}
        encoded = self._read_padded(inputs, **wanted)
        shown = {name.removeprefix("output_"): encoded.get(name.removeprefix("output_")) for name in wanted}
        for name, layers in shown.items():
            if not layers:
                raise ValueError(
                    f"output_{name}: {type(self.encoder).__name__} returns none with this attention: load the model "
                    "with attn_implementation='eager'."
                )
        spread = {name: tuple(_spread(layer, passage_mask) for layer in layers) for name, layers in shown.items()}
        return self._features_of(encoded, inputs), spread

    def _own_scores(self, features: Tensor) -> Tensor | None:
        # A second pass through the aggregator, only for results: not needed in training.
        return None if self.training else self.passage_scores(features)

    # --- Processor ---------------------------------------------------------------------------------------------------

    @property
    def processor(self) -> DocumentProcessor | None:
        """Cuts documents into passages for this model; assign another one to change the settings."""
        return self._processor

    @processor.setter
    def processor(self, processor: DocumentProcessor | None) -> None:
        if processor is not None:
            processor = self._with_length(processor)
            self._check_fit(processor)
            limit, method = self.config.passage_limit, self.config.aggregation
            processor.advice = (
                "To read all of them, load the model with max_passages=None."
                if limit is None
                else f"The {method} aggregation of this model reads at most {limit} passages of a document."
            )
        self._processor = processor

    def _with_length(self, processor: DocumentProcessor) -> DocumentProcessor:
        """A processor without `max_length` gets the length that the encoder has positions for."""
        if processor.max_length is not None:
            return processor
        positions = position_limit(self.encoder)
        if positions is None:
            raise ValueError(f"{type(self.encoder).__name__} reads inputs of any length: set max_length to a number.")
        return processor.with_options(max_length=positions)

    def _check_fit(self, processor: DocumentProcessor) -> None:
        """Refuse a processor whose passages the encoder or the aggregation cannot read."""
        if processor.separate != (self.config.bi_encoder is not None):
            raise ValueError(
                f"separate={processor.separate}: a bi-encoder reads query and passage separately (separate=True), and "
                "a cross-encoder reads them together (separate=False)."
            )
        if not processor.separate and not processor.prompt:
            check_separator(self.encoder, processor.template.between)
        if bool(processor.prompt) != (self.config.seq2seq is not None):
            raise ValueError(
                f"prompt={processor.prompt!r}: an encoder-decoder reads query and passage in a prompt, and other "
                "encoders in the tokenizer's pair format (prompt='')."
            )
        positions = position_limit(self.encoder)
        if positions is not None and processor.input_length > positions:
            raise ValueError(f"max_length={processor.max_length} is more than the encoder's {positions} positions.")
        limit, wanted = self.config.passage_limit, processor.max_passages
        if limit is not None and (wanted is None or wanted > limit):
            raise ValueError(
                f"max_passages={wanted}, and the {self.config.aggregation} aggregation of this model reads at most "
                f"{limit} passages of a document: set max_passages to {limit} or less."
            )

    def require_processor(self) -> DocumentProcessor:
        """The processor that was loaded with the model."""
        if self.processor is None:
            raise ValueError(
                "This model has no processor, so it cannot read text: set model.processor = "
                "DocumentProcessor(tokenizer), or load a checkpoint that was saved with one."
            )
        return self.processor


def _check_ids(input_ids: Tensor | None, attention_mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Refuse token ids of the wrong shape; without a mask, all tokens are real."""
    if input_ids is None or input_ids.dim() != 3:
        found = "is missing" if input_ids is None else f"has the shape {tuple(input_ids.shape)}"
        raise ValueError(
            f"input_ids {found}, and a long-document ranker reads (documents, passages, length): build it with the "
            f"model's processor, or call model.rank(query, documents)."
        )
    return input_ids, torch.ones_like(input_ids) if attention_mask is None else attention_mask


def _real_inputs(
    passage_mask: Tensor, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None
) -> dict[str, Tensor]:
    """A flat batch of the real passages."""
    inputs = {"input_ids": input_ids[passage_mask], "attention_mask": attention_mask[passage_mask]}
    return inputs if token_type_ids is None else {**inputs, "token_type_ids": token_type_ids[passage_mask]}


def _refuse_arguments(others: dict[str, Any]) -> None:
    """Refuse what a ranker does not read; transformers and PEFT also hand on arguments that were not given."""
    for name, value in others.items():
        if value is not None and value is not False:
            raise TypeError(
                f"{name} is not an argument of a ranker, which reads what its processor builds: leave it out."
            )


def _spread(values: Tensor, passage_mask: Tensor) -> Tensor:
    """Values of real passages at their positions, and zeros elsewhere."""
    spread = values.new_zeros((*passage_mask.shape, *values.shape[1:]))
    spread[passage_mask] = values
    return spread


def _check_mask(passage_mask: Tensor) -> Tensor:
    if not bool(passage_mask.any(dim=1).all()):
        raise ValueError("A document has no passage: give an empty document one passage without text.")
    return passage_mask


def _first_places(counts: Tensor) -> Tensor:
    """A mask with this many real passages in each row: first the real ones, and no more columns than needed."""
    return torch.arange(int(counts.max()), device=counts.device) < counts[:, None]


def _cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(scores.float(), labels.to(scores.device).float().view_as(scores))
