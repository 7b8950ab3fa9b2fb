"""The fingerprint of a bi-encoder: everything that the vectors of its passages depend on."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import tokenizers
import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

if TYPE_CHECKING:
    from .modeling_ranker import DocumentRanker
    from .processing_document import DocumentProcessor

# The processor's settings that change a document's tokens or units; other settings only select among the tokens.
_TOKEN_SETTINGS = ("unit", "repeat_title", "title_words", "heading_words", "strip_tags")
# The processor's settings on which no passage depends.
_QUERY_SETTINGS = ("max_query_tokens", "query_prompt")
# Fields of a configuration that `save_pretrained` and `from_pretrained` change. The dtype is compared with the weights.
_SAVED_KEYS = ("_name_or_path", "architectures", "auto_map", "dtype", "transformers_version")
# How many values of a tensor are compared, besides its place in memory and PyTorch's count of its changes.
_PROBES = 16


class EncoderFingerprint(NamedTuple):
    """Everything that vectors were made with."""

    kind: str
    """The encoder's configuration, and how vectors are made of its states."""
    weights: str
    tokens: str
    """The tokenizer, and the settings of tokenization."""
    settings: dict[str, Any]
    """The processor's settings that form passages."""

    def explain(self, made: EncoderFingerprint) -> str:
        """Why vectors made with another fingerprint do not fit this one; empty if they fit."""
        if made.kind != self.kind:
            return "they were made by another model"
        if made.weights != self.weights:
            return "they were made before the model was trained, or by another model"
        for name, value in self.settings.items():
            if made.settings.get(name) != value:
                return f"they were made of other passages: with {name}={made.settings.get(name)!r}, not {value!r}"
        return "they were made with another tokenizer" if made.tokens != self.tokens else ""


def fingerprint_encoder(model: DocumentRanker, again: bool = False) -> EncoderFingerprint:
    """Fingerprint a bi-encoder; `again` as in `fingerprint_weights`."""
    processor = model.require_processor()
    kind = [plain_config(model.encoder.config), model.config.to_dict()["reader"], model.config.int8]
    settings = {name: value for name, value in processor.settings.items() if name not in _QUERY_SETTINGS}
    weights = "".join(fingerprint_weights(module, again) for module in (model.encoder, model.reader))
    return EncoderFingerprint(_hash_values(kind), weights, fingerprint_tokenization(processor, again), settings)


_weights: WeakKeyDictionary[torch.nn.Module, tuple[Any, str]] = WeakKeyDictionary()


def fingerprint_weights(module: torch.nn.Module, again: bool = False) -> str:
    """Fingerprint weights.

    They are read again if one of them was replaced or changed in place since the last call, or always with `again`: a
    change of a few values by `weights.data` is not noticed without it.
    """
    tensors = module.state_dict()
    state = _find_state(list(tensors.values()))
    known, fingerprint = _weights.get(module, (None, ""))
    if again or state is None or state != known:
        fingerprint = _hash_weights(tensors)
        _weights[module] = (state, fingerprint)
    return fingerprint


def _find_state(tensors: Sequence[Tensor]) -> Any:
    """A value that differs after a change of weights; None if it cannot be told."""
    if any(tensor.is_inference() for tensor in tensors):
        return None
    # An optimizer that writes to `.data`, or past PyTorch, is not counted, but changes nearly all values.
    probes = [_probe(tensor) for tensor in tensors if not tensor.is_meta and tensor.numel()]
    values = torch.cat(probes).cpu().numpy().tobytes() if probes else b""
    return [(tensor.data_ptr(), tensor._version) for tensor in tensors], values


def _probe(tensor: Tensor) -> Tensor:
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, len(flat) // _PROBES)].double()


def _hash_weights(tensors: dict[str, Tensor]) -> str:
    hashed = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        hashed.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        # The weights of an offloaded model are not in memory.
        if not tensor.is_meta:
            hashed.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()


_tokenizers: WeakKeyDictionary[PreTrainedTokenizerBase, tuple[int, str]] = WeakKeyDictionary()


def fingerprint_tokenizer(tokenizer: PreTrainedTokenizerBase, again: bool = False) -> str:
    """Fingerprint everything that affects the tokens of a fast tokenizer.

    It is read again if tokens were added since the last call, or always with `again`.
    """
    size, fingerprint = _tokenizers.get(tokenizer, (-1, ""))
    if again or size != len(tokenizer):
        state = json.loads(tokenizer.backend_tokenizer.to_str())
        # The last call set these.
        del state["truncation"], state["padding"]
        fingerprint = _hash_values([state, tokenizers.__version__])
        _tokenizers[tokenizer] = (len(tokenizer), fingerprint)
    return fingerprint


def fingerprint_tokenization(processor: DocumentProcessor, again: bool = False) -> str:
    """Fingerprint everything that affects `processor.encode_documents`: tokenizer, settings and code version."""
    # A model loaded with the code of its checkpoint has a processor with that code's version, or none if it is older.
    code = sys.modules[type(processor).encode_documents.__module__]
    version = getattr(code, "TOKENIZATION_VERSION", None)
    settings = {name: getattr(processor, name) for name in _TOKEN_SETTINGS}
    if processor.passage_prompt:
        settings["passage_prompt"] = processor.passage_prompt
    # Processors of checkpoints with older code have no prompt.
    if getattr(processor, "prompt", ""):
        settings["prompt"] = processor.prompt
    return _hash_values([fingerprint_tokenizer(processor.tokenizer, again), settings, version])


def plain_config(config: PreTrainedConfig) -> dict[str, Any]:
    """A configuration without fields that saving adds, or that depend on the place it was loaded from."""
    return {name: value for name, value in config.to_dict().items() if name not in _SAVED_KEYS}


def _hash_values(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
