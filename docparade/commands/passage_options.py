"""Options of commands that cut documents into passages: they replace what the model says."""

from typing import Annotated, Any

import typer

from docparade.commands.inputs import at_least_one
from docparade.retrieval.errors import InputError, check_choice

UNITS = ("token", "word", "sentence")

PresetOption = Annotated[
    str | None,
    typer.Option(help="Cut documents into passages as a paper does: li2023, zhang2021, yang2019 (sentences), …"),
]
UnitOption = Annotated[
    str | None, typer.Option(metavar="UNIT", help="What --window and --stride count: token, word or sentence.")
]
WindowOption = Annotated[int | None, typer.Option(help="How many units a passage has.")]
StrideOption = Annotated[int | None, typer.Option(help="After how many units the next passage begins.")]
MaxPassagesOption = Annotated[
    str | None,
    typer.Option(
        metavar="N|all", help="Read at most N passages of a document, or all of them. Default: the model's own limit."
    ),
]
MaxQueryTokensOption = Annotated[
    str | None,
    typer.Option(
        metavar="N|all",
        help="Read at most N tokens of a query, or all of them. Default: the model's own limit (often 62).",
    ),
]


def parse_passage_options(
    preset: str | None,
    unit: str | None,
    window: int | None,
    stride: int | None,
    max_passages: str | None,
    max_query_tokens: str | None = None,
) -> dict[str, Any]:
    """Settings of `DocumentProcessor` that the options name; single ones win over the preset's.

    A preset means what `rerank: {processor: {preset: …}}` means in a recipe: what the paper does not name is the
    default, and not the model's.

    >>> parse_passage_options(None, "word", 150, 75, "all")
    {'unit': 'word', 'window': 150, 'stride': 75, 'max_passages': None}
    """
    at_least_one("--window", window)
    at_least_one("--stride", stride)
    if window is not None and stride is not None and stride > window:
        raise InputError(f"--stride {stride} is more than --window {window}: text between passages would not be read.")
    if unit is not None:
        check_choice(unit, UNITS, "--unit")
    given = {"unit": unit, "window": window, "stride": stride}
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    settings |= _parse_limit("max_passages", max_passages) | _parse_limit("max_query_tokens", max_query_tokens)
    return settings if preset is None else _with_preset(preset, settings)


def _with_preset(preset: str, settings: dict[str, Any]) -> dict[str, Any]:
    from docparade.modeling import PRESETS

    check_choice(preset, tuple(PRESETS), "--preset")  # a wrong name shows before the next import, which takes seconds

    from docparade.experiments.recipes.rerank_recipe import RerankRecipe

    return RerankRecipe(processor={"preset": preset, **settings}).processor_options


def _parse_limit(name: str, limit: str | None) -> dict[str, int | None]:
    """Without the option, the limit of the model or the preset is kept."""
    if limit is None:
        return {}
    if limit == "all":
        return {name: None}
    if not limit.isdecimal() or int(limit) < 1:
        raise InputError(f"--{name.replace('_', '-')} must be a whole number from 1, or all, and is {limit}.")
    return {name: int(limit)}
