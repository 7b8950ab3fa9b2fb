"""`docparade retrieve`: from a collection to a first-stage run."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from docparade.commands.output import JsonOption, note, print_json, print_table
from docparade.retrieval.errors import InputError

if TYPE_CHECKING:
    from docparade.retrieval.collections import Collection
    from docparade.retrieval.first_stage import FirstStage
    from docparade.retrieval.runs import Run
    from docparade.retrieval.tuning import Tuning


def retrieve(
    collection: Annotated[
        str,
        typer.Option(help="An ir_datasets id such as 'cranfield', a folder, or 'hf:' and a Hugging Face dataset."),
    ],
    output: Annotated[Path, typer.Option(help="The run to write, a TREC file; packed if the name ends in .gz.")],
    method: Annotated[str, typer.Option(help="bm25, bm25+rm3, ql or ql+rm3.")] = "bm25",
    k1: Annotated[float, typer.Option(help="BM25: how much more a repeated term says.")] = 0.9,
    b: Annotated[float, typer.Option(help="BM25: how much a document's length counts, 0 to 1.")] = 0.4,
    mu: Annotated[float, typer.Option(help="Query likelihood: Dirichlet smoothing.")] = 1000.0,
    feedback_documents: Annotated[int, typer.Option(help="RM3: documents to take terms from.")] = 10,
    feedback_terms: Annotated[int, typer.Option(help="RM3: terms to take.")] = 10,
    original_weight: Annotated[float, typer.Option(help="RM3: weight of the original query, 0 to 1.")] = 0.5,
    hits: Annotated[int, typer.Option(help="Documents for each query.")] = 1000,
    field: Annotated[
        str | None, typer.Option(help="Which text of a query, where it has several: title, description, …")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="embedded, or lucene (Anserini; pip install 'docparade[lucene]').")
    ] = "embedded",
    tune: Annotated[
        str | None, typer.Option(help="First choose parameters from a grid: 'k1=0.9,1.2,1.5 b=0.4,0.75'.")
    ] = None,
    tune_on: Annotated[
        Path | None, typer.Option(help="File with the ids of the training queries, one a line; else all are used.")
    ] = None,
    measure: Annotated[str, typer.Option(help="What to tune for.")] = "nDCG@20",
    as_json: JsonOption = False,
) -> None:
    """Search a collection for all its queries, and write the run.

    The index is built the first time and kept in DOCPARADE_CACHE (or ~/.cache/docparade); it serves every method and
    every setting. Defaults are Anserini's.

    Examples: docparade retrieve --collection cranfield --method bm25 --k1 1.5 --b 0.75 --hits 1000 --output bm25.txt

    docparade retrieve --collection my-folder/ --method bm25+rm3 --output rm3.txt

    docparade retrieve --collection cranfield --tune "k1=0.9,1.2,1.5,2 b=0.4,0.6,0.75" --tune-on train.txt --measure AP
    --output tuned.txt
    """
    from docparade.retrieval.collections import load_collection
    from docparade.retrieval.first_stage import FirstStage
    from docparade.retrieval.first_stage import retrieve as retrieve_run
    from docparade.retrieval.runs import write_run

    stage = FirstStage(method, k1, b, mu, feedback_documents, feedback_terms, original_weight)
    if tune_on is not None and tune is None:
        raise InputError("--tune-on says which queries to tune on; name the grid with --tune as well.")
    if not output.resolve().parent.is_dir():
        raise InputError(f"--output {output} cannot be written: its folder does not exist; make it first.")
    source = load_collection(collection)
    queries = source.queries(field)
    tuning = None
    if tune is not None:
        tuning = _tune(source, stage, tune, tune_on, measure, hits, field, engine)
        stage = tuning.best
    run = retrieve_run(source, stage, queries, hits, engine)
    write_run(run, output, tag=method)
    _report(run, stage, tuning, output, as_json)


def _tune(
    source: "Collection",
    stage: "FirstStage",
    grid: str,
    tune_on: Path | None,
    measure: str,
    hits: int,
    field: str | None,
    engine: str,
) -> "Tuning":
    from docparade.retrieval.files import read_lines
    from docparade.retrieval.tuning import parse_grid, tune

    training = None if tune_on is None else [line.strip() for _, line in read_lines(tune_on)]
    if training is None:
        note("tuning on all queries: what the run measures on them is then no test; --tune-on names training queries.")
    return tune(source, parse_grid(grid), stage, training, measure=measure, hits=hits, field=field, engine=engine)


def _report(run: "Run", stage: "FirstStage", tuning: "Tuning | None", output: Path, as_json: bool) -> None:
    empty = [query_id for query_id, found in run.items() if not found]
    documents = sum(len(found) for found in run.values())
    if empty:
        shown = ", ".join(empty[:3]) + (", …" if len(empty) > 3 else "")
        note(f"{len(empty)} queries found no document ({shown}); the run leaves them out.")
    if as_json:
        trials = [{**asdict(tried), tuning.measure: value} for tried, value in tuning.trials] if tuning else []
        print_json(
            {"output": str(output), "queries": len(run), "empty": empty, "documents": documents}
            | {"stage": asdict(stage), "tuning": trials}
        )
        return
    if tuning:
        names = [name for name in asdict(stage) if len({getattr(tried, name) for tried, _ in tuning.trials}) > 1]
        rows = [[*(f"{getattr(tried, name):g}" for name in names), f"{value:.4f}"] for tried, value in tuning.trials]
        print_table("Tuning", [*names, tuning.measure], rows)
        note("chose " + ", ".join(f"{name} {getattr(stage, name):g}" for name in names) + ".")
    note(f"{output}: {documents} documents for {len(run) - len(empty)} queries.")
