"""`docparade models`: list the models that are published, and build their folders."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from docparade.commands.output import JsonOption, note, print_json, print_table
from docparade.retrieval.errors import InputError

if TYPE_CHECKING:
    from docparade.hub_cards import PublishedModel


def models(
    names: Annotated[list[str] | None, typer.Argument(help="Only these models, by the names of their files.")] = None,
    build: Annotated[
        bool, typer.Option("--build", help="Build the folders that are published, with their cards.")
    ] = False,
    output: Annotated[Path, typer.Option(help="With --build: where the folders go.")] = Path("published"),
    files: Annotated[
        Path | None, typer.Option(help="A folder with the YAML files of your own models. Default: docparade's.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the models that are published, with their figures; or build their folders.

    Each model has a small YAML file with its name on the Hub, the recipe or folder it is built from, its license,
    languages, and what else its card says. --build copies the weights to published/NAME, adds the present code, writes
    the card, and puts the figures beside the YAML file. Notes in a card are kept.

    Examples:

        docparade models
        docparade models --build
        docparade models --files my-models --build my-model
    """
    from docparade.hub_cards.publishing.model_list import MODELS, build_model_folder, find_source, list_models

    found = _choose(list_models(files or MODELS), names or [])
    if build:
        # Everything is found before the first is built.
        for model in found:
            find_source(model)
        for model in found:
            note(f"wrote {build_model_folder(model, output / model.name)}.")
    if as_json:
        print_json([_as_json(model) for model in found])
    elif found:
        _print(found)
    else:
        note("no models are published yet.")


def _choose(found: "list[PublishedModel]", names: list[str]) -> "list[PublishedModel]":
    by_name = {model.name: model for model in found}
    for name in names:
        if name not in by_name:
            raise InputError(f"there is no model '{name}'; there are: {', '.join(by_name) or 'none'}.")
    return [by_name[name] for name in names] if names else found


def _as_json(model: "PublishedModel") -> dict[str, Any]:
    built = {"name": model.name, "recipe": model.recipe, "folder": str(model.folder)}
    return built | model.fields.to_dict() | model.figures()


def _print(found: "list[PublishedModel]") -> None:
    rows: list[list[str]] = []
    for model in found:
        figures = model.figures()
        about = [model.repo_id, figures.get("method", "–"), str(model.fields.license)]
        tests = [
            [test["name"], measure, _shown(one["baseline"]), _shown(one["value"]) + _mark(one["p"])]
            for test in figures.get("tests", [])
            for measure, one in test["measures"].items()
        ]
        for number, cells in enumerate(tests or [["not measured", "–", "–", "–"]]):
            rows.append([*(about if number == 0 else ["", "", ""]), *cells])
    columns = ["model", "method", "license", "test set", "measure", "first stage", "model's own"]
    print_table("", columns, rows, "† p < .05, ‡ p < .01 against the first stage (paired t-test, Bonferroni)")


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _mark(p_value: float | None) -> str:
    from docparade.retrieval.evaluation.significance import MARKERS

    return next((mark for level, mark in MARKERS if p_value is not None and p_value < level), "")
