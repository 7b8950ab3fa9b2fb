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
        longest = 0
        for encoded in processor.encode_documents(documents):
            passages, _ = processor.split(encoded, len(query_ids))
            lengths += [processor.join(query_ids, passage).shape[1] for passage in passages]
            longest = max(longest, len(passages))
        return cls(query, documents, np.array(lengths), processor.max_passages or longest, processor.max_length)

    @property
    def real_tokens(self) -> int:
        """Tokens that have to be encoded."""
        return int(self.lengths.sum())

    @property
    def dense_tokens(self) -> int:
        """Tokens that the dense system encodes."""
        return len(self.documents) * self.dense_passages * self.max_length
