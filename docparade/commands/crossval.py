"""`docparade crossval`: run a recipe on all of its folds."""

from typing import Annotated

import typer

from docparade.commands.output import JsonOption
from docparade.commands.recipes import OutputOption, RecipeArgument, VariantOption, folder_of, load, report
from docparade.retrieval.errors import InputError


def crossval(
    context: typer.Context,
    recipe: RecipeArgument,
    variant: VariantOption = "",
    output: OutputOption = None,
    fold: Annotated[str | None, typer.Option(help="Run this fold alone, by its number or name.")] = None,
    merge: Annotated[bool, typer.Option("--merge", help="Run no fold; put together those that are done.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train, choose and test on each fold, and measure the test queries of all folds as one run.

    A fold's model is trained on its training queries and chosen on its dev queries; so is the weight of the first stage
    in the interpolated run. Folds that are done are not repeated; a fold that was stopped goes on.

    Folds come from the recipe: data.folds.count seeded ones, or a file of Capreolus' form (data.folds.file).

    Examples: docparade crossval configs/recipes/ghasemi2021.yaml --variant full-ranker

    docparade crossval configs/recipes/zhang2021-table1.yaml --variant robust04-title,maxp --data.folds.file folds.json

    One fold a machine: docparade crossval configs/recipes/li2023.yaml --fold 2

    Then, with the folders outputs/li2023/fold-s1 to fold-s5 on one machine: docparade crossval
    configs/recipes/li2023.yaml --merge
    """
    from docparade.trainer.crossval import cross_validate

    if fold is not None and merge:
        raise InputError("--fold runs one fold and --merge runs none; use one of them.")
    loaded = load(recipe, variant, context.args)
    folder = folder_of(loaded, output)
    report([cross_validate(loaded, folder, fold, merge)], folder, as_json)
