"""Encoding documents for a `VectorStore`: those that it lacks, shared by the processes of a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from docparade.modeling import Document, DocumentRanker
from docparade.modeling.engine_vectors import PassageVectors, encode_passages
from docparade.reranking.processes.process_group import (
    get_rank_and_size,
    share_from_main,
    should_hide_bar,
    wait_for_all,
)
from docparade.retrieval.errors import InputError
from docparade.retrieval.progress import show_progress
from docparade.retrieval.storage.arrays import Array
from docparade.retrieval.storage.checked_files import DamagedFile

from .content_list import ContentList
from .document_lookup import DocumentLike, Documents
from .fingerprints import BATCH_DOCUMENTS, CONTENT, hash_document
from .vector_store import Part, VectorStore, join
from .vector_types import VectorType

# Documents of a part with the vectors of tokens, which take some hundred times the space.
BATCH_DOCUMENTS_WITH_TOKENS = 32
BATCH_CHARACTERS_WITH_TOKENS = 1_000_000
"""Of these documents together, or of a longer one alone: some 450 MB of vectors are in memory then."""


def add_documents(
    model: DocumentRanker,
    store: VectorStore,
    exact: VectorStore | None,
    documents: Documents,
    listed: ContentList,
    together: bool = True,
) -> None:
    """Encode the documents that a store does not have; it has to be opened again to see them.

    Args:
        model: The encoder.
        store: The store.
        exact: The store of the same encoder's float32 vectors, from which smaller types are made without encoding.
        documents: Documents by id.
        listed: The documents that are wanted.
        together: Whether all processes of the group call this, and share the encoding.
    """
    rank, size = get_rank_and_size() if together else (0, 1)
    with store.lock() if rank == 0 else nullcontext():
        missing = _find_missing(store, listed.contents) if rank == 0 else np.zeros(0, np.int64)
        if together:
            missing = share_from_main(missing)
        _check_shared(store, rank)
        length = BATCH_DOCUMENTS if model.reader.single_vector else BATCH_DOCUMENTS_WITH_TOKENS
        with show_progress(total=len(missing), desc="encoding", unit=" documents", hide=should_hide_bar(None)) as bar:
            blocks = listed.read(documents, missing, length)
            if not model.reader.single_vector:
                blocks = chain.from_iterable(map(_cut, blocks))
            for number, block in enumerate(blocks):
                if number % size == rank:
                    store.write_part(number, encode_block(model, block, store.vector_type, exact))
                bar.update(len(block))
        if together:
            wait_for_all()
        if rank == 0:
            store.join_parts()
    if together:
        wait_for_all()


def _cut(block: Mapping[str, DocumentLike]) -> Iterator[dict[str, DocumentLike]]:
    """Documents in groups of at most `BATCH_CHARACTERS_WITH_TOKENS`, or of one document."""
    group: dict[str, DocumentLike] = {}
    characters = 0
    for name, document in block.items():
        length = len(Document.of(document, f"document {name}").text)
        if group and characters + length > BATCH_CHARACTERS_WITH_TOKENS:
            yield group
            group, characters = {}, 0
        group[name] = document
        characters += length
    yield group


def _check_shared(store: VectorStore, rank: int) -> None:
    if not store.folder.is_dir():
        raise InputError(
            f"process {rank} does not see {store.folder}, which process 0 made; set DOCPARADE_CACHE to a folder that "
            "all machines share."
        )


def _find_missing(store: VectorStore, contents: Array) -> Array:
    """The places of contents that are neither in the store nor in parts, each once. The lock is held."""
    store.drop_damaged()
    # Another process may have added documents meanwhile.
    now = VectorStore(store.folder, store.vector_type)
    distinct, places = np.unique(contents, return_index=True)
    found = (now.find(distinct) >= 0) | np.isin(distinct, now.find_parts())
    return np.sort(places[~found])


def encode_block(
    model: DocumentRanker, block: Mapping[str, DocumentLike], vector_type: VectorType, exact: VectorStore | None = None
) -> Part:
    """Encode documents together; those whose float32 vectors are kept are converted."""
    documents = [Document.of(document, f"document {name}") for name, document in block.items()]
    hashes = [hash_document(document) for document in documents]
    kept = [None if exact is None else _read_exact(exact, content) for content in hashes]
    left = [document for document, part in zip(documents, kept, strict=True) if part is None]
    encoded = iter(encode_passages(model, left) if left else ())
    parts = [
        _make_part(content, next(encoded)) if part is None else part for content, part in zip(hashes, kept, strict=True)
    ]
    part = dict(join(parts))
    part["vectors"], scales = compress(part["vectors"], vector_type)
    return part if scales is None else part | {"scales": scales}


def _read_exact(exact: VectorStore, content: bytes) -> Part | None:
    [number] = exact.find([content])
    try:
        return exact.read_part(number) if number >= 0 else None
    except DamagedFile:  # it is repaired when it is used itself
        return None


def _make_part(content: bytes, encoded: PassageVectors) -> Part:
    """A document with float32 vectors."""
    vectors, lengths = flatten_vectors(encoded.vectors.float().cpu())
    return {
        "contents": np.array([content], dtype=CONTENT),
        "counts": np.array([len(encoded.spans)], dtype=np.int32),
        "unread": np.array([encoded.unread], dtype=np.int32),
        "empty": np.array([encoded.empty]),
        "lengths": lengths.numpy().astype(np.int32),
        "spans": np.array(encoded.spans, dtype=np.int32).reshape(-1, 2),
        "vectors": vectors.numpy(),
    }


def flatten_vectors(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """The vectors of passages without padding, one after another, and how many each passage has."""
    if vectors.dim() == 2:
        return vectors, torch.ones(len(vectors), dtype=torch.int64)
    # A passage's own vector is never padding, even if it is zero.
    real = vectors.any(dim=-1)
    real[:, 0] = True
    return vectors[real], real.sum(dim=1)


def compress(vectors: Array, vector_type: VectorType) -> tuple[Array, Array | None]:
    """Vectors as they are stored, and the scale of each of type int8, `(vectors, 1)`."""
    largest = np.abs(vectors).max(initial=0)
    if not np.isfinite(largest):
        raise InputError(
            "the encoder gives vectors that are not finite numbers: its weights are damaged, or its type overflows; "
            "load it in float32."
        )
    if vector_type == "float16" and largest > np.finfo(np.float16).max:
        raise InputError(
            f"the vectors have numbers up to {largest:.6g}, and float16 holds at most 65504: keep them as float32."
        )
    if vector_type != "int8":
        return vectors.astype(vector_type), None
    scales = np.abs(vectors).max(axis=1, keepdims=True) / 127
    scales[scales == 0] = 1
    return np.round(vectors / scales).astype(np.int8), scales.astype(np.float32)
