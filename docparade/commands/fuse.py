"""`docparade fuse`: combine runs into one."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from docparade.commands.inputs import CollectionOption, QrelsOption, numbers, read_judgments
from docparade.commands.output import (
    JsonOption,
    check_outputs,
    counted,
    counted_queries,
    note,
    print_json,
    print_table,
)
from docparade.retrieval.errors import InputError, check_choice
from docparade.retrieval.runs import Run, cut, read_run, write_run

RunsArgument = Annotated[list[Path], typer.Argument(help="Two or more TREC run files, also as .gz.")]
OutputOption = Annotated[Path, typer.Option(help="The run to write: a TREC file, compressed if its name ends in .gz.")]
HitsOption = Annotated[int, typer.Option(min=1, help="How many documents to keep for each query.")]

app = typer.Typer(no_args_is_help=True, help="Combine runs into one: by scores, by ranks, or with the best passages.")


@app.command("linear")
def linear(
    runs: RunsArgument,
    output: OutputOption,
    weights: Annotated[
        str | None, typer.Option(help="A weight for each run, in order. Default: equal weights.")
    ] = None,
    normalize: Annotated[
        str, typer.Option(help="How to normalize each query's scores first: minmax, zscore or none.")
    ] = "minmax",
    hits: HitsOption = 1000,
) -> None:
    r"""Add the weighted scores of the runs.

    Scores are normalized first, query by query: minmax (lowest 0, highest 1), zscore (mean 0, standard deviation 1) or
    none. A document that a run does not have gets the run's lowest score for the query.

    Example:

        docparade fuse linear bm25.txt parade.txt --weights "0.3 0.7" \
            --normalize zscore --output fused.txt
    """
    from docparade.retrieval.fusion import NORMALIZATIONS, interpolate

    normalization = check_choice(normalize, NORMALIZATIONS, "--normalize")
    values = [1 / len(runs)] * len(runs) if weights is None else numbers(weights, "--weights", float)
    loaded = _read(runs, output)
    _write(interpolate(loaded, values, normalization), output, hits)


@app.command("rrf")
def rrf(
    runs: RunsArgument,
    output: OutputOption,
    k: Annotated[int, typer.Option(help="Added to every rank; the larger, the less the top ranks count.")] = 60,
    hits: HitsOption = 1000,
) -> None:
    """Add reciprocal ranks, 1 / (k + rank), whatever the scale of the scores.

    Example:

        docparade fuse rrf bm25.txt rm3.txt parade.txt --output fused.txt
    """
    from docparade.retrieval.fusion import reciprocal_rank_fusion

    _write(reciprocal_rank_fusion(_read(runs, output), k), output, hits)


@app.command("birch")
def birch(
    first_stage: Annotated[Path, typer.Argument(help="The run of the first stage.")],
    passages: Annotated[
        Path,
        typer.Argument(
            help='Lines of {"query": "1", "document": "d7", "scores": [0.1, 2.3]}, one score for each passage.'
        ),
    ],
    output: OutputOption,
    collection: CollectionOption = None,
    qrels: QrelsOption = None,
    count: Annotated[int, typer.Option(help="How many of the best passages of a document to use, 1 to 4.")] = 3,
    folds: Annotated[int | None, typer.Option(help="The number of folds of queries.", show_default="5")] = None,
    seed: Annotated[int | None, typer.Option(help="The seed that assigns queries to folds.", show_default="42")] = None,
    fold_file: Annotated[
        Path | None, typer.Option(help="A fold file in Capreolus' format, instead of --folds and --seed.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    r"""Interpolate the first stage with each document's best passages, as Birch does.

    score = a * S_doc + (1 - a) * (S_1 + w_2 S_2 + w_3 S_3 + w_4 S_4); a document with fewer passages repeats its
    lowest score. Each fold's weights are those with the highest AP on its training queries, from a grid with steps of
    0.1; they score its test queries.

    Example:

        docparade fuse birch bm25.txt sentences.jsonl --collection cranfield \
            --count 3 --output birch.txt
    """
    from docparade.retrieval.birch import cross_validate_birch, read_passage_scores
    from docparade.retrieval.folds import k_folds, read_folds

    if fold_file is not None and (folds, seed) != (None, None):
        unused = "--folds" if folds is not None else "--seed"
        raise InputError(f"{unused} makes folds, and --fold-file reads them; leave one of them out.")
    judgments = {} if qrels is None else {"--qrels": qrels}
    fold_input = {} if fold_file is None else {"--fold-file": fold_file}
    check_outputs({"--output": output}, {"the run": first_stage, "the passages": passages, **judgments, **fold_input})
    run = read_run(first_stage)
    chosen_folds: dict[str, Any] = {"k": folds, "seed": seed}
    given = {name: value for name, value in chosen_folds.items() if value is not None}
    chosen = read_folds(fold_file) if fold_file else k_folds(run, **given)
    tested = {query for fold in chosen.values() for query in fold.test}
    if untested := [query for query in run if query not in tested]:
        note(f"no test fold has {counted_queries(untested)} of {first_stage}: left out.")
    fused, weights = cross_validate_birch(
        run, read_passage_scores(passages), read_judgments(collection, qrels), chosen, count
    )
    write_run(fused, output, tag="birch")
    if as_json:
        print_json({name: asdict(found) for name, found in weights.items()})
        return
    columns = ["fold", "a", *(f"w{i}" for i in range(1, count + 1))]
    rows = [[name, *(f"{value:.1f}" for value in (w.document, *w.passages))] for name, w in weights.items()]
    print_table(f"{output}: weights chosen by AP", columns, rows)


def _read(paths: list[Path], output: Path) -> list[Run]:
    if len(paths) < 2:
        raise InputError("fusion needs at least two runs.")
    check_outputs({"--output": output}, {f"the run {path}": path for path in paths})
    runs = [read_run(path) for path in paths]
    queries = dict.fromkeys(query for run in runs for query in run)
    for path, run in zip(paths, runs, strict=True):
        if missing := [query for query in queries if query not in run]:
            note(f"{path} does not have {counted_queries(missing)} of the other runs, and adds nothing there.")
    return runs


def _write(run: Run, output: Path, hits: int) -> None:
    write_run(cut(run, hits), output, tag="fused")
    note(f"{output}: {counted(len(run), 'query')}, at most {counted(hits, 'document')} each.")
