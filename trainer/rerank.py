"""Reranking: the best documents of a first-stage run, scored again by a model.

The documents of a query's top `depth` get the model's scores. Those below keep their old order behind them, with the
lowest of the model's scores less 1, 2, 3 ...: nothing that the first stage found is lost, and measures that look deeper
than `depth` stay what they should be.

The engine reads one query at a time, so that neither the number of processes nor an interruption changes what is read
together: a score is the same to the last bit however the work was divided. It is a 32-bit float, and is kept in the
fewest digits that give this float back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed
from tqdm.auto import tqdm
from transformers.utils import logging

from docparade.modeling import DocumentRanker
from docparade.modeling.ranking import EncodeDocuments, Reading, read_pairs
from docparade.retrieval.birch import PassageScores, write_passage_scores
from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import Run, ranking, write_run

from . import fingerprints
from .documents import fetch
from .parts import Parts

logger = logging.get_logger(__name__)

MOST_PARTS = 1000
"""Into how many parts a reranking is divided at most; with fewer queries, each is a part."""


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
    for query in tqdm(mine, "reranking", unit=" queries", disable=_disable(progress, rank)):
        readings = read_query(model, queries[query], run[query], documents, depth, encode_documents)
        scores[query] = _scores(readings)
    parts = [scores]
    if size > 1:
        parts = [{}] * size
        torch.distributed.all_gather_object(parts, scores)
    return {query: put_above(parts[i % size][query], found) for i, (query, found) in enumerate(run.items())}


def rerank_to_file(
    model: DocumentRanker,
    run: Run,
    queries: Mapping[str, str],
    documents: Mapping[str, Mapping[str, Any]],
    output: str | Path,
    depth: int = 100,
    *,
    passage_scores: str | Path | None = None,
    encode_documents: EncodeDocuments | None = None,
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
        tag: The run's name, in its last column.

    The other arguments are those of `rerank`.

    Example:
        >>> rerank_to_file(model, read_run("bm25.txt"), queries, documents, "parade.txt")  # doctest: +SKIP
    """
    check_input(model, run, queries, depth)
    for path in (output, *([passage_scores] if passage_scores else [])):
        if not Path(path).resolve().parent.is_dir():
            raise InputError(f"{path} cannot be written: its folder does not exist; make it first.")
    rank, size = place_among_processes()
    shards = _shards(list(run))
    parts = Parts(output, _key(model, run, queries, documents, depth, passage_scores is not None))
    if rank == 0:
        _announce(parts.open(), parts, len(shards), size)
    wait_for_all()
    # By number, so that nobody has to look at what the others have done meanwhile.
    mine = [number for number in range(rank, len(shards), size) if not parts.has(number)]
    _check_documents(documents, {query: run[query] for number in mine for query in shards[number]}, depth)
    with tqdm(
        total=sum(len(shards[number]) for number in mine),
        desc="reranking",
        unit=" queries",
        disable=_disable(progress, rank),
    ) as bar:
        for number in mine:
            readings: dict[str, dict[str, Reading]] = {}
            for query in shards[number]:
                readings[query] = read_query(model, queries[query], run[query], documents, depth, encode_documents)
                bar.update()
            parts.write(number, _part(readings, passage_scores is not None))
    wait_for_all()
    if rank == 0:
        _merge(parts, len(shards), run, output, passage_scores, tag)
    wait_for_all()


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


def place_among_processes() -> tuple[int, int]:
    """This process's number, and how many there are."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def wait_for_all() -> None:
    """Until every process is here."""
    if place_among_processes()[1] > 1:
        torch.distributed.barrier()


def _shards(queries: list[str]) -> list[list[str]]:
    """The queries of each part: one, or as many as keep the number of parts in bounds."""
    length = max(1, math.ceil(len(queries) / MOST_PARTS))
    return [queries[start : start + length] for start in range(0, len(queries), length)]


def _key(
    model: DocumentRanker,
    run: Run,
    queries: Mapping[str, str],
    documents: Mapping[str, Any],
    depth: int,
    with_passages: bool,
) -> dict[str, Any]:
    """All that the parts are made from."""
    best = sorted({document for found in run.values() for document in ranking(found)[:depth]})
    return {
        "model": fingerprints.of_model(model),
        "run": fingerprints.of_values(list(run.items())),
        "queries": fingerprints.of_values([queries[query] for query in run]),
        "documents": fingerprints.of_documents(documents, best),
        "depth": depth,
        "passage scores": with_passages,
    }


def _announce(differs: Sequence[str], parts: Parts, count: int, size: int) -> None:
    done = sum(parts.has(number) for number in range(count))
    if differs:
        logger.warning(f"{parts.folder} was made with other input ({', '.join(differs)}): starting anew.")
    if done:
        logger.warning(f"{done} of {count} parts are in {parts.folder}: going on from there.")
    if size > 1:
        logger.warning(f"{size} processes share the work.")


def _check_documents(documents: Mapping[str, Mapping[str, Any]], run: Run, depth: int) -> None:
    """Look for every document before the first is read, so that a missing one does not come up hours later."""
    for query, found in run.items():
        try:
            fetch(documents, ranking(found)[:depth])
        except InputError as error:
            raise InputError(f"query {query} of the run: {error}") from None


def _part(readings: Mapping[str, Mapping[str, Reading]], with_passages: bool) -> dict[str, Any]:
    part: dict[str, Any] = {"scores": {query: _scores(read) for query, read in readings.items()}}
    if with_passages:
        part["passages"] = {
            query: {document: [kept(score) for score in reading.passage_scores] for document, reading in read.items()}
            for query, read in readings.items()
        }
    return part


def _merge(parts: Parts, count: int, run: Run, output: str | Path, passage_scores: str | Path | None, tag: str) -> None:
    reranked: Run = {}
    passages: PassageScores = {}
    for number in range(count):
        part = parts.read(number)
        reranked |= {query: put_above(scores, run[query]) for query, scores in part["scores"].items()}
        passages |= part.get("passages", {})
    if passage_scores is not None:
        write_passage_scores(passages, passage_scores)
    write_run(reranked, output, tag)
    parts.remove()


def _scores(readings: Mapping[str, Reading]) -> dict[str, float]:
    return {document: kept(reading.score) for document, reading in readings.items()}


def _disable(progress: bool | None, rank: int) -> bool | None:
    """What tqdm takes: the first process alone shows a bar; `None` is in a terminal only."""
    if rank > 0:
        return True
    return None if progress is None else not progress
