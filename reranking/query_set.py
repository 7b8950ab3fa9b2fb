"""`QuerySet`: queries with judgments, a run to rerank, and documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from docparade.modeling.engine import EncodeDocuments
from docparade.reranking.caches.document_lookup import Documents
from docparade.reranking.caches.vector_cache import VectorCache
from docparade.retrieval.runs import Qrels, Run


@dataclass(frozen=True)
class QuerySet:
    """Queries to train, validate or test a ranker on.

    The judgments and the run may hold other queries, too, so those of a whole collection can be given.

    Example:
        ```python
        QuerySet("dev", {"q1": "why is the sky blue"}, run, qrels, documents)
        ```
    """

    name: str
    queries: Mapping[str, str]
    run: Run
    """The first-stage run."""
    qrels: Qrels
    documents: Documents
    """Documents by id, such as `CollectionDocuments`."""
    encode_documents: EncodeDocuments | None = None
    """Replaces the processor's own method, such as a `TokenCache`'s."""
    vectors: VectorCache | None = None
    """The kept passage vectors of a bi-encoder: no document is read then."""

    def judged(self) -> Qrels:
        """The judgments of these queries; queries without judgments are left out."""
        return {query: self.qrels[query] for query in self.queries if self.qrels.get(query)}

    def to_rerank(self) -> Run:
        """The run of the queries that have judgments."""
        return {query: self.run[query] for query in self.judged() if self.run.get(query)}

    def select(self, queries: Iterable[str], name: str | None = None, qrels: Qrels | None = None) -> QuerySet:
        """Select some of the queries; unknown ids are ignored.

        Args:
            queries: Ids of the queries to keep.
            name: Another name for the result.
            qrels: Other judgments for the result.
        """
        chosen = {query: self.queries[query] for query in queries if query in self.queries}
        judgments = self.qrels if qrels is None else qrels
        return replace(
            self,
            name=name or self.name,
            queries=chosen,
            qrels={query: judgments[query] for query in chosen if query in judgments},
            run={query: self.run[query] for query in chosen if self.run.get(query)},
        )

    def select_judged(self) -> QuerySet:
        """Select the queries that have judgments."""
        return self.select(self.judged())
