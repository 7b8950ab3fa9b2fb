"""From training pairs to what the model reads: `PairCollator`."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from docparade.modeling import DocumentProcessor
from docparade.modeling.engine import EncodeDocuments
from docparade.modeling.processing_document import EncodedDocument
from docparade.reranking.documents import DocumentLike, Documents, fetch
from docparade.retrieval.errors import InputError

from .pairs import TrainingPair

# Queries whose tokens are kept; training has far fewer, a stream of ready triples may have more.
QUERIES_KEPT = 100_000

Inputs = list[np.ndarray]
"""What the encoder reads of one document: an input a passage."""


class PairCollator:
    """Builds the batch of some pairs: their documents in order, each pair's relevant one first.

    A document that stands in several pairs of a batch is tokenized once.

    Args:
        processor: The model's.
        queries: The queries' texts by id; `None`, where pairs hold texts.
        documents: The documents by id; `None`, where pairs hold texts.
        encode_documents: In place of the processor's own, such as a `TokenCache`'s.
        resample_passages: Whether documents with too many passages are sampled anew each time they are read.
        passage_probability: For training on single passages: with which probability a passage after the first is used.
            The passages at the same position of a pair's documents are compared; a document with fewer passages starts
            over. `None` trains on whole documents.

    Example:
        ```python
        batch = PairCollator(model.processor)([TrainingPair("query", "relevant", "other")])
        batch["input_ids"].shape  # torch.Size([2, 1, 7])
        ```
    """

    def __init__(
        self,
        processor: DocumentProcessor,
        queries: Mapping[str, str] | None = None,
        documents: Documents | None = None,
        *,
        encode_documents: EncodeDocuments | None = None,
        resample_passages: bool = False,
        passage_probability: float | None = None,
    ) -> None:
        self.processor = processor
        self.queries = queries
        self.documents = documents
        self.encode_documents = encode_documents or processor.encode_documents
        self.resample_passages = resample_passages
        self.passage_probability = passage_probability
        self._query_tokens: dict[str, list[int]] = {}

    def __call__(self, pairs: Sequence[TrainingPair]) -> dict[str, Tensor]:
        """`input_ids`, `attention_mask`, `passage_mask`, ... as the model's `forward` takes them."""
        encoded = self._encode(pairs)
        documents: list[Inputs] = []
        for pair in pairs:
            inputs = self._inputs(pair, [encoded[name] for name in pair.documents])
            documents += inputs if self.passage_probability is None else self._single_passages(pair, inputs)
        return self.processor.stack(documents)

    def query_text(self, name: str) -> str:
        """The text of a pair's query."""
        if self.queries is None:
            return name
        if name not in self.queries:
            raise InputError(f"a training pair has query {name}, and the queries do not.")
        return self.queries[name]

    def document_fields(self, names: Sequence[str]) -> dict[str, DocumentLike]:
        """The contents of pairs' documents."""
        return {name: name for name in names} if self.documents is None else fetch(self.documents, names)

    def _encode(self, pairs: Sequence[TrainingPair]) -> dict[str, EncodedDocument]:
        names = list(dict.fromkeys(name for pair in pairs for name in pair.documents))
        fields = self.document_fields(names)
        return dict(zip(names, self.encode_documents([fields[name] for name in names]), strict=True))

    def _inputs(self, pair: TrainingPair, documents: Sequence[EncodedDocument]) -> list[Inputs]:
        processor = self.processor
        if self.resample_passages:
            processor = copy.copy(processor)
            processor.seed = pair.number
        query = self._tokens_of_query(self.query_text(pair.query))
        return [
            [processor.join(query, passage) for passage in processor.split(document, len(query))[0]]
            for document in documents
        ]

    def _tokens_of_query(self, text: str) -> list[int]:
        if text not in self._query_tokens:
            if len(self._query_tokens) >= QUERIES_KEPT:
                self._query_tokens.clear()
            self._query_tokens[text] = self.processor.encode_query(text)
        return self._query_tokens[text]

    def _single_passages(self, pair: TrainingPair, inputs: list[Inputs]) -> list[Inputs]:
        """The pair's documents passage by passage, each a document of its own."""
        draw = random.Random(f"passages {self.processor.seed} {pair.number}")
        positions = range(max(len(document) for document in inputs))
        used = [position for position in positions if position == 0 or draw.random() < (self.passage_probability or 0)]
        return [[document[position % len(document)]] for position in used for document in inputs]
