"""Reranking: a model scores the top documents of a first-stage run.

A query's top `depth` documents get the model's scores. The documents below follow in their old order, with scores of
the model's lowest score minus 1, 2, 3, ...: no document is lost, and measures deeper than `depth` stay correct. Last of
all, with such scores too, come documents of the top in which there is nothing to read.

The model reads one query at a time, so neither the number of processes nor an interruption changes which documents are
read together. Scores are 32-bit floats, written in the fewest digits that give
the same float back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from docparade.modeling import Document, DocumentRanker
from docparade.modeling.engine import read_pairs
from docparade.modeling.engine_budget import read_within_budget
from docparade.modeling.engine_kept import KeptVectors
from docparade.modeling.engine_results import AggregatedDocument, Reading
from docparade.modeling.reading_options import READ_ALL, ReadingArguments, ReadingOptions
from docparade.reranking.caches.document_lookup import Documents, fetch_documents
from docparade.reranking.caches.fingerprints import fingerprint_contents, fingerprint_inputs, fingerprint_values
from docparade.reranking.caches.vector_cache import VectorCache
from docparade.reranking.processes.process_group import gather_shares, should_hide_bar, take_share
from docparade.reranking.processes.resumable_work import work_in_parts
from docparade.retrieval.birch import PassageScores, write_passage_scores
from docparade.retrieval.errors import InputError
from docparade.retrieval.fusion import interpolate
from docparade.retrieval.progress import show_progress
from docparade.retrieval.runs import Run, ranking, top_documents, write_run
from docparade.retrieval.storage.files import check_output, sweep

if TYPE_CHECKING:
    from typing_extensions import Unpack


def rerank(
    model: DocumentRanker,
    run: Run,
    queries: Mapping[str, str],
    documents: Documents,
    depth: int = 100,
    *,
    first_stage_share: float = 0,
    **options: Unpack[ReadingArguments],
) -> Run:
    """Rerank a run in memory. In a process group, all processes must call this; all get the whole run.

    Args:
        model: A ranker with its processor.
        run: The first-stage run: query id -> document id -> score.
        queries: Query texts by id.
        documents: Documents by id, such as `CollectionDocuments`.
        depth: How many documents of each query the model reads.
        first_stage_share: The first stage's share in the scores, from 0, the ranker alone, to 1: see
            `mix_with_first_stage`.
        **options: How documents are read: the fields of `ReadingOptions`.

    Example:
        ```python
        documents = CollectionDocuments(load_collection("cranfield"))
        rerank(model, read_run("bm25.txt"), queries, documents, depth=100)
        ```
    """
    reading = reading_options(model, options)
    reader = QueryReader(model, documents, depth, reading)
    reader.check(run, queries)
    check_share(first_stage_share)
    own = take_share(list(run))
    results = [
        reader.read(queries[query], run[query]).scores
        for query in show_progress(own, "reranking", unit=" queries", hide=should_hide_bar(reading.progress))
    ]
    return {
        query: _complete(scores, run[query], first_stage_share)
        for query, scores in zip(run, gather_shares(results), strict=True)
    }


def rerank_to_file(
    model: DocumentRanker,
    run: Run,
    queries: Mapping[str, str],
    documents: Documents,
    output: str | Path,
    depth: int = 100,
    *,
    passage_scores: str | Path | None = None,
    first_stage_share: float = 0,
    tag: str = "docparade",
    **options: Unpack[ReadingArguments],
) -> None:
    """Rerank a run into a TREC file. In a process group, all processes must call this.

    Finished work is kept in the folder `OUTPUT.parts` until the file is complete. After an interruption, the same call,
    with any number of processes, continues there. If the model, the run, the queries, the
    documents or the depth have changed, a warning says so and all work starts again. The first stage's share may
    change: finished work is the ranker's scores alone.

    Args:
        output: The run to write; compressed if its name ends in `.gz`.
        passage_scores: A file for the score of every single passage, for `docparade fuse birch`.
        tag: The run's name, in its last column.

    The other arguments are those of `rerank`.

    Example:
        ```python
        rerank_to_file(model, read_run("bm25.txt"), queries, documents, "parade.txt")
        ```
    """
    reading = reading_options(model, options)
    reader = QueryReader(model, documents, depth, reading)
    reader.check(run, queries)
    check_share(first_stage_share)
    if passage_scores is not None:
        if reading.max_passages_per_query is not None:
            raise InputError(
                "passage_scores are for passages of every document, and max_passages_per_query may read none of some; "
                "leave one of them out."
            )
        check_output(passage_scores)
    tops = {query: ranking(found)[:depth] for query, found in run.items()}

    def work(query: str) -> dict[str, Any]:
        read = reader.read(queries[query], run[query])
        result: dict[str, Any] = {"query": query, **read.scores._asdict()}
        if passage_scores is not None:
            result["passages"] = {
                name: list(map(as_float32, reading.passage_scores)) for name, reading in read.readings.items()
            }
        return result

    def finish(results: Iterator[dict[str, Any]]) -> None:
        reranked: Run = {}
        passages: PassageScores = {}
        for result in results:
            query = result["query"]
            scores = QueryScores(result["scores"], result["unread"], result["empty"])
            reranked[query] = _complete(scores, run[query], first_stage_share)
            passages[query] = result.get("passages", {})
        if passage_scores is not None:
            sweep(Path(passage_scores).resolve().parent, Path(passage_scores).name)
            write_passage_scores(passages, passage_scores)
        write_run(reranked, output, tag)

    settings = {
        "depth": depth,
        "empty documents": "last",
        "passage scores": passage_scores is not None,
        **fingerprint_reading(reading),
    }
    key = fingerprint_inputs(model, run, queries, documents) | settings
    # Kept vectors stand for the documents: these need not be read.
    fingerprint = (
        partial(fingerprint_query_documents, documents, tops)
        if reading.vectors is None
        else lambda query: fingerprint_values(tops[query])
    )
    work_in_parts(output, key, list(run), fingerprint, work, finish, reading.progress)


def check_input(model: DocumentRanker, run: Run, queries: Mapping[str, str], depth: int) -> None:
    """Refuse what cannot be reranked, before any work is done."""
    if depth < 1:
        raise InputError(f"depth must be at least 1, and is {depth}.")
    if model.processor is None:
        raise InputError("the model has no processor, so it cannot read text; load a checkpoint saved with one.")
    for query in run:
        if query not in queries:
            raise InputError(
                f"the run has query {query}, which is not among the queries; rerank a run of the same queries."
            )
        try:
            model.processor.encode_query(queries[query])
        except ValueError as error:
            raise InputError(f"query {query} of the run: {error}") from None


class QueryScores(NamedTuple):
    """The scores of a query's documents, and the ids of those that have none."""

    scores: dict[str, float]
    unread: list[str]
    """Documents of which nothing was read, the most promising first."""
    empty: list[str]
    """Documents in which there is nothing to read, in the order of equal scores."""


