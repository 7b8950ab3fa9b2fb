"""Reranking: a model scores the top documents of a first-stage run.

A query's top `depth` documents get the model's scores. The documents below follow in their old order, with scores of
the model's lowest score minus 1, 2, 3, ...: no document is lost, and measures deeper than `depth` stay correct.

The model reads one query at a time, so neither the number of processes nor an interruption changes which documents are
read together, and scores are the same to the last bit. Scores are 32-bit floats, written in the fewest digits that give
the same float back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from docparade.modeling import DocumentRanker
from docparade.modeling.engine import AggregatedDocument, EncodeDocuments, Reading, read_pairs
from docparade.retrieval.birch import PassageScores, write_passage_scores
from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import Run, ranking, write_run
from docparade.retrieval.storage.files import check_output, sweep

from .documents import Documents, fetch_documents
from .fingerprints import fingerprint_contents, fingerprint_inputs, fingerprint_values
from .processes import fail_together, gather_shares, should_hide_bar, take_share
from .resumable_work import work_in_parts
from .vector_cache import VectorCache

ALIGNMENT = 64
"""torch's own alignment of memory on a CPU, in bytes."""


def rerank(
    model: DocumentRanker,
    run: Run,
    queries: Mapping[str, str],
    documents: Documents,
    depth: int = 100,
    *,
    encode_documents: EncodeDocuments | None = None,
    vectors: VectorCache | None = None,
    progress: bool | None = None,
) -> Run:
    """Rerank a run in memory. In a process group, all processes must call this; all get the whole run.

    Args:
        model: A ranker with its processor.
        run: The first-stage run: query id -> document id -> score.
        queries: Query texts by id.
        documents: Documents by id, such as `CollectionDocuments`.
        depth: How many documents of each query the model reads.
        encode_documents: Replaces the processor's own method, such as a `TokenCache`'s.
        vectors: The kept passage vectors of a bi-encoder: no document is read then.
        progress: Whether to show a progress bar; `None` shows it in a terminal only.

    Example:
        ```python
        documents = CollectionDocuments(load_collection("cranfield"))
        rerank(model, read_run("bm25.txt"), queries, documents, depth=100)
        ```
    """
    check_input(model, run, queries, depth)
    kept = None if vectors is None else vectors.for_ranker(model)
    share = take_share(list(run))
    scores = [
        _get_scores(read_query(model, queries[query], run[query], documents, depth, encode_documents, vectors=kept))
        for query in tqdm(share, "reranking", unit=" queries", disable=should_hide_bar(progress))
    ]
    return {
        query: append_unread(query_scores, run[query])
        for query, query_scores in zip(run, gather_shares(scores), strict=True)
    }


