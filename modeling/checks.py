"""Checks of settings: each refuses a wrong value in one sentence that names the setting."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

MOST_MODULES = 1000
"""How many layers, or labels, a model may have: more are a mistake, or meant to exhaust the memory."""
MOST_WIDTH = 65_536
"""How wide a layer of ours may be."""

# Settings of encoders that have to be at least 1.
_AT_LEAST_ONE = re.compile("num_(hidden_)?layers|num_attention_heads|hidden_size")
# Settings of encoders that say how often something is built.
_COUNTS = re.compile("layer|num_labels|num_hidden_groups|inner_group_num|block_sizes")


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Refuse a value that is none of the choices."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, and has to be one of {', '.join(choices)}.")


def check_whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Refuse a value that is no whole number from `least` to `most`; `None` is as large as 64 bits hold."""
    limit = 2**63 - 1 if most is None else most
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= limit:
        upper = "" if most is None else f" to {most}"
        raise ValueError(f"{name} is {value!r}, and has to be a whole number from {least}{upper}.")


def check_positive(name: str, value: Any) -> None:
    """Refuse a value that is no number above 0."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
        raise ValueError(f"{name} is {value!r}, and has to be a number above 0.")


def check_limit(name: str, value: Any) -> None:
    """Refuse a limit that is no whole number from 1; `None` is no limit."""
    if value is not None:
        check_whole(name, value, least=1)


def check_counts(name: str, settings: Any) -> None:
    """Refuse a model's settings that ask for no layer, or for so many layers or labels that they would take all memory.

    Args:
        name: Where the settings are.
        settings: The content of config.json, or a part of it, before a configuration is made of it.
    """
    for key, value in settings.items() if isinstance(settings, Mapping) else ():
        if isinstance(value, Mapping):
            check_counts(f"{name}, {key}", value)
        if _AT_LEAST_ONE.fullmatch(str(key)) and isinstance(value, int) and value < 1:
            raise ValueError(f"{name}: {key} is {value!r}, and has to be at least 1.")
        counts = value if isinstance(value, list) else [value]
        if _COUNTS.search(str(key)) and any(isinstance(count, int) and count > MOST_MODULES for count in counts):
            raise ValueError(f"{name}: {key} is {value!r:.60}, and at most {MOST_MODULES} can be built.")


def check_flag(name: str, value: Any) -> None:
    """Refuse a value that is neither true nor false."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}, and has to be true or false.")
