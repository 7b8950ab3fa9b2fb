"""The systems that read with a bi-encoder: docparade's and sentence-transformers', with and without kept vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import AutoConfig

from docparade.modeling import DocumentRanker, MaxPForSequenceClassification
from docparade.modeling.configuration_ranker import is_ranker
from docparade.modeling.engine_pairs import aggregate_documents
from docparade.modeling.engine_vectors import encode_passages
from docparade.modeling.sentence_transformers_files import SentenceTransformersFiles
from docparade.reranking.loading import check_source, explain_load_errors
from docparade.retrieval.errors import InputError

from .systems import docparade, kept
from .timing import Turn
from .workload import Workload

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# The settings that decide which passages a document has; a bi-encoder takes those of the ranker it is compared with.
PASSAGE_SETTINGS = (
    *("unit", "window", "stride", "max_passages", "selection", "seed"),
    *("repeat_title", "title_words", "heading_words", "strip_tags"),
)


@dataclass(frozen=True)
class BiEncoder:
    """A bi-encoder, as a ranker and by name, and what it reads."""

    source: str
    ranker: DocumentRanker
    work: Workload

    @classmethod
    def load(cls, source: str, beside: DocumentRanker, work: Workload) -> BiEncoder:
        """Load a sentence-transformers model as MaxP over the passages of another ranker, on its device.

        Args:
            source: The model's Hub id or folder.
            beside: The ranker it is compared with.
            work: What that ranker reads.
        """
        check_source(source, "--bi-encoder")
        settings = beside.require_processor().settings
        options: dict[str, Any] = {name: settings[name] for name in PASSAGE_SETTINGS}
        with explain_load_errors(source, "--bi-encoder"):
            _check_bi_encoder(source)
            ranker = MaxPForSequenceClassification.from_bi_encoder(source, "max", **options)
        ranker.to(beside.device)
        return cls(source, ranker, Workload.of(ranker, work.query, work.documents))

    @cached_property
    def passage_texts(self) -> list[str]:
        """The texts of all passages, in the order of the documents."""
        processor = self.ranker.require_processor()
        encoded = processor.encode_documents(self.work.documents)
        return [
            processor.passage_text(one.document, start, end)
            for one, spans in zip(encoded, self.work.spans, strict=True)
            for start, end in spans
        ]

    @cached_property
    def sentence_transformer(self) -> SentenceTransformer:
        """The same model in sentence-transformers, with the same limit of tokens."""
        from sentence_transformers import SentenceTransformer

        encoder = SentenceTransformer(self.source, device=str(self.ranker.device))
        encoder.max_seq_length = self.ranker.require_processor().max_length
        return encoder

    @torch.inference_mode()
    def document_scores(self, similarities: Tensor) -> list[float]:
        """The scores of documents from the similarities of all passages: MaxP, as in the ranker."""
        of_documents = similarities.split([len(spans) for spans in self.work.spans])
        return [document.score for document in aggregate_documents(self.ranker, of_documents)]


def _check_bi_encoder(source: str) -> None:
    config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    if is_ranker(config) or not SentenceTransformersFiles(source, {}).pooling:
        raise InputError(
            f"--bi-encoder: {source} is not a bi-encoder of sentence-transformers; both libraries have to load it."
        )


def bi_encoder(bi: BiEncoder) -> Turn:
    """docparade's engine, from texts to scores: query and passages are encoded."""
    return docparade(bi.ranker, bi.work)


def vectors(bi: BiEncoder) -> Turn:
    """docparade with vectors that were kept: only the query is encoded."""
    return kept(bi.ranker, bi.work)


def semantic_search(bi: BiEncoder) -> Turn:
    """sentence-transformers: encodes query and passages, which are cut before, and computes their similarity."""
    encoder, texts = bi.sentence_transformer, bi.passage_texts

    def run() -> tuple[list[float], dict[str, float]]:
        return _search(bi, encoder, _encode_texts(encoder, texts)), {}

    return run


def semantic_search_kept(bi: BiEncoder) -> Turn:
    """sentence-transformers with embeddings of the passages that were kept: only the query is encoded."""
    encoder = bi.sentence_transformer
    kept = _encode_texts(encoder, bi.passage_texts)

    def run() -> tuple[list[float], dict[str, float]]:
        return _search(bi, encoder, kept), {}

    return run


def _search(bi: BiEncoder, encoder: SentenceTransformer, passages: Tensor) -> list[float]:
    query = encoder.encode_query([bi.work.query], show_progress_bar=False, convert_to_tensor=True)
    return bi.document_scores(encoder.similarity(query, passages)[0])


def _encode_texts(encoder: SentenceTransformer, texts: list[str]) -> Tensor:
    """The embeddings of texts, in sentence-transformers' default batches, which it sorts by length."""
    return encoder.encode_document(texts, show_progress_bar=False, convert_to_tensor=True)


BI_ENCODER_SYSTEMS: dict[str, Callable[[BiEncoder], Turn]] = {
    "bi-encoder": bi_encoder,
    "vectors": vectors,
    "semantic-search": semantic_search,
    "semantic-search-kept": semantic_search_kept,
}
"""Each prepares what it needs, and returns what is timed."""

KEPT = ("vectors", "semantic-search-kept")
"""Those that keep the vectors of passages, whose encoding is timed on its own."""


def encode_with_docparade(bi: BiEncoder) -> Turn:
    """The vectors of all passages with docparade, from the texts of documents."""

    def run() -> tuple[list[float], dict[str, float]]:
        encode_passages(bi.ranker, bi.work.documents)
        return [], {}

    return run


def encode_with_sentence_transformers(bi: BiEncoder) -> Turn:
    """The same with sentence-transformers, from the texts of passages, which are cut before."""
    encoder, texts = bi.sentence_transformer, bi.passage_texts

    def run() -> tuple[list[float], dict[str, float]]:
        _encode_texts(encoder, texts)
        return [], {}

    return run


ENCODERS: dict[str, Callable[[BiEncoder], Turn]] = {
    "docparade": encode_with_docparade,
    "sentence-transformers": encode_with_sentence_transformers,
}
"""Those that encode passages; each prepares what it needs, and returns what is timed."""
