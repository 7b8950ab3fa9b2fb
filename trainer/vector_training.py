"""Training only what is on top of a bi-encoder, on kept vectors: the encoder is frozen, and no document is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import cast

import torch
from peft import PeftModel
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from docparade.modeling import DocumentRanker
from docparade.modeling.engine_vectors import encode_query_texts
from docparade.reranking.caches.document_lookup import Documents
from docparade.reranking.caches.vector_cache import VectorCache
from docparade.retrieval.errors import InputError
from docparade.trainer.data.collator import MAX_CACHED_QUERIES, PairCollator, label_documents
from docparade.trainer.data.in_batch import list_candidates, number_documents
from docparade.trainer.data.labeled_documents import TrainingExample
from docparade.trainer.data.pairs import TrainingPair

from .arguments import RankingTrainingArguments, check_vector_settings


class VectorCollator(PairCollator):
    """Builds a batch of kept vectors from pairs; each query is encoded once.

    Args:
        vectors: The kept vectors of all documents of the pairs, with the ranker to train.
        queries: Query texts by id.
        documents: Documents by id, if something else than the ranker reads them, such as a teacher.
        in_batch_negatives: As for `PairCollator`.

    Example:
        ```python
        batch = VectorCollator(cache, queries)([TrainingPair("q1", "d7", "d3")])
        batch["passage_vectors"].shape  # torch.Size([2, 4, 384])
        ```
    """

    def __init__(
        self,
        vectors: VectorCache,
        queries: Mapping[str, str] | None,
        documents: Documents | None = None,
        *,
        in_batch_negatives: bool = False,
    ) -> None:
        processor = vectors.model.require_processor()
        super().__init__(processor, queries, documents, in_batch_negatives=in_batch_negatives)
        self.vectors = vectors
        self._query_vectors: dict[str, Tensor] = {}

    def __call__(self, pairs: Sequence[TrainingExample]) -> dict[str, Tensor]:
        """Build `passage_vectors`, `passage_mask` and `query_vectors` for the model's `forward`."""
        names = dict.fromkeys(name for pair in pairs for name in pair.documents)
        kept = {name: self.vectors.vectors(name).cpu() for name in names}
        queries = torch.stack([self._query_vector(self.query_text(pair.query)) for pair in pairs])
        if not self.in_batch_negatives:
            sizes = [len(pair.documents) for pair in pairs]
            documents = [kept[name] for pair in pairs for name in pair.documents]
            repeated = queries.repeat_interleave(torch.tensor(sizes), dim=0)
            return {**_stack(documents), "query_vectors": repeated} | label_documents(pairs, sizes)
        # Texts are not read, but equal texts have equal vectors.
        numbers = number_documents({name: vectors.numpy().tobytes() for name, vectors in kept.items()})
        distinct = {numbers[name]: vectors for name, vectors in kept.items()}
        batch = _stack([distinct[number] for number in range(len(distinct))])
        candidates = list_candidates(cast(Sequence[TrainingPair], pairs), numbers)
        return {**batch, "query_vectors": queries, "candidates": candidates}

    def lengths(self, names: Sequence[str]) -> dict[str, int]:
        """The lengths of documents: their passages."""
        return {name: len(self.vectors.vectors(name)) for name in names}

    def _query_vector(self, text: str) -> Tensor:
        if text not in self._query_vectors:
            if len(self._query_vectors) >= MAX_CACHED_QUERIES:
                self._query_vectors.clear()
            # Alone, so that a training that was continued gets the same bits.
            self._query_vectors[text] = encode_query_texts(self.vectors.model, [text])[0].cpu()
        return self._query_vectors[text]


def _stack(documents: Sequence[Tensor]) -> dict[str, Tensor]:
    counts = torch.tensor([len(vectors) for vectors in documents])
    padded = pad_sequence(list(documents), batch_first=True)
    return {"passage_vectors": padded, "passage_mask": torch.arange(padded.size(1)) < counts[:, None]}


def check_vector_training(model: nn.Module, args: RankingTrainingArguments, queries: Mapping[str, str] | None) -> None:
    """Refuse a training that needs more than kept vectors."""
    if isinstance(model, PeftModel):
        raise InputError("vectors: the encoder is frozen, so adapters in it would not be trained; leave LoRA out.")
    reader = cast(DocumentRanker, model).reader
    if reader.separate and not reader.single_vector:
        raise InputError(
            "vectors: training on them compares one vector of each passage, and this ranker also compares tokens (late "
            "interaction); leave vectors out."
        )
    if queries is None:
        raise InputError("vectors: kept vectors are found by the ids of documents, and the pairs hold texts.")
    check_vector_settings(vars(args))


def encoder_weights(ranker: DocumentRanker) -> Iterator[nn.Parameter]:
    """The weights that a bi-encoder's vectors depend on."""
    return chain(ranker.encoder.parameters(), ranker.reader.parameters())


def freeze_encoder(ranker: DocumentRanker) -> None:
    """Exclude the weights of encoder and reader from training."""
    for weights in encoder_weights(ranker):
        weights.requires_grad_(False)
