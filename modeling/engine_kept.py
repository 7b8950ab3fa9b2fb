"""Kept vectors of a bi-encoder: ranking without reading documents, and choosing the passages that a ranker reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from .documents import Document, DocumentLike
from .encoder_fingerprint import EncoderFingerprint, fingerprint_encoder
from .engine_cascade import ChoosePassages, keep_best
from .engine_pairs import aggregate_documents
from .engine_results import Reading
from .engine_vectors import PassageVectors, encode_passages, encode_query_texts
from .passages import Passage
from .reader import join_features
from .reader_late_interaction import without_tokens

if TYPE_CHECKING:
    from .modeling_ranker import DocumentRanker

# Documents that are encoded together.
BLOCK_DOCUMENTS = 256
# Vectors that are compared together.
BLOCK_VECTORS = 32_768


class KeptVectors(Protocol):
    """Passage vectors of documents: the result of `model.encode_documents`, or a `VectorCache`."""

    @property
    def model(self) -> DocumentRanker:
        """The bi-encoder that made them."""

    @property
    def encoder(self) -> EncoderFingerprint:
        """Its fingerprint at the time."""

    def find(self, document: Document) -> PassageVectors | None:
        """The vectors of a document; None if it was not encoded, or with other contents."""


@dataclass(frozen=True)
class DocumentVectors:
    """The passage vectors of documents in memory, found by the documents' contents."""

    model: DocumentRanker = field(repr=False)
    """The bi-encoder that made them."""
    encoder: EncoderFingerprint = field(repr=False)
    """Its fingerprint at the time."""
    passages: Mapping[Document, PassageVectors] = field(repr=False)
    """Document without its id -> its vectors."""

    def __len__(self) -> int:
        """The number of different documents."""
        return len(self.passages)

    def find(self, document: Document) -> PassageVectors | None:
        """The vectors of a document; None if it was not encoded."""
        return self.passages.get(replace(document, id=None))


def encode_documents(model: DocumentRanker, documents: Iterable[DocumentLike]) -> DocumentVectors:
    """See `DocumentRanker.encode_documents`."""
    if isinstance(documents, (str, Mapping)):
        raise TypeError("documents is a single document: give a list of them.")
    if not model.reader.separate:
        raise ValueError("A cross-encoder has no passage vectors: build the ranker with from_bi_encoder.")
    checked = (Document.of(document, f"documents[{i}]") for i, document in enumerate(documents))
    contents = list(dict.fromkeys(replace(document, id=None) for document in checked))
    blocks = (contents[start : start + BLOCK_DOCUMENTS] for start in range(0, len(contents), BLOCK_DOCUMENTS))
    encoder = fingerprint_encoder(model)
    encoded = [passages for block in blocks for passages in encode_passages(model, block)]
    return DocumentVectors(model, encoder, dict(zip(contents, encoded, strict=True)))


def check_kept(model: DocumentRanker, vectors: KeptVectors | None) -> None:
    """Refuse vectors from which this ranker cannot score documents."""
    if vectors is None:
        return
    if not model.reader.separate:
        raise ValueError(
            "vectors are for bi-encoders, and this ranker reads query and passage together: to choose the passages "
            "that it reads, give them as choose_by, with keep_passages."
        )
    _check_encoder("vectors", model, vectors)


def _check_encoder(name: str, model: DocumentRanker, vectors: KeptVectors) -> None:
    if reason := fingerprint_encoder(model).explain(vectors.encoder):
        raise ValueError(f"{name} do not fit this model: {reason}. Make them again.")


def require_vectors(vectors: KeptVectors, document: Document) -> PassageVectors:
    """The vectors of a document; an error if there are none."""
    found = vectors.find(document)
    if found is None:
        name = f"that begins with {document.text[:40]!r}" if document.id is None else repr(document.id)
        raise ValueError(
            f"There are no vectors of the document {name}: it was not encoded, or its text, title or headings have "
            "changed since."
        )
    return found