class QueryReadings(NamedTuple):
    """What a model read for a query."""

    readings: Mapping[str, Reading | AggregatedDocument]
    """By document id."""
    unread: list[str]
    """The ids of documents of which nothing was read, the most promising first."""

    @property
    def scores(self) -> QueryScores:
        """The scores as they are written to files."""
        scores = {name: as_float32(reading.score) for name, reading in self.readings.items() if not reading.empty}
        return QueryScores(scores, self.unread, sorted(self.readings.keys() - scores.keys(), reverse=True))


@dataclass(frozen=True)
class QueryReader:
    """Reads the top documents of a query; the fields are the arguments of `rerank`."""

    model: DocumentRanker
    documents: Documents
    depth: int
    options: ReadingOptions = READ_ALL

    def check(self, run: Run, queries: Mapping[str, str]) -> None:
        """Refuse what cannot be reranked, before any work is done."""
        check_input(self.model, run, queries, self.depth)
        for cache in (self.options.vectors, self.options.choose_by):
            if cache is not None:
                as_cache(cache).require(top_documents(run, self.depth))

    def read(self, query: str, found: Mapping[str, float]) -> QueryReadings:
        """Let the model read the top documents of a query."""
        top = ranking(found)[: self.depth]
        if self.options.vectors is not None:
            return QueryReadings(as_cache(self.options.vectors).read(query, top), [])
        texts = fetch_documents(self.documents, top)
        # By these ids, kept vectors are found.
        documents = {name: replace(Document.of(texts[name], f"document {name}"), id=name) for name in top}
        options = replace(self.options, progress=False)
        if options.max_passages_per_query is not None:
            return QueryReadings(*read_within_budget(self.model, query, documents, options))
        readings = read_pairs(self.model, [(query, document) for document in documents.values()], options)
        return QueryReadings(dict(zip(top, readings, strict=True)), [])


def reading_options(model: DocumentRanker, options: Mapping[str, Any]) -> ReadingOptions:
    """The checked options; kept vectors are taken for this ranker, or refused."""
    try:
        checked = ReadingOptions.of(options)
    except ValueError as error:
        raise InputError(str(error)) from None
    return checked if checked.vectors is None else replace(checked, vectors=as_cache(checked.vectors).for_ranker(model))


