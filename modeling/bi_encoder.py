"""Bi-encoders as passage scorers: a passage and a query become a vector each, and their similarity is the score.

`VectorHead` turns the encoder's states into one vector, as sentence-transformers' modules do (pooling, dense layers,
normalization). With late interaction (Khattab and Zaharia, 2020), it also gives a vector for every token, and the score
adds how well each token of the query is matched by the passage's best token. `BiEncoderFiles` reads from a
sentence-transformers model what these modules are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Literal, cast, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.utils import cached_file

from .checks import MOST_WIDTH, check_whole

Pooling = Literal["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]

MOST_DENSE = 16
"""How many dense layers a bi-encoder may have."""

POOLINGS: tuple[str, ...] = get_args(Pooling)
SIMILARITIES: tuple[str, ...] = get_args(Similarity)

# The activations of sentence-transformers' dense layers, by the last part of their class's name.
_ACTIVATIONS: dict[str, type[nn.Module]] = {
    name: getattr(nn, name) for name in ("Identity", "Tanh", "ReLU", "GELU", "Sigmoid", "SiLU")
}
# The flags of older pooling configurations.
_POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


class VectorHead(nn.Module):
    """From the encoder's states of an input to one vector.

    Args:
        width: Width of the encoder's states.
        pooling: How the states of an input's tokens are combined; several are concatenated.
        dense: Layers on top: for each, `out_features`, `bias` and `activation`.
        normalize: Whether vectors have length 1.
        late_interaction: Whether to give the tokens' vectors, too.
    """

    def __init__(
        self,
        width: int,
        pooling: list[str],
        dense: list[dict[str, Any]],
        normalize: bool,
        late_interaction: bool = False,
    ) -> None:
        super().__init__()
        self.late_interaction = late_interaction
        self.pooling = pooling
        self.normalize = normalize
        self.dense = nn.ModuleList()
        self.activations = [layer["activation"] for layer in dense]
        self.width = width * len(pooling)
        for layer in dense:
            self.dense.append(nn.Linear(self.width, layer["out_features"], bias=layer["bias"]))
            self.width = layer["out_features"]

    @property
    def needs_all_states(self) -> bool:
        """Whether the states of all tokens are needed, or only that of the first."""
        return self.late_interaction or self.pooling != ["cls"]

    def load_dense(self, weights: list[dict[str, Tensor]]) -> None:
        """Set the weights of the dense layers."""
        for layer, values in zip(self.dense, weights, strict=True):
            layer.load_state_dict(values)

    def forward(self, states: Tensor, attention_mask: Tensor, special: tuple[int, int] = (0, 0)) -> Tensor:
        """The vectors, `(inputs, width)`, of states `(inputs, length, width)`.

        With late interaction: `(inputs, 1 + length, width)`, the vector of the input and those of its tokens, which
        have length 1, or 0 for padding and special tokens: these are in every text, and would match each other.

        Args:
            states: The encoder's states.
            attention_mask: 1 for real tokens, padded on the right.
            special: How many special tokens an input begins and ends with.
        """
        vector = torch.cat([pool(name, states, attention_mask) for name in self.pooling], dim=-1)
        for layer, activation in zip(self.dense, self.activations, strict=True):
            vector = _ACTIVATIONS[activation]()(layer(vector))
        if self.normalize:
            vector = unit_vectors(vector)
        if not self.late_interaction:
            return vector
        before, after = special
        places = torch.arange(states.size(1), device=states.device)
        of_text = (places >= before) & (places < attention_mask.sum(dim=1, keepdim=True) - after)
        return torch.cat([vector.unsqueeze(1), unit_vectors(states) * of_text.unsqueeze(-1)], dim=1)


class Calibration(nn.Module):
    """A learned scale and bias of similarities: those of many models are from -1 to 1, too close for some losses.

    With late interaction, also the learned weight of the tokens' matches beside the similarity.
    """

    def __init__(self, late_interaction: bool = False) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.bias = nn.Parameter(torch.zeros(()))
        if late_interaction:
            self.match_weight = nn.Parameter(torch.ones(()))

    def forward(self, similarities: Tensor, matches: Tensor | None = None) -> Tensor:
        """Scores from similarities, in single precision or better; of late interaction, also from tokens' matches."""
        if matches is not None:
            similarities = similarities + self.match_weight.to(matches.dtype) * matches
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


def at_least_single(vectors: Tensor) -> Tensor:
    """Vectors in single precision or better: similarities in half precision are too coarse."""
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))


def unit_vectors(vectors: Tensor) -> Tensor:
    """Vectors of length 1 in the same direction; those of length 0 stay as they are, also in half precision."""
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


