"""The options of `from_encoder` and `from_cross_encoder`, divided by the part that takes them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from .configuration_cedr import KernelFormula, KernelLog
from .configuration_ranker import PassageScore, PassageVector, RankerConfig
from .loading_options import LoadingOptions, pick
from .processing_document import DocumentProcessor
from .processing_settings import ProcessorOptions


class MaxPOptions(ProcessorOptions, LoadingOptions, total=False):
    """Options of `MaxPForSequenceClassification.from_encoder` and `from_cross_encoder`."""

    k: int
    passage_score: PassageScore


class ParadeOptions(ProcessorOptions, LoadingOptions, total=False):
    """Options of `ParadeForSequenceClassification.from_encoder`."""

    passage_vector: PassageVector
    num_aggregator_layers: int
    aggregator_activation: str | None
    passage_positions: bool
    cnn_activation: str
    cnn_hidden_size: int
    initializer_range: float


class CedrOptions(ProcessorOptions, LoadingOptions, total=False):
    """Options of `CedrForSequenceClassification.from_encoder`."""

    match_layers: list[int] | None
    formula: KernelFormula
    exact_width: float
    kernel_log: KernelLog
    match_separators: bool
    learn_kernels: bool
    head_size: int
    head_activation: str
    initializer_range: float


class SortedOptions(NamedTuple):
    """Options, divided by the part that takes them."""

    config: dict[str, Any]
    processor: dict[str, Any]
    loading: dict[str, Any]


def sort_options(options: Mapping[str, Any], config_class: type[RankerConfig]) -> SortedOptions:
    """Divide options between the configuration, the processor and the loading of the encoder; refuse unknown ones."""
    of_config = [*parameter_names(config_class), *config_class.own_settings()]
    places = (of_config, parameter_names(DocumentProcessor), LoadingOptions.__optional_keys__)
    if unknown := sorted(options.keys() - set().union(*places)):
        raise TypeError(
            f"{', '.join(unknown)}: no option of {config_class.__name__}, DocumentProcessor or from_pretrained."
        )
    config, processor, loading = (pick(options, names) for names in places)
    # The processor takes None, for all passages; a configuration needs a number.
    if config.get("max_passages", 0) is None:
        del config["max_passages"]
    return SortedOptions(config, processor, loading)


def parameter_names(kind: type) -> list[str]:
    """The settings that a class is built with, without the parts that it is built from."""
    parts = ("encoder_config", "tokenizer", "kwargs")
    return [name for name in inspect.signature(kind).parameters if name not in parts]
