"""The files that a checkpoint carries beside its weights: their names, and how JSON files among them are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docparade.retrieval.errors import InputError

CONFIG, ADAPTER = "config.json", "adapter_config.json"
CARD_FILE = "README.md"
RECORD_FILE = "measured.json"
"""Versions, arguments, validation results; of a recipe's model, also its data and test results."""
LOG_FILE = "training_log.json"
"""Hardware, time and losses: what differs when the same training is run again."""
RECIPE_FILE = "recipe.yaml"
"""The complete recipe, if others can run it."""
SPEED_FILE = "speed.json"
"""What `docparade benchmark --json` printed."""
EVALUATIONS_FOLDER = "evaluations"
"""What `docparade evaluate --json` printed, a file for each collection."""
CURVE_FILE = "learning_curve.png"

_ADVICE = "restore it from a copy, or write it again"


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file; one that is not there is empty, because most files of a checkpoint are optional.

    Whoever needs the file looks for it first, and says what it is needed for.
    """
    if not path.is_file():
        return {}
    content = _load(path)
    if not isinstance(content, dict):
        raise InputError(f"{path} is not a JSON object; {_ADVICE}.")
    return content


def read_module_types(path: Path) -> list[str]:
    """Read the classes of a sentence-transformers model from its `modules.json`."""
    modules = _load(path)
    if not isinstance(modules, list) or not all(isinstance(each, dict) and "type" in each for each in modules):
        raise InputError(f"{path} is not a list of modules with a type each; {_ADVICE}.")
    return [str(each["type"]) for each in modules]


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}); {_ADVICE}.") from None
