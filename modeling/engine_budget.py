"""A limit on the passages that a ranker reads for a query, over its whole list of documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .documents import Document, DocumentLike
from .engine import read_pairs
from .engine_cascade import bm25_scores
from .engine_kept import VectorChooser
from .engine_results import Reading
from .passages import EncodedDocument, Passage
from .reading_options import ReadingOptions

if TYPE_CHECKING:
    from .modeling_ranker import DocumentRanker


def read_within_budget(
    model: DocumentRanker,
    query: str,
    documents: Mapping[str, Document],
    options: ReadingOptions,
) -> tuple[dict[str, Reading], list[str]]:
    """Let a model read the `max_passages_per_query` most promising passages of a query's documents.

    Passages are chosen by a bi-encoder's vectors, or else by BM25 with the passages of the whole list as the
    collection. See `share_budget` for which are read. Empty documents do not count; they are among the
    readings.

    Returns:
        The readings of documents by id, and the ids of documents without a passage that is read, the most promising
        first, and documents with equal scores in the order of the list.
    """
    processor = model.require_processor()
    # Equal documents are read once, and count once.
    contents = {name: replace(document, id=None) for name, document in documents.items()}
    originals = {contents[name]: document for name, document in documents.items()}
    encoded = dict(
        zip(originals, (options.encode_documents or processor.encode_documents)(list(originals)), strict=True)
    )
    distinct = [document for document, found in encoded.items() if not processor.is_empty(found)]
    query_ids = processor.encode_query(query)
    passages = [processor.split(encoded[document], len(query_ids))[0] for document in distinct]
    if options.choose_by is not None:
        chooser = VectorChooser(options.choose_by, [query], originals)
        scores = [chooser.score(document, query, cut) for document, cut in zip(distinct, passages, strict=True)]
    else:
        scores = _score_words(query_ids[len(processor.query_prompt_ids) :], passages)
    limit = options.max_passages_per_query or len(distinct)
    places = dict(zip(distinct, share_budget(scores, limit), strict=True))

    def choose(document: Document, query: str, query_ids: Sequence[int], passages: Sequence[Passage]) -> list[int]:
        return places.get(document, [0])

    def encode(block: Sequence[DocumentLike]) -> list[EncodedDocument]:
        return [encoded[Document.of(document, "document")] for document in block]

    read = [name for name, content in contents.items() if places.get(content, [0])]
    pairs = [(query, documents[name]) for name in read]
    reading = ReadingOptions(options.batch_tokens, progress=False, encode_documents=encode)
    readings = read_pairs(model, pairs, reading, choose)
    best = dict(zip(distinct, (of_document.max() for of_document in scores), strict=True))
    unread = [name for name in contents if name not in read]
    unread.sort(key=lambda name: -best[contents[name]])
    return dict(zip(read, readings, strict=True)), unread


def _score_words(query_ids: Sequence[int], passages: Sequence[Sequence[Passage]]) -> list[np.ndarray]:
    """BM25 of the passages of each document, with all passages as the collection."""
    flat = [passage.token_ids for of_document in passages for passage in of_document]
    if not flat:
        return []
    ends = np.cumsum([len(of_document) for of_document in passages])
    return np.split(bm25_scores(query_ids, flat), ends[:-1])


def share_budget(scores: Sequence[np.ndarray], limit: int) -> list[list[int]]:
    """The passages to read of each document, in document order, from the scores of its passages.

    The best passage of each document comes first, in the order of these scores, for as many documents as the limit
    allows. The rest of the limit goes to the best of all other passages. Of equal scores, the earlier document or
    passage wins.

    Example:
        >>> scores = [np.array([0.1, 0.5]), np.array([0.9, 0.8, 0.7]), np.array([0.3])]
        >>> share_budget(scores, 2), share_budget(scores, 4)
        ([[1], [0], []], [[1], [0, 1], [0]])
    """
    best = [int(np.argmax(of_document)) for of_document in scores]
    firsts = sorted(range(len(scores)), key=lambda number: -scores[number][best[number]])[:limit]
    others = [
        (number, place) for number, own in enumerate(scores) for place in range(len(own)) if place != best[number]
    ]
    others.sort(key=lambda passage: -scores[passage[0]][passage[1]])
    kept: list[list[int]] = [[] for _ in scores]
    for number, place in [*((number, best[number]) for number in firsts), *others[: max(0, limit - len(scores))]]:
        kept[number].append(place)
    return [sorted(places) for places in kept]
