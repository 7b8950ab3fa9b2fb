"""`VectorCache`: a bi-encoder's vectors of a collection's passages on disk, in memory-mapped arrays.

With them, scoring a document costs one product with the query's vector: no text is read, and the encoder reads only the
query. Vectors are stored as float32, as float16, or as int8 with one scale for each vector.

With each passage's vector goes its span in the document's text. `vector_building` makes the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from docparade.modeling import Document, DocumentRanker
from docparade.modeling.engine import AggregatedDocument, aggregate_documents
from docparade.modeling.engine_vectors import PassageVectors, encode_query_texts
from docparade.retrieval.collections.collection import Collection
from docparade.retrieval.errors import InputError, check_choice
from docparade.retrieval.runs import ranking
from docparade.retrieval.storage.arrays import Array, map_array
from docparade.retrieval.storage.cache import build_once, find_built, parts_folder
from docparade.retrieval.storage.string_table import StringTable

from .documents import CollectionDocuments, Documents
from .fingerprints import fingerprint_documents, fingerprint_encoder
from .processes import fail_together, is_main_process, share_from_main, wait_for_all
from .vector_building import Encoding, Part, compress, content_number, join_parts
from .vector_types import VECTOR_TYPES, VectorType
from .weights import align_weights

FORMAT = 2
"""To be raised when the format of the files changes."""
BLOCK_ROWS = 32_768
"""Passages whose vectors are in memory at once when a whole collection is searched."""


class VectorCache:
    """The vectors of the passages of documents, found by the documents' ids.

    Example:
        ```python
        model = MaxPForSequenceClassification.from_bi_encoder("sentence-transformers/all-MiniLM-L6-v2")
        cache = VectorCache.open(None, model, load_collection("cranfield"))
        cache.search(["flow over a flat plate"], hits=10)
        ```
    """

    def __init__(self, folder: Path, model: DocumentRanker) -> None:
        self.folder = folder
        self.model = model
        self.ids = StringTable(folder)
        self._ends = map_array(folder / "passage_ends.npy")
        self._width = int(np.load(folder / "width.npy"))
        self._vectors = map_array(folder / "vectors.npy").reshape(-1, self._width)
        self._spans = map_array(folder / "spans.npy").reshape(-1, 2)
        self._unread = map_array(folder / "unread.npy")
        self._contents = map_array(folder / "contents.npy")
        self._scales = map_array(folder / "scales.npy") if (folder / "scales.npy").is_file() else None

    @classmethod
    @fail_together()
    def open(
        cls,
        folder: str | Path | None,
        model: DocumentRanker,
        documents: Collection | Documents,
        ids: Iterable[str] | None = None,
        vector_type: VectorType = "float16",
    ) -> VectorCache:
        """Open the cache of some documents, which is built the first time. In a process group, all must call this.

        Its key has all that affects vectors: the documents, the encoder's weights, the processor's settings, and the
        type. The aggregation does not matter: rankers that differ only in it share one cache.

        The processes of a group share the encoding; other processes wait for them. After an interruption, any number
        of processes continues with the finished parts. If there is a float32 cache of the same documents and encoder,
        the smaller types are made from it, and nothing is encoded.

        Args:
            folder: The folder for caches; `None` is docparade's own cache folder.
            model: A ranker built with `from_bi_encoder`.
            documents: A collection, or documents by id.
            ids: The documents to encode, such as those of a run; `None` is all.
            vector_type: How vectors are stored: float16 takes half of the space of float32, int8 a quarter.
        """
        if model.vector_head is None:
            raise InputError("only a bi-encoder has passage vectors; build the ranker with from_bi_encoder.")
        check_choice(vector_type, VECTOR_TYPES, "vector_type")
        source = CollectionDocuments(documents) if isinstance(documents, Collection) else documents
        chosen = None if ids is None else sorted(set(ids))
        key: dict[str, object] = {
            "format": FORMAT,
            "encoder": fingerprint_encoder(model),
            "documents": fingerprint_documents(source, chosen),
            "type": vector_type,
        }
        root = None if folder is None else Path(folder)
        encoding = Encoding(model, source, chosen, vector_type, parts_folder("vectors", key, root))
        align_weights(model)

        def build(target: Path) -> None:
            exact = find_built("vectors", {**key, "type": "float32"}, root)
            if exact is not None:
                join_parts(target, cls(exact, model)._as_parts(vector_type), vector_type)
                return
            encoding.prepare()
            share_from_main(None)
            encoding.write_share()
            wait_for_all()
            join_parts(target, encoding.read(), vector_type)

        name = source.collection.name if isinstance(source, CollectionDocuments) else "documents"
        if is_main_process():
            return cls(share_from_main(build_once("vectors", name, key, build, root)), model)
        # The main process shares the folder, or, before it is built, None: then all encode.
        while (built := share_from_main(None)) is None:
            encoding.write_share()
            wait_for_all()
        return cls(built, model)

    def __len__(self) -> int:
        """The number of documents in the cache."""
        return len(self._ends)

    @property
    def passages(self) -> int:
        """The number of passages in the cache."""
        return len(self._vectors)

    def vectors(self, document_id: str) -> Tensor:
        """The vectors of a document's passages as float32, `(passages, width)`, on the model's device.

        Example:
            ```python
            cache.vectors("184").shape  # torch.Size([2, 384])
            ```
        """
        return self._take(self._rows(document_id))

    def require(self, ids: Iterable[str]) -> None:
        """Refuse ids of documents that are not in the cache."""
        for document_id in ids:
            self._rows(document_id)

    def find(self, document: Document) -> PassageVectors | None:
        """The vectors of a document, by its id; None if it was not encoded, or with other contents."""
        number = None if document.id is None else self.ids.find(str(document.id))
        if number is None or int(self._contents[number]) != content_number(document):
            return None
        rows = self._rows(str(document.id))
        spans = [(start, end) for start, end in self._spans[rows].tolist()]
        return PassageVectors(self._take(rows), spans, int(self._unread[number]))

    def read(self, query: str, ids: Sequence[str]) -> dict[str, AggregatedDocument]:
        """Score documents for a query: the documents' scores, and the scores and weights of their passages.

        Example:
            ```python
            cache.read("flow over a flat plate", ["12", "486"])["12"].score
            ```
        """
        rows = [self._rows(document_id) for document_id in ids]
        if not rows:
            return {}
        with torch.inference_mode():
            vectors = self._take(np.concatenate([np.arange(row.start, row.stop) for row in rows]))
            queries = encode_query_texts(self.model, [query]).expand(len(vectors), -1)
            features = self.model.relate(queries, vectors)
            counts = [row.stop - row.start for row in rows]
            return dict(zip(ids, aggregate_documents(self.model, features.split(counts)), strict=True))

    def search(self, queries: Sequence[str], hits: int = 1000) -> list[dict[str, float]]:
        """The best documents of all for each query, by exact search: document id -> score, the best first.

        Vectors are read block by block, so memory does not grow with the collection.
        """
        best: list[dict[str, float]] = [{} for _ in queries]
        if not queries:
            return best
        with torch.inference_mode():
            vectors = encode_query_texts(self.model, queries)
            for first, last in self._blocks():
                scores = self._score_block(vectors, first, last)
                for found, of_query in zip(best, scores, strict=True):
                    self._keep_best(found, of_query, first, hits)
        return [{document: found[document] for document in ranking(found)[:hits]} for found in best]

    def _rows(self, document_id: str) -> slice:
        number = self.ids.find(document_id)
        if number is None:
            raise InputError(f"{self.folder} has no vectors of document {document_id}.")
        return slice(int(self._ends[number - 1]) if number else 0, int(self._ends[number]))

    def _take(self, rows: Array | slice) -> Tensor:
        """Vectors in float32, on the model's device."""
        vectors = self._vectors[rows].astype(np.float32)
        if self._scales is not None:
            vectors *= self._scales[rows][:, None]
        return torch.from_numpy(vectors).to(self.model.device)

    def _as_parts(self, vector_type: VectorType) -> Iterator[Part]:
        """The content of this cache of float32, as it is when it is encoded for another type."""
        for first, last in self._blocks():
            start, end = int(self._ends[first - 1]) if first else 0, int(self._ends[last - 1])
            vectors, scales = compress(self._vectors[start:end], vector_type)
            yield {
                "ids": np.array(self.ids.take(np.arange(first, last))),
                "contents": self._contents[first:last],
                "counts": np.diff(self._ends[first:last], prepend=start),
                "unread": self._unread[first:last],
                "spans": self._spans[start:end],
                "vectors": vectors,
                "scales": scales,
            }

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """Ranges of documents with about `BLOCK_ROWS` passages."""
        first = 0
        while first < len(self._ends):
            start = int(self._ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(self._ends, start + BLOCK_ROWS, side="right")))
            yield first, last
            first = last

    def _score_block(self, queries: Tensor, first: int, last: int) -> Array:
        """The scores of documents `first` to `last`, `(queries, documents)`."""
        start = int(self._ends[first - 1]) if first else 0
        ends = np.asarray(self._ends[first:last]) - start
        features = self.model.relate_all(queries, self._take(slice(start, start + int(ends[-1]))))
        if features.dim() == 2 and self.model.config.aggregation == "max":
            starts = np.concatenate([[0], ends[:-1]])
            return np.maximum.reduceat(features.float().cpu().numpy(), starts, axis=1)
        counts = np.diff(ends, prepend=0).tolist()
        scored = [aggregate_documents(self.model, of_query.split(counts)) for of_query in features]
        return np.array([[document.score for document in documents] for documents in scored], dtype=np.float32)

    def _keep_best(self, found: dict[str, float], scores: Array, first: int, hits: int) -> None:
        """Add the best documents of a block; ties at the border are all kept until the end."""
        candidates = np.arange(len(scores))
        if len(scores) > hits:
            border = np.partition(scores, -hits)[-hits]
            candidates = np.flatnonzero(scores >= border)
        names = self.ids.take(candidates + first)
        found.update(zip(names, scores[candidates].astype(float).tolist(), strict=True))
        if len(found) > 4 * hits:
            border = sorted(found.values(), reverse=True)[hits - 1]
            for document in [name for name, score in found.items() if score < border]:
                del found[document]
