"""The engine behind `model.rank` and `model.score`: passages of many documents together, real tokens only.

Each document is tokenized once, while the encoder reads the documents before it. The inputs of many pairs are sorted by
length and encoded in batches with a budget of tokens. Only the scores of a pair are kept, so memory is bounded for
lists of any length.

The engine's files, each built on the files before it: `engine_results` (scores and passages),
`engine_inference` (a model in use), `engine_threads` (CPU cores), `engine_packing` (no padding), `engine_batching`
(batches by length), `engine_pairs` (inputs of query and passage), `engine_vectors` (query and passage apart),
`engine_kept` (vectors that were computed before), this file, and `engine_ranking`. Some options trade exactness for
speed: `engine_cascade` and `engine_budget` (fewer passages), and `engine_int8`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from tqdm.auto import tqdm
from transformers.utils import logging

from .aggregators import SumPassage
from .documents import Document, DocumentLike
from .engine_batching import TokenBudget
from .engine_cascade import ChoosePassages, choose_by_words
from .engine_inference import inference
from .engine_kept import VectorChooser, check_kept, read_kept
from .engine_pairs import PairWork
from .engine_results import Reading
from .engine_vectors import SeparateWork
from .passages import EncodedDocument
from .processing_document import check_query
from .reading_options import READ_ALL, EncodeDocuments, ReadingOptions

if TYPE_CHECKING:
    from .modeling_ranker import DocumentRanker

logger = logging.get_logger(__name__)

# Characters of the documents that are tokenized together.
BLOCK_CHARACTERS = 200_000
PROGRESS_FROM_DOCUMENTS = 500


def read_pairs(
    model: DocumentRanker,
    pairs: Sequence[tuple[str, DocumentLike]],
    options: ReadingOptions = READ_ALL,
    choose_passages: ChoosePassages | None = None,
) -> list[Reading]:
    """Read every pair of a query and a document; the results are in the same order.

    Equal pairs are read once, so their scores are equal to the last bit.

    Args:
        model: The ranker.
        pairs: Queries and documents.
        options: How they are read.
        choose_passages: Chooses the passages to read, in place of `options.keep_passages`.
    """
    check_kept(model, options.vectors)
    for i, pair in enumerate(pairs):
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise TypeError(f"pairs[{i}] is not a pair of a query and a document.")
    documents = [Document.of(document, f"documents[{i}]") for i, (_, document) in enumerate(pairs)]
    contents = [replace(document, id=None) for document in documents]
    positions: dict[Document, dict[str, list[int]]] = {}
    for position, content in enumerate(contents):
        query = check_query(pairs[position][0])
        positions.setdefault(content, {}).setdefault(query, []).append(position)
    readings: dict[int, Reading] = {}
    # None is tqdm's own value for: no bar if standard error is not a terminal.
    hide = None if len(pairs) >= PROGRESS_FROM_DOCUMENTS else True
    if options.progress is not None:
        hide = not options.progress
    originals = dict(zip(contents, documents, strict=True))
    if options.keep_passages is not None and options.choose_by is not None:
        queries = list(dict.fromkeys(query for query, _ in pairs))
        choose_passages = VectorChooser(options.choose_by, queries, originals).choose(options.keep_passages)
    elif options.keep_passages is not None:
        choose_passages = choose_by_words(options.keep_passages)
    with inference(model), tqdm(total=len(pairs), unit="doc", desc="Ranking", disable=hide, leave=False) as bar:
        if options.vectors is not None:
            found = read_kept(model, positions, originals, options.vectors)
        else:
            encode = options.encode_documents or model.require_processor().encode_documents
            kind = SeparateWork if model.reader.separate else PairWork
            work = kind(model, TokenBudget(model, options.batch_tokens), choose_passages)
            found = _read_distinct(work, positions, encode)
        for reading, query in found:
            places = positions[reading.document][query]
            check_finite(model, _name(documents[places[0]], places[0]), [reading.score, *reading.passage_scores])
            readings |= {place: replace(reading, document=documents[place]) for place in places}
            bar.update(len(places))
    empty = sorted(place for place, reading in readings.items() if reading.empty)
    model.require_processor().warn_of_empty([_name(documents[place], place) for place in empty])
    _warn_of_sums(model, readings.values())
    return [readings[position] for position in range(len(pairs))]


def _warn_of_sums(model: DocumentRanker, readings: Iterable[Reading]) -> None:
    """Say, once, that SumP ranks by length if no passage has a negative score."""
    if not isinstance(model.aggregator, SumPassage):
        return
    read = list(readings)
    lengths = {len(reading.passage_scores) for reading in read}
    if len(lengths) > 1 and all(score > 0 for reading in read for score in reading.passage_scores):
        logger.warning_once(
            "aggregation='sum' adds up passage scores, and all of them are positive here: the more passages a document "
            "has, the higher its score. Use aggregation='avg' or 'max', or a ranker that gives irrelevant passages "
            "negative scores."
        )


def _name(document: Document, place: int) -> str:
    """The name of a document in messages."""
    if document.id is not None:
        return f"document {document.id}"
    return f"documents[{place}]" + (f", which begins with {document.text[:40]!r}" if document.text else "")


def check_finite(model: DocumentRanker, name: str, scores: Iterable[float]) -> None:
    """Refuse scores of a document that are not finite."""
    if not all(map(math.isfinite, scores)):
        raise FloatingPointError(
            f"The score of {name} is not a finite number: weights or kept vectors are damaged, or {model.dtype} "
            "overflows; load the model with dtype=torch.float32."
        )


def _read_distinct(
    work: PairWork, queries_of: Mapping[Document, Iterable[str]], encode_documents: EncodeDocuments
) -> Iterator[tuple[Reading, str]]:
    """Read every document for its queries, block by block."""
    queries = dict.fromkeys(chain(*queries_of.values()))
    query_ids = {query: work.processor.encode_query(query) for query in queries}
    work.prepare_queries(query_ids)
    for document, encoded in _encode_ahead(encode_documents, _blocks(queries_of)):
        # `document`, not `encoded.document`: a processor from another copy of the code has its own class of documents.
        for query in queries_of[document]:
            work.add(document, encoded, query, query_ids[query])
            if work.is_full:
                yield from work.read_all()
    yield from work.read_all()
    work.model.warn_of_unread(work.unread, work.read)


def _encode_ahead(
    encode: EncodeDocuments, blocks: Iterable[list[Document]]
) -> Iterator[tuple[Document, EncodedDocument]]:
    """The documents of all blocks with their tokens; the next block is tokenized while one is used."""

    def encode_block(block: list[Document]) -> list[tuple[Document, EncodedDocument]]:
        return list(zip(block, encode(block), strict=True))

    with ThreadPoolExecutor(max_workers=1) as worker:
        coming: Future[list[tuple[Document, EncodedDocument]]] | None = None
        for block in blocks:
            ready, coming = coming, worker.submit(encode_block, block)
            if ready is not None:
                yield from ready.result()
        if coming is not None:
            yield from coming.result()


def _blocks(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Divide documents into blocks of at most `BLOCK_CHARACTERS`, or of one document."""
    block: list[Document] = []
    characters = 0
    for document in documents:
        length = len(document.title) + len(document.headings) + len(document.text)
        if block and characters + length > BLOCK_CHARACTERS:
            yield block
            block, characters = [], 0
        block.append(document)
        characters += length
    if block:
        yield block
