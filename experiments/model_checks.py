"""Check models without loading their weights: that they exist, are complete, and are of the kind that a recipe needs.

Only a few files are read, so mistakes show before the hours of work that come before the loading.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.constants import HF_HUB_OFFLINE
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel
from transformers.utils import CONFIG_NAME, PROCESSOR_NAME, SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, WEIGHTS_NAME

from docparade.modeling.configuration_ranker import is_ranker
from docparade.modeling.sentence_transformers_files import SentenceTransformersFiles
from docparade.reranking.loading import check_classifier, check_source, explain_load_errors, find_file
from docparade.retrieval.errors import InputError


def check_model(source: str, place: str, revision: str | None = None) -> PreTrainedModel:
    """Check a model, and return it without values in its weights (on the device `meta`).

    Args:
        source: A folder or a Hub id.
        place: Where it is named, for errors: `recipe.yaml, model.encoder`.
        revision: Of a Hub id.
    """
    check_source(source, place)
    with explain_load_errors(source, place):
        config = AutoConfig.from_pretrained(source, revision=revision, trust_remote_code=False)
        if is_ranker(config) and find_file(source, PROCESSOR_NAME, revision) is None:
            raise ValueError(
                f"the ranker has no {PROCESSOR_NAME}, which it needs to read text; save it with its processor"
            )
        AutoTokenizer.from_pretrained(source, revision=revision, trust_remote_code=False)
        with torch.device("meta"):
            model: PreTrainedModel = AutoModel.from_config(config, trust_remote_code=False)
    for file in _weight_files(source, place, revision):
        _check_file(file, model, place)
    return model


def check_ranker(source: str, place: str, revision: str | None = None) -> PreTrainedModel:
    """Check a model that has to be a ranker."""
    model = check_model(source, place, revision)
    if not is_ranker(model.config):
        raise InputError(
            f"{place}: {source} is a {model.config.model_type} model, not a ranker; name one that was trained with "
            "docparade."
        )
    return model


def check_scorer(source: str, place: str) -> PreTrainedModel:
    """Check a model that has to be a ranker, or a plain cross-encoder or bi-encoder."""
    model = check_model(source, place)
    with explain_load_errors(source, place):
        if not is_ranker(model.config) and not SentenceTransformersFiles(source, {}).pooling:
            check_classifier(model.config, f"{place}: {source}")
    return model


def encoder_of(model: PreTrainedModel) -> PreTrainedModel:
    """The encoder of a ranker; any other model is returned as it is."""
    encoder: Any = model.encoder if is_ranker(model.config) else model
    return encoder


def _weight_files(source: str, place: str, revision: str | None) -> list[Path]:
    """The safetensors files that are on this machine; files on the Hub are downloaded later."""
    offline = {"local_files_only": True, "_raise_exceptions_for_connection_errors": False}
    whole = find_file(source, SAFE_WEIGHTS_NAME, revision, **offline)
    if whole is not None:
        return [whole]
    index = find_file(source, SAFE_WEIGHTS_INDEX_NAME, revision, **offline)
    if index is None:
        if Path(source).is_dir() or HF_HUB_OFFLINE:
            raise InputError(f"{place}: {source} cannot be loaded: {_explain_no_weights(source, revision, offline)}")
        return []
    try:
        parts = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError):
        raise InputError(f"{place}: {index} is damaged; copy or download it again.") from None
    missing = [name for name in parts if not (index.parent / name).is_file()]
    if missing and Path(source).is_dir():
        raise InputError(f"{place}: {index.parent / missing[0]} does not exist; copy or download it again.")
    return [index.parent / name for name in parts if name not in missing]


def _explain_no_weights(source: str, revision: str | None, offline: dict[str, Any]) -> str:
    where = "the folder" if Path(source).is_dir() else "the Hugging Face cache (HF_HUB_OFFLINE is set)"
    if find_file(source, WEIGHTS_NAME, revision, **offline) is None:
        return f"{where} has no {SAFE_WEIGHTS_NAME}."
    return (
        f"{where} has no {SAFE_WEIGHTS_NAME}, and {WEIGHTS_NAME} is pickled; run docparade convert {source} --output "
        "FOLDER, and name that folder."
    )


def _check_file(file: Path, model: PreTrainedModel, place: str) -> None:
    """Check that a file is complete, and that its weights have the shapes of the configuration."""
    expected = {name: list(weights.shape) for name, weights in model.state_dict().items()}
    prefix = f"{model.base_model_prefix}."
    try:
        with safe_open(file, framework="pt") as weights:
            shapes = {name: weights.get_slice(name).get_shape() for name in weights.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(f"{place}: {file} is damaged ({error}); copy or download it again.") from None
    for name, shape in shapes.items():
        # A model with a head has the body's name before the names of weights; here only the body is built.
        should_be = expected.get(name, expected.get(name.removeprefix(prefix), shape))
        if shape != should_be:
            raise InputError(
                f"{place}: {file} does not fit its {CONFIG_NAME}: {name} has the shape {shape}, and should have "
                f"{should_be}; copy or download both again."
            )
