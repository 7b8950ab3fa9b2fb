"""`VectorCache`: a bi-encoder's vectors of the passages of documents, which are kept on disk.

With them, scoring a document costs one product with the query's vector: no text is read, and the encoder reads only the
query. The vectors are in a `VectorStore`, which all documents of an encoder share; a cache is a list of some of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor

from docparade.modeling import Document, DocumentRanker
from docparade.modeling.encoder_fingerprint import EncoderFingerprint, fingerprint_encoder
from docparade.modeling.engine import check_finite
from docparade.modeling.engine_inference import inference
from docparade.modeling.engine_pairs import aggregate_documents
from docparade.modeling.engine_results import EMPTY_SCORE, AggregatedDocument
from docparade.modeling.engine_vectors import PassageVectors, encode_query_texts
from docparade.reranking.processes.process_group import share_from_main
from docparade.retrieval.collections.collection import Collection
from docparade.retrieval.errors import InputError, check_choice
from docparade.retrieval.runs import ranking
from docparade.retrieval.storage.arrays import Array
from docparade.retrieval.storage.cache import cache_folder
from docparade.retrieval.storage.checked_files import DamagedFile
from docparade.retrieval.storage.string_table import StringTable

from .content_list import ContentList
from .document_lookup import CollectionDocuments, Documents
from .fingerprints import fingerprint_values, hash_document
from .vector_encoding import add_documents
from .vector_store import VectorStore
from .vector_types import VECTOR_TYPES, VectorType

FORMAT = 6
"""To be raised when the format of the files changes."""
PASSAGES_WITH_TOKENS = 512
"""Passages whose vectors, with those of tokens, are in memory at once."""
BLOCK_ROWS = 32_768
"""Passages whose vectors are in memory at once when a whole collection is searched."""
QUERIES_PER_PRODUCT = 256
"""Queries whose scores of a block are in memory at once."""
AGGREGATED_VALUES = 1 << 22
"""Features that are aggregated at once."""


Arguments = ParamSpec("Arguments")
Found = TypeVar("Found")
Method = Callable[Concatenate["VectorCache", Arguments], Found]


def _repairing(read: Method[Arguments, Found]) -> Method[Arguments, Found]:
    """A method that reads vectors: where they are damaged, their documents are encoded again."""

    @wraps(read)
    def read_whole(self: VectorCache, *given: Arguments.args, **named: Arguments.kwargs) -> Found:
        try:
            return read(self, *given, **named)
        except DamagedFile as damage:
            self._repair(damage)
            return read(self, *given, **named)

    return read_whole


class VectorCache:
    """The vectors of the passages of some documents: found by id, and, of all documents of the store, by contents.

    Example:
        ```python
        model = MaxPForSequenceClassification.from_bi_encoder("sentence-transformers/all-MiniLM-L6-v2")
        cache = VectorCache.open(None, model, load_collection("cranfield"))
        cache.search(["flow over a flat plate"], hits=10)
        ```
    """

    def __init__(
        self,
        store: VectorStore,
        model: DocumentRanker,
        encoder: EncoderFingerprint,
        documents: Documents,
        listed: ContentList,
    ) -> None:
        self.model = model
        self.encoder = encoder
        """The fingerprint of the encoder that made the vectors."""
        self.fingerprint = fingerprint_values([store.folder.name, listed.version])
        """A fingerprint of the encoder, of the type of the vectors, and of the documents."""
        self._documents = documents
        self._listed = listed
        self._use(store)

    def _use(self, store: VectorStore) -> None:
        self._store = store
        self._numbers = store.find(self._listed.contents)
        """Of each document: its number in the store."""
        if (missing := np.flatnonzero(self._numbers < 0)).size:
            changed = self.ids[int(missing[0])]
            raise InputError(f"document {changed} has changed while documents were encoded; start again.")
        self._counts = store.counts[self._numbers]
        self._ends = np.cumsum(self._counts)
        self._empty = store.empty[self._numbers]

    @classmethod
    def open(
        cls,
        folder: str | Path | None,
        model: DocumentRanker,
        documents: Collection | Documents,
        ids: Iterable[str] | None = None,
        vector_type: VectorType = "float16",
    ) -> VectorCache:
        """Open the vectors of some documents. In a process group, all must call this.

        Documents that were never encoded are encoded now and kept. They are found by their contents: a document is
        encoded once, whatever collection, run or id it comes with, and a collection that has grown needs its new
        documents alone. The encoder's weights, the processor's settings that form passages, and the type decide which
        vectors fit. The aggregation does not matter: rankers that differ only in it share their vectors.

        The processes of a group share the encoding; other processes wait for them. After an interruption, any number
        of processes continues. Smaller types are made from float32 vectors, if these are kept.

        What is read is compared with its checksums. Where it is damaged, a warning says so, and the documents are
        encoded again.

        Args:
            folder: The folder for caches; `None` is docparade's own cache folder.
            model: A ranker built with `from_bi_encoder`.
            documents: A collection, or documents by id.
            ids: The documents that are wanted, such as those of a run; `None` is all.
            vector_type: How vectors are stored: float16 takes half of the space of float32, int8 a quarter.
        """
        if not model.reader.separate:
            raise InputError("only a bi-encoder has passage vectors; build the ranker with from_bi_encoder.")
        check_choice(vector_type, VECTOR_TYPES, "vector_type")
        source = CollectionDocuments(documents) if isinstance(documents, Collection) else documents
        chosen = None if ids is None else sorted(set(ids))
        root = None if folder is None else Path(folder)
        listed = ContentList.open(root, source, chosen)
        encoder = fingerprint_encoder(model, again=True)
        place = (cache_folder() if root is None else root) / "vectors"

        def open_store(kind: VectorType) -> VectorStore:
            digest = fingerprint_values({"format": FORMAT, "encoder": encoder, "type": kind})
            return VectorStore(place / f"{kind}-{digest[:16]}", kind)

        store = open_store(vector_type)
        lacks_some = bool((store.find(listed.contents) < 0).any())
        if share_from_main(lacks_some):
            exact = None if vector_type == "float32" else open_store("float32")
            add_documents(model, store, exact, source, listed)
            store = open_store(vector_type)
        elif lacks_some:  # another command has just added them
            store = open_store(vector_type)
        return cls(store, model, encoder, source, listed)

    def _repair(self, damage: DamagedFile) -> None:
        """Encode the documents of damaged files again."""
        if reason := fingerprint_encoder(self.model, again=True).explain(self.encoder):
            raise InputError(f"{damage.folder} is damaged: {damage}. It cannot be repaired with this model: {reason}.")
        store = self._store
        store.report(damage)
        add_documents(self.model, store, None, self._documents, self._listed, together=False)
        self._use(VectorStore(store.folder, store.vector_type))

    def for_ranker(self, model: DocumentRanker) -> VectorCache:
        """The same vectors for another ranker on the same encoder; any other ranker is refused.

        Example:
            ```python
            cache.for_ranker(parade).read("flow over a flat plate", ["12", "486"])
            ```
        """
        if not model.reader.separate:
            raise InputError("the kept vectors are for bi-encoders, and this ranker reads query and passage together.")
        if reason := fingerprint_encoder(model, again=True).explain(self.encoder):
            raise InputError(f"the vectors in {self.folder} do not fit: {reason}. Open a new VectorCache.")
        if model is self.model:
            return self
        other = copy.copy(self)
        other.model = model
        return other

    @property
    def folder(self) -> Path:
        """The folder of the store."""
        return self._store.folder

    @property
    def ids(self) -> StringTable:
        """The ids of the documents, by number."""
        return self._listed.ids

    def __len__(self) -> int:
        """The number of documents in the cache."""
        return len(self._ends)

    @property
    def passages(self) -> int:
        """The number of passages in the cache."""
        return int(self._counts.sum())

    @_repairing
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

    @_repairing
    def find(self, document: Document) -> PassageVectors | None:
        """The vectors of a document of the store, by its contents; None if it was not encoded."""
        store = self._store
        [number] = store.find([hash_document(document)])
        if number < 0:
            return None
        rows = store.passages_of(np.array([number]))
        spans = [(start, end) for start, end in store.spans(rows).tolist()]
        return PassageVectors(self._take_all(rows), spans, int(store.unread[number]), bool(store.empty[number]))

    @_repairing
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

    @_repairing
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
                rows, counts = self._rows(np.arange(first, last))
                block = self._take(rows)
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

    @_repairing
    def read_vectors(self, passages: Array) -> Array:
        """The vectors of passages, in float32."""
        documents = self.find_documents(passages)
        inside = passages - (self._ends - self._counts)[documents]
        return self._take(self._store.first_passages[self._numbers[documents]] + inside).cpu().numpy()

    @_repairing
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
        """The numbers of documents' passages in the store, and how many each document has."""
        return self._store.passages_of(self._numbers[documents]), self._counts[documents]

    def _take(self, passages: Array) -> Tensor:
        """One vector of each passage, in float32, on the model's device."""
        return self._store.load(self._store.first_vectors[passages], self.model.device)

    def _take_all(self, passages: Array) -> Tensor:
        """The same with the vectors of tokens, if there are some: `(passages, 1 + length, width)`, zero for padding."""
        if self._store.is_flat:
            return self._take(passages)
        lengths = self._store.lengths[passages]
        inside = torch.from_numpy(np.arange(lengths.max(initial=0)) < lengths[:, None])
        loaded = self._store.load(self._store.vectors_of(passages), self.model.device)
        vectors = loaded.new_zeros(*inside.shape, loaded.shape[1])
        vectors[inside.to(loaded.device)] = loaded
        return vectors

    def _cut(self, passages: Array) -> list[Array]:
        """Passages in groups whose vectors fit into memory together."""
        if self._store.is_flat:
            return [passages]
        return np.array_split(passages, range(PASSAGES_WITH_TOKENS, len(passages), PASSAGES_WITH_TOKENS))

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """Ranges of documents with about `BLOCK_ROWS` passages, or fewer if these have vectors of tokens."""
        first, size = 0, BLOCK_ROWS if self._store.is_flat else PASSAGES_WITH_TOKENS
        while first < len(self._ends):
            start = int(self._ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(self._ends, start + size, side="right")))
            yield first, last
            first = last

    def _score(self, queries: Tensor, vectors: Tensor, counts: Array) -> Array:
        """The scores of documents with so many passages each, `(queries, documents)`."""
        if not self.model.config.scores_passages():
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
