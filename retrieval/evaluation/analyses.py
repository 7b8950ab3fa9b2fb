"""Analyses of runs: documents that only one of two runs finds, ranks of relevant documents, differences by query.

Of judgments: how many relevant passages a relevant document has.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import PassageGrades, Qrels, Run, cut, ranking

from .measures import evaluate, one_measure

BINS = (
    *((start, start + 9) for start in range(1, 100, 10)),
    *((start, start + 99) for start in range(101, 1000, 100)),
)
"""(first rank, last rank) of each bin: tens up to 100, then hundreds up to 1000"""


@dataclass(frozen=True)
class UniqueRelevant:
    """Documents, over all queries, that are among a run's top documents and not among another run's."""

    depth: int
    retrieved: int
    new: int
    """documents that the other run does not retrieve"""
    by_grade: dict[int, int]
    """number of relevant documents among the new ones, by grade"""

    @property
    def relevant(self) -> int:
        """How many of the new documents are relevant."""
        return sum(self.by_grade.values())

    @property
    def share(self) -> float:
        """Unique relevant documents, as a share of all the run retrieves."""
        return self.relevant / self.retrieved if self.retrieved else 0.0

    @property
    def new_share(self) -> float:
        """New documents, relevant or not, as a share of all the run retrieves."""
        return self.new / self.retrieved if self.retrieved else 0.0

    @property
    def grade_shares(self) -> dict[int, float]:
        """Each grade's share of the unique relevant documents."""
        return {grade: count / self.relevant for grade, count in self.by_grade.items()}


def unique_relevant(qrels: Qrels, run: Run, other: Run, depth: int) -> UniqueRelevant:
    """Count the documents that are in the top `depth` of `run` and not of `other`, over all judged queries.

    >>> unique_relevant({"1": {"a": 1}}, {"1": {"a": 2.0, "b": 1.0}}, {"1": {"b": 1.0}}, depth=10).share
    0.5
    """
    top, other_top = cut(run, depth), cut(other, depth)
    retrieved, new, by_grade = 0, 0, Counter[int]()
    for query, grades in qrels.items():
        documents = top.get(query, {})
        unique = documents.keys() - other_top.get(query, {}).keys()
        retrieved += len(documents)
        new += len(unique)
        by_grade.update(grades[document] for document in unique if grades.get(document, 0) > 0)
    return UniqueRelevant(depth, retrieved, new, dict(sorted(by_grade.items())))


@dataclass(frozen=True)
class RankBin:
    """Relevant documents between two ranks, mean over queries, by which first stage retrieves them."""

    first: int
    last: int
    both: float
    only_first: float
    only_second: float
    neither: float


def relevant_by_rank(qrels: Qrels, run: Run, first: Run, second: Run, depth: int = 1000) -> list[RankBin]:
    """Where a run ranks its relevant documents, split by whether both, one or none of two other runs retrieve them.

    `run` may be one of the two, or a reranking of one: then the result shows which documents move up. Means are over
    the judged queries.

    ```python
    relevant_by_rank(qrels, run=reranked, first=bm25, second=rm3)[0].both
    ```
    """
    queries = [query for query, grades in qrels.items() if grades]
    if not queries:
        raise InputError("there are no judgments.")
    first, second = cut(first, depth), cut(second, depth)
    counts = {bounds: Counter[tuple[bool, bool]]() for bounds in BINS}
    for query in queries:
        for rank, document in enumerate(ranking(run.get(query, {}))[: min(depth, BINS[-1][1])], start=1):
            if qrels[query].get(document, 0) > 0:
                found = document in first.get(query, {}), document in second.get(query, {})
                counts[_bin_of(rank)][found] += 1
    return [
        RankBin(
            *bounds,
            both=count[True, True] / len(queries),
            only_first=count[True, False] / len(queries),
            only_second=count[False, True] / len(queries),
            neither=count[False, False] / len(queries),
        )
        for bounds, count in counts.items()
        if bounds[0] <= depth
    ]


def relevant_passages(
    passages: PassageGrades, min_grade: int = 1, qrels: Qrels | None = None, min_document_grade: int = 1
) -> dict[int, int]:
    """Number of relevant passages -> number of (query, document) pairs with so many; pairs with none are left out.

    A passage is relevant if its grade is at least `min_grade`. With document judgments in `qrels`, only documents with
    a grade of at least `min_document_grade` count. `collections.passage_judgments` reads passages.

    >>> relevant_passages({"1": {"d": {"p1": 3, "p2": 3}, "e": {"p3": 0}}})
    {2: 1}
    """
    counts = Counter[int]()
    for query, documents in passages.items():
        grades = None if qrels is None else qrels.get(query, {})
        for document, judged in documents.items():
            if grades is None or grades.get(document, min_document_grade - 1) >= min_document_grade:
                counts[sum(grade >= min_grade for grade in judged.values())] += 1
    return {number: count for number, count in sorted(counts.items()) if number}


def passage_shares(counts: Mapping[int, int]) -> dict[str, float]:
    """Shares of documents with 1, with 1 or 2, and with 3 or more relevant passages.

    >>> passage_shares({1: 6, 2: 2, 5: 2})
    {'1': 0.6, '1-2': 0.8, '3+': 0.2}
    """
    total = sum(counts.values())
    if not total:
        raise InputError("no document has a relevant passage; check the lowest relevant grades, and the mapping.")
    one, two = counts.get(1, 0), counts.get(2, 0)
    return {"1": one / total, "1-2": (one + two) / total, "3+": (total - one - two) / total}


@dataclass(frozen=True)
class Difference:
    """One query's value of a measure in two runs."""

    query: str
    first: float
    second: float

    @property
    def value(self) -> float:
        """Second minus first: above 0 where the second run is better."""
        return self.second - self.first


def differences(qrels: Qrels, first: Run, second: Run, measure: str = "nDCG@20") -> list[Difference]:
    """The gain of the second run over the first for each query, largest gain first.

    ```python
    differences(qrels, bm25, reranked, "AP@100")[0].query
    ```
    """
    name = one_measure(measure)
    before, after = (evaluate(qrels, run, name).per_query[name] for run in (first, second))
    found = [Difference(query, before[query], after[query]) for query in before]
    return sorted(found, key=lambda difference: (-difference.value, difference.query))


def _bin_of(rank: int) -> tuple[int, int]:
    return next(bounds for bounds in BINS if rank <= bounds[1])
