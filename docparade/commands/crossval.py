"""`docparade crossval`: run a recipe on all of its folds."""

from typing import Annotated

import typer

from docparade.commands.output import JsonOption, logs_on_stderr
from docparade.commands.running import (
    OutputOption,
    RecipeArgument,
    VariantOption,
    choose_folder,
    load_with_overrides,
    report_results,
)
from docparade.retrieval.errors import InputError


def crossval(
    context: typer.Context,
    recipe: RecipeArgument,
    variant: VariantOption = "",
    output: OutputOption = None,
    fold: Annotated[str | None, typer.Option(help="Run only this fold: its number or name.")] = None,
    merge: Annotated[bool, typer.Option("--merge", help="Run nothing; combine the results of finished folds.")] = False,
    as_json: JsonOption = False,
) -> None:
    r"""Cross-validate a recipe: train and test on each fold, and measure all test queries together.

    A fold's model is trained on its training queries and chosen on its validation queries; without
    validation queries (data.folds.dev false), the last model is taken. Finished folds are not repeated, and an
    interrupted one continues where it stopped.

    The recipe says what the folds are: a number of them (data.folds.count), or a JSON file with the query ids of each
    (data.folds.file). As in docparade train, --KEY VALUE changes a key of the recipe.

    Examples:

        docparade crossval ghasemi2021
        docparade crossval ghasemi2021 --variant full-ranker
        docparade crossval li2023 --data.folds.file folds.json

    One fold on each machine; then copy the fold folders to one of them and merge:

        docparade crossval li2023 --fold 2
        docparade crossval li2023 --merge

    For all variants of a recipe: docparade table.
    """
    if fold is not None and merge:
        raise InputError("--fold runs one fold and --merge runs none; use one of them.")
    loaded = load_with_overrides(recipe, variant, context.args)
    folder = choose_folder(loaded, output)

    from docparade.experiments.cross_validation import cross_validate

    with logs_on_stderr():
        results = cross_validate(loaded, folder, fold, merge)
    report_results([results], folder, as_json)
