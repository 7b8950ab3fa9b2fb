"""The files that a checkpoint carries beside its weights: their names, and how those of JSON are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docparade.retrieval.errors import InputError

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


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file; one that is not there is empty, because most files of a checkpoint are optional.

    Whoever needs the file looks for it first, and says what it is needed for.
    """
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}); restore it from a copy, or write it again.") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} is not a JSON object; restore it from a copy, or write it again.")
    return content
