"""`docparade table`: run all variants of a recipe, and put what was measured into one table or plot."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from docparade.commands.output import JsonOption, check_outputs, counted, logs_on_stderr, note, print_json, print_table
from docparade.commands.running import RecipeArgument, parse_overrides
from docparade.retrieval.errors import InputError
from docparade.retrieval.storage.files import atomic_write, check_output_folder

if TYPE_CHECKING:
    from docparade.experiments.tables.layout import Layout
    from docparade.experiments.tables.table import Table
    from docparade.experiments.tables.variants import Variant

FORMATS = (".md", ".csv")


def table(
    context: typer.Context,
    recipe: RecipeArgument,
    variant: Annotated[
        str, typer.Option(metavar="LABELS", help="Only the variants with these labels. Default: all of every axis.")
    ] = "",
    output: Annotated[Path, typer.Option(help="The folder that has a folder for each variant.")] = Path("outputs"),
    collect_only: Annotated[bool, typer.Option("--collect-only", help="Run nothing; show what is done.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Run nothing; list the variants, and which are done.")
    ] = False,
    rows: Annotated[str | None, typer.Option(metavar="AXES", help="The axes that make the rows.")] = None,
    columns: Annotated[str | None, typer.Option(metavar="AXES", help="The axes that make the columns.")] = None,
    median: Annotated[str | None, typer.Option(metavar="AXES", help="Show the median over these axes.")] = None,
    mean: Annotated[str | None, typer.Option(metavar="AXES", help="Show the mean over these axes.")] = None,
    best: Annotated[str | None, typer.Option(metavar="AXES", help="Show the best over these axes, and which.")] = None,
    runs: Annotated[
        str | None, typer.Option(help="The runs to show: first stage, untrained, reranked, interpolated, birch-3s.")
    ] = None,
    show: Annotated[
        str | None, typer.Option(metavar="MEASURES", help="Show only these measures of the recipe.")
    ] = None,
    baseline: Annotated[str | None, typer.Option(metavar="LABELS", help="The row to test the others against.")] = None,
    save: Annotated[Path | None, typer.Option(help="Also write the table, as .md or .csv.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Also draw the table, as .png, .svg or .pdf (needs the plots extra).")
    ] = None,
    x: Annotated[
        str | None, typer.Option("--x", metavar="AXES", help="In the plot: the columns' axes from left to right.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    r"""Run all variants of a recipe, and show their measures in one table.

    The variants of a recipe are all combinations of the labels of its axes. Those that are not done are run in order:
    cross-validated if the recipe has folds, as docparade crossval does, and else trained, as docparade train does, into
    the same folders: outputs/NAME-LABELS. An interrupted command continues where it stopped when it is started again.

    The recipe says what the rows and columns are; options change that, and --KEY VALUE changes a key of the recipe in
    all variants. Lists are separated by commas. Test sets are the axis set, and the runs are the axis run.

    --plot draws a line for each row. The last axis of the columns goes from left to right; each label of the others
    has a panel.

    Examples:

        docparade table li2023-table10
        docparade table zhang2021-table3 --variant robust04 --plot figure1.png
        docparade table ghasemi2021-grid --dry-run
        docparade table ghasemi2021-grid --collect-only \
            --columns candidates --best learning-rate,batch,epochs,length

    On several GPUs or processes:

        accelerate launch -m docparade table li2023-table10
    """
    if collect_only and dry_run:
        raise InputError("--collect-only shows measures and --dry-run lists variants; use one of them.")
    _check_files(save, plot)
    check_output_folder(output, "--output")
    given = {"rows": rows, "columns": columns, "median": median, "mean": mean, "best": best, "x": x}
    given |= {"runs": runs, "show": show, "baseline": baseline}

    from docparade.experiments.recipes.recipe_files import find_recipe, name_recipe

    # A wrong name or a stray word shows before the next imports, which take seconds.
    name, overrides = name_recipe(find_recipe(recipe)), parse_overrides(context.args)

    from docparade.experiments.tables.table import build_table
    from docparade.experiments.tables.variants import list_variants, run_variants
    from docparade.reranking.processes.process_group import is_main_process

    found = list_variants(recipe, variant, overrides, output)
    layout, place = _read_layout(recipe, given, found), f"{recipe}, table"
    if dry_run:
        _print_states(name, found, as_json)
        return
    shown = build_table(name, found, layout, place)  # before long work: what is wrong with the layout shows here
    if plot is not None:
        from docparade.experiments.tables.figure import make_panels

        make_panels(shown)  # also before
    if not collect_only:
        with logs_on_stderr():
            run_variants(found, lambda sentence: note(sentence) if is_main_process() else None)
        shown = build_table(name, found, layout, place)
    if is_main_process():
        _show(shown, save, plot, as_json)


def _check_files(save: Path | None, plot: Path | None) -> None:
    """Refuse files that could not be written in the end."""
    check_outputs({"--save": save, "--plot": plot})
    if save is not None and save.suffix not in FORMATS:
        raise InputError(f"--save {save}: the name of a table must end in {' or '.join(FORMATS)}.")
    if plot is not None:
        from docparade.retrieval.evaluation.plots import check_picture

        check_picture(plot)


def _read_layout(recipe: str, given: dict[str, str | None], found: "list[Variant]") -> "Layout":
    """The layout that the recipe says, with the options laid over it."""
    from docparade.experiments.recipes.merging import table_section
    from docparade.experiments.tables.layout import Layout, lay_over
    from docparade.experiments.tables.measurements import possible_runs

    place, section = f"{recipe}, table", table_section(recipe)
    own = Layout.of(section, place)
    labels = {label for one in found for label in one.labels.values()} | set(possible_runs(found))
    if given["baseline"] is None and (left_out := [label for label in own.baseline if label not in labels]):
        note(f"without {', '.join(left_out)}, which --variant leaves out, nothing is tested for significance.")
        section = {key: value for key, value in section.items() if key != "baseline"}
    return Layout.of(lay_over(section, given), place)


def _print_states(name: str, found: "list[Variant]", as_json: bool) -> None:
    states = {one.recipe.name: one.find_state() for one in found}
    if as_json:
        folders = {one.recipe.name: str(one.output.path) for one in found}
        print_json([{"variant": one, "state": state, "folder": folders[one]} for one, state in states.items()])
        return
    done = sum(state == "done" for state in states.values())
    print_table(f"{name}: {counted(len(found), 'variant')}, {done} done", ["variant", "state"], states.items())


def _show(shown: "Table", save: Path | None, plot: Path | None, as_json: bool) -> None:
    if shown.missing:
        listed = ", ".join(shown.missing[:3]) + (", …" if len(shown.missing) > 3 else "")
        note(f"{len(shown.missing)} of {counted(shown.variants, 'variant')} missing: {listed}.")
    if save is not None:
        with atomic_write(save) as file:
            file.write(shown.to_csv() if save.suffix == ".csv" else shown.to_markdown())
        note(f"the table is in {save}.")
    if plot is not None:
        from docparade.experiments.tables.figure import draw_table

        draw_table(plot, shown)
        note(f"the plot is in {plot}.")
    if as_json:
        print_json(shown.to_dict())
    else:
        print_table(shown.title, shown.header, shown.lines(), shown.caption)
