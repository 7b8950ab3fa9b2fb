"""What the commands that run recipes share: arguments, overrides, and the table at the end."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from docparade.commands.output import counted, note, print_json, print_table
from docparade.retrieval.errors import InputError
from docparade.retrieval.storage.files import check_output_folder

if TYPE_CHECKING:
    from docparade.experiments.recipe import Recipe
    from docparade.experiments.results import Results

RecipeArgument = Annotated[
    str, typer.Argument(metavar="RECIPE", help="A name that docparade recipes lists, or a YAML file of your own.")
]
VariantOption = Annotated[
    str,
    typer.Option(
        metavar="LABELS",
        help="Which variant of the recipe to run: labels with commas between them. Default: the first of each axis.",
    ),
]
OutputOption = Annotated[
    Path | None, typer.Option(help="The folder for everything that is made. Default: outputs/ and the recipe's name.")
]
# Anything that is no option of the command is a key of the recipe: --training.learning_rate 3e-6.
OVERRIDES: dict[str, Any] = {"allow_extra_args": True, "ignore_unknown_options": True}


def load(recipe: str, variant: str, words: list[str], more: list[tuple[str, str]] | None = None) -> "Recipe":
    """Read a recipe, with the command line's overrides laid over it."""
    from docparade.experiments.composition import find_recipe, variants

    # A wrong name or a stray word is told at once: the next import takes seconds.
    find_recipe(recipe)
    changes = [*overrides(words), *(more or [])]

    from docparade.experiments.recipe import load_recipe

    loaded = load_recipe(recipe, variant, changes)
    if not variant and (axes := variants(recipe)):
        choices = "; ".join(f"{axis}: {', '.join(labels)}" for axis, labels in axes.items())
        note(f"running {loaded.name}; choose with --variant among {choices}.")
    return loaded


def overrides(words: list[str]) -> list[tuple[str, str]]:
    """Keys and values of `--key value` and `--key=value`.

    >>> overrides(["--seed", "7", "--training.learning_rate=3e-6"])
    [('seed', '7'), ('training.learning_rate', '3e-6')]
    """
    found = []
    rest = iter(words)
    for word in rest:
        key, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not key:
            raise InputError(f"'{word}' stands alone; to change a key of the recipe, write --KEY VALUE.")
        if not equals:
            value = next(rest, "--")
            if value.startswith("--"):
                raise InputError(f"--{key} has no value; write --{key} VALUE.")
        found.append((key, value))
    return found


def folder_of(recipe: "Recipe", output: Path | None, suffix: str = "") -> Path:
    """Where a recipe's run goes, which can be written to."""
    folder = output or Path("outputs") / f"{recipe.name}{suffix}"
    check_output_folder(folder, "--output")
    return folder


def report(results: "list[Results]", folder: Path, as_json: bool) -> None:
    """Print what was measured, by the first process alone."""
    from accelerate import PartialState

    from docparade.experiments.layout import OutputFolder

    if not PartialState().is_main_process:
        return
    if as_json:
        print_json({one.name: one.to_dict() for one in results})
        return
    for one in results:
        title = f"{one.name}: {counted(one.queries, 'judged query')}"
        print_table(title, ["run", *one.measures], one.rows(), one.caption)
    model = OutputFolder(folder).model
    note(f"everything is in {folder}" + (f", the ranker in {model}." if model.is_dir() else "."))
