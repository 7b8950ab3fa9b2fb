"""`VectorCache`: a bi-encoder's vectors of a collection's passages on disk, in memory-mapped arrays.

With them, scoring a document costs one product with the query's vector: no text is read, and the encoder reads only the
query. Vectors are stored as float32, as float16, or as int8 with one scale for each vector.

The cache is built in parts of some documents. After an interruption, the finished parts are used again.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from docparade.modeling import Document, DocumentRanker
from docparade.modeling.engine import AggregatedDocument, aggregate_documents, inference
from docparade.modeling.engine_vectors import encode_passages, encode_query_texts
from docparade.retrieval.collections.collection import Collection
from docparade.retrieval.errors import InputError, check_choice
from docparade.retrieval.runs import ranking
from docparade.retrieval.storage.arrays import Array, ArrayWriter, map_array
from docparade.retrieval.storage.cache import build_once, cache_folder
from docparade.retrieval.storage.files import make_folder
from docparade.retrieval.storage.string_table import StringTable, StringTableWriter

from .documents import CollectionDocuments, DocumentLike, Documents, read_blocks
from .fingerprints import BATCH_DOCUMENTS, fingerprint_documents, fingerprint_encoder, fingerprint_values
from .vector_types import VECTOR_TYPES, VectorType

FORMAT = 1
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

    def __init__(self, folder: Path, model: DocumentRanker, encoder: str) -> None:
        self.folder = folder
        self.model = model
        self.encoder = encoder
        """The fingerprint of the encoder that made the vectors."""
        self.ids = StringTable(folder)
        self._ends = map_array(folder / "passage_ends.npy")
        self._width = int(np.load(folder / "width.npy"))
        self._vectors = map_array(folder / "vectors.npy").reshape(-1, self._width)
        self._scales = map_array(folder / "scales.npy") if (folder / "scales.npy").is_file() else None

    @classmethod
    def open(
        cls,
        folder: str | Path | None,
        model: DocumentRanker,
        documents: Collection | Documents,
        ids: Iterable[str] | None = None,
        vector_type: VectorType = "float16",
    ) -> VectorCache:
        """Open the cache of some documents. The first process builds it, and the others wait.

        Its key has all that affects vectors: the documents, the encoder's weights, the processor's settings, and the
        type. The aggregation does not matter: rankers that differ only in it share one cache.

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
        encoder = fingerprint_encoder(model)
        key: dict[str, object] = {
            "format": FORMAT,
            "encoder": encoder,
            "documents": fingerprint_documents(source, chosen),
            "type": vector_type,
        }
        root = None if folder is None else Path(folder)
        parts = (root or cache_folder()) / "vector-parts" / fingerprint_values(key)[:16]
        name = source.collection.name if isinstance(source, CollectionDocuments) else "documents"

        def build(target: Path) -> None:
            _build(target, parts, model, source, chosen, vector_type)

        built = build_once("vectors", name, key, build, root=root)
        shutil.rmtree(parts, ignore_errors=True)
        return cls(built, model, encoder)

    def for_ranker(self, model: DocumentRanker) -> VectorCache:
        """The same vectors for another ranker on the same encoder; any other ranker is refused.

        Example:
            ```python
            cache.for_ranker(parade).read("flow over a flat plate", ["12", "486"])
            ```
        """
        if model.vector_head is None or fingerprint_encoder(model) != self.encoder:
            raise InputError(
                f"the vectors in {self.folder} were made by another encoder or with other passages, or the encoder "
                "was trained since: open a new VectorCache with this ranker."
            )
        return self if model is self.model else VectorCache(self.folder, model, self.encoder)

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
        with inference(self.model):
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
        with inference(self.model):
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


def _build(
    folder: Path,
    parts: Path,
    model: DocumentRanker,
    documents: Documents,
    ids: Sequence[str] | None,
    vector_type: VectorType,
) -> None:
    make_folder(parts)
    count = len(documents) if ids is None else len(ids)
    written: list[Path] = []
    with tqdm(total=count, desc="encoding", unit=" documents", disable=None) as bar:
        for number, block in enumerate(read_blocks(documents, ids, BATCH_DOCUMENTS)):
            path = parts / f"{number:08}.npz"
            if not _is_part(path, list(block)):
                _write_part(path, model, block, vector_type)
            written.append(path)
            bar.update(len(block))
    _join(folder, written, vector_type)


def _is_part(path: Path, ids: list[str]) -> bool:
    """Whether a part is complete, undamaged, and of these documents."""
    try:
        with np.load(path) as part:
            # Reading an array checks its checksum.
            arrays = {name: part[name] for name in ("ids", "vectors", "scales", "counts")}
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error):
        return False
    return list(arrays["ids"]) == ids


def _write_part(path: Path, model: DocumentRanker, block: Mapping[str, DocumentLike], vector_type: VectorType) -> None:
    encoded = encode_passages(model, [Document.of(document, f"document {name}") for name, document in block.items()])
    vectors = torch.cat([one.vectors for one in encoded]).float().cpu().numpy()
    stored, scales = _compress(vectors, vector_type)
    temporary = path.with_suffix(".tmp.npz")
    counts = np.array([len(one.vectors) for one in encoded])
    np.savez(temporary, ids=np.array(list(block)), vectors=stored, scales=scales, counts=counts)
    temporary.replace(path)


def _compress(vectors: Array, vector_type: VectorType) -> tuple[Array, Array]:
    """Vectors as they are stored, and the scale of each; no scales for floats."""
    if vector_type != "int8":
        return vectors.astype(vector_type), np.zeros(0, np.float32)
    scales = np.abs(vectors).max(axis=1) / 127
    scales[scales == 0] = 1
    return np.round(vectors / scales[:, None]).astype(np.int8), scales.astype(np.float32)


def _join(folder: Path, parts: Sequence[Path], vector_type: VectorType) -> None:
    """Write the arrays of the cache from its parts."""
    width = 0
    with ExitStack() as files:
        ids = files.enter_context(StringTableWriter(folder, "document"))
        vectors = files.enter_context(ArrayWriter(folder / "vectors.npy", vector_type))
        ends = files.enter_context(ArrayWriter(folder / "passage_ends.npy", np.int64))
        scales = files.enter_context(ArrayWriter(folder / "scales.npy", np.float32)) if vector_type == "int8" else None
        end = 0
        for path in parts:
            with np.load(path) as part:
                width = part["vectors"].shape[1]
                vectors.extend(part["vectors"].reshape(-1))
                if scales is not None:
                    scales.extend(part["scales"])
                for name, count in zip(part["ids"], part["counts"], strict=True):
                    ids.append(str(name))
                    end += int(count)
                    ends.append(end)
    np.save(folder / "width.npy", width)
