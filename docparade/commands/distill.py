"""`docparade distill`: train a small ranker from a large one."""

from typing import Annotated

import typer

from docparade.commands.inputs import numbers
from docparade.commands.output import JsonOption
from docparade.commands.recipes import OutputOption, RecipeArgument, VariantOption, folder_of, load, report
from docparade.retrieval.errors import InputError


def distill(
    context: typer.Context,
    recipe: RecipeArgument,
    teacher: Annotated[str, typer.Option(help="The ranker to learn from: its folder, or its id on the Hub.")],
    layers: Annotated[
        str,
        typer.Option(
            help="The student keeps these layers, counted from 0, such as 0,2,4: of --encoder, or else of the teacher."
        ),
    ] = "",
    encoder: Annotated[str, typer.Option(help="The student's encoder: a Hub id or a folder.")] = "",
    loss: Annotated[
        str, typer.Option(help="distillation (cross-entropy and squared error) or margin_mse.")
    ] = "distillation",
    variant: VariantOption = "",
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a student on a recipe's data, with a teacher's scores beside the judgments.

    The student is made of some of the teacher's layers (--layers 0,2,4), of another encoder (--encoder), or of some
    layers of that. The teacher scores each training document once; its scores are kept. All else is as in docparade
    train, overrides included: --training.distillation_alpha 0.5.

    Examples: docparade distill configs/recipes/cranfield-minilm.yaml --teacher outputs/cranfield-minilm/model --layers
    0,2,4

    docparade distill configs/recipes/quickstart.yaml --teacher outputs/quickstart/model --encoder my-small-encoder/
    """
    from docparade.trainer.run import run_recipe

    if not layers and not encoder:
        raise InputError("name the student: --layers 0,2,4 of the teacher, or another --encoder.")
    student = [("model.encoder", encoder) if encoder else ("model.checkpoint", teacher)]
    if layers:
        student.append(("model.layers", str(numbers(layers, "--layers", int))))
    loaded = load(recipe, variant, context.args, [*student, ("teacher", teacher), ("training.loss", loss)])
    folder = output or folder_of(loaded, None).with_name(f"{loaded.name}-distilled")
    report(run_recipe(loaded, folder), folder, as_json)
