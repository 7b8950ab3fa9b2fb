"""The files of a checkpoint beside the weights: reading and writing them, and naming damaged files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_NAME, cached_file, logging

from .checks import check_counts
from .loading_options import PathLike
from .processing_document import DocumentProcessor

logger = logging.get_logger(__name__)

# For everything that a ranker is built on. Given explicitly, because transformers otherwise asks at the terminal
# whether to run a repository's code; a ranker could not be loaded again without that code.
TRUST_NO_CODE = {"trust_remote_code": False}


def read_processor(source: PathLike, options: dict[str, Any]) -> DocumentProcessor | None:
    """The processor beside the weights; `None`, with a warning, if there is none."""
    if not _has_file(source, "processor_config.json", options):
        logger.warning(f"{source} has no processor_config.json: the model can read tensors, but no text.")
        return None
    if not _has_file(source, "tokenizer.json", options):
        raise ValueError(
            f"{source} has no tokenizer.json: every word would be unknown. Save it again with its tokenizer."
        )
    try:
        return DocumentProcessor.from_pretrained(source, **options)
    except OSError:
        raise
    # A file of the wrong form can raise any exception; the tokenizers library raises bare Exceptions.
    except Exception as error:
        raise ValueError(f"{source}, processor_config.json or a file of the tokenizer: {error}") from error


def check_config_file(source: PathLike, options: dict[str, Any]) -> None:
    """Refuse a config.json that asks for too many layers or labels, or for code of its own, before it is used."""
    settings, _ = PreTrainedConfig.get_config_dict(source, **options)
    check_counts(f"{source}, config.json", settings)
    if "AutoConfig" in (settings.get("auto_map") or {}) and settings.get("model_type") not in CONFIG_MAPPING:
        raise ValueError(
            f"{source} contains custom code of the model type {settings.get('model_type')!r}, which docparade does not "
            "run: use a model of a type that transformers has, or read this one with its own library."
        )


def check_finite_weights(source: PathLike | None, model: nn.Module) -> None:
    """Refuse weights that are not finite numbers: attention can hide them, and scores would only look plausible."""
    extremes = {
        name: torch.stack(weights.detach().aminmax()).float()
        for name, weights in model.named_parameters()
        if weights.is_floating_point() and weights.numel() and not weights.is_meta
    }
    # One question to the device for all weights.
    devices = {values.device for values in extremes.values()}
    for device in devices:
        names = [name for name, values in extremes.items() if values.device == device]
        finite = torch.stack([extremes[name] for name in names]).isfinite().all(dim=1)
        if not bool(finite.all()):
            name = names[int(finite.int().argmin())]
            raise ValueError(
                f"{source}: the weights {name} hold values that are not finite numbers: they are damaged, or training "
                "diverged. Save or fetch them again."
            )


def _has_file(source: PathLike, name: str, options: dict[str, Any]) -> bool:
    quiet = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
    return cached_file(source, name, **options, **quiet) is not None


def write_json(path: Path, content: Any) -> None:
    """Write a file atomically: it is either complete or not there."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)


def compact_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """The weights in half precision, but the word embeddings in 8-bit floats, for `save_pretrained`.

    `from_pretrained` loads them in the precision that config.json names, as it does with any other checkpoint.

    Example:
        ```python
        model.save_pretrained("small", state_dict=compact_weights(model))
        ```
    """
    words: Tensor = cast(nn.Embedding, model.get_input_embeddings()).weight

    def compact(weights: Tensor) -> Tensor:
        if not weights.is_floating_point() or weights.dim() == 0:
            return weights
        return weights.to(torch.float8_e4m3fn if weights.data_ptr() == words.data_ptr() else torch.float16)

    return {name: compact(weights) for name, weights in model.state_dict().items()}


class PickledWeightsError(OSError):
    """A model has no safe weights: it has to be converted before it is loaded."""


@contextmanager
def naming_damaged_weights(source: PathLike | None) -> Iterator[None]:
    """Turn the errors that damaged or pickled weights raise into a sentence that names the file and says what to do."""
    try:
        yield
    except OSError as error:
        # transformers' own message recommends to unpickle.
        if f"file named {SAFE_WEIGHTS_NAME}" not in str(error):
            raise
        raise PickledWeightsError(
            f"{source} has no {SAFE_WEIGHTS_NAME}. Pickled weights are not loaded, because that can run code: convert "
            "the model (docs/loading.md, Converting pickled weights), and name its new folder."
        ) from error
    except SafetensorError as error:
        raise OSError(f"{_damaged_file(source)} is damaged or incomplete ({error}): save or fetch it again.") from error
    except RuntimeError as error:
        if "mismatch" not in str(error):
            raise
        raise ValueError(
            f"{source} has weights whose shapes do not match its config.json or an option given at loading: "
            f"{' '.join(str(error).split())[:300]}"
        ) from error


def _damaged_file(source: PathLike | None) -> str:
    for path in sorted(Path(source).glob("*.safetensors")) if source is not None else []:
        try:
            with safe_open(path, "pt"):
                pass
        except SafetensorError:
            return str(path)
    return f"a safetensors file of {source}"
