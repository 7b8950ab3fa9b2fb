"""Models with pickled weights, or with a linear layer as ELECTRA's head, in the form that docparade loads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import SAFE_WEIGHTS_NAME, WEIGHTS_INDEX_NAME, WEIGHTS_NAME, logging

from docparade.modeling.reader_cross_encoder import LINEAR_HEADS
from docparade.retrieval.errors import InputError

from .loading import check_source, explain_load_errors, find_file

Weights = dict[str, Tensor]

DENSE, OUTPUT = "classifier.dense", "classifier.out_proj"
"""The layers of ELECTRA's classifier; a GELU is between them."""


@dataclass(frozen=True)
class ConvertedModel:
    """A model with its tokenizer, ready to be saved as safetensors."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    left_out: list[str]
    """Names of tensors in the file that the model has no place for."""
    linear_head: bool
    """Whether the classifier computes a linear layer."""

    def save(self, folder: Path) -> None:
        """Write all files to a folder."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def load_pickled(source: str, linear_head: bool = False) -> ConvertedModel:
    """Load a model from pickled weights. Only tensors are unpickled: no code from the file runs.

    Args:
        source: A folder, or a Hub id.
        linear_head: Whether the head of this ELECTRA is only the last layer of the classifier in the file. It is so
            anyway if the file has no other layer, and for Hub ids of which it is known.

    Example:
        ```python
        load_pickled("Capreolus/bert-base-msmarco").save(Path("bert-base-msmarco"))
        ```
    """
    check_source(source)
    with explain_load_errors(source, ""):
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    weights, pickled = _read_weights(source)
    head = _find_linear_head(weights, config, source, linear_head or source in LINEAR_HEADS)
    if head is not None:
        weights = _without_classifier(weights) | express_linear_head(*head)
        config.num_labels = len(head[0])
        config.architectures = ["ElectraForSequenceClassification"]
        # Dropout between the layers would remove whole logits.
        config.classifier_dropout = 0.0
    elif not pickled:
        raise InputError(f"{source} has {SAFE_WEIGHTS_NAME} already: there is nothing to convert.")
    with explain_load_errors(source, ""):
        model, left_out = _fill(_find_class(config, weights, source), config, weights, source)
    return ConvertedModel(model, tokenizer, left_out, head is not None)


def _read_weights(source: str) -> tuple[Weights, bool]:
    """The tensors of a model, and whether they were pickled."""
    safe = find_file(source, SAFE_WEIGHTS_NAME)
    if safe is not None:
        with explain_load_errors(source, ""):
            return load_file(safe), False
    if (whole := find_file(source, WEIGHTS_NAME)) is not None:
        return read_tensors(whole), True
    index = find_file(source, WEIGHTS_INDEX_NAME)
    if index is None:
        raise InputError(f"{source} has no {WEIGHTS_NAME}: weights of PyTorch are converted, no others.")
    weights: Weights = {}
    try:
        parts = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError):
        raise InputError(f"{index} is damaged; copy or download it again.") from None
    for name in parts:
        part = find_file(source, name)
        if part is None:
            raise InputError(f"{source} has no {name}, which {WEIGHTS_INDEX_NAME} names; copy or download it.")
        weights |= read_tensors(part)
    return weights, True


def read_tensors(file: Path) -> Weights:
    """Unpickle tensors by name; refuse a file with anything else in it, without running code from it."""
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    # A damaged file raises any exception; the message for other content recommends to unpickle it anyway.
    except Exception:
        raise InputError(
            f"{file} is damaged, or holds something else than tensors, which could run code and is not unpickled; copy "
            "or download it again, or have it saved as safetensors by someone whom you trust."
        ) from None
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise InputError(f"{file} does not hold a model's tensors by name; save its state_dict() alone.")
    return dict(content)


