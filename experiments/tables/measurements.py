"""What the variants of a recipe left: the measures of every run, read from their folders."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from docparade.experiments.experiment_results import FIRST_STAGE, INTERPOLATED, RERANKED, UNTRAINED
from docparade.experiments.recipes.data_recipe import birch_label
from docparade.experiments.recipes.recipe import Recipe
from docparade.hub_cards.record_files import RECORD_FILE
from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.measures import parse_measures

from .variants import Variant

SET, RUN = "set", "run"
"""The axes that every table has beside those of the variants: the test set, and the run that is measured there."""


@dataclass(frozen=True)
class Measurement:
    """One run on one test set, by one variant."""

    labels: Mapping[str, str]
    """Axis -> label, also of `SET` and `RUN`."""
    means: Mapping[str, float]
    """Measure -> mean over the queries. Other numbers about the variant are there as well, by their names."""
    per_query: Mapping[str, Mapping[str, float]]
    """Measure -> query -> value."""


def read_measurements(variant: Variant) -> list[Measurement]:
    """Everything that was measured of a variant that is done.

    Example:
        ```python
        [one] = list_variants("quickstart")
        [measured.means["nDCG@10"] for measured in read_measurements(one)]
        ```
    """
    path = variant.output.measures
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        others = _read_other_numbers(variant)
        return [
            Measurement(
                {**variant.labels, SET: name, RUN: run},
                {**measured["means"], **(others if run == RERANKED else {})},
                measured["per_query"],
            )
            for name, tested in content.items()
            for run, measured in tested["runs"].items()
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path} is damaged; remove it, and run the variant again to measure it again.") from None


def _read_other_numbers(variant: Variant) -> dict[str, float]:
    """What is said in numbers about a variant's models, such as their parameters; the mean, if folds differ."""
    output = variant.output
    records = [_read_numbers(place / RECORD_FILE) for place in (output.model, *output.path.glob("fold-*/model"))]
    names = dict.fromkeys(name for record in records for name in record)
    found = {name: [record[name] for record in records if name in record] for name in names}
    return {name: values[0] if len(set(values)) == 1 else fmean(values) for name, values in found.items()}


def _read_numbers(path: Path) -> dict[str, float]:
    if not path.is_file():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: value for name, value in content.items() if isinstance(value, int | float) and not isinstance(value, bool)
    }


def test_sets(found: Sequence[Variant]) -> list[str]:
    """The names of the test sets of all variants, in order."""
    named = [[data.label for data in one.recipe.test] or ["test"] for one in found]
    return list(dict.fromkeys(name for names in named for name in names))


def possible_runs(found: Sequence[Variant]) -> list[str]:
    """The runs that the variants have, or will have once they are done.

    Example:
        >>> from docparade.experiments.tables.variants import list_variants
        >>> possible_runs(list_variants("zhang2021-table1"))
        ['first stage', 'reranked', 'interpolated']
    """
    return list(dict.fromkeys(run for one in found for run in _name_runs(one.recipe)))


def _name_runs(recipe: Recipe) -> list[str]:
    untrained = [UNTRAINED] if recipe.rerank.untrained else []
    interpolated = [INTERPOLATED] if _may_validate(recipe) else []
    birch = [birch_label(count) for data in recipe.test for count in data.birch]
    return [FIRST_STAGE, *untrained, RERANKED, *interpolated, *birch]


def _may_validate(recipe: Recipe) -> bool:
    """Whether there may be validation queries, on which the first stage's share is chosen; only a fold file knows."""
    folds = recipe.data.folds
    if folds is None:
        return bool(recipe.stages[-1].validation or recipe.data.validation_share)
    if folds.count is not None:
        return folds.dev and folds.count > 2
    return folds.file is not None or folds.dev_share > 0


def measures(found: Sequence[Variant]) -> list[str]:
    """The measures of all variants, in order."""
    return list(dict.fromkeys(name for one in found for name in parse_measures(one.recipe.measures)))


def other_numbers(measured: Sequence[Measurement], names: Sequence[str]) -> list[str]:
    """What else is said in numbers, beside the measures with these names."""
    return list(dict.fromkeys(name for one in measured for name in one.means if name not in names))
