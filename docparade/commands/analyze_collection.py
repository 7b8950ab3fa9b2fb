"""`docparade analyze collection`: how many queries, judgments and documents, and how long these are."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from docparade.commands.output import JsonOption, note, print_json, print_table
from docparade.retrieval.errors import InputError, check_choice

if TYPE_CHECKING:
    from docparade.modeling import DocumentProcessor
    from docparade.retrieval.collections.collection import Collection, Document
    from docparade.retrieval.collections.statistics import (
        DocumentStatistics,
        QueryStatistics,
        ReadDocument,
    )

NO_LIMIT = 1_000_000
"""A tokenizer that does not know its encoder's limit names a higher number."""


def analyze_collection(
    collection: Annotated[
        list[str],
        typer.Option(help="An ir_datasets id such as 'cranfield', or a folder. Several: sets of queries together."),
    ],
    field: Annotated[str | None, typer.Option(help="A field of the queries, such as title or description.")] = None,
    run: Annotated[
        Path | None, typer.Option(help="Measure only the documents of this run, as in Table 1 of Li et al. (2023).")
    ] = None,
    depth: Annotated[
        int | None, typer.Option(min=1, help="With --run: so many documents of each query.", show_default="all")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="Also count tokens and passages: the Hub id or folder of an encoder or a ranker.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="With --tokenizer: how passages are cut.", show_default="whole")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    r"""Count a collection's queries, judgments and documents, and measure how long these are.

    Words are separated by white space. With --tokenizer, also: how many tokens and passages documents have, how many
    documents are too long for one input of the encoder, and what the preset leaves unread.

    Examples:

        docparade analyze collection --collection cranfield
        docparade analyze collection --collection gov2/trec-tb-2004 \
            --collection gov2/trec-tb-2005 --collection gov2/trec-tb-2006 \
            --field title --run bm25.txt --preset li2023 \
            --tokenizer google/electra-base-discriminator
    """
    from docparade.retrieval.collections.catalog import load_collection
    from docparade.retrieval.collections.statistics import describe_documents
    from docparade.retrieval.collections.union import CollectionUnion

    if preset is not None and tokenizer is None:
        raise InputError("--preset needs --tokenizer, because passages are cut by tokens.")
    if depth is not None and run is None:
        raise InputError("--depth needs --run: it says how many documents of each query are measured.")
    processor = None if tokenizer is None else _load_processor(tokenizer, preset or "whole")
    parts = [load_collection(name) for name in collection]
    whole = parts[0] if len(parts) == 1 else CollectionUnion(parts)
    sets = {part.name: _describe_queries(part, field) for part in parts}
    documents = _read_documents(whole, run, depth)
    if processor is None:
        found = describe_documents(documents)
    else:
        reader = _Reader(processor, list(whole.queries(field).values()))
        found = describe_documents(documents, reader, reader.limits)
    if as_json:
        print_json({"queries": {name: asdict(one) for name, one in sets.items()}, "documents": asdict(found)})
    else:
        _print(sets, found, processor)


class _Reader:
    """Counts the tokens and passages of documents beside a query of mean length."""

    def __init__(self, processor: "DocumentProcessor", queries: list[str]) -> None:
        from docparade.retrieval.collections.statistics import ReadingLimits

        self.processor = processor
        self.query_length = round(sum(len(processor.encode_query(query)) for query in queries) / len(queries))
        limit = processor.tokenizer.model_max_length
        if limit > NO_LIMIT:
            limit = processor.max_length
            note(
                f"the tokenizer does not say how much its encoder reads; one input is {limit} tokens, as in the preset."
            )
        one_input = processor.with_options(max_length=limit).room(self.query_length)
        beside = f"beside a query of {self.query_length}, the mean"
        note(f"one input of {limit} tokens has room for {one_input} tokens of a document, {beside}.")
        self.limits = ReadingLimits(one_input, processor.max_passages)

    def __call__(self, documents: "list[Document]") -> "list[ReadDocument]":
        from docparade.retrieval.collections.statistics import ReadDocument

        encoded = self.processor.encode_documents(documents)
        split = [self.processor.split(document, self.query_length) for document in encoded]
        return [
            ReadDocument(len(document.token_ids), len(passages) + unread)
            for document, (passages, unread) in zip(encoded, split, strict=True)
        ]


def _load_processor(tokenizer: str, preset: str) -> "DocumentProcessor":
    from transformers import AutoTokenizer, PreTrainedConfig

    from docparade.experiments.model_building import locate
    from docparade.modeling import PRESETS, DocumentProcessor
    from docparade.reranking.loading import explain_load_errors

    settings = PRESETS[check_choice(preset, tuple(PRESETS), "--preset")]
    source = locate(tokenizer, "--tokenizer")
    with explain_load_errors(source, "--tokenizer"):
        # With a plain configuration, because a ranker's own would ask to run its code.
        loaded = AutoTokenizer.from_pretrained(source, config=PreTrainedConfig(), trust_remote_code=False)
        return DocumentProcessor(loaded, **settings)


def _describe_queries(source: "Collection", field: str | None) -> "QueryStatistics":
    from docparade.retrieval.collections.statistics import describe_queries

    queries = source.queries(field)
    try:
        qrels = source.qrels()
    except InputError as error:
        note(f"no judgments are counted: {error}")
        qrels = {}
    return describe_queries(queries, qrels)


def _read_documents(source: "Collection", run: Path | None, depth: int | None) -> "Iterator[Document]":
    """All documents, or those of a run; with a progress bar."""
    from docparade.retrieval.collections.statistics import BATCH
    from docparade.retrieval.progress import show_progress
    from docparade.retrieval.runs import read_run, top_documents

    if run is None:
        yield from show_progress(source.documents(), "measuring", total=len(source), unit=" documents")
        return
    found = read_run(run)
    ids = sorted(top_documents(found, depth or max(map(len, found.values()))))
    with show_progress(desc="measuring", total=len(ids), unit=" documents") as progress:
        for start in range(0, len(ids), BATCH):
            batch = source.get_many(ids[start : start + BATCH])
            yield from batch.values()
            progress.update(len(batch))


def _print(
    sets: "dict[str, QueryStatistics]", found: "DocumentStatistics", processor: "DocumentProcessor | None"
) -> None:
    columns = ["queries", "words each", "judged", "judgments", "relevant", "relevant each"]
    rows = [
        [
            name,
            str(one.queries),
            f"{one.words_per_query:.1f}",
            str(one.judged_queries),
            str(one.judgments),
            str(one.relevant),
            f"{one.relevant_per_query:.1f}",
        ]
        for name, one in sets.items()
    ]
    print_table("Queries and judgments", ["", *columns], rows)
    measured = {"words": found.words, "tokens": found.tokens, "passages": found.passages}
    lengths = [
        [name, f"{one.mean:.1f}", f"{one.median:.0f}", f"{one.ninth_decile:.0f}", str(one.longest)]
        for name, one in measured.items()
        if one is not None
    ]
    title = f"{found.documents} documents, {found.empty} of them empty"
    print_table(title, ["", "mean", "median", "90 % have at most", "longest"], lengths, _caption(found, processor))


def _caption(found: "DocumentStatistics", processor: "DocumentProcessor | None") -> str:
    if processor is None or found.over_one_input is None:
        return ""
    sentences = [f"{found.over_one_input:.1%} of the documents do not fit into one input"]
    if processor.max_passages is not None:
        sentences.append(
            f"{found.over_max_passages:.1%} have more than {processor.max_passages} passages; "
            f"{found.unread:.1%} of all passages are left unread"
        )
    return "; ".join(sentences) + "."
