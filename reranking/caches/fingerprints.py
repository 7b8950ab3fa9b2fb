"""Fingerprints of models, documents and settings: hashes under which what is computed from them is stored."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import tokenizers
import torch
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from docparade.modeling import DocumentProcessor, DocumentRanker
from docparade.modeling.documents import Document
from docparade.retrieval.runs import Run

from .document_lookup import CollectionDocuments, Documents, fetch_documents

BATCH_DOCUMENTS = 256
# The processor's settings that change a document's tokens or units; the others only select among them.
_TOKEN_SETTINGS = ("unit", "repeat_title", "title_words", "heading_words", "strip_tags")

# What `save_pretrained` and `from_pretrained` write into a configuration; the dtype is that of the weights.
_SAVED_KEYS = ("_name_or_path", "architectures", "auto_map", "dtype", "transformers_version")


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


def fingerprint_tokenizer(tokenizer: PreTrainedTokenizerBase) -> str:
    """Fingerprint everything that affects the tokens of a fast tokenizer."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    # The last call set these.
    del state["truncation"], state["padding"]
    return fingerprint_values([state, tokenizers.__version__])


def fingerprint_tokenization(processor: DocumentProcessor) -> str:
    """Fingerprint everything that affects `processor.encode_documents`: tokenizer, settings and code version."""
    # A model loaded with the code of its checkpoint has a processor with that code's version, or none if it is older.
    code = sys.modules[type(processor).encode_documents.__module__]
    version = getattr(code, "TOKENIZATION_VERSION", None)
    settings = {name: getattr(processor, name) for name in _TOKEN_SETTINGS}
    if processor.passage_prompt:
        settings["passage_prompt"] = processor.passage_prompt
    # Processors of checkpoints with older code have no prompt.
    if getattr(processor, "prompt", ""):
        settings["prompt"] = processor.prompt
    return fingerprint_values([fingerprint_tokenizer(processor.tokenizer), settings, version])


def fingerprint_model(model: DocumentRanker) -> str:
    """Fingerprint a ranker: weights, configuration and processor."""
    configuration = _without_saved_keys(model.config)
    configuration["encoder_config"] = _without_saved_keys(model.encoder.config)
    return fingerprint_values([_hash_weights(model), configuration, *_processor_parts(model)])


def fingerprint_encoder(model: DocumentRanker) -> str:
    """Fingerprint what a bi-encoder's vectors depend on: encoder, vector head and processor."""
    configuration = [
        _without_saved_keys(model.encoder.config),
        model.config.bi_encoder,
        model.config.int8,
    ]
    weights = [_hash_weights(model.encoder), _hash_weights(model.vector_head)]
    return fingerprint_values([weights, configuration, *_processor_parts(model)])


def _hash_weights(module: torch.nn.Module | None) -> str:
    hashed = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()) if module is not None else []:
        hashed.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        hashed.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return hashed.hexdigest()


def _processor_parts(model: DocumentRanker) -> list[Any]:
    processor = model.require_processor()
    return [processor.settings, fingerprint_tokenization(processor)]


def _without_saved_keys(config: PreTrainedConfig) -> dict[str, Any]:
    """A configuration without what saving adds to it, or what depends on the place it was loaded from."""
    return {name: value for name, value in config.to_dict().items() if name not in _SAVED_KEYS}


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
