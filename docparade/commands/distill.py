"""`docparade distill`: train a small ranker from a large one."""

from typing import Annotated

import typer

from docparade.commands.inputs import numbers
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


def distill(
    context: typer.Context,
    recipe: RecipeArgument,
    teacher: Annotated[str, typer.Option(help="The ranker to learn from: a folder, or an id on the Hugging Face Hub.")],
    layers: Annotated[
        str,
        typer.Option(
            metavar="N,N,…",
            help="Layers that the student keeps, counted from 0: of --encoder if that is given, else of the teacher.",
        ),
    ] = "",
    encoder: Annotated[str, typer.Option(help="The student's encoder: a folder, or an id on the Hub.")] = "",
    loss: Annotated[
        str,
        typer.Option(help="One that learns from a teacher, such as distillation (cross-entropy plus squared error)."),
    ] = "distillation",
    variant: VariantOption = "",
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    r"""Train a small, fast ranker (the student) to score like a large one (the teacher).

    The student is made of some of the teacher's layers (--layers), or of another encoder (--encoder). It is trained on
    the recipe's data, from the judgments and the teacher's scores. The teacher scores each training document once.

    Everything else works as in docparade train, including --KEY VALUE. The default folder is outputs/NAME-distilled.

    Examples:

        docparade distill quickstart --teacher outputs/quickstart/model \
            --layers 0,2,4
        docparade distill quickstart --teacher my-ranker --encoder my-encoder \
            --training.distillation_alpha 0.5
    """
    if not layers and not encoder:
        raise InputError("name the student: --layers 0,2,4 of the teacher, or another --encoder.")
    student = [("model.encoder", encoder) if encoder else ("model.checkpoint", teacher)]
    if layers:
        student.append(("model.layers", str(numbers(layers, "--layers", int))))
    distillation = [*student, ("teacher", teacher), ("training.loss", loss)]
    loaded = load_with_overrides(recipe, variant, context.args, distillation)
    folder = choose_folder(loaded, output, "-distilled")

    from docparade.experiments.model_building import locate
    from docparade.experiments.runner import run_recipe
    from docparade.reranking.loading import check_source

    for option, source in (("--teacher", teacher), ("--encoder", encoder)):
        # A path that depends on the fold is checked when the fold is run.
        if source and "{fold}" not in source:
            check_source(locate(source, option), option)
    with logs_on_stderr():
        results = run_recipe(loaded, folder)
    report_results(results, folder, as_json)