@fail_together()
def rerank_to_file(
    model: DocumentRanker,
    run: Run,
    queries: Mapping[str, str],
    documents: Documents,
    output: str | Path,
    depth: int = 100,
    *,
    passage_scores: str | Path | None = None,
    encode_documents: EncodeDocuments | None = None,
    vectors: VectorCache | None = None,
    keep_passages: int | None = None,
    progress: bool | None = None,
    tag: str = "docparade",
) -> None:
    """Rerank a run into a TREC file. In a process group, all processes must call this.

    Finished work is kept in the folder `OUTPUT.parts` until the file is complete. After an interruption, the same call,
    with any number of processes, continues there and writes the same bytes. If the model, the run, the queries, the
    documents or the depth have changed, a warning says so and all work starts again.

    Args:
        output: The run to write; compressed if its name ends in `.gz`.
        passage_scores: A file for the score of every single passage, for `docparade fuse birch`.
        keep_passages: The most passages of a document to read, as in `model.rank`; `None` is all.
        tag: The run's name, in its last column.

    The other arguments are those of `rerank`.

    Example:
        ```python
        rerank_to_file(model, read_run("bm25.txt"), queries, documents, "parade.txt")
        ```
    """
    check_input(model, run, queries, depth)
    if vectors is not None and keep_passages is not None:
        raise InputError("keep_passages is for rankers that read texts; with kept vectors, all passages count.")
    if keep_passages is not None and keep_passages < 1:
        raise InputError(f"keep_passages must be at least 1, and is {keep_passages}.")
    if passage_scores is not None:
        check_output(passage_scores)
    kept = None if vectors is None else vectors.for_ranker(model)
    top_documents = {query: ranking(found)[:depth] for query, found in run.items()}
    align_weights(model)

    def work(query: str) -> dict[str, Any]:
        readings = read_query(
            model, queries[query], run[query], documents, depth, encode_documents, keep_passages, kept
        )
        result: dict[str, Any] = {"query": query, "scores": _get_scores(readings)}
        if passage_scores is not None:
            result["passages"] = {
                name: list(map(as_float32, reading.passage_scores)) for name, reading in readings.items()
            }
        return result

    def finish(results: Iterator[dict[str, Any]]) -> None:
        reranked: Run = {}
        passages: PassageScores = {}
        for result in results:
            query = result["query"]
            reranked[query] = append_unread(result["scores"], run[query])
            passages[query] = result.get("passages", {})
        if passage_scores is not None:
            sweep(Path(passage_scores).resolve().parent, Path(passage_scores).name)
            write_passage_scores(passages, passage_scores)
        write_run(reranked, output, tag)

    settings = {
        "depth": depth,
        "passage scores": passage_scores is not None,
        "passages kept": keep_passages,
        "vectors": None if kept is None else kept.folder.name,
    }
    key = fingerprint_inputs(model, run, queries, documents) | settings
    # Kept vectors stand for the documents: these need not be read.
    fingerprint = (
        partial(fingerprint_query_documents, documents, top_documents)
        if kept is None
        else lambda query: fingerprint_values(top_documents[query])
    )
    work_in_parts(output, key, list(run), fingerprint, work, finish, progress)


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


def align_weights(model: DocumentRanker) -> None:
    """Move weights on a CPU to aligned addresses; their values do not change.

    A single process maps weights from the checkpoint's file, at any address; several processes copy them. Matrix
    products round differently at unaligned addresses, so scores would otherwise differ in the last digit.
    """
    for weights in (*model.parameters(), *model.buffers()):
        if weights.device.type == "cpu" and weights.data_ptr() % ALIGNMENT:
            weights.data = weights.data.clone()


def read_query(
    model: DocumentRanker,
    query: str,
    found: Mapping[str, float],
    documents: Documents,
    depth: int,
    encode_documents: EncodeDocuments | None = None,
    keep_passages: int | None = None,
    vectors: VectorCache | None = None,
) -> Mapping[str, Reading | AggregatedDocument]:
    """Let the model read a query's top `depth` documents; returns its readings by document id."""
    top = ranking(found)[:depth]
    if vectors is not None:
        return vectors.read(query, top)
    texts = fetch_documents(documents, top)
    pairs = [(query, texts[document]) for document in top]
    readings = read_pairs(model, pairs, progress=False, encode_documents=encode_documents, keep_passages=keep_passages)
    return dict(zip(top, readings, strict=True))


def as_float32(score: float) -> float:
    """Round a score as it is written to files: a 32-bit float in the fewest digits.

    Example:
        >>> as_float32(0.10000000149011612)
        0.1
    """
    return float(str(np.float32(score)))


def append_unread(scores: Mapping[str, float], found: Mapping[str, float]) -> dict[str, float]:
    """Add the first stage's other documents below those with a model score, in their old order.

    Example:
        >>> append_unread({"a": 0.5, "b": 2.5}, {"a": 9.0, "b": 8.0, "c": 7.0, "d": 6.0})
        {'a': 0.5, 'b': 2.5, 'c': -0.5, 'd': -1.5}
    """
    lowest = min(scores.values(), default=0.0)
    # Far from 0, neighboring 32-bit floats are more than 1 apart.
    step = max(1.0, abs(lowest) / 1_000_000)
    below = [document for document in ranking(found) if document not in scores]
    return {**scores, **{document: lowest - step * place for place, document in enumerate(below, start=1)}}


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


def _get_scores(readings: Mapping[str, Reading | AggregatedDocument]) -> dict[str, float]:
    return {document: as_float32(reading.score) for document, reading in readings.items()}
