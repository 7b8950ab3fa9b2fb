"""How the passages of a document become one score: one small module for each method.

The score family takes one number per passage, `(documents, passages)`; the vector family one vector per passage,
`(documents, passages, width)`. Both take a mask that is true for real passages. Real passages come first, and padding
is never counted: the result of a document does not depend on the rest of the batch.

A new method is one class and one line in `SCORE_AGGREGATORS` or `VECTOR_AGGREGATORS`; the class also describes the
method for model cards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerBase, initialization as init
from transformers.activations import ACT2FN
from transformers.models.bert.modeling_bert import BertLayer
from transformers.utils import logging

from .encoders import feed_forward_size
from .single_precision import weights_type

if TYPE_CHECKING:
    from .configuration_ranker import MaxPConfig, ParadeConfig, RankerConfig

logger = logging.get_logger(__name__)


class Aggregation(NamedTuple):
    """The result of an aggregator for a batch of documents."""

    score: Tensor
    """The documents' scores, `(documents,)`."""
    weights: Tensor
    """Weight of each passage in its document, `(documents, passages)`; zero for padding. See `weight_means`."""
    state: Tensor | None = None
    """The documents' vectors, `(documents, width)`; `None` in the score family."""


class Aggregator(nn.Module):
    """Combines the passages of a document.

    Args:
        config: The ranker's configuration; each method reads the fields it needs.
    """

    weight_means: ClassVar[str] = "the weight that the method gives the passage"
    """One line that explains the weight of a passage in this method."""
    settings: ClassVar[dict[str, Any]] = {}
    """Settings of this method alone, with their default values: fields of its configuration, options of `from_encoder`
    and keys of recipes, beside the fields that the family's configuration has."""
    title: ClassVar[str] = ""
    """The method's name on a model card. In this, `does` and `drawn`, `{k}` stands for the setting `k` of the
    configuration; `words` adds others."""
    does: ClassVar[str] = ""
    """What the document's score is, for a model card: the words after "A document's score is"."""
    drawn: ClassVar[tuple[str, ...]] = ()
    """The steps from all passages to the score, for the picture of a model card."""
    papers: ClassVar[tuple[str, ...]] = ()
    """The papers of the method: keys of `BIBTEX` in `hub_cards/cards/papers.py`."""
    reads_first: ClassVar[bool] = False
    """Whether only the first passage of a document is used."""
    one_decides: ClassVar[bool] = False
    """Whether a document's score is the score of one of its passages."""
    fixed_start: ClassVar[frozenset[str]] = frozenset()
    """Parameters that start at fixed values: a checkpoint with another aggregation can be loaded without them."""

    def __init__(self, config: RankerConfig) -> None:
        super().__init__()

    def __call__(self, passages: Tensor, mask: Tensor) -> Aggregation:
        """Call `forward` in the precision of the weights, which are 32-bit floats whatever the encoder's type is."""
        with torch.autocast(passages.device.type, enabled=False):
            aggregated: Aggregation = super().__call__(
                passages.to(torch.promote_types(passages.dtype, weights_type(self))), mask
            )
        return aggregated

    def forward(self, passages: Tensor, mask: Tensor) -> Aggregation:
        """Aggregate passages `(documents, passages[, width])`; `mask` is true for real ones."""
        raise NotImplementedError

    def init_weights(self, std: float) -> None:
        """Initialize the parameters that are not part of a layer."""

    def start_from(self, encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Set the weights that start from the encoder's weights."""

    @classmethod
    def passage_limit(cls, config: Any) -> int | None:
        """How many passages of a document the method can read; `None` if it has no limit."""
        return None

    @classmethod
    def words(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Words that stand in braces in `title`, `does` and `drawn`, for a configuration's settings."""
        return {}


# --- Score family ----------------------------------------------------------------------------------------------------


class FirstPassage(Aggregator):
    """FirstP: the score of the first passage."""

    title = "FirstP"
    does = "the score of its first passage"
    papers = ("zhang2021",)
    reads_first = True
    one_decides = True
    weight_means = "1 for the first passage, 0 for the others"

    def forward(self, passages: Tensor, mask: Tensor) -> Aggregation:
        weights = torch.zeros_like(passages)
        weights[:, 0] = 1
        return Aggregation(passages[:, 0], weights)


class MaxPassage(Aggregator):
    """MaxP (Dai and Callan, 2019): the score of the best passage."""

    title = "MaxP"
    does = "the score of its best passage"
    drawn = ("maximum",)
    papers = ("zhang2021",)
    one_decides = True
    weight_means = "1 for the best passage, 0 for the others"

    def forward(self, passages: Tensor, mask: Tensor) -> Aggregation:
        score, best = passages.masked_fill(~mask, -math.inf).max(dim=1)
        return Aggregation(score, F.one_hot(best, passages.size(1)).to(passages))


class SumPassage(Aggregator):
    """SumP: the sum of the passages' scores."""

    title = "SumP"
    does = "the sum of the scores of its passages"
    drawn = ("sum",)
    papers = ("zhang2021",)
    weight_means = "1 for every passage"

    def forward(self, passages: Tensor, mask: Tensor) -> Aggregation:
        weights = mask.to(passages)
        return Aggregation(passages.masked_fill(~mask, 0).sum(dim=1), weights)


class AveragePassage(Aggregator):
    """AvgP: the mean over the document's own passages."""

    title = "AvgP"
    does = "the mean score of its passages"
    drawn = ("mean",)
    papers = ("zhang2021",)
    weight_means = "1 / number of passages of the document"

    def forward(self, passages: Tensor, mask: Tensor) -> Aggregation:
        weights = mask / mask.sum(dim=1, keepdim=True)
        return Aggregation((passages.masked_fill(~mask, 0) * weights).sum(dim=1), weights.to(passages))


class KMaxAveragePassage(Aggregator):
    """K-Max-AvgP (Chen et al., TREC 2020 and 2021): the mean of the k best passages, or of all if there are fewer."""

    title = "{k}-Max-AvgP"
    does = "the mean score of its {k} best passages"
    drawn = ("mean of the {k} best",)
    papers = ("cip2021",)
    weight_means = "1 / k for the k best passages (1 / number of passages if there are fewer), 0 for the others"

    def __init__(self, config: MaxPConfig) -> None:
        super().__init__(config)
        self.k = config.k

    def forward(self, passages: Tensor, mask: Tensor) -> Aggregation:
        order = _best_first(passages, mask)
        kept = torch.arange(passages.size(1), device=mask.device) < mask.sum(dim=1, keepdim=True).clamp(max=self.k)
        weights = torch.zeros_like(passages).scatter(1, order, (kept / kept.sum(dim=1, keepdim=True)).to(passages))
        return Aggregation((passages.masked_fill(~mask, 0) * weights).sum(dim=1), weights)


class BirchPassage(Aggregator):
    """Birch-Passage (Li et al., 2023, after Yilmaz et al., 2019): learned weights over the k best passage scores.

    The weights start at 1 / k. A document with fewer than k passages repeats its lowest score.
    """

    title = "Birch-Passage"
    does = "a sum of the scores of its {k} best passages with learned weights"
    drawn = ("{weights}, best first",)
    papers = ("yang2019", "li2023")
    weight_means = "the learned weight of the passage's rank in its document, 0 beyond rank k"
    fixed_start = frozenset({"rank_weights"})

    def __init__(self, config: MaxPConfig) -> None:
        super().__init__(config)
        self.rank_weights = nn.Parameter(torch.full((config.k,), 1 / config.k))

    @classmethod
    def words(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {"weights": " + ".join(f"w{rank}·s({rank})" for rank in range(1, settings["k"] + 1))}

    def init_weights(self, std: float) -> None:
        init.constant_(self.rank_weights, 1 / self.rank_weights.numel())

    def forward(self, passages: Tensor, mask: Tensor) -> Aggregation:
        ranks = torch.arange(self.rank_weights.numel(), device=mask.device)
        ranks = ranks.minimum(mask.sum(dim=1, keepdim=True) - 1)
        chosen = _best_first(passages, mask).gather(1, ranks)
        rank_weights = self.rank_weights.to(passages.dtype).expand(chosen.shape)
        score = (passages.gather(1, chosen) * rank_weights).sum(dim=1)
        return Aggregation(score, torch.zeros_like(passages).scatter_add(1, chosen, rank_weights))


def _best_first(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, -math.inf).argsort(dim=1, descending=True, stable=True)


# --- Vector family ---------------------------------------------------------------------------------------------------

_LINEAR = "linear layer"


class VectorAggregator(Aggregator):
    """Pools the passages' vectors into one and scores it with one linear layer (Li et al., 2023, equation 7)."""

    def __init__(self, config: ParadeConfig) -> None:
        super().__init__(config)
        self.score = nn.Linear(config.hidden_size, 1)

    def forward(self, passages: Tensor, mask: Tensor) -> Aggregation:
        state, weights = self.pool(passages, mask)
        return Aggregation(self.score(state).squeeze(-1), weights, state)

    def pool(self, passages: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The document's vector `(documents, width)` and the passages' weights `(documents, passages)`."""
        raise NotImplementedError


class MaxVector(VectorAggregator):
    """PARADE-Max: the elementwise maximum."""

    title = "PARADE-Max"
    does = "computed by a linear layer from the elementwise maximum of its passages' vectors"
    drawn = ("elementwise maximum", _LINEAR)
    papers = ("li2023",)
    weight_means = "share of the document vector's elements that come from the passage"

    def pool(self, passages: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return pool_by_maximum(passages, mask)


class SumVector(VectorAggregator):
    """PARADE-Sum: the sum."""

    title = "PARADE-Sum"
    does = "computed by a linear layer from the sum of its passages' vectors"
    drawn = ("sum", _LINEAR)
    papers = ("li2023",)
    weight_means = "1 for every passage"

    def pool(self, passages: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return _weighted_sum(passages, mask, mask.to(passages))


class AverageVector(VectorAggregator):
    """PARADE-Avg: the mean over the document's own passages."""

    title = "PARADE-Avg"
    does = "computed by a linear layer from the mean of its passages' vectors"
    drawn = ("mean", _LINEAR)
    papers = ("li2023",)
    weight_means = "1 / number of passages of the document"

    def pool(self, passages: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return pool_by_mean(passages, mask)


class AttentionVector(VectorAggregator):
    """PARADE-Attn: a sum weighted by `softmax(p_i . w)` over the document's passages."""

    title = "PARADE-Attn"
    does = "computed by a linear layer from a sum of its passages' vectors with attention weights"
    drawn = ("sum weighted by softmax(p·w)", _LINEAR)
    papers = ("li2023",)
    weight_means = "the passage's attention weight; a document's weights sum to 1"

    def __init__(self, config: ParadeConfig) -> None:
        super().__init__(config)
        self.attention = nn.Linear(config.hidden_size, 1, bias=False)

    def pool(self, passages: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.attention(passages).squeeze(-1).masked_fill(~mask, -math.inf)
        return _weighted_sum(passages, mask, logits.softmax(dim=1))


def pool_by_maximum(passages: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The elementwise maximum of real passages, and the share of its elements that come from each."""
    state, winner = passages.masked_fill(~mask[..., None], -math.inf).max(dim=1)
    won = torch.zeros_like(passages[..., 0]).scatter_add(1, winner, torch.ones_like(state))
    return state, won / state.size(1)


def pool_by_mean(passages: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of real passages, and the weight of each."""
    return _weighted_sum(passages, mask, mask / mask.sum(dim=1, keepdim=True))


def _weighted_sum(passages: Tensor, mask: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    weights = weights.to(passages.dtype)
    # Padding is set to zero first: it may be infinite, and 0 * inf is not 0.
    return (passages.masked_fill(~mask[..., None], 0) * weights[..., None]).sum(dim=1), weights


class ConvolutionVector(Aggregator):
    """PARADE-CNN: layers of pairwise convolutions; the score is the sum over every output of every layer.

    Each layer halves the number of vectors: `Conv1d(width, width, kernel 2, stride 2)` and an activation. One
    feed-forward net with one hidden layer scores all outputs. The last of an odd number of vectors is paired with
    zeros; an output is real if one of its two inputs is, and only real outputs count.
    """

    title = "PARADE-CNN"
    does = "the sum of the scores of all outputs of {cnn_layers} layers of convolutions over pairs of passage vectors"
    drawn = ("{cnn_layers} layers of pairwise convolutions", "score of every output", "sum")
    papers = ("li2023",)
    weight_means = (
        "the part of the document's score that comes from the passage: the score of every convolution output is "
        "divided equally among the passages that it covers, so that a document's weights sum to its score"
    )

    def __init__(self, config: ParadeConfig) -> None:
        super().__init__(config)
        width = config.hidden_size
        depth = _halvings(config.max_passages)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, kernel_size=2, stride=2) for _ in range(depth))
        self.activation = ACT2FN[config.cnn_activation]
        self.hidden = nn.Linear(width, config.cnn_hidden_size)
        self.score = nn.Linear(config.cnn_hidden_size, 1)

    @classmethod
    def passage_limit(cls, config: ParadeConfig) -> int | None:
        return config.max_passages

    @classmethod
    def words(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {"cnn_layers": _halvings(settings["max_passages"])}

    def forward(self, passages: Tensor, mask: Tensor) -> Aggregation:
        score = passages.new_zeros(passages.size(0))
        weights = passages.new_zeros(mask.shape)
        vectors, below = passages, mask.long()  # `below`: how many real passages each vector covers
        for level, layer in enumerate(self.layers, start=1):
            vectors, below = self._halve(layer, vectors, below)
            outputs = self.score(self.activation(self.hidden(vectors))).squeeze(-1).masked_fill(below == 0, 0)
            score = score + outputs.sum(dim=1)
            shares = (outputs / below.clamp(min=1)).repeat_interleave(2**level, dim=1)
            weights = weights + shares[:, : mask.size(1)].masked_fill(~mask, 0)
        return Aggregation(score, weights, vectors[:, 0])

    def _halve(self, layer: nn.Module, vectors: Tensor, below: Tensor) -> tuple[Tensor, Tensor]:
        odd = vectors.size(1) % 2
        vectors = F.pad(vectors.masked_fill((below == 0)[..., None], 0), (0, 0, 0, odd))
        below = F.pad(below, (0, odd)).unflatten(1, (-1, 2)).sum(dim=2)
        return self.activation(layer(vectors.transpose(1, 2))).transpose(1, 2), below


def _halvings(count: int) -> int:
    """How often this many vectors are halved until one is left; at least once."""
    return max(1, (count - 1).bit_length())


class TransformerVector(VectorAggregator):
    """PARADE-Transformer: `[emb_cls, p_1, ..., p_n]` through encoder layers; the output at `emb_cls` is the document.

    The layers are BERT's (post-LayerNorm) with the encoder's width, heads and feed-forward size, randomly initialized.
    """

    title = "PARADE-Transformer"
    does = (
        "computed by a linear layer from the first output of {num_aggregator_layers} transformer layers over its "
        "passages' vectors"
    )
    drawn = ("{num_aggregator_layers} transformer layers over [cls, p1 … pn]", "output at cls", _LINEAR)
    papers = ("li2023",)
    weight_means = "attention of the document position to the passage in the last layer, mean over heads"

    def __init__(self, config: ParadeConfig) -> None:
        super().__init__(config)
        self.max_passages = config.max_passages
        self.cls_embedding = nn.Parameter(torch.empty(config.hidden_size))
        self.positions = nn.Embedding(config.max_passages + 1, config.hidden_size) if config.passage_positions else None
        layer_config = _layer_config(config)
        self.layers = nn.ModuleList(BertLayer(layer_config) for _ in range(config.num_aggregator_layers))

    def init_weights(self, std: float) -> None:
        init.normal_(self.cls_embedding, std=std)

    def start_from(self, encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        token = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
        if token is None:
            logger.warning("The tokenizer has no CLS token: the document position starts from random values.")
            return
        with torch.no_grad():
            self.cls_embedding.copy_(_word_vector(encoder, token))

    @classmethod
    def passage_limit(cls, config: ParadeConfig) -> int | None:
        return config.max_passages if config.passage_positions else None

    def pool(self, passages: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        documents, count, _ = passages.shape
        cls = self.cls_embedding.to(passages.dtype).expand(documents, 1, -1)
        hidden = torch.cat([cls, passages.masked_fill(~mask[..., None], 0)], dim=1)
        if self.positions is not None:
            if count > self.max_passages:
                raise ValueError(
                    f"A document has {count} passages, and this model has positions for {self.max_passages}: lower the "
                    f"processor's max_passages, or build the model with a larger max_passages or with "
                    f"passage_positions=False."
                )
            hidden = hidden + self.positions(torch.arange(count + 1, device=hidden.device)).to(hidden.dtype)
        visible = F.pad(mask, (1, 0), value=True)[:, None, None, :]
        attention_mask = torch.zeros_like(visible, dtype=hidden.dtype)
        attention_mask = attention_mask.masked_fill(~visible, torch.finfo(hidden.dtype).min)
        for layer in self.layers[:-1]:
            hidden = layer(hidden, attention_mask)
        # The parts of the last layer are called one by one, because the whole layer does not return its attention.
        last = cast(BertLayer, self.layers[-1])
        attended, attention = last.attention(hidden, attention_mask)
        hidden = last.output(last.intermediate(attended), attended)
        return hidden[:, 0], attention[:, :, 0, 1:].mean(dim=1).masked_fill(~mask, 0)


def _word_vector(encoder: PreTrainedModel, token: int) -> Tensor:
    """A token's row of the word embeddings, at the encoder's width."""
    row = cast(nn.Embedding, encoder.get_input_embeddings()).weight[token]
    width = encoder.config.hidden_size
    if len(row) == width:
        return row
    # ELECTRA-small and ALBERT have narrower embeddings, and one layer of this shape that projects them.
    for module in encoder.modules():
        if isinstance(module, nn.Linear) and (module.in_features, module.out_features) == (len(row), width):
            return module(row)
    raise ValueError(
        f"{type(encoder).__name__} has embeddings of width {len(row)}, vectors of width {width}, and no projection."
    )


def _layer_config(config: ParadeConfig) -> BertConfig:
    """A configuration of BERT with the encoder's dimensions, which architectures name differently."""
    encoder = config.encoder_config

    def first_of(*names: str, default: Any) -> Any:
        return next((value for name in names if (value := getattr(encoder, name, None)) is not None), default)

    layer_config = BertConfig(
        hidden_size=config.hidden_size,
        num_attention_heads=encoder.num_attention_heads,
        intermediate_size=feed_forward_size(encoder),
        hidden_act=config.aggregator_activation
        or first_of("hidden_act", "hidden_activation", "activation", default="gelu"),
        hidden_dropout_prob=first_of("hidden_dropout_prob", "mlp_dropout", "dropout", default=0.1),
        attention_probs_dropout_prob=first_of("attention_probs_dropout_prob", "attention_dropout", default=0.1),
        layer_norm_eps=first_of("layer_norm_eps", "norm_eps", default=1e-12),
    )
    # A document has few passages, so a fused kernel gains nothing; and only this implementation returns attention.
    layer_config._attn_implementation = "eager"
    return layer_config


SCORE_AGGREGATORS: dict[str, type[Aggregator]] = {
    "first": FirstPassage,
    "max": MaxPassage,
    "sum": SumPassage,
    "avg": AveragePassage,
    "kmax_avg": KMaxAveragePassage,
    "birch": BirchPassage,
}
"""The methods that aggregate passage scores, by the name that `config.aggregation` has."""

VECTOR_AGGREGATORS: dict[str, type[Aggregator]] = {
    "max": MaxVector,
    "sum": SumVector,
    "avg": AverageVector,
    "attn": AttentionVector,
    "cnn": ConvolutionVector,
    "transformer": TransformerVector,
}
"""The methods that aggregate passage vectors, by the name that `config.aggregation` has."""
