"""Bi-encoders: a passage and a query become a vector each, and their similarity is the score.

`BiEncoder` turns the encoder's states into one vector, as sentence-transformers' modules do (pooling, dense layers,
normalization).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModel, PreTrainedModel

from .checks import MOST_WIDTH, check_choice, check_flag, check_whole
from .encoders import position_limit
from .ranker_source import Source, Start
from .reader import LETTERS, Reader, ReaderSettings, drop_pooler
from .single_precision import at_least_single
from .tokenization import lowercases

if TYPE_CHECKING:
    from .configuration_ranker import RankerConfig
    from .modeling_passages import PassageModel
    from .modeling_ranker import DocumentRanker
    from .processing_document import DocumentProcessor

Pooling = Literal["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
"""How the states of an input's tokens become one vector, by sentence-transformers' names."""
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
"""The similarity of two vectors; a distance counts negatively."""

BI_ENCODER_LENGTH = 256
"""Tokens of an input at most, by default: longer passages are less precise."""
MOST_DENSE = 16
"""How many dense layers a bi-encoder may have."""

POOLINGS: tuple[str, ...] = get_args(Pooling)
SIMILARITIES: tuple[str, ...] = get_args(Similarity)

# The activations of sentence-transformers' dense layers, by the last part of their class's name.
_ACTIVATIONS: dict[str, type[nn.Module]] = {
    name: getattr(nn, name) for name in ("Identity", "Tanh", "ReLU", "GELU", "Sigmoid", "SiLU")
}


@dataclass(frozen=True)
class BiEncoderSettings(ReaderSettings):
    """How an input's states become its vector.

    Args:
        pooling: How the states of an input's tokens are combined; several are concatenated.
        dense: Layers on top: for each, `out_features`, `bias` and `activation`.
        normalize: Whether vectors have length 1.
        similarity: Of query and passage.
    """

    kind = "bi_encoder"

    pooling: list[str]
    dense: list[dict[str, Any]] = field(default_factory=list)
    normalize: bool = False
    similarity: str = "cosine"

    def __post_init__(self) -> None:
        for name, most in (("pooling", len(POOLINGS)), ("dense", MOST_DENSE)):
            value = getattr(self, name)
            if not isinstance(value, list) or len(value) > most:
                raise ValueError(f"reader: {name} is {value!r:.60}, and has to be a list of at most {most}.")
        if not self.pooling:
            raise ValueError(f"reader: pooling is empty, and has to be of {', '.join(POOLINGS)}.")
        for name in self.pooling:
            check_choice("reader: pooling", name, POOLINGS)
        check_flag("reader: normalize", self.normalize)
        check_choice("reader: similarity", self.similarity, SIMILARITIES)
        for layer in self.dense:
            if not isinstance(layer, dict) or layer.keys() != {"activation", "bias", "out_features"}:
                raise ValueError(f"reader: a dense layer is {layer!r:.60}, and needs activation, bias, out_features.")
            check_whole("reader: a dense layer's out_features", layer["out_features"], least=1, most=MOST_WIDTH)
            check_choice("reader: a dense layer's activation", layer["activation"], _ACTIVATIONS)


class BiEncoder(Reader):
    """Reads query and passage apart; each becomes one vector."""

    settings_class = BiEncoderSettings
    features = frozenset({"score", "vector"})
    separate = True
    single_vector = True
    card_tag = "bi-encoder"
    card_limits = (
        "Query and passages are encoded separately, which is faster and less exact than reading them together.",
    )
    described_matches: ClassVar[str] = ""
    """What a card says that is added to the similarity."""
    drawn_matches: ClassVar[str] = ""
    processor_settings: ClassVar[dict[str, Any]] = {"separate": False, "query_prompt": "", "passage_prompt": ""}
    input_names = ("query_input_ids", "query_attention_mask", "passage_vectors", "query_vectors")

    def __init__(self, config: RankerConfig, encoder: PreTrainedModel) -> None:
        super().__init__(config, encoder)
        drop_pooler(encoder)
        self.settings = cast(BiEncoderSettings, config.reader)
        self.dense = nn.ModuleList()
        self.width = config.hidden_size * len(self.settings.pooling)
        for layer in self.settings.dense:
            self.dense.append(nn.Linear(self.width, layer["out_features"], bias=layer["bias"]))
            self.width = layer["out_features"]

    @classmethod
    def check(cls, config: RankerConfig) -> None:
        """Refuse a score of labels, which a bi-encoder does not have."""
        if config.feature == "score" and config.passage_score != "logit":
            raise ValueError(f"passage_score={config.passage_score!r} needs a cross-encoder with 2 labels.")

    @classmethod
    def wants_tokens(cls, wanted: Mapping[str, Any], default: bool) -> bool:
        """Whether the vectors of tokens are wanted, too."""
        return bool(wanted.get("late_interaction", default))

    @classmethod
    def start(cls, source: Source, wanted: Mapping[str, Any]) -> Start | None:
        """A model of sentence-transformers, or any encoder for which a pooling is wanted."""
        if cls.wants_tokens(wanted, default=False) == cls.single_vector:
            return None
        files = source.files
        encoder = source.load(AutoModel)
        if not files.pooling and "pooling" not in wanted:
            raise ValueError(
                f"{source} does not say how its vectors are pooled: set pooling, such as pooling='mean', or use "
                "from_encoder for a cross-encoder."
            )
        _check_pooling(source, wanted, files.pooling)
        if files.lowercases and not lowercases(source.load_tokenizer()):
            raise ValueError(f"{source} lowercases texts (do_lower_case), and its tokenizer does not: not supported.")
        limits = (files.max_length, position_limit(encoder), BI_ENCODER_LENGTH)
        return Start(
            encoder,
            cls.settings_class(
                files.pooling or [wanted["pooling"]],
                files.dense,
                files.normalize,
                wanted.get("similarity", files.similarity),
            ),
            processor={
                **files.prompts,
                "max_length": min(int(limit) for limit in limits if limit is not None),
                "separate": True,
            },
            weights={"reader": files.weights},
            query_length=files.query_length,
        )

    @classmethod
    def restart(cls, source: Source, ranker: DocumentRanker, wanted: Mapping[str, Any], feature: str) -> Start:
        """Vectors are made as before; vectors of tokens only if the family scores passages."""
        own = cast(BiEncoderSettings, ranker.config.reader)
        _check_pooling(source, wanted, own.pooling)
        as_before = not cls.single_vector and feature == "score"
        kind = "late_interaction" if cls.wants_tokens(wanted, as_before) else "bi_encoder"
        settings = ranker.require_processor().settings
        return Start(
            ranker.encoder,
            {**asdict(own), "kind": kind, "similarity": wanted.get("similarity", own.similarity)},
            processor={name: settings[name] for name in (*cls.processor_settings, "max_length")},
            weights={"reader": ranker.reader.state_dict()},
        )

    def check_processor(self, processor: DocumentProcessor, encoder: PreTrainedModel) -> None:
        """Refuse a processor that joins query and passage."""
        if not processor.separate:
            raise ValueError(
                "separate=False: a bi-encoder reads query and passage separately (separate=True), and a cross-encoder "
                "reads them together."
            )

    @property
    def all_states(self) -> bool:
        """Whether the states of all tokens are needed, or only that of the first."""
        return self.settings.pooling != ["cls"]

    def attention(self, encoder: PreTrainedModel, input_ids: Tensor) -> dict[str, Tensor]:
        """None beside the encoder's own: there is no query in an input with a passage."""
        return {}

    def features_of(self, output: Any, inputs: dict[str, Tensor]) -> Tensor:
        """The vectors of inputs, `(inputs, width)`."""
        return self.make_vectors(output.last_hidden_state, inputs["attention_mask"])

    def make_vectors(self, states: Tensor, attention_mask: Tensor) -> Tensor:
        """The vectors, `(inputs, width)`, of states `(inputs, length, width)`."""
        vector = torch.cat([pool(name, states, attention_mask) for name in self.settings.pooling], dim=-1)
        for layer, settings in zip(self.dense, self.settings.dense, strict=True):
            vector = _ACTIVATIONS[settings["activation"]]()(layer(vector))
        return unit_vectors(vector) if self.settings.normalize else vector

    # --- Meeting the query -------------------------------------------------------------------------------------------

    def meet(self, model: PassageModel, passages: Tensor, counts: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        """The features of passages, from their vectors and the vectors of queries, which are read here unless given."""
        return model.relate(self.read_queries(model, inputs).to(passages).repeat_interleave(counts, dim=0), passages)

    def read_queries(self, model: PassageModel, inputs: dict[str, Tensor]) -> Tensor:
        """The vectors of queries, read or given."""
        if (given := inputs.get("query_vectors")) is not None:
            return given
        return model.encode_queries(inputs.get("query_input_ids"), inputs.get("query_attention_mask"))

    def check_vectors(self, vectors: Tensor) -> None:
        """Refuse vectors of passages, `(documents, passages, width)`, that are not this reader's."""
        if vectors.dim() != 3 or vectors.size(-1) != self.width:
            raise ValueError(
                f"passage_vectors has the shape {tuple(vectors.shape)}, and has to be (documents, passages, "
                f"{self.width})."
            )

    def new_calibration(self) -> Calibration:
        """The module that makes scores of the results of `compare`."""
        return Calibration()

    def compare(self, queries: Tensor, passages: Tensor) -> tuple[Tensor, ...]:
        """How well queries and passages fit, row by row: the similarities of their vectors, `(inputs,)`."""
        return (similarity(self.settings.similarity, queries, passages),)

    def compare_all(self, queries: Tensor, passages: Tensor) -> tuple[Tensor, ...]:
        """The similarities of all pairs of a query and a passage, `(queries, passages)`."""
        return (similarity_matrix(self.settings.similarity, queries, passages),)

    # --- On a card ---------------------------------------------------------------------------------------------------

    @classmethod
    def describe_reading(cls, feature: str, config: Mapping[str, Any], processor: Mapping[str, Any]) -> str:
        """How vectors are made, and what becomes of them in the family."""
        if feature == "score":
            similarity = f"{config['reader']['similarity']} similarity{cls.described_matches}"
            return (
                "The encoder turns the query and each passage into a vector, separately (a bi-encoder); a passage's "
                f"score is their {similarity}, times a learned scale, plus a learned bias."
            )
        return (
            "The encoder turns the query q and each passage p into a vector, separately (a bi-encoder); a learned "
            "projection of [q·p, |q−p|] is the passage's vector."
        )

    @classmethod
    def draw_features(cls, feature: str, config: Mapping[str, Any], number: str) -> str:
        """A passage's vector, and how it meets the query's."""
        met = config["reader"]["similarity"] if feature == "score" else "projection"
        return f"v{number} ─► {met}{cls.drawn_matches}(q, v{number}) ─► {LETTERS[feature]}{number}"


def _check_pooling(source: Source, wanted: Mapping[str, Any], own: list[str]) -> None:
    """Refuse another pooling than the one that a model was made with."""
    if "pooling" in wanted and own and [wanted["pooling"]] != own:
        raise ValueError(f"pooling is {wanted['pooling']!r}, and {source} was made with {own}: leave it out.")


class Calibration(nn.Module):
    """A learned scale and bias of similarities, which are often from -1 to 1: too close together for some losses."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, similarities: Tensor) -> Tensor:
        """Scores from similarities, in single precision or better."""
        return self.scale.to(similarities.dtype) * similarities + self.bias.to(similarities.dtype)


def pool(name: str, states: Tensor, attention_mask: Tensor) -> Tensor:
    """Combine the states of each input's real tokens."""
    mask = attention_mask.bool().unsqueeze(-1)
    if name == "cls":
        return states[:, 0]
    if name == "max":
        return states.masked_fill(~mask, -torch.inf).amax(dim=1)
    counts = mask.sum(dim=1)
    if name == "lasttoken":
        return states[torch.arange(len(states), device=states.device), counts[:, 0] - 1]
    # Sums over many tokens are not precise in half precision.
    dtype = torch.promote_types(states.dtype, torch.float32)
    weights = mask.to(dtype)
    if name == "weightedmean":
        weights = weights * torch.arange(1, states.size(1) + 1, device=states.device, dtype=dtype)[:, None]
    total, weight = (states * weights).sum(dim=1), weights.sum(dim=1)
    return (total / (weight.sqrt() if name == "mean_sqrt_len_tokens" else weight)).to(states.dtype)


def unit_vectors(vectors: Tensor) -> Tensor:
    """Vectors of length 1 in the same direction; zero vectors stay as they are, also in half precision."""
    return F.normalize(at_least_single(vectors), dim=-1).to(vectors.dtype)


def similarity(name: str, first: Tensor, second: Tensor) -> Tensor:
    """The similarity of vectors, row by row: `(inputs,)`. A distance counts negatively."""
    if name == "cosine":
        return (F.normalize(first, dim=-1) * F.normalize(second, dim=-1)).sum(dim=-1)
    if name == "dot":
        return (first * second).sum(dim=-1)
    difference = first - second
    return -(difference.norm(dim=-1) if name == "euclidean" else difference.abs().sum(dim=-1))


def similarity_matrix(name: str, first: Tensor, second: Tensor) -> Tensor:
    """The similarity of all pairs of vectors, `(first, second)`."""
    if name == "cosine":
        # Dividing the products spares a normalized copy of `second`, which may be large.
        return (F.normalize(first, dim=-1) @ second.T) / second.norm(dim=-1).clamp_min(1e-12)
    if name == "dot":
        return first @ second.T
    # By differences: torch's faster way, by a matrix product, is wrong in the third digit for vectors that are close.
    p = 2 if name == "euclidean" else 1
    return -torch.cdist(first, second, p=p, compute_mode="donot_use_mm_for_euclid_dist")
