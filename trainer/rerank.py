"""Reranking: the best documents of a first-stage run, scored again by a model.

The documents of a query's top `depth` get the model's scores. Those below keep their old order behind them, with the
lowest of the model's scores less 1, 2, 3 ...: nothing that the first stage found is lost, and measures that look deeper
than `depth` stay what they should be.

The engine reads one query at a time, so that neither the number of processes nor an interruption changes what is read
together: a score is the same to the last bit however the work was divided. It is a 32-bit float, and is kept in the
fewest digits that give this float back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch.distributed
from tqdm.auto import tqdm

from docparade.modeling import DocumentRanker
from docparade.modeling.ranking import EncodeDocuments, Reading, read_pairs
from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import Run, ranking

from .documents import fetch


def rerank(
    model: DocumentRanker,
    run: Run,
    queries: Mapping[str, str],
    documents: Mapping[str, Mapping[str, Any]],
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
        >>> documents = CollectionDocuments(load_collection("cranfield"))  # doctest: +SKIP
        >>> rerank(model, read_run("bm25.txt"), queries, documents, depth=100)  # doctest: +SKIP
    """
    check_input(model, run, queries, depth)
    rank, size = place_among_processes()
    mine = list(run)[rank::size]
    scores: Run = {}
    for query in progress_bar(mine, progress if rank == 0 else False):
        readings = read_query(model, queries[query], run[query], documents, depth, encode_documents)
        scores[query] = {document: kept(reading.score) for document, reading in readings.items()}
    parts = [scores]
    if size > 1:
        parts = [{}] * size
        torch.distributed.all_gather_object(parts, scores)
    return {query: put_above(parts[i % size][query], found) for i, (query, found) in enumerate(run.items())}


def check_input(model: DocumentRanker, run: Run, queries: Mapping[str, str], depth: int) -> None:
    """Refuse what cannot be reranked before any work is done."""
    if depth < 1:
        raise InputError(f"depth must be at least 1, and is {depth}.")
    if model.processor is None:
        raise InputError("the model has no processor, so it cannot read text; load a checkpoint saved with one.")
    for query in run:
        if query not in queries:
            raise InputError(f"the run has query {query}, and the queries do not; rerank a run of the same queries.")
        if not queries[query].strip():
            raise InputError(f"query {query} of the run has no text; leave it out of the run, or give it one.")


def read_query(
    model: DocumentRanker,
    query: str,
    found: Mapping[str, float],
    documents: Mapping[str, Mapping[str, Any]],
    depth: int,
    encode_documents: EncodeDocuments | None = None,
) -> dict[str, Reading]:
    """What the model makes of the best `depth` documents that the first stage found for a query."""
    best = ranking(found)[:depth]
    texts = fetch(documents, best)
    pairs = [(query, texts[document]) for document in best]
    readings = read_pairs(model, pairs, progress=False, encode_documents=encode_documents)
    return dict(zip(best, readings, strict=True))


def kept(score: float) -> float:
    """A score as it is kept: a 32-bit float in the fewest digits.

    Example:
        >>> kept(0.10000000149011612)
        0.1
    """
    return float(str(np.float32(score)))


def put_above(scores: Mapping[str, float], found: Mapping[str, float]) -> dict[str, float]:
    """The model's scores, and below them what else the first stage found, in its old order.

    Example:
        >>> put_above({"a": 0.5, "b": 2.5}, {"a": 9.0, "b": 8.0, "c": 7.0, "d": 6.0})
        {'a': 0.5, 'b': 2.5, 'c': -0.5, 'd': -1.5}
    """
    lowest = min(scores.values(), default=0.0)
    # Far from 0, neighbouring 32-bit floats are further apart than 1.
    step = max(1.0, abs(lowest) / 1_000_000)
    below = [document for document in ranking(found) if document not in scores]
    return {**scores, **{document: lowest - step * place for place, document in enumerate(below, start=1)}}


def progress_bar(queries: Sequence[str], show: bool | None) -> Iterator[str]:
    """Queries one after another, with a bar that counts them."""
    yield from tqdm(queries, "reranking", unit=" queries", disable=None if show is None else not show)


def place_among_processes() -> tuple[int, int]:
    """This process's number, and how many there are."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1
