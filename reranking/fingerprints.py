"""Short strings that change whenever something does: what is computed from it is kept under them."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import tokenizers
import torch
from transformers import PreTrainedTokenizerBase

from docparade.modeling import DocumentProcessor, DocumentRanker
from docparade.modeling.documents import Document
from docparade.retrieval.runs import Run

from .documents import CollectionDocuments, Documents, fetch

DOCUMENTS_AT_ONCE = 256
# The processor's settings that change a document's tokens or its units; all others only choose among them.
_TOKEN_SETTINGS = ("unit", "repeat_title", "title_words", "heading_words", "strip_tags")


def of_values(values: Any) -> str:
    """Of anything that JSON can hold; the order of keys does not count.

    Example:
        >>> of_values({"a": 1, "b": 2}) == of_values({"b": 2, "a": 1})
        True
    """
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def of_document(document: Document) -> bytes:
    """Of a document's contents, whatever its id."""
    parts = json.dumps([document.title, document.headings, document.text], ensure_ascii=False)
    return hashlib.blake2b(parts.encode(), digest_size=16).digest()


def of_contents(documents: Documents, ids: Iterable[str]) -> str:
    """Of what stands in documents now, and of their ids in order; they are read."""
    hashed = hashlib.blake2b(digest_size=16)
    names = iter(ids)
    while together := list(islice(names, DOCUMENTS_AT_ONCE)):
        for document_id, document in fetch(documents, together).items():
            content = Document.of(document, f"document {document_id}")
            hashed.update(json.dumps(document_id).encode() + of_document(content))
    return hashed.hexdigest()


def of_documents(documents: Documents, ids: Iterable[str] | None = None) -> str:
    """Of documents and their ids: those named, or all. A collection is not read: it knows its own version."""
    chosen = None if ids is None else sorted(set(ids))
    if isinstance(documents, CollectionDocuments):
        return of_values({"collection": documents.collection.version(), "ids": chosen})
    return of_contents(documents, documents if chosen is None else chosen)


def of_tokenizer(tokenizer: PreTrainedTokenizerBase) -> str:
    """Of all that a fast tokenizer does to a text."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    # These follow the last call.
    del state["truncation"], state["padding"]
    return of_values([state, tokenizers.__version__])


def of_tokenizing(processor: DocumentProcessor) -> str:
    """Of all that changes what `encode_documents` returns for a document: tokenizer, settings, and its own version."""
    # A model that was loaded with its own code brings a processor with that code's version; before there was one, none.
    code = sys.modules[type(processor).encode_documents.__module__]
    version = getattr(code, "TOKENIZATION_VERSION", None)
    settings = {name: getattr(processor, name) for name in _TOKEN_SETTINGS}
    return of_values([of_tokenizer(processor.tokenizer), settings, version])


def of_model(model: DocumentRanker) -> str:
    """Of a ranker: its weights, what it does with them, and how its processor reads."""
    hashed = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        hashed.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        hashed.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    processor = model.require_processor()
    settings = {name: value for name, value in processor.to_dict().items() if name != "tokenizer"}
    configuration = {**model.config.to_dict(), "_name_or_path": ""}
    return of_values([hashed.hexdigest(), configuration, settings, of_tokenizing(processor)])


def of_reading(model: DocumentRanker, run: Run, queries: Mapping[str, str], documents: Documents) -> dict[str, Any]:
    """Of all that scores are made from, by name, but for what stands in the documents: see `of_contents`."""
    known = documents.collection.version() if isinstance(documents, CollectionDocuments) else None
    return {
        "model": of_model(model),
        "run": of_values(list(run.items())),
        "queries": of_values([queries[query] for query in run]),
        "documents": known,
    }
