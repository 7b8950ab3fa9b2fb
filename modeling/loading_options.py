"""The arguments of `from_pretrained` with which the encoder of a new ranker is loaded."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any, TypedDict

import torch

PathLike = str | os.PathLike[str]


class SourceOptions(TypedDict, total=False):
    """Where files come from: arguments of `from_pretrained` that the model and its processor share."""

    cache_dir: PathLike | None
    force_download: bool
    local_files_only: bool
    token: str | bool | None
    revision: str
    subfolder: str


class LoadingOptions(SourceOptions, total=False):
    """How an encoder is loaded: arguments of its `from_pretrained`."""

    dtype: torch.dtype | str
    attn_implementation: str
    device_map: Any


def pick_source_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `from_pretrained` that say where files come from."""
    return pick(options, SourceOptions.__optional_keys__)


def pick(options: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The options with these names."""
    return {name: value for name, value in options.items() if name in names}
