"""What the commands that run recipes share: arguments, overrides, and the table at the end."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from docparade.commands.output import counted, note, print_json, print_table
from docparade.retrieval.errors import InputError

if TYPE_CHECKING:
    from docparade.trainer.recipes import Recipe
    from docparade.trainer.testing import Results

RecipeArgument = Annotated[
    Path, typer.Argument(help="The recipe, a YAML file such as configs/recipes/ghasemi2021.yaml.")
]
VariantOption = Annotated[
    str, typer.Option(help="Labels of the recipe's variants, parted by commas; by default the first of each axis.")
]
OutputOption = Annotated[
    Path | None, typer.Option(help="The folder for everything that is made; by default outputs/ and the recipe's name.")
]
# Anything that is no option of the command is a key of the recipe: --training.learning_rate 3e-6.
OVERRIDES: dict[str, Any] = {"allow_extra_args": True, "ignore_unknown_options": True}


def load(recipe: Path, variant: str, words: list[str], more: list[tuple[str, str]] | None = None) -> "Recipe":
    """Read a recipe, with the command line's overrides laid over it."""
    from docparade.trainer.recipe_files import variants
    from docparade.trainer.recipes import load_recipe

    loaded = load_recipe(recipe, variant, [*overrides(words), *(more or [])])
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
            raise InputError(f"'{word}' stands alone; what is changed in the recipe is written as --key value.")
        if not equals:
            value = next(rest, "--")
            if value.startswith("--"):
                raise InputError(f"--{key} has no value; write --{key} VALUE.")
        found.append((key, value))
    return found


def folder_of(recipe: "Recipe", output: Path | None) -> Path:
    """Where a recipe's run goes."""
    return output or Path("outputs") / recipe.name


def report(results: "list[Results]", folder: Path, as_json: bool) -> None:
    """Print what was measured, by the first process alone."""
    from accelerate import PartialState

    if not PartialState().is_main_process:
        return
    if as_json:
        print_json({one.name: one.to_dict() for one in results})
        return
    for one in results:
        names = list(next(iter(one.evaluations.values())).means)
        marks = {label: {name: test.marker for name, test in found.items()} for label, found in one.tests.items()}
        rows = [
            [label, *(f"{evaluation.means[name]:.4f}{marks.get(label, {}).get(name, ''):1}" for name in names)]
            for label, evaluation in one.evaluations.items()
        ]
        count = sum(map(len, one.tests.values()))
        correction = f"paired t-test, Bonferroni over {counted(count, 'test')}"
        caption = f"against the first stage: † p < .05, ‡ p < .01 ({correction})"
        print_table(f"{one.name}: {counted(one.queries, 'judged query')}", ["run", *names], rows, caption)
    note(f"everything is in {folder}.")
