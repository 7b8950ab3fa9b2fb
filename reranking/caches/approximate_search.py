"""`ApproximateIndex`: a FAISS index over kept vectors, for collections that are too large to be searched exactly.

The passages' vectors, as 8-bit integers, are divided into lists around centroids (IVF), and a query is compared only
with those of the nearest lists. The documents of the passages found are then scored exactly, from their kept vectors:
a document may be missed, but the scores of those found are the scores of the exact search.

The index is built and memory-mapped in files of some passages, so memory does not grow with the collection.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np

from docparade.modeling import DocumentRanker
from docparade.modeling.engine_vectors import encode_query_texts
from docparade.modeling.reader_bi_encoder import BiEncoder
from docparade.retrieval.errors import InputError
from docparade.retrieval.progress import show_progress
from docparade.retrieval.storage.arrays import Array
from docparade.retrieval.storage.cache import build_once

from .vector_cache import VectorCache

FORMAT = 1
"""To be raised when the format of the files changes."""
FILE_PASSAGES = 1_000_000
"""Passages in one file of the index: those that are in memory while it is built."""
BLOCK_PASSAGES = 32_768
"""Passages that are added to the index at once."""
PROBES = 64
"""Lists that are searched for a query."""
CANDIDATES = 2
"""Documents that are scored exactly for each of the hits: 8-bit vectors only nearly have the right order."""
QUERIES_TOGETHER = 256
# FAISS warns below 39 passages a list, and is not better with more than a few.
_LIST_PASSAGES = 39
_SAMPLE_PASSAGES = 64


def check_searchable(model: DocumentRanker) -> None:
    """Refuse what cannot be searched with an index, before vectors are made."""
    if find_spec("faiss") is None:
        raise InputError("approximate search needs the package faiss-cpu: pip install faiss-cpu.")
    if not model.reader.separate:
        raise InputError("only a bi-encoder has passage vectors; build the ranker with from_bi_encoder.")
    if not model.config.scores_passages():
        raise InputError("an index finds similar vectors, and PARADE scores are not similarities; search exactly.")
    if cast(BiEncoder, model.reader).settings.similarity == "manhattan":
        raise InputError("an index is for cosine, dot and euclidean similarities, not for manhattan; search exactly.")
    if model.get_parameter("calibration.scale").item() <= 0:
        raise InputError("the ranker's learned scale is not positive, so similar passages score low; search exactly.")


class ApproximateIndex:
    """A FAISS index over the vectors of a `VectorCache`; needs the extra `faiss`.

    Example:
        ```python
        cache = VectorCache.open(None, model, load_collection("cranfield"))
        index = ApproximateIndex.open(None, cache)
        index.search(["flow over a flat plate"], hits=10)
        ```
    """

    def __init__(self, folder: Path, cache: VectorCache) -> None:
        import faiss

        self.folder = folder
        self.cache = cache
        # The lists are not read into memory.
        self._files: list[Any] = [
            faiss.read_index(str(path), faiss.IO_FLAG_MMAP) for path in sorted(folder.glob("*.faiss"))
        ]

    @classmethod
    def open(cls, folder: str | Path | None, cache: VectorCache, seed: int = 0) -> ApproximateIndex:
        """Open the index of kept vectors. The first process builds it, and the others wait.

        Args:
            folder: The folder for caches; `None` is docparade's own cache folder.
            cache: The kept vectors.
            seed: For the choice of the centroids.
        """
        check_searchable(cache.model)
        key = {"format": FORMAT, "vectors": cache.fingerprint, "similarity": _similarity(cache), "seed": seed}

        def build(target: Path) -> None:
            _build(target, cache, seed)

        root = None if folder is None else Path(folder)
        # FAISS reads the files itself, so they are compared with their checksums before.
        return cls(build_once("vector-indexes", "vectors", key, build, root).check_all(), cache)

    @property
    def lists(self) -> int:
        """The number of lists into which the passages are divided."""
        return int(self._files[0].nlist)

    def search(self, queries: Sequence[str], hits: int = 1000, probes: int = PROBES) -> list[dict[str, float]]:
        """The best documents for each query, among those found: document id -> score, the best first.

        Args:
            queries: The queries' texts.
            hits: How many documents to find for each query.
            probes: How many lists to search; with all of them, hardly any document is missed.
        """
        found: list[dict[str, float]] = []
        for start in range(0, len(queries), QUERIES_TOGETHER):
            vectors = encode_query_texts(self.cache.model, queries[start : start + QUERIES_TOGETHER]).float()
            candidates = self._find_candidates(_prepare(self.cache, vectors.cpu().numpy()), CANDIDATES * hits, probes)
            for vector, documents in zip(vectors, candidates, strict=True):
                found.append(self.cache.rank(documents, self.cache.score(vector, documents), hits))
        return found

    def _find_candidates(self, queries: Array, count: int, probes: int) -> list[Array]:
        """The documents of each query's most similar passages: `count`, or all that the lists have."""
        candidates: dict[int, Array] = {}
        pending = np.arange(len(queries))
        limit = min(2 * count, self.cache.passages)
        while len(pending):
            passages = self._find_passages(queries[pending], limit, probes)
            for query, of_query in zip(pending.tolist(), passages, strict=True):
                documents = np.unique(self.cache.find_documents(of_query[of_query >= 0]))
                # FAISS fills up with -1 when the lists have no more.
                if len(documents) >= count or of_query[-1] < 0 or limit == self.cache.passages:
                    candidates[query] = documents
            pending = np.array([query for query in pending if query not in candidates], dtype=np.int64)
            limit = min(2 * limit, self.cache.passages)
        return [candidates[query] for query in range(len(queries))]

    def _find_passages(self, queries: Array, limit: int, probes: int) -> Array:
        """The most similar passages of all files, the best first, `(queries, limit)`."""
        import faiss

        parameters = faiss.SearchParametersIVF()
        parameters.nprobe = min(probes, self.lists)
        found = [file.search(queries, limit, params=parameters) for file in self._files]
        if len(found) == 1:
            return found[0][1]
        distances, passages = (np.concatenate(columns, axis=1) for columns in zip(*found, strict=True))
        sign = 1 if _similarity(self.cache) == "euclidean" else -1
        order = np.argsort(sign * distances, axis=1, kind="stable")[:, :limit]
        return np.take_along_axis(passages, order, axis=1)


