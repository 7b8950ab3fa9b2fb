"""Reranking: the best documents of a first-stage run, scored again by a model.

The documents of a query's top `depth` get the model's scores. Those below keep their old order behind them, with the
lowest of the model's scores less 1, 2, 3 ...: nothing that the first stage found is lost, and measures that look deeper
than `depth` stay what they should be.

The engine reads one query at a time, so that neither the number of processes nor an interruption changes what is read
together: a score is the same to the last bit however the work was divided. It is a 32-bit float, and is kept in the
fewest digits that give this float back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from docparade.modeling import DocumentRanker
from docparade.modeling.engine import EncodeDocuments, Reading, read_pairs
from docparade.retrieval.birch import PassageScores, write_passage_scores
from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import Run, ranking, write_run
from docparade.retrieval.storage.files import check_output, sweep

from . import fingerprints
from .documents import Documents, fetch
from .processes import gather, hide_bar, place_among_processes, working_together
from .resumable_parts import work_in_parts

ALIGNMENT = 64
"""Bytes: where torch puts what it allocates."""


def rerank(
    model: DocumentRanker,
    run: Run,
    queries: Mapping[str, str],
    documents: Documents,
    depth: int = 100,
    *,
    encode_documents: EncodeDocuments | None = None,
    progress: bool | None = None,
) -> Run:
    """Rerank a run in memory. In a process group, all of its processes call this, and all get the whole run.

    Args:
        model: A ranker with its processor.
        run: The first stage: query id -> document id -> score.
        queries: The queries' texts.
        documents: Documents by id, such as `CollectionDocuments`.
        depth: How many documents of each query the model reads.
        encode_documents: In place of the processor's own, such as a `TokenCache`'s.
        progress: Whether to show a progress bar; `None` is in a terminal only.

    Example:
        ```python
        documents = CollectionDocuments(load_collection("cranfield"))
        rerank(model, read_run("bm25.txt"), queries, documents, depth=100)
        ```
    """
    check_input(model, run, queries, depth)
    rank, size = place_among_processes()
    mine = list(run)[rank::size]
    scores: Run = {}
    for query in tqdm(mine, "reranking", unit=" queries", disable=hide_bar(progress)):
        readings = read_query(model, queries[query], run[query], documents, depth, encode_documents)
        scores[query] = _scores(readings)
    parts = gather(scores)
    return {query: append_unread(parts[i % size][query], found) for i, (query, found) in enumerate(run.items())}


@working_together()
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
    keep_passages: int | None = None,
    progress: bool | None = None,
    tag: str = "docparade",
) -> None:
    """Rerank a run into a TREC file. In a process group, all of its processes call this.

    What is done is kept in the folder `OUTPUT.parts` until the file is whole: the same call, after a kill and on any
    number of processes, goes on where it stopped and ends with the same bytes. If the model, the run, the queries, the
    documents or the depth are others, it says so and starts anew.

    Args:
        output: The run to write; packed if its name ends in `.gz`.
        passage_scores: Where to write what each passage scored alone, for `docparade fuse birch`.
        keep_passages: How many passages of a document are read at most, as in `model.rank`; `None` is all.
        tag: The run's name, in its last column.

    The other arguments are those of `rerank`.

    Example:
        ```python
        rerank_to_file(model, read_run("bm25.txt"), queries, documents, "parade.txt")
        ```
    """
    check_input(model, run, queries, depth)
    if keep_passages is not None and keep_passages < 1:
        raise InputError(f"keep_passages must be at least 1, and is {keep_passages}.")
    if passage_scores is not None:
        check_output(passage_scores)
    read = {query: ranking(found)[:depth] for query, found in run.items()}
    align_weights(model)

    def work(query: str) -> dict[str, Any]:
        readings = read_query(
            model, queries[query], run[query], documents, depth, encode_documents, keep_passages=keep_passages
        )
        result: dict[str, Any] = {"query": query, "scores": _scores(readings)}
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

    settings = {"depth": depth, "passage scores": passage_scores is not None, "passages kept": keep_passages}
    key = fingerprints.of_reading(model, run, queries, documents) | settings
    work_in_parts(output, key, list(run), partial(fingerprint_documents, documents, read), work, finish, progress)


def check_input(model: DocumentRanker, run: Run, queries: Mapping[str, str], depth: int) -> None:
    """Refuse what cannot be reranked before any work is done."""
    if depth < 1:
        raise InputError(f"depth must be at least 1, and is {depth}.")
    if model.processor is None:
        raise InputError("the model has no processor, so it cannot read text; load a checkpoint saved with one.")
    for query in run:
        if query not in queries:
            raise InputError(f"the run has query {query}, and the queries do not; rerank a run of the same queries.")
        try:
            model.processor.encode_query(queries[query])
        except ValueError as error:
            raise InputError(f"query {query} of the run: {error}") from None


def align_weights(model: DocumentRanker) -> None:
    """Move weights on a CPU to where its vector instructions like them; their values stay.

    A process that is alone maps weights from the checkpoint's file, at any address; one among several copies them.
    Matrix products round differently at different addresses: without this, the last digit would tell the two apart.
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
    **options: Any,
) -> dict[str, Reading]:
    """What the model makes of a query's best `depth` documents; further options are those of `read_pairs`."""
    best = ranking(found)[:depth]
    texts = fetch(documents, best)
    pairs = [(query, texts[document]) for document in best]
    readings = read_pairs(model, pairs, progress=False, encode_documents=encode_documents, **options)
    return dict(zip(best, readings, strict=True))


def as_float32(score: float) -> float:
    """A score as it is written to files: a 32-bit float in the fewest digits.

    Example:
        >>> as_float32(0.10000000149011612)
        0.1
    """
    return float(str(np.float32(score)))


def append_unread(scores: Mapping[str, float], found: Mapping[str, float]) -> dict[str, float]:
    """The model's scores, and below them what else the first stage found, in its old order.

    Example:
        >>> append_unread({"a": 0.5, "b": 2.5}, {"a": 9.0, "b": 8.0, "c": 7.0, "d": 6.0})
        {'a': 0.5, 'b': 2.5, 'c': -0.5, 'd': -1.5}
    """
    lowest = min(scores.values(), default=0.0)
    # Far from 0, neighboring 32-bit floats are further apart than 1.
    step = max(1.0, abs(lowest) / 1_000_000)
    below = [document for document in ranking(found) if document not in scores]
    return {**scores, **{document: lowest - step * place for place, document in enumerate(below, start=1)}}


def check_documents(documents: Documents, read: Mapping[str, Iterable[str]]) -> None:
    """Look for the documents of every query, so that none turns out missing hours later."""
    rank, size = place_among_processes()
    for query in list(read)[rank::size]:
        fingerprint_documents(documents, {query: list(read[query])}, query)


def fingerprint_documents(documents: Documents, read: Mapping[str, Sequence[str]], query: str) -> str:
    """The fingerprint of the documents that are read for a query; one that is missing is an `InputError`.

    It is asked of every query before the first is read, so that no document turns out missing hours later.
    """
    try:
        return fingerprints.of_contents(documents, read[query])
    except InputError as error:
        raise InputError(f"query {query}: {error}") from None


def _scores(readings: Mapping[str, Reading]) -> dict[str, float]:
    return {document: as_float32(reading.score) for document, reading in readings.items()}
