"""How much disk a bi-encoder's kept vectors take, before any is made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from docparade.modeling import Document, DocumentRanker

from .document_lookup import Documents, fetch_documents
from .vector_types import VectorType

SAMPLE = 64
"""So many documents stand for the others."""


def estimate_size(model: DocumentRanker, documents: Documents, ids: Sequence[str], vector_type: VectorType) -> int:
    """About how many bytes the vectors of documents take, from the passages of some of them.

    Example:
        ```python
        estimate_size(model, CollectionDocuments(collection), sorted(top_documents(run, 100)), "float16")
        ```
    """
    head, processor = model.vector_head, model.require_processor()
    assert head is not None
    chosen = ids[:: max(1, len(ids) // SAMPLE)]
    found = [Document.of(text, f"document {name}") for name, text in fetch_documents(documents, chosen).items()]
    passages = [passage for one in processor.encode_documents(found) for passage in processor.split(one, 0)[0]]
    vectors = len(passages)
    if head.late_interaction:
        vectors += sum(processor.join([], passage).shape[1] for passage in passages)
    return vectors * head.width * np.dtype(vector_type).itemsize * len(ids) // max(1, len(chosen))