def match_tokens(queries: Tensor, passages: Tensor) -> Tensor:
    """How well passages match the tokens of queries, row by row: `(inputs,)`.

    The mean, over the query's tokens, of the greatest cosine with a token of the passage; 0 if one of them has no
    tokens. Vectors of padding and of special tokens are zero.

    Args:
        queries: The vectors of the queries' tokens, `(inputs, query length, width)`.
        passages: The vectors of the passages' tokens, `(inputs, length, width)`.
    """
    if not passages.size(1):
        return queries.new_zeros(len(queries))
    cosines = torch.bmm(queries, passages.transpose(1, 2))
    in_passage, in_query = passages.any(dim=-1).unsqueeze(1), queries.any(dim=-1)
    best = cosines.masked_fill(~in_passage, -torch.inf).amax(dim=-1)
    matched = in_query & in_passage.any(dim=-1)
    return best.where(matched, 0).sum(dim=-1) / in_query.sum(dim=-1).clamp_min(1)


def without_tokens(vectors: Tensor) -> Tensor:
    """The vectors of inputs, `(inputs, width)`, without those of tokens that late interaction adds."""
    return vectors[:, 0] if vectors.dim() == 3 else vectors


def join_features(parts: Sequence[Tensor]) -> Tensor:
    """Join the features of batches. Those with token vectors are padded with zeros to the same length."""
    if parts[0].dim() == 3:
        longest = max(part.size(1) for part in parts)
        parts = [F.pad(part, (0, 0, 0, longest - part.size(1))) for part in parts]
    return torch.cat(list(parts))


def check_bi_encoder(settings: dict[str, Any]) -> None:
    """Refuse settings of a bi-encoder that are unknown or of the wrong kind."""
    names = ("dense", "late_interaction", "normalize", "pooling", "similarity")
    # Checkpoints without late interaction need not say so.
    _check_keys(
        "bi_encoder", {"late_interaction": False, **settings} if isinstance(settings, dict) else settings, names
    )
    for name, most in (("pooling", len(POOLINGS)), ("dense", MOST_DENSE)):
        if not isinstance(settings[name], list) or len(settings[name]) > most:
            raise ValueError(f"bi_encoder: {name} is {settings[name]!r:.60}, and has to be a list of at most {most}.")
    for name in settings["pooling"] or [None]:
        if name not in POOLINGS:
            raise ValueError(f"bi_encoder: pooling is {name!r}, and has to be one of {', '.join(POOLINGS)}.")
    if settings["similarity"] not in SIMILARITIES:
        raise ValueError(
            f"bi_encoder: similarity is {settings['similarity']!r}, and has to be one of {', '.join(SIMILARITIES)}."
        )
    for layer in settings["dense"]:
        _check_keys("bi_encoder: a dense layer", layer, ("activation", "bias", "out_features"))
        check_whole("bi_encoder: a dense layer's out_features", layer["out_features"], least=1, most=MOST_WIDTH)
        if layer["activation"] not in _ACTIVATIONS:
            raise ValueError(
                f"bi_encoder: a dense layer's activation is {layer['activation']!r}, and has to be one of "
                f"{', '.join(_ACTIVATIONS)}."
            )
    if settings.get("late_interaction") and (settings["dense"] or len(settings["pooling"]) > 1):
        raise ValueError("late_interaction needs a bi-encoder with one pooling and no dense layers.")


def _check_keys(place: str, values: Any, expected: tuple[str, ...]) -> None:
    if not isinstance(values, dict) or values.keys() != set(expected):
        found = sorted(values) if isinstance(values, dict) else values
        raise ValueError(f"{place} has the keys {found}, and needs {', '.join(expected)}.")


def _check_inside(source: Any, path: str) -> None:
    """Refuse a module's path that leads out of the model's folder, on any system."""
    forms = (PurePosixPath(path), PureWindowsPath(path))
    if any(form.is_absolute() or form.drive or form.root or ".." in form.parts for form in forms):
        raise ValueError(f"{source}, modules.json: the path {path!r} leads out of the model's folder.")


