"""Hard negatives for training pairs: texts that a first stage finds for a query, and that are not relevant to it.

The texts come from the pairs themselves: every relevant text and every negative of a file may be found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection as Sized, Iterable, Iterator, Mapping, Sequence

from docparade.reranking.caches.vector_cache import VectorCache
from docparade.retrieval.collections.collection import Collection, Document
from docparade.retrieval.errors import InputError
from docparade.retrieval.progress import show_progress
from docparade.retrieval.runs import Qrels, Run, ranking

from .triples import Triple


class TextPool(Collection):
    """The distinct texts of triples as a collection; a query's relevant texts are its judgments.

    Example:
        >>> pool = TextPool([Triple("sky", "It is blue.", ("It rains.",)), Triple("color of the sky", "It is blue.")])
        >>> len(pool), pool.queries(), pool.qrels()
        (2, {'q0': 'sky', 'q1': 'color of the sky'}, {'q0': {'t0': 1}, 'q1': {'t0': 1}})
    """

    def __init__(self, rows: Sequence[Triple], name: str = "training pairs") -> None:
        self.name = name
        texts = dict.fromkeys(text for row in rows for text in (row.positive, *row.negatives))
        self.ids: dict[str, str] = {text: f"t{number}" for number, text in enumerate(texts)}
        """Text -> its id."""
        self.query_ids: dict[str, str] = {
            query: f"q{number}" for number, query in enumerate(dict.fromkeys(row.query for row in rows))
        }
        """Query -> its id."""
        self._texts = {text_id: text for text, text_id in self.ids.items()}
        self._qrels: Qrels = {query_id: {} for query_id in self.query_ids.values()}
        for row in rows:
            self._qrels[self.query_ids[row.query]][self.ids[row.positive]] = 1

    def documents(self) -> Iterator[Document]:
        return (Document(text_id, text) for text_id, text in self._texts.items())

    def get_many(self, ids: Iterable[str]) -> dict[str, Document]:
        return {text_id: Document(text_id, self._texts[text_id]) for text_id in ids}

    def __len__(self) -> int:
        return len(self._texts)

    def queries(self, field: str | None = None) -> dict[str, str]:
        return {query_id: query for query, query_id in self.query_ids.items()}

    def qrels(self) -> Qrels:
        return self._qrels

    def version(self) -> dict[str, object]:
        hashed = hashlib.sha256()
        for text in self._texts.values():
            hashed.update(hashlib.sha256(text.encode()).digest())
        return {"texts": hashed.hexdigest()}


def mine_negatives(
    rows: Sequence[Triple],
    runs: Sequence[Run],
    pool: TextPool,
    count: int,
    too_close: Mapping[str, Sized[str]] | None = None,
) -> list[Triple]:
    """Add the best texts of each run that are not relevant to a row's query to the row's negatives.

    Args:
        rows: The training pairs.
        runs: What each first stage found in the pool for the queries' ids.
        pool: The texts of the pairs.
        count: How many texts to add of each run.
        too_close: For a query's id, texts that are left out because they may be relevant: see `find_too_close`.

    Example:
        >>> rows = [Triple("sky", "It is blue."), Triple("weather", "It rains.")]
        >>> mine_negatives(rows, [{"q0": {"t0": 3.0, "t1": 1.0}, "q1": {}}], TextPool(rows), count=1)[0].negatives
        ('It rains.',)
    """
    texts, qrels = {text_id: text for text, text_id in pool.ids.items()}, pool.qrels()
    mined = []
    for row in rows:
        query = pool.query_ids[row.query]
        left_out = {*qrels[query], *(too_close or {}).get(query, ())}
        found = dict.fromkeys(row.negatives)
        for run in runs:
            candidates = [text for text in ranking(run.get(query, {})) if text not in left_out]
            new = [texts[text] for text in candidates if texts[text] not in found][:count]
            found.update(dict.fromkeys(new))
        mined.append(row._replace(negatives=tuple(found)))
    return mined


def find_too_close(runs: Sequence[Run], pool: TextPool, vectors: VectorCache, margin: float) -> dict[str, set[str]]:
    """For each query, the texts found that a bi-encoder scores above its best relevant text, less a margin.

    They are likely to be relevant, too, although nobody said so.

    Args:
        runs: What each first stage found.
        pool: The texts of the pairs.
        vectors: The bi-encoder's vectors of the pool.
        margin: By how much a negative has to score below the relevant text.
    """
    if not 0 <= margin < float("inf"):
        raise InputError(f"margin is {margin}, and has to be a number from 0.")
    queries, qrels = pool.queries(), pool.qrels()
    close: dict[str, set[str]] = {}
    searched = list(dict.fromkeys(query for run in runs for query in run))
    for query in show_progress(searched, desc="comparing", unit=" queries"):
        found = set().union(*(run.get(query, {}) for run in runs))
        read = vectors.read(queries[query], sorted(found | qrels[query].keys()))
        limit = max(read[relevant].score for relevant in qrels[query]) - margin
        close[query] = {name for name in found if read[name].score > limit}
    return close
