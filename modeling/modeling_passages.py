"""The model that all families share, on tensors: an encoder that reads passages, and an aggregator over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.utils import ModelOutput, can_return_tuple

from .aggregators import Aggregator
from .checks import check_flag
from .configuration_ranker import RankerConfig
from .encoders import last_places, position_limit, without_collectors
from .engine_batching import encode_by_length
from .engine_int8 import replace_linears
from .engine_packing import prepare_packing
from .offloading import computing_device
from .processing_document import DocumentProcessor
from .reader import Reader
from .reader_bi_encoder import BiEncoder
from .readers import READERS
from .single_precision import compute_in_single, heads_of, keep_weights

Model = TypeVar("Model", bound="PassageModel")


@dataclass
class RankerOutput(ModelOutput):
    """The output of `forward`.

    Attributes:
        loss: Binary cross-entropy of the scores against `labels`, if they were given.
        logits: The documents' scores, `(documents, 1)`.
        passage_scores: The score of a document that consists of one passage, for each passage, `(documents,
            passages)`; zero for padding. `None` for PARADE and CEDR models in training.
        passage_weights: Weight of each passage in its document, of the same shape; `config.weight_means` explains it.
        document_state: The documents' vectors, `(documents, width)`; `None` in the score family.
        hidden_states: With `output_hidden_states`, the encoder's states of the passages' tokens: for each layer,
            `(documents, passages, length, width)`; zero for padding passages.
        attentions: With `output_attentions`, the encoder's attention weights for each layer, `(documents, passages,
            heads, length, length)`.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    passage_scores: Tensor | None = None
    passage_weights: Tensor | None = None
    document_state: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


class PassageModel(PreTrainedModel):
    """A reader, which computes features of passages, and an aggregator, which combines them to the document's score.

    A family says which features it takes: a number, a vector, or rows of numbers for each passage.
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
    reader: Reader
    aggregator: Aggregator
    _processor: DocumentProcessor | None = None
    batch_tokens: int | None = None
    """Tokens that go through the encoder at once by default; `None` suits the device."""

    def __init__(self, config: RankerConfig, encoder: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        # Not config.reader_class: a configuration loaded with trust_remote_code is from another copy of the code.
        kind = READERS[config.reader.kind]
        self.encoder = encoder if encoder is not None else kind.encoder_class(config).from_config(config.encoder_config)
        self.reader = kind(config, self.encoder)
        # The same object, so that changes of the encoder's configuration are saved with the ranker's.
        self.config.encoder_config = self.encoder.config
        # Not config.aggregators: a configuration loaded with trust_remote_code is from another copy of the code.
        self.aggregator = self.aggregators[config.aggregation](config)
        # A few encoders do not support it: enabling it would then have no effect, without an error.
        self.supports_gradient_checkpointing = self.encoder.supports_gradient_checkpointing
        if self.reader.separate:
            self._add_relation()
        if config.int8:
            replace_linears(self.encoder)
        prepare_packing(self.encoder)
        for head in heads_of(self.encoder).values():
            compute_in_single(head)
        keep_weights(self._heads().values())
        self._keep_in_fp32_modules_strict = {name for name, head in self._heads().items() if head.state_dict()}
        self.post_init()

    def _heads(self) -> dict[str, nn.Module]:
        """The parts that are computed in 32-bit floats, by name."""
        of_passages = ("encoder",) if self.reader.exact else ("encoder", "reader")
        parts = {name: part for name, part in self.named_children() if name not in of_passages}
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

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, Aggregator):
            module.init_weights(getattr(self.config, "initializer_range", 0.02))
        elif isinstance(module, Reader):
            module.init_weights()

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """Change how many tokens the encoder knows, as in `PreTrainedModel`; its configuration changes with it."""
        embeddings = self.reader.resize_tokens(self.encoder, new_num_tokens, pad_to_multiple_of, mean_resizing)
        self.vocab_size = embeddings.num_embeddings  # transformers sets it, too
        return embeddings

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copies: without the hooks by which transformers collects outputs, which cannot be pickled."""
        children = {name: child and without_collectors(child) for name, child in self._modules.items()}
        return {**self.__dict__, "_modules": children}

    # --- Defined by families -----------------------------------------------------------------------------------------

    def _add_relation(self) -> None:
        """For a bi-encoder: add the parts that `relate` needs."""

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

        Where query and passage are read apart, an input is one of them, and its features are its vectors.
        """
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        return self.reader.read(self.encoder, {name: tensor for name, tensor in inputs.items() if tensor is not None})

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        passage_mask: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **inputs: Any,
    ) -> RankerOutput:
        """Score a batch of documents as the processor builds it. Padding passages are not encoded.

        Args:
            input_ids: Token ids, `(documents, passages, length)`.
            attention_mask: 1 for real tokens, of the same shape; by default all tokens are real.
            token_type_ids: Segments, of the same shape, for encoders that have them.
            passage_mask: True for real passages, `(documents, passages)`; by default a passage is real if one of its
                tokens is.
            labels: Relevance from 0 to 1, `(documents,)`, for a pointwise cross-entropy loss.
            output_hidden_states: Whether to return the states of the passages' tokens; all passages go through the
                encoder together then. `None` is as in the configuration.
            output_attentions: Whether to return their attention weights; the model has to be loaded with
                `attn_implementation="eager"`.
            **inputs: Further inputs that the processor builds for this model's reader. For a bi-encoder:
                `query_input_ids` and `query_attention_mask` of each document's query, `(documents, query length)`; or
                vectors that were kept, `query_vectors` `(documents, width)`, and in place of `input_ids`
                `passage_vectors` `(documents, passages, width)`. Other arguments of transformers' models, such as
                `inputs_embeds`, can be `None` or `False`.
        """
        _refuse_arguments({name: value for name, value in inputs.items() if name not in self.reader.input_names})
        wanted = self._wanted_outputs(output_hidden_states, output_attentions)
        passages, counts, passage_mask, shown = self._read_passages(
            input_ids, attention_mask, token_type_ids, passage_mask, inputs.get("passage_vectors"), wanted
        )
        features = self.reader.meet(self, passages, counts, inputs)
        if labels is not None and not self.config.scores_are_logits:
            raise ValueError(
                "labels: the cross-entropy needs logits, and passage_score is not 'logit': leave them out."
            )
        aligned = _first_places(counts)
        padded = features.new_zeros((*aligned.shape, *features.shape[1:]))
        padded[aligned] = features
        aggregated = self.aggregator(padded, aligned)
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

    def score_all(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        passage_mask: Tensor | None = None,
        **inputs: Tensor,
    ) -> Tensor:
        """For a bi-encoder: the scores of all documents for each query, `(queries, documents)`.

        The arguments are as in `forward`; there may be fewer queries than documents.
        """
        passages, counts, _, _ = self._read_passages(
            input_ids, attention_mask, token_type_ids, passage_mask, inputs.get("passage_vectors"), {}
        )
        queries = self.reader.read_queries(self, inputs)
        return self.aggregate_all(self.relate_all(queries.to(passages), passages), counts)

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

    def _read_passages(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        passage_mask: Tensor | None,
        vectors: Tensor | None,
        wanted: dict[str, bool],
    ) -> tuple[Tensor, Tensor, Tensor, dict[str, tuple[Tensor, ...]]]:
        """Read the real passages: their features, their number in each document, their mask, and wanted outputs."""
        if vectors is not None:
            passage_mask = self._check_vectors(vectors, passage_mask)
            return vectors[passage_mask].to(self.dtype), passage_mask.sum(dim=1), passage_mask, {}
        input_ids, attention_mask = _check_ids(input_ids, attention_mask)
        passage_mask = _check_mask(attention_mask.any(dim=-1) if passage_mask is None else passage_mask.bool())
        real = _real_inputs(passage_mask, input_ids, attention_mask, token_type_ids)
        if not wanted:
            return self._encode_real(real), passage_mask.sum(dim=1), passage_mask, {}
        passages, shown = self._encode_showing(real, passage_mask, wanted)
        return passages, passage_mask.sum(dim=1), passage_mask, shown

    def _check_vectors(self, vectors: Tensor, passage_mask: Tensor | None) -> Tensor:
        """Refuse passage vectors that are not this model's; returns the mask of real passages."""
        cast(BiEncoder, self.reader).check_vectors(vectors)
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
        features, encoded = self.reader.read_showing(self.encoder, inputs, wanted)
        shown = {name.removeprefix("output_"): encoded.get(name.removeprefix("output_")) for name in wanted}
        for name, layers in shown.items():
            if not layers:
                raise ValueError(
                    f"output_{name}: {type(self.encoder).__name__} returns none with this attention: load the model "
                    "with attn_implementation='eager'."
                )
        spread = {name: tuple(_spread(layer, passage_mask) for layer in layers) for name, layers in shown.items()}
        return features, spread

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
        self.reader.use_format(processor)
        self._processor = processor

    def warn_of_unread(self, unread: Sequence[int], read: Sequence[int]) -> None:
        """Warn, once, of passages that were not read, as `DocumentProcessor.warn_of_unread` does."""
        limit = self.config.passage_limit
        advice = "load the model with max_passages=None"
        if limit is not None:
            advice = f"use another aggregation: {self.config.aggregation} reads at most {limit} of a document"
        self.require_processor().warn_of_unread(unread, read, advice)

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
        self.reader.check_processor(processor, self.encoder)
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
    """Refuse arguments that a ranker does not read; unused ones, which transformers hands on, are None or False."""
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
