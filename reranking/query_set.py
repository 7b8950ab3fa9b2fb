"""`QuerySet`: queries with their judgments, the run to rerank, and the documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from docparade.modeling.engine import EncodeDocuments
from docparade.retrieval.runs import Qrels, Run

from .documents import Documents


@dataclass(frozen=True)
class QuerySet:
    """What a ranker is trained, validated or tested on.

    The judgments and the run may hold further queries, so those of a whole collection can be given.

    Example:
        ```python
        QuerySet("dev", {"q1": "why is the sky blue"}, run, qrels, documents)
        ```
    """

    name: str
    queries: Mapping[str, str]
    run: Run
    """The first stage's lists."""
    qrels: Qrels
    documents: Documents
    """Documents by id, such as `CollectionDocuments`."""
    encode_documents: EncodeDocuments | None = None
    """Used in place of the processor's own, such as a `TokenCache`'s."""

    def judged(self) -> Qrels:
        """The judgments of these queries; a query without judgments is left out."""
        return {query: self.qrels[query] for query in self.queries if self.qrels.get(query)}

    def to_rerank(self) -> Run:
        """The lists of the queries that have judgments."""
        return {query: self.run[query] for query in self.judged() if self.run.get(query)}

    def select(self, queries: Iterable[str], name: str | None = None, qrels: Qrels | None = None) -> QuerySet:
        """The same set with some of its queries; unknown ids are left out.

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
        """The same set with only the queries that have judgments."""
        return self.select(self.judged())
