"""The types of options name exactly what is accepted at run time."""

from __future__ import annotations

from typing import get_args

import pytest

from docparade.modeling import (
    PRESETS,
    CedrConfig,
    DocumentProcessor,
    MaxPConfig,
    ParadeConfig,
    Preset,
    ProcessorOptions,
    ReadingOptions,
)
from docparade.modeling.ranker_options import (
    CedrOptions,
    LoadingOptions,
    MaxPOptions,
    ParadeOptions,
    parameter_names,
    sort_options,
)
from docparade.modeling.reading_options import ReadingArguments


def test_the_names_of_presets_are_those_of_the_table() -> None:
    assert get_args(Preset) == tuple(PRESETS)


def test_typed_options_are_the_options() -> None:
    assert set(ProcessorOptions.__optional_keys__) == set(parameter_names(DocumentProcessor))
    for config, options in ((MaxPConfig, MaxPOptions), (ParadeConfig, ParadeOptions), (CedrConfig, CedrOptions)):
        accepted = {*parameter_names(config), *parameter_names(DocumentProcessor), *LoadingOptions.__optional_keys__}
        assert set(options.__optional_keys__) == accepted - {"aggregation"}  # an argument of its own


def test_reading_arguments_are_the_reading_options() -> None:
    fields = ReadingOptions.__annotations__
    assert {name: kind.__forward_arg__ for name, kind in ReadingArguments.__annotations__.items()} == fields


def test_options_are_sorted_by_what_they_are_for() -> None:
    options = {"k": 3, "window": 9, "max_passages": 4, "revision": "main"}
    assert sort_options(options, MaxPConfig) == (
        {"k": 3},
        {"window": 9, "max_passages": 4},
        {"revision": "main"},
    )
    # A PARADE model is sized by max_passages; None, for all passages, is for its processor alone.
    assert sort_options({"max_passages": 4}, ParadeConfig) == ({"max_passages": 4}, {"max_passages": 4}, {})
    assert sort_options({"max_passages": None}, ParadeConfig) == ({}, {"max_passages": None}, {})
    with pytest.raises(TypeError, match=r"windows: .*MaxPConfig, DocumentProcessor or from_pretrained"):
        sort_options({"windows": 3}, MaxPConfig)
