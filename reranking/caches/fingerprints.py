"""Fingerprints of models, documents and values: hashes under which what is computed from them is stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from docparade.modeling import DocumentRanker
from docparade.modeling.documents import Document
from docparade.modeling.encoder_fingerprint import fingerprint_tokenization, fingerprint_weights, plain_config
from docparade.retrieval.runs import Run

from .document_lookup import CollectionDocuments, Documents, fetch_documents

BATCH_DOCUMENTS = 256
CONTENT = np.dtype("S16")
"""The type of many hashes of documents, `hash_document`, in one array."""


def fingerprint_values(values: Any) -> str:
    """Fingerprint JSON values; the order of keys does not matter.

    Example:
        >>> fingerprint_values({"a": 1, "b": 2}) == fingerprint_values({"b": 2, "a": 1})
        True
    """
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def hash_document(document: Document) -> bytes:
    """Hash a document's contents, without its id."""
    parts = json.dumps([document.title, document.headings, document.text], ensure_ascii=False)
    return hashlib.blake2b(parts.encode(), digest_size=16).digest()


def fingerprint_contents(documents: Documents, ids: Iterable[str]) -> str:
    """Fingerprint the ids and contents of documents, in this order; the documents are read."""
    hashed = hashlib.blake2b(digest_size=16)
    remaining = iter(ids)
    while batch := list(islice(remaining, BATCH_DOCUMENTS)):
        for document_id, document in fetch_documents(documents, batch).items():
            content = Document.of(document, f"document {document_id}")
            hashed.update(json.dumps(document_id).encode() + hash_document(content))
    return hashed.hexdigest()


def fingerprint_documents(documents: Documents, ids: Iterable[str] | None = None) -> str:
    """Fingerprint documents and their ids: those given, or all. A collection is not read, but has a version."""
    chosen = None if ids is None else sorted(set(ids))
    if isinstance(documents, CollectionDocuments):
        return fingerprint_values({"collection": documents.collection.version(), "ids": chosen})
    return fingerprint_contents(documents, documents if chosen is None else chosen)


def fingerprint_model(model: DocumentRanker) -> str:
    """Fingerprint a ranker: weights, configuration and processor."""
    configuration = plain_config(model.config)
    configuration["encoder_config"] = plain_config(model.encoder.config)
    processor = model.require_processor()
    weights, tokens = fingerprint_weights(model, again=True), fingerprint_tokenization(processor, again=True)
    return fingerprint_values([weights, configuration, processor.settings, tokens])


def fingerprint_inputs(
    model: DocumentRanker, run: Run, queries: Mapping[str, str], documents: Documents
) -> dict[str, object]:
    """Fingerprint, by name, all that scores depend on except the documents' contents (see `fingerprint_contents`)."""
    version = documents.collection.version() if isinstance(documents, CollectionDocuments) else None
    return {
        "model": fingerprint_model(model),
        "run": fingerprint_values(list(run.items())),
        "queries": fingerprint_values([queries[query] for query in run]),
        "documents": version,
    }
