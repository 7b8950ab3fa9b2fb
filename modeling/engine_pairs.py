"""Pairs of a query and a document that are read together: their inputs, features and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from .documents import Document
from .engine_batching import TokenBudget, UseFeatures, map_by_length, put_in_order
from .engine_cascade import ChoosePassages
from .engine_results import AggregatedDocument, Reading
from .passages import EncodedDocument, Passage

if TYPE_CHECKING:
    from .modeling_ranker import DocumentRanker

# How many batches have their inputs sorted together; fewer if the features of all tokens are kept meanwhile.
BATCHES_PER_SORT = 64
BATCHES_PER_SORT_WITH_TOKENS = 16
DOCUMENTS_PER_AGGREGATION = 64


class PairWork:
    """Pairs that are read together."""

    def __init__(self, model: DocumentRanker, budget: TokenBudget, choose: ChoosePassages | None) -> None:
        self.model = model
        self.processor = model.require_processor()
        self.budget = budget
        self.choose = choose
        self.batches_per_sort = BATCHES_PER_SORT_WITH_TOKENS if model.reader.rows_of_tokens else BATCHES_PER_SORT
        self.read: list[int] = []
        self.unread: list[int] = []
        """Passages of each pair that the processor selected (`read`) and left out (`unread`)."""
        self.empty: set[Document] = set()
        """The documents in which there is nothing to read."""
        self._start()

    def _start(self) -> None:
        self.tokens = 0
        self.pairs: list[tuple[Document, str, list[tuple[int, int]], int]] = []
        self.inputs: list[np.ndarray] = []

    @property
    def is_full(self) -> bool:
        """Whether enough was added to sort it well."""
        return self.tokens >= self.budget.tokens * self.batches_per_sort

    def prepare_queries(self, query_ids: Mapping[str, list[int]]) -> None:
        """Called once, with the tokens of all queries."""

    def add(self, document: Document, encoded: EncodedDocument, query: str, query_ids: list[int]) -> None:
        """Cut a document into passages for a query, and add their inputs."""
        passages, unread = self.split(document, encoded, len(query_ids))
        self.read.append(len(passages))
        self.unread.append(unread)
        kept = self.choose_passages(document, query, query_ids, passages)
        unread += len(passages) - len(kept)
        passages = [passages[place] for place in kept]
        inputs = [self.processor.join(query_ids, passage) for passage in passages]
        self.pairs.append((document, query, [(passage.start, passage.end) for passage in passages], unread))
        self.inputs += inputs
        self.tokens += sum(joined.shape[1] for joined in inputs)

    def split(self, document: Document, encoded: EncodedDocument, query_length: int) -> tuple[list[Passage], int]:
        """The passages of a document, and how many more are left unread; notes documents that are empty."""
        if self.processor.is_empty(encoded):
            self.empty.add(document)
        return self.processor.split(encoded, query_length)

    def choose_passages(
        self, document: Document, query: str, query_ids: list[int], passages: Sequence[Passage]
    ) -> list[int]:
        """The positions of the passages to read; all positions if no limit is set."""
        if self.choose is None:
            return list(range(len(passages)))
        # A prompt has no words to look for.
        return self.choose(document, query, query_ids[len(self.processor.query_prompt_ids) :], passages)

    def read_all(self) -> list[tuple[Reading, str]]:
        """Read all inputs that were added, and start anew."""
        read = []
        aggregated = aggregate_documents(self.model, self._encode())
        for (document, query, spans, unread), scored in zip(self.pairs, aggregated, strict=True):
            read.append((Reading.of(document, spans, unread, scored, document in self.empty), query))
        self._start()
        return read

    def _encode(self) -> list[Tensor]:
        """The features of each pair's passages."""
        if not self.inputs:
            return []
        return list(self.encode_inputs().split([len(spans) for _, _, spans, _ in self.pairs]))

    def encode_inputs(self) -> Tensor:
        """The features of all inputs."""
        return put_in_order(self.map_inputs(lambda rows, features: (rows, features)))

    def map_inputs(self, use: UseFeatures) -> list[tuple[np.ndarray, Tensor]]:
        """The results of applying `use` to the features of each batch of inputs."""

        def take(rows: Tensor, length: int) -> dict[str, Tensor]:
            return self.processor.pad([self.inputs[row] for row in rows])

        lengths = np.array([joined.shape[1] for joined in self.inputs])
        return map_by_length(self.model, lengths, take, use, self.budget)


def aggregate_documents(model: DocumentRanker, documents: Sequence[Tensor]) -> list[AggregatedDocument]:
    """Aggregate documents, each given as the features of its passages."""
    results: dict[int, AggregatedDocument] = {}
    # Documents with a similar number of passages are aggregated together.
    order = sorted(range(len(documents)), key=lambda i: len(documents[i]))
    for start in range(0, len(order), DOCUMENTS_PER_AGGREGATION):
        group = order[start : start + DOCUMENTS_PER_AGGREGATION]
        passages = torch.nn.utils.rnn.pad_sequence([documents[i] for i in group], batch_first=True)
        counts = torch.tensor([len(documents[i]) for i in group], device=passages.device)
        mask = torch.arange(passages.size(1), device=passages.device) < counts[:, None]
        aggregated = model.aggregator(passages, mask)
        passage_scores = torch.zeros(mask.shape, device=mask.device)
        passage_scores[mask] = model.passage_scores(passages[mask]).float()
        columns = (aggregated.score.float().tolist(), passage_scores.tolist(), aggregated.weights.float().tolist())
        for i, score, own, weights in zip(group, *columns, strict=True):
            count = len(documents[i])
            results[i] = AggregatedDocument(score, own[:count], weights[:count])
    return [results[i] for i in range(len(documents))]
