"""The engine for bi-encoders: passages and queries are encoded separately, each of them once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .documents import Document, DocumentLike
from .engine_batching import TokenBudget, UseFeatures, encode_by_length, put_in_order
from .engine_inference import inference
from .engine_pairs import PairWork
from .passages import EncodedDocument, Passage
from .reader_late_interaction import without_tokens

if TYPE_CHECKING:
    from .modeling_ranker import DocumentRanker


class SeparateWork(PairWork):
    """Pairs for a bi-encoder, which encodes the passages of a document once for all of its queries."""

    def _start(self) -> None:
        super()._start()
        self.rows: list[list[int]] = []
        """For each pair, the positions of its passages among the inputs."""
        self.last: tuple[Document, list[Passage], int, int] | None = None

    def prepare_queries(self, query_ids: Mapping[str, list[int]]) -> None:
        """Encode all queries."""
        inputs = [self.processor.wrap_query(ids) for ids in query_ids.values()]
        self.numbers = {query: number for number, query in enumerate(query_ids)}

        def take(rows: Tensor, length: int) -> dict[str, Tensor]:
            return self.processor.pad([inputs[row] for row in rows])

        lengths = np.array([wrapped.shape[1] for wrapped in inputs], dtype=np.int64)
        self.queries = encode_by_length(self.model, lengths, take, self.budget) if inputs else None

    def add(self, document: Document, encoded: EncodedDocument, query: str, query_ids: list[int]) -> None:
        """Cut a document into passages, and add their inputs unless they were added for the query before."""
        if self.last is None or self.last[0] is not document:
            passages, unread = self.split(document, encoded, 0)
            self.last = (document, passages, unread, len(self.inputs))
            inputs = [self.processor.join([], passage) for passage in passages]
            self.inputs += inputs
            self.tokens += sum(joined.shape[1] for joined in inputs)
        _, passages, unread, first = self.last
        self.read.append(len(passages))
        self.unread.append(unread)
        kept = self.choose_passages(document, query, query_ids, passages)
        unread += len(passages) - len(kept)
        spans = [(passages[place].start, passages[place].end) for place in kept]
        self.pairs.append((document, query, spans, unread))
        self.rows.append([first + place for place in kept])

    def _encode(self) -> list[Tensor]:
        if not self.inputs:
            return []
        # Where passages are chosen, a passage is encoded if it was chosen for one of the document's queries.
        used = sorted(set(chain(*self.rows)))
        self.inputs = [self.inputs[row] for row in used]
        counts = [len(rows) for rows in self.rows]
        related = self.map_inputs(self._compare(np.searchsorted(used, list(chain(*self.rows))), counts))
        return list(put_in_order(related).split(counts))

    def _compare(self, inputs: np.ndarray, counts: Sequence[int]) -> UseFeatures:
        """Compares the vectors of each batch with the queries right away: vectors of all tokens would take much memory.

        Args:
            inputs: For each passage of each pair, the position of its input.
            counts: How many passages each pair has.
        """
        assert self.queries is not None
        queries = self.queries
        query_of = np.repeat([self.numbers[query] for _, query, _, _ in self.pairs], counts)
        # An input stands for one passage of each query; the positions of these passages are neighbors in `places`.
        places = np.argsort(inputs, kind="stable")
        starts = np.searchsorted(inputs[places], np.arange(len(self.inputs) + 1))

        def compare(rows: np.ndarray, vectors: Tensor) -> tuple[np.ndarray, Tensor]:
            found = np.concatenate([places[starts[row] : starts[row + 1]] for row in rows])
            own = np.repeat(np.arange(len(rows)), starts[rows + 1] - starts[rows])
            asked, read = (torch.from_numpy(chosen).to(vectors.device) for chosen in (query_of[found], own))
            return found, self.model.relate(queries[asked], vectors[read])

        return compare


class PassageVectors(NamedTuple):
    """A bi-encoder's vectors of the passages of a document."""

    vectors: Tensor
    """`(passages, width)`; with late interaction `(passages, 1 + length, width)`, as `LateInteraction` makes them."""
    spans: list[tuple[int, int]]
    """The passages' spans in the document's text."""
    unread: int
    """How many passages were left out because of the processor's `max_passages`."""
    empty: bool = False
    """Whether there is nothing to read in the document."""


def encode_passages(model: DocumentRanker, documents: Sequence[DocumentLike]) -> list[PassageVectors]:
    """A bi-encoder's vectors of all passages of documents, which do not depend on a query."""
    with inference(model):
        work = SeparateWork(model, TokenBudget(model), None)
        found = [Document.of(document, f"documents[{i}]") for i, document in enumerate(documents)]
        for document, encoded in zip(found, work.processor.encode_documents(found), strict=True):
            work.add(document, encoded, "", [])
        counts = [len(rows) for rows in work.rows]
        vectors = work.encode_inputs().split(counts) if work.inputs else []
        return [
            PassageVectors(of_document, spans, unread, document in work.empty)
            for of_document, (document, _, spans, unread) in zip(vectors, work.pairs, strict=True)
        ]


def encode_query_texts(model: DocumentRanker, queries: Sequence[str], tokens: bool = False) -> Tensor:
    """A bi-encoder's vectors of queries, `(queries, width)`.

    With `tokens`, a model with late interaction gives the vectors of tokens, too.
    """
    with inference(model):
        work = SeparateWork(model, TokenBudget(model), None)
        work.prepare_queries({query: work.processor.encode_query(query) for query in queries})
        assert work.queries is not None
        numbers = torch.tensor([work.numbers[query] for query in queries], device=work.queries.device)
        return (work.queries if tokens else without_tokens(work.queries))[numbers]
