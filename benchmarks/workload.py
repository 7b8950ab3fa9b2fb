"""What there is to read: one query and its documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from docparade.modeling import DocumentLike, DocumentRanker


@dataclass(frozen=True)
class Workload:
    """One query and its documents, as a ranker reads them."""

    query: str
    documents: Sequence[DocumentLike]
    lengths: np.ndarray
    """Tokens of each input: query, passage and special tokens."""
    spans: list[list[tuple[int, int]]]
    """The spans of the passages of each document."""
    dense_passages: int
    """Passages that the dense system pads every document to: the processor's limit, or else the most of any."""
    max_length: int
    """Tokens that the dense system pads every passage to."""

    @classmethod
    def of(cls, model: DocumentRanker, query: str, documents: Sequence[DocumentLike]) -> Workload:
        """Count the tokens of the query and the documents."""
        processor = model.require_processor()
        query_ids = processor.encode_query(query)
        lengths: list[int] = []
        spans: list[list[tuple[int, int]]] = []
        for encoded in processor.encode_documents(documents):
            passages, _ = processor.split(encoded, len(query_ids))
            lengths += [processor.join(query_ids, passage).shape[1] for passage in passages]
            spans.append([(passage.start, passage.end) for passage in passages])
        most = processor.max_passages or max(map(len, spans), default=0)
        return cls(query, documents, np.array(lengths), spans, most, processor.input_length)

    @property
    def passages(self) -> int:
        """Passages of all documents."""
        return len(self.lengths)

    @property
    def real_tokens(self) -> int:
        """Tokens that have to be encoded."""
        return int(self.lengths.sum())

    @property
    def dense_tokens(self) -> int:
        """Tokens that the dense system encodes."""
        return len(self.documents) * self.dense_passages * self.max_length
