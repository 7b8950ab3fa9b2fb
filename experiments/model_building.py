"""From a recipe's model to a ranker: built on an encoder, on a cross-encoder, or from a checkpoint."""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoConfig, PreTrainedConfig
from transformers.utils import logging

from docparade.experiments.recipes.model_recipe import DEFAULT_PRESET, PACKAGE, ModelRecipe
from docparade.modeling import FAMILIES, DocumentProcessor, DocumentRanker
from docparade.modeling.configuration_ranker import RankerConfig, is_ranker
from docparade.modeling.readers import INPUT_SETTINGS
from docparade.modeling.single_precision import heads_of
from docparade.reranking.loading import explain_load_errors
from docparade.retrieval.errors import InputError
from docparade.trainer.layer_selection import take_layers

logger = logging.get_logger(__name__)

# Names of the query and value projections in the encoders of transformers.
_ATTENTION = ("query", "value", "q_lin", "v_lin", "q_proj", "v_proj", "query_proj", "value_proj", "q", "v", "Wqkv")


def build_model(model: ModelRecipe, place: str, fold: str | None = None, start: Path | None = None) -> DocumentRanker:
    """The ranker that a recipe's section describes.

    Args:
        model: The section.
        place: The section's place, for errors: `recipe.yaml, model`.
        fold: The fold's name, which replaces `{fold}` in the path of the weights.
        start: The previous stage's model, used instead of the section's own weights.
    """
    source = str(start) if start is not None else locate(model.source, place, fold)
    family: Any = FAMILIES[model.family]
    with explain_load_errors(source, place):
        if start is not None or model.checkpoint is not None:
            ranker = _from_checkpoint(model, source, place)
        elif model.bi_encoder is not None:
            ranker = family.from_bi_encoder(source, late_interaction=model.late_interaction, **_options(model))
        elif model.cross_encoder is not None:
            ranker = family.from_cross_encoder(source, **model.words, **_options(model))
        else:
            labels: dict[str, Any] = {} if model.num_labels is None else {"num_labels": model.num_labels}
            ranker = family.from_encoder(source, **labels, **_options(model))
    return ranker if model.layers is None or start is not None else take_layers(ranker, model.layers)


def locate(source: str, place: str, fold: str | None = None) -> str:
    """The path or Hub id of weights, with `{fold}` replaced by the fold's name and `package:NAME` by its folder.

    Example:
        >>> locate("outputs/teacher/fold-{fold}/model", "recipe.yaml, teacher", fold="s2")
        'outputs/teacher/fold-s2/model'
    """
    if "{fold}" in source and fold is None:
        raise InputError(f"{place}: '{source}' is for a fold: name one with --data.fold, or use docparade crossval.")
    source = source.replace("{fold}", fold or "")
    if not source.startswith(PACKAGE):
        return source
    name, _, folder = source.removeprefix(PACKAGE).partition("/")
    if find_spec(name) is None:
        raise InputError(
            f"{place}: the package {name}, which has these weights, is not installed; install it with pip."
        )
    return str(files(name) / folder)


def with_lora(model: DocumentRanker) -> nn.Module:
    """The ranker with LoRA adapters in its encoder's attention; everything on top of the encoder is trained fully."""
    from peft import LoraConfig, get_peft_model

    targets = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and name.startswith("encoder.") and name.rpartition(".")[2] in _ATTENTION
    ]
    if not targets:
        kind = type(model.encoder).__name__
        raise InputError(f"{kind} has no query and value projections with a known name, so LoRA cannot be added.")
    parts = {
        **heads_of(model.encoder),
        **{name: part for name, part in model.named_children() if part is not model.encoder},
    }
    on_top = [name for name, part in parts.items() if any(True for _ in part.parameters())]
    return get_peft_model(model, LoraConfig(target_modules=targets, modules_to_save=on_top or None))


def merged(model: nn.Module) -> DocumentRanker:
    """The ranker with its adapters merged into its weights."""
    return model.merge_and_unload() if hasattr(model, "merge_and_unload") else model  # type: ignore[operator, return-value]


def set_processor(model: DocumentRanker, options: dict[str, Any], place: str) -> None:
    """Change some of the settings with which a ranker reads documents.

    Args:
        model: The ranker.
        options: Fields of `DocumentProcessor`.
        place: Where they are set, for errors: `recipe.yaml, rerank.processor`.
    """
    try:
        model.processor = model.require_processor().with_options(**options)
    except ValueError as error:
        raise InputError(f"{place}: {error}") from None


def processor_settings(model: ModelRecipe, place: str, start: Path | None = None) -> dict[str, Any]:
    """All settings with which the ranker of a recipe's section reads documents; the arguments are `build_model`'s."""
    if not model.keeps_settings:
        return model.processor_options
    source = str(start) if start is not None else locate(model.source, place)
    try:
        own = DocumentProcessor.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise InputError(f"{place}: {source} cannot be loaded: {' '.join(str(error).split())}") from error
    return own.settings | model.processor_options


def _options(model: ModelRecipe) -> dict[str, Any]:
    revision = {} if model.revision is None else {"revision": model.revision}
    chosen = {} if model.aggregation is None else {"aggregation": model.aggregation}
    return {"preset": model.preset or DEFAULT_PRESET, **chosen, **model.options, **revision}


def check_encoder(model: ModelRecipe, config: RankerConfig) -> None:
    """Refuse a checkpoint whose encoder does not score passages, for a family that needs their scores."""
    if model.config_class.scores_passages() and not config.scores_passages():
        kind = config.model_type
        raise ValueError(f"it is a {kind} checkpoint, whose encoder does not score passages; use family {kind}.")


def will_be_separate(model: ModelRecipe, config: PreTrainedConfig) -> bool:
    """Whether the ranker that is built reads query and passage apart, so that vectors can be kept.

    A family or an aggregation that a checkpoint was not trained for is put on its encoder as a cross-encoder.
    """
    if model.checkpoint is None:
        return model.bi_encoder is not None
    return is_ranker(config) and config.reader_class.separate and config.fits(model.family, model.aggregation)


def _from_checkpoint(model: ModelRecipe, source: str, place: str) -> DocumentRanker:
    revision: dict[str, Any] = {} if model.revision is None else {"revision": model.revision}
    config = AutoConfig.from_pretrained(source, trust_remote_code=False, **revision)
    if not is_ranker(config):
        raise ValueError("it is not a checkpoint of a ranker; name it as encoder, cross_encoder or bi_encoder.")
    if not config.fits(model.family, model.aggregation):
        if model.bi_encoder is not None and config.reader_class.separate:
            return FAMILIES[model.family].from_bi_encoder(source, **_options(model))
        check_encoder(model, config)
        logger.warning(
            f"{source} is {config.model_type}, {config.aggregation}: only its encoder is used, and the aggregation on "
            f"top of it ({model.family}, {model.aggregation or 'default'}) starts untrained."
        )
        settings = DocumentProcessor.from_pretrained(source, **revision).settings | model.processor_options
        sizes = {name: value for name, value in settings.items() if name not in INPUT_SETTINGS}
        if sizes["max_passages"] is None:
            del sizes["max_passages"]
        ranker = FAMILIES[model.family].from_encoder(source, **_options(model) | sizes)
        set_processor(ranker, sizes, place)
        return ranker
    # The processor decides how many passages are read; the model's positions stay as they were trained.
    options = {name: value for name, value in model.config_options.items() if name != "max_passages"}
    ranker = FAMILIES[model.family].from_pretrained(source, **options, **revision)
    set_processor(ranker, model.processor_options, place)
    return ranker