def _find_class(config: PreTrainedConfig, weights: Weights, source: str) -> type[PreTrainedModel]:
    """The class that the configuration names; without one, a classifier if there are weights for its head."""
    has_head = any(name.startswith("classifier.") for name in weights)
    kind = transformers.AutoModelForSequenceClassification if has_head else transformers.AutoModel
    names = config.architectures or [kind._model_mapping[type(config)].__name__]  # type: ignore[attr-defined]
    # The same classes of TensorFlow have this prefix.
    found: Any = getattr(transformers, names[0].removeprefix("TF"), None)
    if found is None:
        raise InputError(f"{source}, config.json: architectures is {names}, which transformers does not know.")
    return found


def _fill(
    kind: type[PreTrainedModel], config: PreTrainedConfig, weights: Weights, source: str
) -> tuple[PreTrainedModel, list[str]]:
    """A model with these weights, and the names of those that it has no place for."""
    config._name_or_path = ""  # saved files must not contain a path of this machine
    with _silence():  # what does not fit is said below
        loaded: Any = kind.from_pretrained(None, config=config, state_dict=weights, output_loading_info=True)
    model, info = loaded
    if missing := sorted(info["missing_keys"]):
        raise InputError(
            f"{source} lacks {len(missing)} weights of {kind.__name__}, such as {missing[0]}: its files are of "
            "different models, or architectures in its config.json is wrong."
        )
    # Old versions of transformers saved the numbers of positions, too.
    return model, sorted(name for name in info["unexpected_keys"] if not name.endswith("position_ids"))


@contextmanager
def _silence() -> Iterator[None]:
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


# --- ELECTRA with a linear head --------------------------------------------------------------------------------------


def _find_linear_head(
    weights: Weights, config: PreTrainedConfig, source: str, wanted: bool
) -> tuple[Tensor, Tensor] | None:
    """Weight and bias of an ELECTRA's head that is one linear layer; `None` if it is not, or the model is another."""
    if config.model_type != "electra":
        if wanted:
            raise InputError(
                f"--linear-head is for ELECTRA, and {source} is a {config.model_type} model; leave it out."
            )
        return None
    layer = next((name for name in (OUTPUT, "classifier") if f"{name}.weight" in weights), None)
    if layer is None:
        if wanted:
            raise InputError(f"--linear-head: {source} has no {OUTPUT}.weight and no classifier.weight.")
        return None
    if layer == OUTPUT and f"{DENSE}.weight" in weights and not wanted:
        return None
    weight = weights[f"{layer}.weight"]
    return weight, weights.get(f"{layer}.bias", weight.new_zeros(len(weight)))


def _without_classifier(weights: Weights) -> Weights:
    return {name: tensor for name, tensor in weights.items() if not name.startswith("classifier.")}


def express_linear_head(weight: Tensor, bias: Tensor) -> Weights:
    """Weights of ELECTRA's classifier that compute the linear layer z = W x + b.

    The dense layer computes z and -z, and the last layer the difference of what the GELU makes of them. This is z:
    GELU(z) = z Φ(z), so GELU(z) - GELU(-z) = z (Φ(z) + Φ(-z)), and the two probabilities sum up to 1.

    Args:
        weight: W, `(labels, width)`.
        bias: b, `(labels,)`.
    """
    labels, width = weight.shape
    if 2 * labels > width:
        raise InputError(f"The linear head has {labels} labels, which is more than half of the vectors' width {width}.")
    dense, last = weight.new_zeros(width, width), weight.new_zeros(labels, width)
    dense[: 2 * labels] = torch.cat([weight, -weight])
    identity = torch.eye(labels, dtype=weight.dtype)
    last[:, : 2 * labels] = torch.cat([identity, -identity], dim=1)
    dense_bias = bias.new_zeros(width)
    dense_bias[: 2 * labels] = torch.cat([bias, -bias])
    return {
        f"{DENSE}.weight": dense,
        f"{DENSE}.bias": dense_bias,
        f"{OUTPUT}.weight": last,
        f"{OUTPUT}.bias": torch.zeros_like(bias),
    }
