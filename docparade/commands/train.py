"""`docparade train`: run a recipe."""

import typer

from docparade.commands.output import JsonOption
from docparade.commands.recipes import OutputOption, RecipeArgument, VariantOption, folder_of, load, report


def train(
    context: typer.Context,
    recipe: RecipeArgument,
    variant: VariantOption = "",
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a recipe: retrieve, train, choose the best model, rerank the test queries, measure.

    The folder then holds the complete recipe (resolved.yaml), the first stage's run, the model, the reranked runs, and
    what they measure, with the run that is interpolated with the first stage beside the reranked one. The same command
    goes on where a run was stopped, and repeats nothing that is done.

    Every key of the recipe can be changed on the command line: --KEY VALUE, with dots for keys within keys.

    Examples: docparade train configs/recipes/quickstart.yaml

    docparade train configs/recipes/cranfield-minilm.yaml --training.learning_rate 3e-6 --seed 7 --output outputs/slow

    docparade train configs/recipes/cranfield-minilm.yaml --data.fold 2 --lora true --output outputs/lora

    docparade train configs/recipes/cip2021.yaml --variant run1 --stages.document-v2.training.num_train_epochs 1

    On several processes or machines: accelerate launch scripts/train.py, with the same arguments.
    """
    from docparade.trainer.run import run_recipe

    loaded = load(recipe, variant, context.args)
    folder = folder_of(loaded, output)
    report(run_recipe(loaded, folder), folder, as_json)
