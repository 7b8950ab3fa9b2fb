"""How much disk a bi-encoder's kept vectors take, before any is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from docparade.modeling import Document, DocumentRanker
from docparade.modeling.reader_bi_encoder import BiEncoder

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
    reader, processor = cast(BiEncoder, model.reader), model.require_processor()
    chosen = ids[:: max(1, len(ids) // SAMPLE)]
    found = [Document.of(text, f"document {name}") for name, text in fetch_documents(documents, chosen).items()]
    passages = [passage for one in processor.encode_documents(found) for passage in processor.split(one, 0)[0]]
    vectors = len(passages)
    if not reader.single_vector:
        vectors += sum(processor.join([], passage).shape[1] for passage in passages)
    return vectors * reader.width * np.dtype(vector_type).itemsize * len(ids) // max(1, len(chosen))