class BiEncoderFiles:
    """What a sentence-transformers model says about itself, beside its encoder.

    Args:
        source: Hub id or folder.
        options: Where files come from: arguments of `from_pretrained`.
    """

    def __init__(self, source: Any, options: dict[str, Any]) -> None:
        self.source, self.options = source, options
        self.settings = self._read("config_sentence_transformers.json", dict) or {}
        self.pooling: list[str] = []
        self.dense: list[dict[str, Any]] = []
        self.weights: list[dict[str, Tensor]] = []
        self.normalize = False
        self.encoder_folder = ""
        for module in self._read("modules.json", list) or []:
            if not isinstance(module, dict) or not all(isinstance(module.get(key), str) for key in ("type", "path")):
                raise ValueError(f"{source}, modules.json: each module needs a type and a path; {module!r} lacks one.")
            _check_inside(source, module["path"])
            self._add(module["type"].rpartition(".")[2], module["path"])
        self._encoder_settings = self._read(f"{self.encoder_folder}sentence_bert_config.json", dict) or {}
        if self._encoder_settings.get("query_expansion"):
            raise ValueError(f"{source} pads its queries (query_expansion), which is not supported.")

    @property
    def model_type(self) -> str | None:
        """The type of the model that is in the source's own folder."""
        return (self._read("config.json", dict) or {}).get("model_type")

    @property
    def similarity(self) -> str:
        """The similarity function; sentence-transformers' default is the cosine."""
        return self.settings.get("similarity_fn_name") or "cosine"

    @property
    def max_length(self) -> int | None:
        """How many tokens of a passage the model was made to read, if it says so."""
        settings = self._encoder_settings
        # Up to its version 5, sentence-transformers wrote it to its own file; since then it is in the tokenizer's.
        tokenizer = self._read(f"{self.encoder_folder}tokenizer_config.json", dict) or {}
        return settings.get("document_length") or settings.get("max_seq_length") or tokenizer.get("model_max_length")

    @property
    def query_length(self) -> int | None:
        """How many tokens of a query the model was made to read, with special tokens and prompt, if it says so."""
        return self._encoder_settings.get("query_length")

    @property
    def lowercases(self) -> bool:
        """Whether texts are lowercased before they are tokenized."""
        return bool(self._encoder_settings.get("do_lower_case"))

    @property
    def prompts(self) -> dict[str, str]:
        """The texts before every query and passage, as options of the processor.

        A default prompt is for models that do not distinguish between queries and passages.
        """
        prompts = self.settings.get("prompts") or {}
        query = prompts.get("query") or ""
        passage = next((prompts[name] for name in ("document", "passage", "corpus") if prompts.get(name)), "")
        if not (query or passage):
            query = passage = prompts.get(self.settings.get("default_prompt_name")) or ""
        return {"query_prompt": query, "passage_prompt": passage}

    def _add(self, kind: str, path: str) -> None:
        if kind == "Transformer":
            self.encoder_folder = f"{path}/" if path else ""
        elif kind == "Pooling":
            self._add_pooling(self._required(f"{path}/config.json"))
        elif kind in ("Dense", "Normalize") and not self.pooling:
            raise ValueError(f"{self.source} has a module {kind} before the pooling, which is not supported.")
        elif kind == "Dense":
            self._add_dense(self._required(f"{path}/config.json"), path)
        elif kind == "Normalize":
            self.normalize = True
        elif kind not in ("Dropout", "LongDocumentModule"):
            raise ValueError(f"{self.source} has a module {kind}, which a bi-encoder ranker cannot have.")

    def _add_pooling(self, config: dict[str, Any]) -> None:
        flags = [name for flag, name in _POOLING_FLAGS.items() if config.get(flag)]
        modes = config.get("pooling_mode") or flags or "mean"
        self.pooling = [modes] if isinstance(modes, str) else list(modes)
        if not config.get("include_prompt", True):
            raise ValueError(f"{self.source} leaves its prompts out of the pooling, which is not supported.")

    def _add_dense(self, config: dict[str, Any], path: str) -> None:
        if self.normalize:
            raise ValueError(f"{self.source} has a dense layer after normalization, which is not supported.")
        if config.get("use_residual"):
            raise ValueError(f"{self.source} has a dense layer with a residual, which is not supported.")
        file = self._find(f"{path}/model.safetensors")
        if file is None:
            raise ValueError(f"{self.source} has no {path}/model.safetensors; save it with safetensors.")
        try:
            weights = {name.removeprefix("linear."): value for name, value in load_file(file).items()}
        except SafetensorError as error:
            raise OSError(f"{file} is damaged or incomplete ({error}): save or fetch it again.") from error
        if "weight" not in weights or weights.keys() - {"weight", "bias"}:
            raise ValueError(f"{file} has the weights {sorted(weights)}, and a dense layer has weight and bias.")
        activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2]
        self.dense.append({"out_features": len(weights["weight"]), "bias": "bias" in weights, "activation": activation})
        self.weights.append(weights)

    def _find(self, name: str) -> Path | None:
        quiet = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
        found = cached_file(self.source, name, **self.options, **quiet)
        return None if found is None else Path(found)

    def _read(self, name: str, kind: type) -> Any:
        path = self._find(name)
        if path is None:
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is not valid JSON ({error}): copy or download it again.") from None
        if not isinstance(content, kind):
            raise ValueError(f"{path} is not a JSON {'list' if kind is list else 'object'}: copy or download it again.")
        return content

    def _required(self, name: str) -> dict[str, Any]:
        found = self._read(name, dict)
        if found is None:
            raise ValueError(f"{self.source} has no {name}, which its modules.json names.")
        return cast("dict[str, Any]", found)