def measure_recall(
    cache: VectorCache, queries: Mapping[str, str], found: Mapping[str, Mapping[str, float]], hits: int, sample: int
) -> float:
    """The share of the exact search's documents that were found, over some of the queries, which are searched exactly.

    Args:
        cache: The kept vectors.
        queries: Query texts by id.
        found: What the index found.
        hits: How many documents were asked for.
        sample: How many queries to search exactly, evenly spread.
    """
    ids = list(queries)
    chosen = [ids[place] for place in np.linspace(0, len(ids) - 1, min(sample, len(ids))).astype(int)]
    exact = cache.search([queries[query] for query in chosen], hits)
    shares = [len(one.keys() & found[query].keys()) / len(one) for query, one in zip(chosen, exact, strict=True)]
    return sum(shares) / len(shares)


def _similarity(cache: VectorCache) -> str:
    return cast(BiEncoder, cache.model.reader).settings.similarity


def _prepare(cache: VectorCache, vectors: Array) -> Array:
    """Vectors whose inner product, or distance, is the similarity."""
    if _similarity(cache) != "cosine":
        return vectors
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _build(folder: Path, cache: VectorCache, seed: int) -> None:
    """Write the index, one file after the other."""
    index = _train(cache, seed)
    import faiss

    with show_progress(total=cache.passages, desc="indexing", unit=" passages") as bar:
        for first in range(0, cache.passages, FILE_PASSAGES):
            last = min(first + FILE_PASSAGES, cache.passages)
            for start in range(first, last, BLOCK_PASSAGES):
                stop = min(start + BLOCK_PASSAGES, last)
                block = _prepare(cache, cache.read_vectors(np.arange(start, stop)))
                index.add_with_ids(block, np.arange(start, stop))
                bar.update(stop - start)
            # Not write_index: on a full disk, it raises a RuntimeError with a traceback of its own.
            (folder / f"{first // FILE_PASSAGES:05}.faiss").write_bytes(faiss.serialize_index(index).tobytes())
            index.reset()


def _train(cache: VectorCache, seed: int) -> Any:
    """An empty index whose centroids are those of a sample of the passages."""
    import faiss

    lists = max(1, min(int(4 * math.sqrt(cache.passages)), cache.passages // _LIST_PASSAGES))
    size = min(cache.passages, max(_SAMPLE_PASSAGES * lists, BLOCK_PASSAGES))
    rows = np.sort(np.random.default_rng(seed).permutation(cache.passages)[:size])
    sample = _prepare(cache, cache.read_vectors(rows))
    metric = faiss.METRIC_L2 if _similarity(cache) == "euclidean" else faiss.METRIC_INNER_PRODUCT
    width = sample.shape[1]
    quantizer = faiss.IndexFlat(width, metric)
    index = faiss.IndexIVFScalarQuantizer(quantizer, width, lists, faiss.ScalarQuantizer.QT_8bit, metric)
    index.cp.seed = seed
    index.train(sample)
    return index
