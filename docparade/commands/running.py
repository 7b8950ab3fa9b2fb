"""Shared by the commands that run recipes: arguments, overrides of keys, and the results at the end."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from docparade.commands.output import counted, note, print_json, print_table
from docparade.retrieval.errors import InputError
from docparade.retrieval.storage.files import check_output_folder

if TYPE_CHECKING:
    from docparade.experiments.experiment_results import Results
    from docparade.experiments.recipes.recipe import Recipe

RecipeArgument = Annotated[
    str, typer.Argument(metavar="RECIPE", help="A name that docparade recipes lists, or a YAML file of your own.")
]
VariantOption = Annotated[
    str,
    typer.Option(
        metavar="LABELS",
        help="Which variant of the recipe to run: labels separated by commas. Default: the first of each axis.",
    ),
]
OutputOption = Annotated[
    Path | None, typer.Option(help="The folder for all results. Default: outputs/ and the recipe's name.")
]
# Options that the command does not know are keys of the recipe: --training.learning_rate 3e-6.
OVERRIDES = {"allow_extra_args": True, "ignore_unknown_options": True}


def load_with_overrides(
    recipe: str, variant: str, words: list[str], more: list[tuple[str, str]] | None = None
) -> "Recipe":
    """Load a recipe and apply overrides.

    Args:
        recipe: The recipe's name or file.
        variant: The labels of a variant, or nothing.
        words: The rest of the command line: overrides as `--KEY VALUE`.
        more: Further overrides: keys and values.
    """
    from docparade.experiments.recipes.merging import variants
    from docparade.experiments.recipes.recipe_files import find_recipe

    # Find a wrong name or a stray word before the next import, which takes seconds.
    find_recipe(recipe)
    changes = [*parse_overrides(words), *(more or [])]

    from docparade.experiments.recipes.recipe_loading import load_recipe

    loaded = load_recipe(recipe, variant, changes)
    if not variant and (axes := variants(recipe)):
        choices = "; ".join(f"{axis}: {', '.join(labels)}" for axis, labels in axes.items())
        note(f"running {loaded.name}; choose with --variant among {choices}.")
    return loaded


def parse_overrides(words: list[str]) -> list[tuple[str, str]]:
    """Parse `--key value` and `--key=value` into keys and values.

    >>> parse_overrides(["--seed", "7", "--training.learning_rate=3e-6"])
    [('seed', '7'), ('training.learning_rate', '3e-6')]
    """
    found = []
    rest = iter(words)
    for word in rest:
        key, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not key:
            raise InputError(f"'{word}' is not an option; to change a key of the recipe, write --KEY VALUE.")
        if not equals:
            value = next(rest, "--")
            if value.startswith("--"):
                raise InputError(f"--{key} has no value; write --{key} VALUE.")
        found.append((key, value))
    return found


def choose_folder(recipe: "Recipe", output: Path | None, suffix: str = "") -> Path:
    """Choose the output folder: `--output`, or one named after the recipe. Refuse one that cannot be written."""
    folder = output or Path("outputs") / f"{recipe.name}{suffix}"
    check_output_folder(folder, "--output")
    return folder


def report_results(results: "list[Results]", folder: Path, as_json: bool) -> None:
    """Print the results, in the main process only."""
    from accelerate import PartialState

    from docparade.experiments.output_folder import OutputFolder

    if not PartialState().is_main_process:
        return
    if as_json:
        print_json({one.name: one.to_dict() for one in results})
        return
    for one in results:
        title = f"{one.name}: {counted(one.queries, 'judged query')}"
        print_table(title, ["run", *one.measures], one.rows(), one.caption)
    model = OutputFolder(folder).model
    note(f"all results are in {folder}" + (f", the ranker in {model}." if model.is_dir() else "."))
