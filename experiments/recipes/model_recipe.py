"""The section `model` of a recipe: where weights come from, how passages are cut and put together."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal, cast, get_type_hints

from docparade.modeling import FAMILIES, PRESETS, DocumentProcessor
from docparade.modeling.configuration_ranker import RankerConfig
from docparade.modeling.readers import INPUT_SETTINGS, READERS
from docparade.retrieval.errors import InputError

from .typed_values import build, check_keys, check_mapping, check_place, inside, plain, typed

SOURCES = ("encoder", "cross_encoder", "bi_encoder", "checkpoint")
DEFAULT_PRESET = "whole"
"""of models that are built anew; a checkpoint has settings of its own"""
PACKAGE = "package:"
"""before a model's path: weights that an installed Python package carries"""


@dataclass(frozen=True)
class ModelRecipe:
    """What is trained: where its weights come from, how passages are cut and put together.

    One of `encoder` (a new head is put on it), `cross_encoder` (its own head is used), `bi_encoder` (its similarity is
    used) and `checkpoint` (a ranker that was saved before) says where weights come from: a Hub id, a folder, or
    `package:NAME/folder`. `{fold}` in it stands for the fold's name. `options` are fields of the family's configuration
    and of `DocumentProcessor`; in the file they are beside the other keys. A checkpoint keeps its own settings unless
    `preset` or `options` name them.
    """

    family: str = "parade"
    encoder: str | None = None
    cross_encoder: str | None = None
    bi_encoder: str | None = None
    checkpoint: str | None = None
    revision: str | None = None
    layers: tuple[int, ...] | None = None
    """Keep these layers of the encoder, counted from 0."""
    late_interaction: bool | None = None
    """For a bi-encoder: whether scores also compare tokens; by default as those of the ranker it is part of, if any."""
    true_token: str | None = None
    false_token: str | None = None
    """For a cross-encoder that is an encoder-decoder or a decoder: the words for relevant and not relevant; by default
    the model's own, or `true` and `false`."""
    num_labels: Literal[1, 2] | None = None
    """For an encoder of the family maxp: outputs of the new head; by default two if `passage_score` is a probability,
    and else one."""
    aggregation: str | None = None
    preset: str | None = None
    """Input settings of a paper, all of them; without one, a checkpoint's own, or else those of `DEFAULT_PRESET`."""
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = [name for name in SOURCES if getattr(self, name) is not None]
        if len(given) != 1:
            raise InputError(f"names {', '.join(given) or 'no weights'}; give exactly one of {', '.join(SOURCES)}.")
        check_place(given[0], self.source)
        if self.preset is not None and self.preset not in PRESETS:
            raise InputError(f"preset is '{self.preset}', and has to be one of {', '.join(PRESETS)}.")
        scores_passages = self.config_class.scores_passages()
        if self.cross_encoder and not scores_passages:
            raise InputError("cross_encoder goes with family maxp, which uses its head; use encoder.")
        if self.bi_encoder and not any(reader.separate for reader in self.config_class.fitting_readers().values()):
            raise InputError("family cedr reads query and passage together; use encoder, or family maxp.")
        if self.late_interaction is not None and (self.bi_encoder is None or not scores_passages):
            raise InputError("late_interaction goes with bi_encoder and family maxp; leave it out.")
        for name in self.words:
            if self.cross_encoder is None:
                raise InputError(f"{name} goes with cross_encoder; leave it out.")
        if self.num_labels is not None and (self.encoder is None or not scores_passages):
            raise InputError("num_labels goes with encoder and family maxp; leave it out.")
        # Settings of a checkpoint can only be checked together with its own.
        processor = None if self.keeps_settings else json.dumps(self.processor_options)
        _check_by_building(self.family, json.dumps(self.config_options), processor, self.num_labels)

    @property
    def config_class(self) -> type[RankerConfig]:
        """The class of the family's configuration."""
        return FAMILIES[self.family].config_class

    @property
    def source(self) -> str:
        """Where the weights come from."""
        return cast(str, getattr(self, self.source_key))

    @property
    def source_key(self) -> str:
        """Which of the keys names the weights."""
        return next(name for name in SOURCES if getattr(self, name) is not None)

    @property
    def words(self) -> dict[str, Any]:
        """The words for relevant and not relevant, as far as the recipe names them."""
        given = {"true_token": self.true_token, "false_token": self.false_token}
        return {name: word for name, word in given.items() if word is not None}

    @property
    def keeps_settings(self) -> bool:
        """Whether the checkpoint's processor settings are kept, except for those that the recipe names."""
        return self.checkpoint is not None and self.preset is None

    @property
    def processor_options(self) -> dict[str, Any]:
        """All settings of the processor; for a checkpoint without a preset, only those that the recipe names."""
        given = {name: value for name, value in self.options.items() if name in parameters(DocumentProcessor)}
        if self.keeps_settings:
            return given
        preset = self.preset or DEFAULT_PRESET
        if self.bi_encoder is None:
            return preset_settings(preset) | given
        # What neither the preset nor the recipe names is read from the bi-encoder's own files.
        own = {"max_length", *INPUT_SETTINGS} - PRESETS[preset].keys()
        settings = {name: value for name, value in preset_settings(preset).items() if name not in own}
        return settings | given | {"separate": True}

    @property
    def config_options(self) -> dict[str, Any]:
        """All settings of the family's configuration that are not its default."""
        known = config_parameters(self.config_class)
        chosen = {} if self.aggregation is None else {"aggregation": self.aggregation}
        given = {name: value for name, value in self.options.items() if name in known}
        # `max_passages: null` (all passages) is for the processor; the model's configuration needs a number.
        if given.get("max_passages", 0) is None:
            del given["max_passages"]
        return chosen | given

    @classmethod
    def of(cls, content: Any, place: str) -> ModelRecipe:
        """Read the section; keys that are not its own are options, typed as the classes they go to."""
        check_mapping(content, place, "the name of a file in models/")
        own = [f.name for f in fields(cls) if f.name != "options"]
        family = typed(content.get("family", "parade"), Literal[tuple(FAMILIES)], inside(place, "family"))
        hints = config_parameters(FAMILIES[family].config_class) | parameters(DocumentProcessor)
        check_keys(content, [*own, *hints], place)
        options = {k: typed(v, hints[k], inside(place, k)) for k, v in content.items() if k not in own}
        section = {k: v for k, v in content.items() if k in own}
        return build(cls, {**section, "options": options}, place)

    def to_dict(self) -> dict[str, Any]:
        """The section as a file has it, with all of the processor's settings."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "options"}
        given = {name: value for name, value in own.items() if value is not None}
        return plain(given | self.processor_options | self.config_options)


def preset_settings(preset: str) -> dict[str, Any]:
    """All settings of a processor with a paper's input settings; those that the paper does not name are the defaults.

    Without those by which query and passage are joined, such as `prompt`: a reader has these of its own, whatever its
    passages are.

    Example:
        >>> preset_settings("zhang2021")["window"]
        150
    """
    signature = inspect.signature(inspect.getattr_static(DocumentProcessor, "__init__"))
    joined = {name for reader in READERS.values() if not reader.separate for name in reader.processor_settings}
    names = [name for name in parameters(DocumentProcessor) if name not in joined]
    return {name: signature.parameters[name].default for name in names} | PRESETS[preset]


def parameters(kind: type) -> dict[str, Any]:
    """The constructor's parameters with their types, without the parts that are built elsewhere."""
    constructor = inspect.getattr_static(kind, "__init__")
    hints = get_type_hints(constructor)
    left_out = ("self", "encoder_config", "tokenizer", "aggregation", "kwargs")
    return {name: hints[name] for name in inspect.signature(constructor).parameters if name not in left_out}


def config_parameters(config: type[RankerConfig]) -> dict[str, Any]:
    """The settings of a family's configuration with their types, also those of single aggregations."""
    return parameters(config) | {name: type(value) for name, value in config.own_settings().items()}


@cache
def _check_by_building(family: str, config_options: str, processor_options: str | None, labels: int | None) -> None:
    """Check options by building the classes, with a minimal encoder and tokenizer."""
    from transformers import AutoConfig

    config = json.loads(config_options)
    labels = labels or (1 if config.get("passage_score", "logit") == "logit" else 2)
    try:
        FAMILIES[family].config_class(AutoConfig.for_model("bert", num_labels=labels), **config)
    except ValueError as error:
        raise InputError(str(error)) from None
    if processor_options is not None:
        check_settings(json.loads(processor_options))


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings that a processor does not take, alone or together."""
    from transformers import BertTokenizer

    words = {word: i for i, word in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "word"))}
    try:
        DocumentProcessor(BertTokenizer(vocab=words), **settings)
    except ValueError as error:
        raise InputError(str(error)) from None
