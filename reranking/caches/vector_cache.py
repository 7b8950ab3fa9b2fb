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
from transformers.utils import logging

from docparade.modeling import Document, DocumentRanker
from docparade.modeling.engine import EMPTY_SCORE, AggregatedDocument, aggregate_documents, check_finite, inference
from docparade.modeling.engine_vectors import PassageVectors, encode_query_texts
from docparade.reranking.processes.process_group import gather_shares, is_main_process, share_from_main
from docparade.reranking.processes.weights import align_weights
from docparade.retrieval.collections.collection import Collection
from docparade.retrieval.errors import InputError, check_choice
from docparade.retrieval.runs import ranking
from docparade.retrieval.storage.arrays import Array, map_array
from docparade.retrieval.storage.cache import build_once, find_built, parts_folder
from docparade.retrieval.storage.string_table import StringTable

from .document_lookup import CollectionDocuments, Documents
from .earlier_vectors import EarlierVectors
from .fingerprints import fingerprint_documents, fingerprint_encoder
from .vector_building import Encoding, content_number, join_parts
from .vector_types import VECTOR_TYPES, VectorType

logger = logging.get_logger(__name__)

FORMAT = 5
"""To be raised when the format of the files changes."""
PASSAGES_WITH_TOKENS = 512
"""Passages whose vectors, with those of tokens, are in memory at once."""
BLOCK_ROWS = 32_768
"""Passages whose vectors are in memory at once when a whole collection is searched."""
QUERIES_PER_PRODUCT = 256
"""Queries whose scores of a block are in memory at once."""
AGGREGATED_VALUES = 1 << 22
"""Features that are aggregated at once."""


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
        self._spans = map_array(folder / "spans.npy").reshape(-1, 2)
        self._unread = map_array(folder / "unread.npy")
        self._empty = map_array(folder / "empty.npy")
        self._contents = map_array(folder / "contents.npy")
        self._scales = map_array(folder / "scales.npy") if (folder / "scales.npy").is_file() else None
        # With late interaction, a passage has several vectors: its own, and those of its tokens.
        lengths = map_array(folder / "lengths.npy")
        self._vector_ends = np.cumsum(lengths, dtype=np.int64)
        self._vector_starts = self._vector_ends - lengths

    @classmethod
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
        of processes continues with the finished parts. Documents that the encoder has encoded before, for a cache of
        this type or of float32, are copied from there (see `EarlierVectors`).

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
        root = None if folder is None else Path(folder)
        key = _make_key(model, source, chosen, vector_type)
        encoder = str(key["encoder"])
        encoding = Encoding(model, source, chosen, vector_type, parts_folder("vectors", key, root))
        align_weights(model)

        def build(target: Path) -> None:
            encoding.prepare()
            same = {"format": FORMAT, "encoder": encoder}
            _encode_together(encoding, share_from_main(EarlierVectors.find(same, vector_type, root)))
            join_parts(target, encoding.read(), vector_type)

        name = source.collection.name if isinstance(source, CollectionDocuments) else "documents"
        if is_main_process():
            return cls(share_from_main(build_once("vectors", name, key, build, root)), model, encoder)
        # The main process shares the folder, or, before it is built, what is copied: then all encode the rest.
        shared: Path | EarlierVectors | None = None
        while isinstance(found := share_from_main(shared), EarlierVectors):
            _encode_together(encoding, found)
        assert found is not None
        return cls(found, model, encoder)

    @classmethod
    def open_containing(
        cls,
        folder: str | Path | None,
        model: DocumentRanker,
        collection: Collection,
        ids: Iterable[str],
        vector_type: VectorType = "float16",
    ) -> VectorCache:
        """Open a cache that has these documents: that of the whole collection if it is there, or else their own.

        So nothing is copied after `docparade encode`. It is for reading documents by id; a search may find others.
        The arguments are those of `open`.

        Example:
            ```python
            cache = VectorCache.open_containing(None, model, collection, top_documents(run, 100))
            cache.read("flow over a flat plate", ["12", "486"])
            ```
        """
        root = None if folder is None else Path(folder)
        key = _make_key(model, CollectionDocuments(collection), None, vector_type)
        whole = share_from_main(find_built("vectors", key, root))
        if whole is None:
            return cls.open(folder, model, collection, ids, vector_type)
        return cls(whole, model, str(key["encoder"]))

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
        return len(self._spans)

    def vectors(self, document_id: str) -> Tensor:
        """The vectors of a document's passages as float32, `(passages, width)`, on the model's device.

        Example:
            ```python
            cache.vectors("184").shape  # torch.Size([2, 384])
            ```
        """
        return self._take(self._rows(self._find([document_id]))[0])

    @property
    def empty(self) -> list[str]:
        """The ids of documents in which there is nothing to read."""
        return self.ids.take(np.flatnonzero(self._empty))

    def require(self, ids: Iterable[str]) -> None:
        """Refuse ids of documents that are not in the cache."""
        self._find(list(ids))

    def find(self, document: Document) -> PassageVectors | None:
        """The vectors of a document, by its id; None if it was not encoded, or with other contents."""
        number = None if document.id is None else self.ids.find(str(document.id))
        if number is None or int(self._contents[number]) != content_number(document):
            return None
        rows, _ = self._rows(np.array([number]))
        spans = [(start, end) for start, end in self._spans[rows].tolist()]
        return PassageVectors(self._take_all(rows), spans, int(self._unread[number]), bool(self._empty[number]))

    def read(self, query: str, ids: Sequence[str]) -> dict[str, AggregatedDocument]:
        """Score documents for a query: the documents' scores, and the scores and weights of their passages.

        Example:
            ```python
            cache.read("flow over a flat plate", ["12", "486"])["12"].score
            ```
        """
        if not ids:
            return {}
        numbers = self._find(ids)
        rows, counts = self._rows(numbers)
        with inference(self.model):
            [vector] = encode_query_texts(self.model, [query], tokens=True)
            features = [
                self.model.relate(vector.expand(len(block), *vector.shape), self._take_all(block))
                for block in self._cut(rows)
            ]
            scored = aggregate_documents(self.model, torch.cat(features).split(counts.tolist()))
        found = dict(zip(ids, scored, strict=True))
        for name, document in found.items():
            check_finite(self.model, f"document {name}", [document.score, *document.passage_scores])
        empty = [name for name, number in zip(ids, numbers, strict=True) if self._empty[number]]
        self.model.require_processor().warn_of_empty([f"document {name}" for name in empty])
        return found | {name: found[name]._replace(score=EMPTY_SCORE) for name in empty}

    def search(self, queries: Sequence[str], hits: int = 1000) -> list[dict[str, float]]:
        """The best documents of all for each query, by exact search: document id -> score, the best first.

        Documents in which there is nothing to read are never found.

        Documents are compared by one vector of each passage, also by a ranker with late interaction, whose `read`
        compares tokens, too. Vectors are read block by block, so memory does not grow with the collection.
        """
        if not queries:
            return []
        best = [_Best(hits) for _ in queries]
        with inference(self.model):
            vectors = encode_query_texts(self.model, queries)
            for first, last in self._blocks():
                start = int(self._ends[first - 1]) if first else 0
                counts = np.diff(self._ends[first:last], prepend=start)
                block = self._take(slice(start, int(self._ends[last - 1])))
                with_text = ~self._empty[first:last]
                numbers = np.flatnonzero(with_text) + first
                for place in range(0, len(queries), QUERIES_PER_PRODUCT):
                    scores = self._score(vectors[place : place + QUERIES_PER_PRODUCT], block, counts)
                    for number, of_query in enumerate(scores, start=place):
                        best[number].add(numbers, of_query[with_text])
        return [self.rank(found.numbers, found.scores, hits) for found in best]

    # --- Documents by number, for other ways to search ---------------------------------------------------------------

    def find_documents(self, passages: Array) -> Array:
        """The numbers of the documents to which passages belong."""
        return np.searchsorted(self._ends, passages, side="right")

    def read_vectors(self, passages: Array | slice) -> Array:
        """The vectors of passages, in float32."""
        return self._take(passages).cpu().numpy()

    def score(self, query: Tensor, documents: Array) -> Array:
        """The scores of documents for the vector of a query."""
        rows, counts = self._rows(documents)
        with inference(self.model):
            return self._score(query[None], self._take(rows), counts)[0]

    def rank(self, documents: Array, scores: Array, hits: int) -> dict[str, float]:
        """The best of some documents that have a text: document id -> score, the best first."""
        with_text = ~self._empty[documents]
        names, values = self.ids.take(documents[with_text]), scores[with_text].astype(float).tolist()
        found = dict(zip(names, values, strict=True))
        for name, score in found.items():
            check_finite(self.model, f"document {name}", [score])
        return {document: found[document] for document in ranking(found)[:hits]}

    def _find(self, ids: Sequence[str]) -> Array:
        """The numbers of documents."""
        numbers = self.ids.find_many(ids)
        if (unknown := np.flatnonzero(numbers < 0)).size:
            raise InputError(f"{self.folder} has no vectors of document {ids[unknown[0]]}.")
        return numbers

    def _rows(self, documents: Array) -> tuple[Array, Array]:
        """The rows of documents' passages, and how many each document has."""
        starts = np.where(documents > 0, self._ends[documents - 1], 0)
        counts = self._ends[documents] - starts
        before = np.cumsum(counts) - counts
        return np.repeat(starts - before, counts) + np.arange(counts.sum()), counts

    def _take(self, passages: Array | slice) -> Tensor:
        """One vector of each passage, in float32, on the model's device."""
        return self._load(passages if self._is_flat else self._vector_starts[passages])

    def _take_all(self, passages: Array) -> Tensor:
        """The same with the vectors of tokens, if there are some: `(passages, 1 + length, width)`, zero for padding."""
        if self._is_flat:
            return self._load(passages)
        firsts = self._vector_starts[passages]
        lengths = self._vector_ends[passages] - firsts
        inside = np.arange(lengths.max(initial=0)) < lengths[:, None]
        vectors = torch.zeros(*inside.shape, self._width, device=self.model.device)
        rows = (firsts[:, None] + np.arange(inside.shape[1]))[inside]
        vectors[torch.from_numpy(inside).to(vectors.device)] = self._load(rows)
        return vectors

    def _cut(self, passages: Array) -> list[Array]:
        """Passages in groups whose vectors fit into memory together."""
        if self._is_flat:
            return [passages]
        return np.array_split(passages, range(PASSAGES_WITH_TOKENS, len(passages), PASSAGES_WITH_TOKENS))

    @property
    def _is_flat(self) -> bool:
        """Whether each passage has one vector."""
        return len(self._vectors) == len(self._vector_ends)

    def _load(self, rows: Array | slice) -> Tensor:
        # A copy, because the array is not writable. torch converts types faster than numpy.
        vectors = torch.from_numpy(np.array(self._vectors[rows])).to(self.model.device).float()
        if self._scales is not None:
            vectors *= torch.from_numpy(np.array(self._scales[rows])).to(self.model.device)[:, None]
        return vectors

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """Ranges of documents with about `BLOCK_ROWS` passages, or fewer if these have vectors of tokens."""
        first, size = 0, BLOCK_ROWS if self._is_flat else PASSAGES_WITH_TOKENS
        while first < len(self._ends):
            start = int(self._ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(self._ends, start + size, side="right")))
            yield first, last
            first = last

    def _score(self, queries: Tensor, vectors: Tensor, counts: Array) -> Array:
        """The scores of documents with so many passages each, `(queries, documents)`."""
        if self.model.config.model_type != "maxp":
            # The features of a passage are a vector: those of one query at a time are in memory.
            return np.concatenate(
                [self._aggregate(self.model.relate_all(one[None], vectors), counts) for one in queries]
            )
        features = self.model.relate_all(queries, vectors)
        if self.model.config.aggregation == "max":
            return np.maximum.reduceat(features.float().cpu().numpy(), np.cumsum(counts) - counts, axis=1)
        return self._aggregate(features, counts)

    def _aggregate(self, features: Tensor, counts: Array) -> Array:
        """The documents' scores from the features of their passages, `(queries, passages, ...)`."""
        starts = np.cumsum(counts) - counts
        # Documents with a similar number of passages are aggregated together, for all queries.
        order = np.argsort(-counts, kind="stable")
        scores = np.empty((len(features), len(counts)), np.float32)
        place = 0
        while place < len(order):
            longest = int(counts[order[place]])
            size = max(1, AGGREGATED_VALUES // (longest * features[:, 0].numel()))
            group = order[place : place + size]
            inside = np.arange(longest) < counts[group, None]
            rows = torch.from_numpy(np.where(inside, starts[group, None] + np.arange(longest), 0))
            mask = torch.from_numpy(inside).to(features.device).repeat(len(features), 1)
            passages = features[:, rows.to(features.device)].flatten(0, 1)
            passages[~mask] = 0
            found = self.model.aggregator(passages, mask).score.float()
            scores[:, group] = found.view(len(features), -1).cpu().numpy()
            place += size
        return scores


def _make_key(
    model: DocumentRanker, documents: Documents, ids: Sequence[str] | None, vector_type: VectorType
) -> dict[str, object]:
    """All that affects the vectors of documents."""
    return {
        "format": FORMAT,
        "encoder": fingerprint_encoder(model),
        "documents": fingerprint_documents(documents, ids),
        "type": vector_type,
    }


def _encode_together(encoding: Encoding, earlier: EarlierVectors) -> None:
    """Write all parts; all processes call this."""
    copied = sum(gather_shares([encoding.write_share(earlier)]))
    if copied and is_main_process():
        logger.warning(f"{copied} of {len(encoding)} documents have been encoded before: their vectors are copied.")


class _Best:
    """The best documents of a query so far; those that tie with the last of them are kept, too."""

    def __init__(self, hits: int) -> None:
        self.hits = hits
        self.numbers = np.zeros(0, np.int64)
        self.scores = np.zeros(0, np.float32)
        self.lowest = -np.inf

    def add(self, numbers: Array, scores: Array) -> None:
        """Add documents by number. A score that is not a number counts as good, so that it is found and refused."""
        good = ~(scores < self.lowest)
        self.numbers = np.concatenate([self.numbers, numbers[good]])
        self.scores = np.concatenate([self.scores, scores[good]])
        if len(self.scores) > self.hits:
            self.lowest = np.partition(self.scores, -self.hits)[-self.hits]
            kept = ~(self.scores < self.lowest)
            self.numbers, self.scores = self.numbers[kept], self.scores[kept]