def fingerprint_reading(options: ReadingOptions) -> dict[str, object]:
    """Fingerprint the options on which scores depend."""
    caches = {"vectors": options.vectors, "passages chosen by": options.choose_by}
    return {
        "passages kept": options.keep_passages,
        "passages per query": options.max_passages_per_query,
        **{name: None if cache is None else as_cache(cache).fingerprint for name, cache in caches.items()},
    }


def as_cache(vectors: KeptVectors) -> VectorCache:
    """Kept vectors of a run's documents, which are found by their ids."""
    if not isinstance(vectors, VectorCache):
        raise InputError(f"vectors of a run's documents have to be a VectorCache, not {type(vectors).__name__}.")
    return vectors


def as_float32(score: float) -> float:
    """Round a score as it is written to files: a 32-bit float in the fewest digits.

    Example:
        >>> as_float32(0.10000000149011612)
        0.1
    """
    return float(str(np.float32(score)))


def check_share(share: float) -> None:
    """Refuse a share of the first stage that is not from 0 to 1."""
    if not 0 <= share <= 1:
        raise InputError(f"the first stage's share must be from 0 to 1, and is {share}.")


def mix_with_first_stage(scores: Mapping[str, float], found: Mapping[str, float], share: float) -> dict[str, float]:
    """The weighted sum of a ranker's and the first stage's scores, as z-scores over the documents that were read.

    Args:
        scores: The ranker's scores of the documents that it read for a query.
        found: The first stage's scores for the query. One that it did not find counts as its lowest among those read.
        share: The first stage's weight; the ranker has the rest.

    Example:
        >>> mix_with_first_stage({"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 1.0, "c": 0.5}, share=0.75)
        {'a': 0.5, 'b': -0.5}
    """
    among = {document: found[document] for document in scores if document in found}
    fused = interpolate([{"": among}, {"": dict(scores)}], [share, 1 - share], "zscore")[""]
    return {document: as_float32(fused[document]) for document in scores}


def _complete(read: QueryScores, found: Mapping[str, float], share: float) -> dict[str, float]:
    """A query's documents in the reranked run; without a share of the first stage, the ranker's scores stay."""
    scores = mix_with_first_stage(read.scores, found, share) if share else read.scores
    return append_unread(scores, found, read.unread, read.empty)


def append_unread(
    scores: Mapping[str, float], found: Mapping[str, float], unread: Sequence[str] = (), empty: Sequence[str] = ()
) -> dict[str, float]:
    """Add documents below those with a model score: the `unread`, the first stage's others in their order, the `empty`.

    Example:
        >>> append_unread({"a": 0.5, "b": 2.5}, {"a": 9.0, "b": 8.0, "c": 7.0, "d": 6.0}, ["d"])
        {'a': 0.5, 'b': 2.5, 'd': -0.5, 'c': -1.5}
    """
    placed = {*scores, *empty}
    others = [document for document in dict.fromkeys([*unread, *ranking(found)]) if document not in placed]
    return append_below(scores, [*others, *empty])


def append_below(scores: Mapping[str, float], documents: Sequence[str]) -> dict[str, float]:
    """Add documents below all others, in this order.

    Example:
        >>> append_below({"a": 0.5, "b": 2.5}, ["d", "c"])
        {'a': 0.5, 'b': 2.5, 'd': -0.5, 'c': -1.5}
    """
    lowest = min(scores.values(), default=0.0)
    # Far from 0, neighboring 32-bit floats are more than 1 apart.
    step = max(1.0, abs(lowest) / 1_000_000)
    below = {document: as_float32(lowest - step * place) for place, document in enumerate(documents, start=1)}
    return {**scores, **below}


def check_documents(documents: Documents, ids_by_query: Mapping[str, Iterable[str]]) -> None:
    """Refuse missing documents of any query now rather than after hours of work; the processes share the queries."""
    for query in take_share(list(ids_by_query)):
        fingerprint_query_documents(documents, {query: list(ids_by_query[query])}, query)


def fingerprint_query_documents(documents: Documents, ids_by_query: Mapping[str, Sequence[str]], query: str) -> str:
    """Fingerprint the contents of a query's documents; a missing one is an `InputError`.

    `work_in_parts` calls this for every query before it starts, so missing documents are found early.
    """
    try:
        return fingerprint_contents(documents, ids_by_query[query])
    except InputError as error:
        raise InputError(f"query {query}: {error}") from None