def read_kept(
    model: DocumentRanker,
    queries_of: Mapping[Document, Iterable[str]],
    originals: Mapping[Document, Document],
    vectors: KeptVectors,
) -> Iterator[tuple[Reading, str]]:
    """Score every document for its queries from vectors; `originals` have the documents' ids."""
    queries = list(dict.fromkeys(query for asked in queries_of.values() for query in asked))
    if not queries:
        return
    query_vectors = dict(zip(queries, encode_query_texts(model, queries, tokens=True), strict=True))
    block: list[tuple[Document, str, PassageVectors]] = []
    waiting = 0
    unread: list[int] = []
    read: list[int] = []
    for document, asked in queries_of.items():
        found = require_vectors(vectors, originals[document])
        unread.append(found.unread)
        read.append(len(found.spans))
        for query in asked:
            block.append((document, query, found))
            waiting += found.vectors[..., 0].numel()
            if waiting >= BLOCK_VECTORS:
                yield from _read_block(model, block, query_vectors)
                block, waiting = [], 0
    yield from _read_block(model, block, query_vectors)
    model.warn_of_unread(unread, read)


def _read_block(
    model: DocumentRanker, block: Sequence[tuple[Document, str, PassageVectors]], query_vectors: Mapping[str, Tensor]
) -> Iterator[tuple[Reading, str]]:
    if not block:
        return
    counts = [len(found.spans) for _, _, found in block]
    queries = torch.stack([query_vectors[query] for _, query, _ in block])
    passages = join_features([found.vectors for _, _, found in block]).to(queries)
    features = model.relate(queries.repeat_interleave(torch.tensor(counts, device=queries.device), dim=0), passages)
    aggregated = aggregate_documents(model, features.split(counts))
    for (document, query, found), scored in zip(block, aggregated, strict=True):
        yield Reading.of(document, found.spans, found.unread, scored, found.empty), query


class VectorChooser:
    """Scores a ranker's passages by a bi-encoder's vectors of the same documents.

    The two may cut documents differently. A passage of the ranker gets the score of the bi-encoder's passage that
    overlaps it most; of several that overlap it equally, the highest score. One that overlaps none comes last.
    """

    def __init__(
        self, vectors: KeptVectors, queries: Sequence[str], originals: Mapping[Document, Document] | None = None
    ) -> None:
        # The query's vector is of the model as it is now.
        _check_encoder("choose_by", vectors.model, vectors)
        self.vectors = vectors
        self.originals = originals or {}
        self.queries = dict(zip(queries, encode_query_texts(vectors.model, queries), strict=True)) if queries else {}

    def score(self, document: Document, query: str, passages: Sequence[Passage]) -> np.ndarray:
        """The scores of a document's passages for a query."""
        model = self.vectors.model
        found = require_vectors(self.vectors, self.originals.get(document, document))
        with torch.inference_mode():
            vectors = without_tokens(found.vectors).to(self.queries[query])
            features = model.relate(self.queries[query].expand(len(vectors), -1), vectors)
            scores = model.passage_scores(features).float().cpu().numpy()
        return scores_by_overlap([(passage.start, passage.end) for passage in passages], found.spans, scores)

    def choose(self, keep: int) -> ChoosePassages:
        """A function that keeps the first passage of a document, and the passages with the highest scores."""

        def choose(document: Document, query: str, query_ids: Sequence[int], passages: Sequence[Passage]) -> list[int]:
            if len(passages) <= keep:
                return list(range(len(passages)))
            return keep_best(self.score(document, query, passages), keep)

        return choose


def scores_by_overlap(
    spans: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]], scores: np.ndarray
) -> np.ndarray:
    """For each span, the score of the other span that overlaps it most; minus infinity if none does.

    Example:
        >>> scores_by_overlap([(0, 10), (10, 20), (50, 60)], [(0, 12), (12, 40)], np.array([0.5, 0.75])).tolist()
        [0.5, 0.75, -inf]
    """
    own, given = np.array(spans), np.array(others)
    starts = np.maximum(own[:, None, 0], given[None, :, 0])
    ends = np.minimum(own[:, None, 1], given[None, :, 1])
    overlaps = (ends - starts).clip(min=0)
    most = (overlaps > 0) & (overlaps == overlaps.max(axis=1, keepdims=True))
    return np.where(most, scores.astype(np.float64), -np.inf).max(axis=1)
