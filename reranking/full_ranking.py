"""Full ranking: a model scores every document of a collection for each query, without a first stage.

The unit of work is a shard of the documents and a query, or some queries of a bi-encoder, so an interruption costs
little and memory does not grow with the collection. Of each unit, only documents that can be among a query's best are
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from docparade.modeling import DocumentRanker
from docparade.modeling.engine import read_pairs
from docparade.modeling.engine_results import EMPTY_SCORE
from docparade.modeling.reading_options import ReadingArguments, ReadingOptions
from docparade.reranking.caches.document_lookup import CollectionDocuments, Documents, fetch_documents
from docparade.reranking.caches.fingerprints import fingerprint_contents, fingerprint_model, fingerprint_values
from docparade.reranking.caches.vector_cache import VectorCache
from docparade.reranking.processes.resumable_work import work_in_parts
from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import Run, ranking, write_run

from .rerank_run import append_below, as_cache, as_float32, fingerprint_reading, reading_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

SHARD_DOCUMENTS = 1024
"""Documents that the model reads for a query before the work is saved."""
QUERIES_TOGETHER = 64
"""Queries for which a bi-encoder reads documents, or searches their kept vectors, once."""


def rank_all_documents(
    model: DocumentRanker,
    queries: Mapping[str, str],
    documents: Documents,
    output: str | Path,
    hits: int = 1000,
    *,
    tag: str = "docparade",
    **options: Unpack[ReadingArguments],
) -> None:
    """Score all documents for every query, and write the best ones to a TREC file (Ghasemi and Hiemstra, 2021).

    In a process group, all processes must call this. As with `rerank_to_file`, finished work is kept in `OUTPUT.parts`,
    and an interrupted call continues, with any number of processes.

    Args:
        model: A ranker with its processor.
        queries: Query texts by id.
        documents: Documents by id, such as `CollectionDocuments`.
        output: The run to write; compressed if its name ends in `.gz`.
        hits: How many documents of each query are written.
        tag: The run's name, in its last column.
        **options: How documents are read: the fields of `ReadingOptions`. Without `encode_documents`, documents are
            tokenized for each query. A bi-encoder needs the `vectors` of all documents, unless it has late interaction.

    Example:
        ```python
        documents = CollectionDocuments(load_collection("cranfield"))
        tokens = TokenCache.open(None, model.processor, documents)
        rank_all_documents(model, queries, documents, "full.txt", encode_documents=tokens.encode_documents)
        ```
    """
    reading = reading_options(model, options)
    vectors = None if reading.vectors is None else as_cache(reading.vectors)
    _check(model, queries, hits, reading)
    version = documents.collection.version() if isinstance(documents, CollectionDocuments) else None
    key = {
        "model": fingerprint_model(model),
        "queries": fingerprint_values(list(queries.items())),
        "documents": version,
        "empty documents": "last",
        "hits": hits,
        **fingerprint_reading(reading),
    }

    def finish(results: Iterator[Run]) -> None:
        run: Run = {query: {} for query in queries}
        for result in results:
            for query, scores in result.items():
                run[query] = _best(run[query] | scores, hits)
        write_run({query: _place_empty(scores) for query, scores in run.items()}, output, tag)

    if vectors is not None and model.reader.single_vector:
        units: _Units = _SearchUnits(vectors, queries, hits)
    else:
        units = _PairUnits(model, queries, documents, hits, vectors, reading)
    work_in_parts(
        output,
        key,
        units.names,
        units.fingerprint,
        units.work,
        finish,
        reading.progress,
        count=units.count,
        unit="documents",
    )


def _check(
    model: DocumentRanker,
    queries: Mapping[str, str],
    hits: int,
    reading: ReadingOptions,
) -> None:
    """Refuse what cannot be ranked, before any work is done."""
    if hits < 1:
        raise InputError(f"hits must be at least 1, and is {hits}.")
    if reading.max_passages_per_query is not None:
        raise InputError("max_passages_per_query is for reranking; set keep_passages, which limits each document.")
    if model.processor is None:
        raise InputError("the model has no processor, so it cannot read text; load a checkpoint saved with one.")
    if model.reader.single_vector and reading.vectors is None:
        raise InputError("a bi-encoder ranks all documents by their kept vectors; give those of VectorCache.open.")
    if not queries:
        raise InputError("there are no queries to rank documents for.")
    for query, text in queries.items():
        try:
            model.processor.encode_query(text)
        except ValueError as error:
            raise InputError(f"query {query}: {error}") from None


def _best(scores: Mapping[str, float], hits: int) -> dict[str, float]:
    return {document: scores[document] for document in ranking(scores)[:hits]}


def _place_empty(scores: Mapping[str, float]) -> dict[str, float]:
    """Place documents in which there is nothing to read below the others, as `rerank` does."""
    read = {document: score for document, score in scores.items() if score != EMPTY_SCORE}
    return append_below(read, sorted(scores.keys() - read.keys(), reverse=True))


def _blocks(queries: Mapping[str, str], size: int) -> Iterator[dict[str, str]]:
    """The queries, some at a time."""
    remaining = iter(queries.items())
    while block := dict(islice(remaining, size)):
        yield block


class _PairUnits:
    """Units of a model that compares each pair: a query and a shard of the documents, query by query.

    A bi-encoder with late interaction takes some queries at a time, so it reads each document once for all of them.
    """

    def __init__(
        self,
        model: DocumentRanker,
        queries: Mapping[str, str],
        documents: Documents,
        hits: int,
        vectors: VectorCache | None,
        reading: ReadingOptions,
    ) -> None:
        self.model = model
        self.documents = documents
        self.hits = hits
        self.vectors = vectors
        self.reading = replace(reading, progress=False)
        self.ids = list(documents)
        if not self.ids:
            raise InputError("there are no documents to rank.")
        starts = range(0, len(self.ids), SHARD_DOCUMENTS)
        blocks = _blocks(queries, 1 if not model.reader.separate else QUERIES_TOGETHER)
        self.units = {f"{next(iter(block))} {start}": (block, start) for block in blocks for start in starts}
        self.names = list(self.units)
        # The queries share the shards.
        self._fingerprint_shard: Callable[[int], str] = cache(self._fingerprint)
        # The best documents that this process has found for the queries it is working on.
        self._found: Run = {}

    def count(self, name: str) -> int:
        block, start = self.units[name]
        return len(block) * len(self._shard(start))

    def fingerprint(self, name: str) -> str:
        return self._fingerprint_shard(self.units[name][1])

    def work(self, name: str) -> Run:
        block, start = self.units[name]
        scores = self._score(block, self._shard(start))
        self._found = {
            query: _best({**self._found.get(query, {}), **found}, self.hits) for query, found in scores.items()
        }
        # Those that can be among the query's best, as far as this process knows.
        return {
            query: {document: score for document, score in found.items() if document in self._found[query]}
            for query, found in scores.items()
        }

    def _score(self, block: Mapping[str, str], shard: list[str]) -> Run:
        """The scores of a shard's documents for some queries."""
        if self.vectors is not None:
            # Kept vectors stand for the documents: these need not be read.
            kept = {query: self.vectors.read(text, shard) for query, text in block.items()}
            return {
                query: {document: as_float32(scored.score) for document, scored in found.items()}
                for query, found in kept.items()
            }
        texts = fetch_documents(self.documents, shard)
        # Document by document: then a bi-encoder reads each once.
        pairs = [(query, document) for document in shard for query in block]
        asked = [(block[query], texts[document]) for query, document in pairs]
        readings = read_pairs(self.model, asked, self.reading)
        scores: Run = {query: {} for query in block}
        for (query, document), reading in zip(pairs, readings, strict=True):
            scores[query][document] = as_float32(reading.score)
        return scores

    def _fingerprint(self, start: int) -> str:
        shard = self._shard(start)
        return fingerprint_values(shard) if self.vectors is not None else fingerprint_contents(self.documents, shard)

    def _shard(self, start: int) -> list[str]:
        return self.ids[start : start + SHARD_DOCUMENTS]


class _SearchUnits:
    """Units of a bi-encoder without late interaction: some queries and all documents, whose vectors are kept."""

    def __init__(self, vectors: VectorCache, queries: Mapping[str, str], hits: int) -> None:
        self.vectors = vectors
        self.hits = hits
        self.units = {next(iter(block)): block for block in _blocks(queries, QUERIES_TOGETHER)}
        self.names = list(self.units)

    def count(self, name: str) -> int:
        return len(self.units[name]) * len(self.vectors)

    def fingerprint(self, name: str) -> str:
        # The vectors are in the key.
        return fingerprint_values(list(self.units[name]))

    def work(self, name: str) -> Run:
        block = self.units[name]
        found = self.vectors.search(list(block.values()), self.hits)
        # A search leaves these out.
        empty = dict.fromkeys(self.vectors.empty, EMPTY_SCORE)
        return {
            query: _best({document: as_float32(score) for document, score in scores.items()} | empty, self.hits)
            for query, scores in zip(block, found, strict=True)
        }


_Units = _PairUnits | _SearchUnits
