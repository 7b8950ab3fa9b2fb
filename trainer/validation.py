"""How good a model is while it learns: validation queries are reranked and measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from docparade.modeling import DocumentRanker
from docparade.modeling.engine import EncodeDocuments
from docparade.reranking.documents import Documents
from docparade.reranking.rerank_run import rerank
from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.measures import evaluate
from docparade.retrieval.runs import Qrels, Run


@dataclass(frozen=True)
class Validation:
    """Queries on which a model is measured, with the run that it reranks.

    Judgments and lists of other queries are left aside, so that those of a whole collection may be given.

    Example:
        >>> Validation("dev", {"q1": "why is the sky blue"}, run, qrels, documents)  # doctest: +SKIP
    """

    name: str
    queries: Mapping[str, str]
    run: Run
    qrels: Qrels
    documents: Documents
    encode_documents: EncodeDocuments | None = None
    """In place of the processor's own, such as a `TokenCache`'s."""

    def __post_init__(self) -> None:
        if not self.judged() or not self.lists():
            raise InputError(f"validation set {self.name} has no query with judgments and a list to rerank.")

    def judged(self) -> Qrels:
        """The judgments of these queries."""
        return {query: self.qrels[query] for query in self.queries if self.qrels.get(query)}

    def lists(self) -> Run:
        """What is reranked: the lists of queries that have judgments."""
        return {query: self.run[query] for query in self.judged() if self.run.get(query)}

    def measure(self, model: DocumentRanker, measure: str, depth: int) -> float:
        """Rerank and measure. In a process group, all of its processes call this, and all get the value."""
        options: dict[str, Any] = {"encode_documents": self.encode_documents, "progress": False}
        try:
            reranked = rerank(model, self.lists(), self.queries, self.documents, depth, **options)
        except FloatingPointError as error:
            raise InputError(
                f"validation set {self.name}: {error} In training, this means that it diverged: lower learning_rate."
            ) from error
        return evaluate(self.judged(), reranked, measure).means[measure]


def validate(
    model: DocumentRanker, validations: Sequence[Validation], measure: str, depth: int, prefix: str = "eval"
) -> dict[str, float]:
    """The measure, as the mean over the validation sets, and of each set where there are several.

    Example:
        >>> validate(model, [dev], "nDCG@20", depth=100)  # doctest: +SKIP
        {'eval_nDCG@20': 0.41}
    """
    values = {validation.name: validation.measure(model, measure, depth) for validation in validations}
    metrics = {f"{prefix}_{measure}": sum(values.values()) / len(values)}
    if len(values) > 1:
        metrics |= {f"{prefix}_{name}_{measure}": value for name, value in values.items()}
    return metrics
