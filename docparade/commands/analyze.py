"""`docparade analyze`: what runs find, where, and how they differ; statistics of collections and judgments."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from docparade.commands.analyze_collection import analyze_collection
from docparade.commands.analyze_full_ranking import full_ranking, print_unique, unique_as_json
from docparade.commands.analyze_passages import relevant_passages
from docparade.commands.inputs import (
    BinaryOption,
    CollectionOption,
    GainsOption,
    QrelsOption,
    name_runs,
    numbers,
    parse_gains,
    read_judgments,
)
from docparade.commands.output import JsonOption, PlotOption, check_outputs, note, print_json, print_table
from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import Qrels, Run, compare, read_run

FirstArgument = Annotated[Path, typer.Argument(help="A TREC run file.")]
SecondArgument = Annotated[Path, typer.Argument(help="The run to compare it with.")]

app = typer.Typer(
    no_args_is_help=True,
    help="Analyze runs (what they find, where, on which queries they differ), collections and judgments.",
)
app.command("collection")(analyze_collection)
app.command("relevant-passages")(relevant_passages)
app.command("full-ranking")(full_ranking)


@app.command("unique-relevant")
def unique_relevant(
    first: FirstArgument,
    second: SecondArgument,
    collection: CollectionOption = None,
    qrels: QrelsOption = None,
    depths: Annotated[
        str, typer.Option(help="How many of the best documents of each query to compare; several numbers.")
    ] = "10 20 100",
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    r"""Relevant documents that one run retrieves and the other does not.

    Shows for both runs at each depth: the shares of unique relevant documents and of new documents (relevant or not)
    among all retrieved ones, and the grades of the unique relevant documents.

    Example:

        docparade analyze unique-relevant full.txt bm25.txt \
            --collection cranfield --plot unique.png
    """
    from docparade.retrieval.evaluation import analyses

    check_outputs({"--plot": plot})
    judgments = read_judgments(collection, qrels)
    labels, steps = name_runs([first, second]), numbers(depths, "--depths", int)
    runs = {path: _read_judged(path, judgments) for path in (first, second)}
    found = {
        labels[path]: [analyses.unique_relevant(judgments, runs[path], runs[other], depth) for depth in steps]
        for path, other in ((first, second), (second, first))
    }
    if plot:
        from docparade.retrieval.evaluation.plots import plot_unique_relevant

        names = labels[first], labels[second]
        plot_unique_relevant(plot, found[names[0]], found[names[1]], names)
        note(f"the plot is in {plot}.")
    if as_json:
        print_json({label: [unique_as_json(entry) for entry in entries] for label, entries in found.items()})
        return
    print_unique(f"{first} and {second}", found)


@app.command("rank-bins")
def rank_bins(
    run: Annotated[Path, typer.Argument(help="The run to analyze, such as a reranked one.")],
    first: Annotated[Path, typer.Option(help="A first-stage run.")],
    second: Annotated[Path, typer.Option(help="Another first-stage run.")],
    collection: CollectionOption = None,
    qrels: QrelsOption = None,
    depth: Annotated[int, typer.Option(min=1, max=1000, help="How many documents of each query to compare.")] = 1000,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    r"""Where a run ranks relevant documents, split by which of two first stages retrieves them.

    Bins have 10 ranks up to rank 100, and 100 ranks up to rank 1000; values are documents per judged query.

    Example:

        docparade analyze rank-bins parade.txt --collection cranfield \
            --first bm25.txt --second rm3.txt
    """
    from docparade.retrieval.evaluation.analyses import relevant_by_rank

    check_outputs({"--plot": plot})
    judgments = read_judgments(collection, qrels)
    looked_at, of_first, of_second = (_read_judged(path, judgments) for path in (run, first, second))
    bins = relevant_by_rank(judgments, looked_at, of_first, of_second, depth)
    labels = name_runs([first, second])
    if plot:
        from docparade.retrieval.evaluation.plots import plot_relevant_by_rank

        plot_relevant_by_rank(plot, bins, run.name, (labels[first], labels[second]))
        note(f"the plot is in {plot}.")
    if as_json:
        print_json([asdict(found) for found in bins])
        return
    columns = ["ranks", "both", f"only {labels[first]}", f"only {labels[second]}", "neither"]
    rows = [
        [f"{found.first}–{found.last}", *(f"{value:.3f}" for value in list(asdict(found).values())[2:])]
        for found in bins
    ]
    print_table(f"{run}: relevant documents per query", columns, rows)


@app.command("differences")
def differences(
    first: FirstArgument,
    second: SecondArgument,
    collection: CollectionOption = None,
    qrels: QrelsOption = None,
    measure: Annotated[str, typer.Option(help="The measure to compare.")] = "nDCG@20",
    binary: BinaryOption = False,
    gains: GainsOption = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    r"""The gain of the second run over the first, query by query.

    Every query is listed with its values in both runs, the greatest gain first.

    Example:

        docparade analyze differences bm25.txt parade.txt \
            --collection cranfield --binary --plot differences.png
    """
    from docparade.retrieval.evaluation import analyses

    check_outputs({"--plot": plot})
    grades = read_judgments(collection, qrels)
    counting = parse_gains(gains, binary, collection)
    judgments = counting.judge(grades)
    before, after = (counting.rank(_read_judged(path, judgments), grades) for path in (first, second))
    found = analyses.differences(judgments, before, after, measure)
    labels = name_runs([first, second])
    if plot:
        from docparade.retrieval.evaluation.plots import plot_differences

        plot_differences(plot, found, measure, (labels[first], labels[second]))
        note(f"the plot is in {plot}.")
    if as_json:
        print_json([asdict(entry) | {"difference": entry.value} for entry in found])
        return
    rows = [[e.query, f"{e.first:.4f}", f"{e.second:.4f}", f"{e.value:+.4f}"] for e in found]
    print_table(f"{measure} by query", ["query", labels[first], labels[second], "difference"], rows)


def _read_judged(path: Path, judgments: Qrels) -> Run:
    """Read a run, and refuse one without judged queries."""
    run = read_run(path)
    if not any(judgments.get(query) for query in run):
        raise InputError(f"no query of {path} has judgments; name the judgments of its collection.")
    return run


@app.command("agreement")
def agreement(
    first: FirstArgument,
    second: SecondArgument,
    depth: Annotated[int, typer.Option(min=1, help="How many documents of each query to compare.")] = 1000,
    as_json: JsonOption = False,
) -> None:
    """How far two runs agree; needs no judgments.

    Example:

        docparade analyze agreement mine.txt theirs.txt --depth 100
    """
    found = asdict(compare(read_run(first), read_run(second), depth))
    if as_json:
        print_json(found)
        return
    rows = [
        [name.replace("_", " "), str(len(value)) if isinstance(value, tuple) else f"{value:.6g}"]
        for name, value in found.items()
    ]
    print_table(f"{first} and {second}, to depth {depth}", ["", ""], rows)
