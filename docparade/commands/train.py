"""`docparade train`: run a recipe."""

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


def train(
    context: typer.Context,
    recipe: RecipeArgument,
    variant: VariantOption = "",
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    r"""Run a recipe: retrieve, train a ranker, rerank the test queries with it, measure.

    The folder outputs/NAME then holds the ranker (model/), its runs (runs/), their measures (measures.md,
    measures.json) and the complete recipe (resolved.yaml). An interrupted command continues where it stopped when it
    is started again.

    Any key of the recipe can be changed with --KEY VALUE; write nested keys with dots.

    Examples:

        docparade train quickstart
        docparade train quickstart --training.num_train_epochs 4 --output longer
        docparade train cranfield-minilm --data.fold 2 --lora true --seed 7
        docparade train cip2021 --variant run1
        docparade train my-recipe.yaml

    On several GPUs or processes:

        accelerate launch -m docparade train quickstart

    For all variants of a recipe: docparade table.
    """
    loaded = load_with_overrides(recipe, variant, context.args)
    folder = choose_folder(loaded, output)

    from docparade.experiments.runner import run_recipe

    with logs_on_stderr():
        results = run_recipe(loaded, folder)
    report_results(results, folder, as_json)
