"""`docparade analyze full-ranking`: a ranker of all documents against the first stage and its reranking."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from docparade.commands.inputs import (
    BinaryOption,
    CollectionOption,
    GainsOption,
    QrelsOption,
    numbers,
    parse_gains,
    read_judgments,
)
from docparade.commands.output import JsonOption, check_outputs, counted, counted_queries, note, print_json, print_table

if TYPE_CHECKING:
    from docparade.retrieval.evaluation.analyses import UniqueRelevant
    from docparade.retrieval.evaluation.full_ranking_comparison import FullRankingComparison


def full_ranking(
    first_stage: Annotated[Path, typer.Argument(help="The first stage's run, a TREC file.")],
    reranked: Annotated[Path, typer.Argument(help="The same run, reranked.")],
    full: Annotated[Path, typer.Argument(help="The run of the full ranker, which scores all documents.")],
    collection: CollectionOption = None,
    qrels: QrelsOption = None,
    measures: Annotated[str, typer.Option(help="Measures, separated by spaces.")] = "AP@100 nDCG@20",
    binary: BinaryOption = False,
    gains: GainsOption = None,
    depths: Annotated[
        str, typer.Option(help="How many of the best documents of each query to compare; several numbers.")
    ] = "10 20 100",
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw unique relevant documents of the full ranker and the first stage (.png, .svg, .pdf)."),
    ] = None,
    plot_reranked: Annotated[Path | None, typer.Option(help="The same for the full ranker and the re-ranker.")] = None,
    as_json: JsonOption = False,
) -> None:
    r"""Compare a full ranker with the first stage and a re-ranker, as Ghasemi and Hiemstra (2021) do.

    The first table has the measures, with the two-tailed paired t-test against the first stage, not corrected: † p <
    .05, ‡ p < .01. The second has, at each depth, what one run retrieves and the other does not: relevant documents
    (unique relevant) and all documents (new) as shares of the retrieved ones, and each grade's share of the unique
    relevant.

    --gains is for both tables, --binary for the measures alone. Only queries that the full ranker ranks are counted.

    Example:

        docparade crossval ghasemi2021 --variant reranker
        docparade crossval ghasemi2021 --variant full-ranker
        docparade analyze full-ranking --collection cranfield --binary \
            outputs/ghasemi2021-reranker-labeled/runs/first-stage.txt \
            outputs/ghasemi2021-reranker-labeled/runs/reranked.txt \
            outputs/ghasemi2021-full-ranker-labeled/runs/reranked.txt
    """
    from docparade.retrieval.evaluation.full_ranking_comparison import compare_full_ranking
    from docparade.retrieval.evaluation.measures import parse_measures
    from docparade.retrieval.runs import read_run

    runs = {"FIRST_STAGE": first_stage, "RERANKED": reranked, "FULL": full}
    check_outputs({"--plot": plot, "--plot-reranked": plot_reranked}, runs)
    names, steps = list(parse_measures(measures)), numbers(depths, "--depths", int)
    judgments = read_judgments(collection, qrels)
    counting = parse_gains(gains, binary, collection)
    read = (read_run(first_stage), read_run(reranked), read_run(full))
    compared = compare_full_ranking(judgments, *read, names, steps, counting)
    if compared.not_ranked:
        note(f"{full} does not rank {counted_queries(compared.not_ranked)} with judgments: not counted.")
    _plot(compared, plot, plot_reranked)
    if as_json:
        print_json(_as_json(compared))
    else:
        _print(compared, names)


def _plot(compared: "FullRankingComparison", first_stage: Path | None, reranked: Path | None) -> None:
    from docparade.retrieval.evaluation.full_ranking_comparison import FIRST_STAGE, FULL_RANKER, RERANKER
    from docparade.retrieval.evaluation.plots import plot_unique_relevant

    for path, other in ((first_stage, FIRST_STAGE), (reranked, RERANKER)):
        if path is not None:
            of_both = compared.unique[FULL_RANKER, other], compared.unique[other, FULL_RANKER]
            plot_unique_relevant(path, *of_both, (f"the {FULL_RANKER}", f"the {other}"))
            note(f"the plot is in {path}.")


def _print(compared: "FullRankingComparison", names: list[str]) -> None:
    from docparade.retrieval.evaluation.full_ranking_comparison import FIRST_STAGE
    from docparade.retrieval.evaluation.measure_table import caption, mean_rows

    title = counted(len(compared.evaluations[FIRST_STAGE].queries), "judged query")
    rows = mean_rows(compared.evaluations, compared.tests, names)
    print_table(title, ["run", *names], rows, caption(f"the {FIRST_STAGE}", compared.tests, "none"))
    named = {f"{by}, not {other}": entries for (by, other), entries in compared.unique.items()}
    print_unique("documents that one run retrieves and another does not", named)


def print_unique(title: str, found: "dict[str, list[UniqueRelevant]]") -> None:
    """The table of unique relevant documents: a row for each comparison and depth."""
    grades = sorted({grade for entries in found.values() for entry in entries for grade in entry.by_grade})
    rows = [
        [
            label,
            str(entry.depth),
            f"{entry.share:.4f}",
            f"{entry.new_share:.4f}",
            *(f"{entry.grade_shares.get(grade, 0.0):.2f}" for grade in grades),
        ]
        for label, entries in found.items()
        for entry in entries
    ]
    columns = ["found only by", "depth", "unique relevant", "new", *(f"grade {grade}" for grade in grades)]
    print_table(title, columns, rows, "shares of retrieved documents; grades: shares of unique relevant documents")


def unique_as_json(entry: "UniqueRelevant") -> dict[str, Any]:
    """What was counted, with the shares."""
    return asdict(entry) | {name: getattr(entry, name) for name in ("share", "new_share", "grade_shares")}


def _as_json(compared: "FullRankingComparison") -> dict[str, Any]:
    return {
        "runs": {
            label: {
                "queries": len(evaluation.queries),
                "means": evaluation.means,
                "significance": {name: asdict(test) for name, test in compared.tests.get(label, {}).items()},
            }
            for label, evaluation in compared.evaluations.items()
        },
        "unique": [
            {"found_by": by, "not_by": other, **unique_as_json(entry)}
            for (by, other), entries in compared.unique.items()
            for entry in entries
        ],
    }
