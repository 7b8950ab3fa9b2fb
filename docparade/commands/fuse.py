"""`docparade fuse`: combine runs into one."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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

if TYPE_CHECKING:
    from docparade.retrieval.folds import Folds

RunsArgument = Annotated[list[Path], typer.Argument(help="Two or more TREC run files, also as .gz.")]
OutputOption = Annotated[Path, typer.Option(help="The run to write: a TREC file, compressed if its name ends in .gz.")]
HitsOption = Annotated[int, typer.Option(min=1, help="How many documents to keep for each query.")]
FoldsOption = Annotated[int | None, typer.Option(help="The number of folds of queries.", show_default="5")]
SeedOption = Annotated[int | None, typer.Option(help="The seed that assigns queries to folds.", show_default="42")]
FoldFileOption = Annotated[
    Path | None,
    typer.Option(help="A fold file in Capreolus' format, or a recipe's folds.json, instead of --folds and --seed."),
]

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
    tune: Annotated[
        bool, typer.Option("--tune", help="Choose the weights on each fold's queries, and fuse its test queries.")
    ] = False,
    tune_on: Annotated[
        str | None,
        typer.Option(help="Which of a fold's queries choose: train, dev or train+dev.", show_default="train+dev"),
    ] = None,
    measure: Annotated[str | None, typer.Option(help="The measure to tune for.", show_default="nDCG@20")] = None,
    step: Annotated[
        float | None, typer.Option(help="The step of the weights that are tried.", show_default="0.1")
    ] = None,
    collection: CollectionOption = None,
    qrels: QrelsOption = None,
    binary: BinaryOption = False,
    gains: GainsOption = None,
    folds: FoldsOption = None,
    seed: SeedOption = None,
    fold_file: FoldFileOption = None,
    as_json: JsonOption = False,
) -> None:
    r"""Add the weighted scores of the runs.

    Scores are normalized first, query by query: minmax (lowest 0, highest 1), zscore (mean 0, standard deviation 1) or
    none. A document that a run does not have gets the run's lowest score for the query.

    With --tune, weights are chosen by cross-validation: all combinations that add up to 1 are measured, and each fold's
    test queries get the one that is best on its other queries. Give runs of all queries, such as the merged runs of
    cross-validations.

    Examples:

        docparade fuse linear bm25.txt parade.txt --weights "0.3 0.7" \
            --normalize zscore --output fused.txt
        docparade fuse linear bm25.txt maxp.txt parade.txt --tune --binary \
            --collection cranfield --fold-file folds.json --output fused.txt
    """
    from docparade.retrieval.fusion import NORMALIZATIONS, interpolate

    normalization = check_choice(normalize, NORMALIZATIONS, "--normalize")
    tuning = {
        "--tune-on": tune_on,
        "--measure": measure,
        "--step": step,
        "--collection": collection,
        "--qrels": qrels,
        "--binary": binary or None,
        "--gains": gains,
        "--folds": folds,
        "--seed": seed,
        "--fold-file": fold_file,
        "--json": as_json or None,
    }
    if not tune:
        if unused := next((option for option, value in tuning.items() if value is not None), None):
            raise InputError(f"{unused} is for choosing weights; add --tune, or leave it out.")
        values = [1 / len(runs)] * len(runs) if weights is None else numbers(weights, "--weights", float)
        _write(interpolate(_read(runs, output), values, normalization), output, hits)
        return

    from docparade.retrieval.ensembles import cross_validate_weights, weight_grid
    from docparade.retrieval.evaluation.measures import one_measure
    from docparade.retrieval.folds import DECIDING

    if weights is not None:
        raise InputError("--weights gives the weights, and --tune chooses them; leave one of them out.")
    deciding = check_choice(tune_on or "train+dev", DECIDING, "--tune-on")
    name = one_measure("nDCG@20" if measure is None else measure)
    width = 0.1 if step is None else step
    weight_grid(len(runs), width)  # refuses a wrong step before anything is read
    counting = parse_gains(gains, binary, collection, makes_runs=True)
    loaded = _read(runs, output, qrels, fold_file)
    judgments = counting.judge(read_judgments(collection, qrels))
    queries: Run = {query: {} for run in loaded for query in run}
    chosen = _folds(queries, folds, seed, fold_file, "the runs")
    fused, found = cross_validate_weights(loaded, judgments, chosen, name, normalization, deciding, width)
    _write(fused, output, hits)
    if as_json:
        print_json({fold: list(values) for fold, values in found.items()})
        return
    labels = name_runs(runs)
    rows = [[fold, *(f"{value:g}" for value in values)] for fold, values in found.items()]
    print_table(f"{output}: weights chosen by {name}", ["fold", *(labels[path] for path in runs)], rows)


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
    folds: FoldsOption = None,
    seed: SeedOption = None,
    fold_file: FoldFileOption = None,
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

    judgments = {} if qrels is None else {"--qrels": qrels}
    fold_input = {} if fold_file is None else {"--fold-file": fold_file}
    check_outputs({"--output": output}, {"the run": first_stage, "the passages": passages, **judgments, **fold_input})
    run = read_run(first_stage)
    chosen = _folds(run, folds, seed, fold_file, str(first_stage))
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


def _folds(run: Run, count: int | None, seed: int | None, file: Path | None, source: str) -> "Folds":
    """The folds that the options ask for; a note names queries that no fold tests."""
    from docparade.retrieval.folds import k_folds, read_folds

    if file is not None and (count, seed) != (None, None):
        unused = "--folds" if count is not None else "--seed"
        raise InputError(f"{unused} makes folds, and --fold-file reads them; leave one of them out.")
    given: dict[str, Any] = {name: value for name, value in {"k": count, "seed": seed}.items() if value is not None}
    folds = read_folds(file) if file else k_folds(run, **given)
    tested = {query for fold in folds.values() for query in fold.test}
    if untested := [query for query in run if query not in tested]:
        note(f"no test fold has {counted_queries(untested)} of {source}: left out.")
    return folds


def _read(paths: list[Path], output: Path, qrels: Path | None = None, fold_file: Path | None = None) -> list[Run]:
    if len(paths) < 2:
        raise InputError("fusion needs at least two runs.")
    others = {option: path for option, path in {"--qrels": qrels, "--fold-file": fold_file}.items() if path is not None}
    check_outputs({"--output": output}, {f"the run {path}": path for path in paths} | others)
    runs = [read_run(path) for path in paths]
    queries = dict.fromkeys(query for run in runs for query in run)
    for path, run in zip(paths, runs, strict=True):
        if missing := [query for query in queries if query not in run]:
            note(f"{path} does not have {counted_queries(missing)} of the other runs, and adds nothing there.")
    return runs


def _write(run: Run, output: Path, hits: int) -> None:
    write_run(cut(run, hits), output, tag="fused")
    note(f"{output}: {counted(len(run), 'query')}, at most {counted(hits, 'document')} each.")
