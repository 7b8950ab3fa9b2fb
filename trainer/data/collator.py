"""`PairCollator`: turns training pairs, or labeled documents, into a batch of model inputs."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from docparade.modeling import DocumentProcessor
from docparade.modeling.documents import Document
from docparade.modeling.engine import EncodeDocuments
from docparade.modeling.passages import EncodedDocument
from docparade.reranking.caches.document_lookup import DocumentLike, Documents, fetch_documents
from docparade.reranking.caches.fingerprints import hash_document
from docparade.retrieval.errors import InputError

from .in_batch import list_candidates, number_documents
from .labeled_documents import LabeledDocument, TrainingExample
from .pairs import TrainingPair

# Most queries whose tokens are cached. A training set has far fewer; a stream of triples may have more.
MAX_CACHED_QUERIES = 100_000

Inputs = list[np.ndarray]
"""The encoder's inputs for one document: one per passage."""


class PairCollator:
    """Builds a batch from pairs: the documents of each pair in order, the relevant one first.

    It also builds one from labeled documents; the batch then has their `labels`. A document that occurs in several
    pairs of a batch is tokenized once.

    Args:
        processor: The model's processor.
        queries: Query texts by id; `None` if pairs hold texts.
        documents: Documents by id; `None` if pairs hold texts.
        encode_documents: Replaces the processor's own method, such as a `TokenCache`'s.
        resample_passages: Whether the passages of too long documents are sampled again each time they are read.
        passage_probability: To train on single passages: the probability that a passage after the first is used.
            Passages at the same position in a pair's documents are compared; the shorter document's passages are
            repeated. `None` trains on whole documents.
        in_batch_negatives: Whether the documents of other queries are further negatives. The batch then has each
            document once, each pair's query once, and `candidates` (see `in_batch.list_candidates`).

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
        in_batch_negatives: bool = False,
    ) -> None:
        self.processor = processor
        self.queries = queries
        self.documents = documents
        self.encode_documents = encode_documents or processor.encode_documents
        self.resample_passages = resample_passages
        self.passage_probability = passage_probability
        self.in_batch_negatives = in_batch_negatives
        self._query_tokens: dict[str, list[int]] = {}

    def __call__(self, pairs: Sequence[TrainingExample]) -> dict[str, Tensor]:
        """Build `input_ids`, `attention_mask`, `passage_mask`, ... for the model's `forward`."""
        encoded = self._encode(pairs)
        if self.in_batch_negatives:
            return self._compare_all(cast(Sequence[TrainingPair], pairs), encoded)
        documents: list[Inputs] = []
        queries: list[list[int]] = []
        sizes: list[int] = []
        for pair in pairs:
            inputs = self._build_inputs(pair, [encoded[name] for name in pair.documents])
            used = inputs if self.passage_probability is None else self._split_into_passages(pair, inputs)
            documents += used
            queries += [self._encode_query(self.query_text(pair.query))] * len(used)
            sizes.append(len(used))
        batch = self.processor.stack(documents) | self.processor.stack_queries(queries)
        return batch | label_documents(pairs, sizes)

    def _compare_all(self, pairs: Sequence[TrainingPair], encoded: Mapping[str, EncodedDocument]) -> dict[str, Tensor]:
        numbers = number_documents({name: hash_document(found.document) for name, found in encoded.items()})
        inputs: dict[int, Inputs] = {}
        for pair in pairs:
            for name in pair.documents:
                if numbers[name] not in inputs:
                    (inputs[numbers[name]],) = self._build_inputs(pair, [encoded[name]])
        queries = [self._encode_query(self.query_text(pair.query)) for pair in pairs]
        batch = self.processor.stack([inputs[number] for number in range(len(inputs))])
        return batch | self.processor.stack_queries(queries) | {"candidates": list_candidates(pairs, numbers)}

    def query_text(self, name: str) -> str:
        """Look up the text of a pair's query."""
        if self.queries is None:
            return name
        if name not in self.queries:
            raise InputError(f"a training pair has query {name}, which is not among the queries.")
        return self.queries[name]

    def document_fields(self, names: Sequence[str]) -> dict[str, DocumentLike]:
        """Look up the documents of pairs."""
        return {name: name for name in names} if self.documents is None else fetch_documents(self.documents, names)

    def lengths(self, names: Sequence[str]) -> dict[str, int]:
        """The lengths of documents: their characters."""
        documents = self.document_fields(names).items()
        return {name: len(Document.of(document, f"document {name}").text) for name, document in documents}

    def _encode(self, pairs: Sequence[TrainingExample]) -> dict[str, EncodedDocument]:
        names = list(dict.fromkeys(name for pair in pairs for name in pair.documents))
        fields = self.document_fields(names)
        return dict(zip(names, self.encode_documents([fields[name] for name in names]), strict=True))

    def _build_inputs(self, pair: TrainingExample, documents: Sequence[EncodedDocument]) -> list[Inputs]:
        processor = self.processor
        if self.resample_passages:
            processor = copy.copy(processor)
            processor.seed = pair.number
        query = self._encode_query(self.query_text(pair.query))
        return [
            [processor.join(query, passage) for passage in processor.split(document, len(query))[0]]
            for document in documents
        ]

    def _encode_query(self, text: str) -> list[int]:
        if text not in self._query_tokens:
            if len(self._query_tokens) >= MAX_CACHED_QUERIES:
                self._query_tokens.clear()
            self._query_tokens[text] = self.processor.encode_query(text)
        return self._query_tokens[text]

    def _split_into_passages(self, pair: TrainingExample, inputs: list[Inputs]) -> list[Inputs]:
        """Make every used passage of the pair's documents a document of its own."""
        draw = random.Random(f"passages {self.processor.seed} {pair.number}")
        positions = range(max(len(document) for document in inputs))
        used = [position for position in positions if position == 0 or draw.random() < (self.passage_probability or 0)]
        return [[document[position % len(document)]] for position in used for document in inputs]


def label_documents(pairs: Sequence[TrainingExample], sizes: Sequence[int]) -> dict[str, Tensor]:
    """The labels of labeled documents, one for each of a document's `sizes` rows in the batch; pairs have none.

    Example:
        >>> label_documents([LabeledDocument("q", "a", 1), LabeledDocument("q", "b", 0)], sizes=[1, 2])
        {'labels': tensor([1, 0, 0])}
    """
    labels = [example.label for example in pairs if isinstance(example, LabeledDocument)]
    return {"labels": torch.tensor(labels).repeat_interleave(torch.tensor(sizes))} if labels else {}
