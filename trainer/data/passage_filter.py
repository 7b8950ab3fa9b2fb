"""Selecting passages to train on: a trained scorer keeps the best passages of each relevant document.

A relevant document has many passages that say nothing about the query. The scorer keeps the `keep` best of them. Each
is paired with a passage drawn from the query's documents that are not relevant (Chen et al., TREC 2021 Deep Learning
track: keep 5, documents of the top 100). The result is a file of triples.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from transformers.utils import logging

from docparade.modeling import DocumentRanker
from docparade.modeling.engine import read_pairs
from docparade.modeling.engine_results import RankedPassage, Reading
from docparade.modeling.reading_options import EncodeDocuments, ReadingOptions
from docparade.reranking.caches.document_lookup import Documents, fetch_documents
from docparade.reranking.caches.fingerprints import fingerprint_inputs, fingerprint_values
from docparade.reranking.processes.resumable_work import work_in_parts
from docparade.reranking.rerank_run import check_input, fingerprint_query_documents
from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import Qrels, Run, ranking
from docparade.retrieval.storage.files import atomic_write

logger = logging.get_logger(__name__)


def filter_passages(
    model: DocumentRanker,
    run: Run,
    queries: Mapping[str, str],
    qrels: Qrels,
    documents: Documents,
    output: str | Path,
    *,
    keep: int = 5,
    depth: int = 100,
    seed: int = 42,
    encode_documents: EncodeDocuments | None = None,
    progress: bool | None = None,
) -> None:
    """Write the kept passages as JSON lines of `{"query", "positive", "negatives"}`, which `Triples.from_files` reads.

    Like `rerank_to_file`, it continues where it was interrupted, and the processes of a process group share the work.

    Args:
        model: The scorer; its processor splits documents into passages.
        run: The first-stage run. Negatives come from a query's top `depth` documents that are not judged relevant.
        queries: Query texts by id.
        qrels: Judgments; a document with a grade above 0 is relevant, whether or not it was retrieved.
        documents: Documents by id, such as `CollectionDocuments`.
        output: The file to write; compressed if its name ends in `.gz`.
        keep: Passages to keep of each relevant document.
        depth: The lowest rank of documents for negatives.
        seed: Seed for drawing negatives; the draw depends only on the seed and the kept passage.
        encode_documents: Replaces the processor's own method. A `TokenCache` saves time: all negatives are tokenized.
        progress: Whether to show a progress bar; `None` shows it in a terminal, and elsewhere a line every
            half minute.

    Example:
        ```python
        filter_passages(scorer, run, queries, qrels, documents, "kept.jsonl.gz")
        ```
    """
    if keep < 1:
        raise InputError(f"keep must be at least 1, and is {keep}.")
    candidates = {query: _find_candidates(found, qrels.get(query, {}), depth) for query, found in run.items()}
    usable = {query: found for query, found in candidates.items() if found.relevant and found.others}
    if not usable:
        raise InputError("no query of the run has both a document that is judged relevant and one that is not.")
    if len(usable) < len(run):
        logger.warning(
            f"{len(run) - len(usable)} of {len(run)} queries are left out: they have no relevant document, or no other."
        )
    usable_run = {query: run[query] for query in usable}
    check_input(model, usable_run, queries, depth)
    ids_by_query = {query: [*found.relevant, *found.others] for query, found in usable.items()}

    def work(query: str) -> list[dict[str, Any]]:
        return _make_triples(model, query, queries[query], usable[query], documents, keep, seed, encode_documents)

    def finish(results: Iterator[list[dict[str, Any]]]) -> None:
        with atomic_write(output) as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for lines in results for line in lines)

    judged = fingerprint_values({query: found.relevant for query, found in usable.items()})
    settings = {"judgments": judged, "keep": keep, "depth": depth, "seed": seed}
    key = fingerprint_inputs(model, usable_run, queries, documents) | settings
    fingerprint = partial(fingerprint_query_documents, documents, ids_by_query)
    work_in_parts(output, key, list(usable), fingerprint, work, finish, progress)


class _Candidates(NamedTuple):
    """A query's document ids: the relevant ones, and the other retrieved ones."""

    relevant: list[str]
    others: list[str]


def _find_candidates(found: Mapping[str, float], grades: Mapping[str, int], depth: int) -> _Candidates:
    relevant = [document for document, grade in grades.items() if grade > 0]
    return _Candidates(relevant, [document for document in ranking(found)[:depth] if document not in relevant])


def _make_triples(
    model: DocumentRanker,
    query: str,
    text: str,
    candidates: _Candidates,
    documents: Documents,
    keep: int,
    seed: int,
    encode_documents: EncodeDocuments | None,
) -> list[dict[str, Any]]:
    """Make the triples of one query."""
    processor = model.require_processor()
    fields = fetch_documents(documents, [*candidates.relevant, *candidates.others])
    encode = encode_documents or processor.encode_documents
    pool = [
        (encoded.document, passage.start, passage.end)
        for encoded in encode([fields[name] for name in candidates.others])
        for passage in processor.split(encoded, len(processor.encode_query(text)))[0]
        if passage.end > passage.start
    ]
    pairs = [(text, fields[name]) for name in candidates.relevant]
    readings = read_pairs(model, pairs, ReadingOptions(progress=False, encode_documents=encode_documents))
    triples = []
    for name, reading in zip(candidates.relevant, readings, strict=True):
        for passage in _best(reading, keep if pool else 0):
            negative = random.Random(f"{seed} {query} {name} {passage.start}").choice(pool)
            positive = processor.passage_text(reading.document, passage.start, passage.end)
            triples.append({"query": text, "positive": positive, "negatives": [processor.passage_text(*negative)]})
    return triples


def _best(reading: Reading, keep: int) -> list[RankedPassage]:
    """The best passages that have a text, the best first."""
    real = [passage for passage in reading.to_ranked(0).passages if passage.text]
    return sorted(real, key=lambda passage: -passage.score)[:keep]
