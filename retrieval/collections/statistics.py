"""Statistics of a collection: numbers of queries, judgments and documents, and lengths of documents."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import Qrels

from .collection import Document

BATCH = 256
"""How many documents are tokenized together."""


@dataclass(frozen=True)
class QueryStatistics:
    """A set of queries with its judgments."""

    queries: int
    words_per_query: float
    judged_queries: int
    judgments: int
    relevant: int
    relevant_per_query: float
    """over the judged queries"""


@dataclass(frozen=True)
class Lengths:
    """How long texts are, or how many passages they have."""

    mean: float
    median: float
    ninth_decile: float
    longest: int

    @classmethod
    def of(cls, values: Sequence[int]) -> "Lengths":
        """The statistics of one or more lengths.

        >>> Lengths.of([1, 2, 6])
        Lengths(mean=3.0, median=2.0, ninth_decile=5.2, longest=6)
        """
        lengths = np.asarray(values)
        decile = float(np.quantile(lengths, 0.9))
        return cls(float(lengths.mean()), float(np.median(lengths)), round(decile, 6), int(lengths.max()))


class ReadDocument(NamedTuple):
    """How a model reads a document."""

    tokens: int
    passages: int
    """all of them, also those that are left unread"""


@dataclass(frozen=True)
class ReadingLimits:
    """How much of a document a model can read."""

    one_input: int
    """tokens of a document that fit into one input of the encoder"""
    max_passages: int | None


@dataclass(frozen=True)
class DocumentStatistics:
    """The documents of a collection, or of a run."""

    documents: int
    empty: int
    words: Lengths
    tokens: Lengths | None = None
    passages: Lengths | None = None
    over_one_input: float | None = None
    """share of documents that do not fit into one input"""
    over_max_passages: float | None = None
    """share of documents that have more passages than are read"""
    unread: float | None = None
    """share of all passages that is left unread"""


def describe_queries(queries: Mapping[str, str], qrels: Qrels) -> QueryStatistics:
    """Count queries, and the judgments that these have; a query is judged if a document is, whatever its grade.

    >>> describe_queries({"1": "wing lift", "2": "heat"}, {"1": {"a": 2, "b": 0}}).relevant_per_query
    1.0
    """
    if not queries:
        raise InputError("there are no queries to describe.")
    judged = [list(qrels[query].values()) for query in queries if qrels.get(query)]
    relevant = sum(grade > 0 for grades in judged for grade in grades)
    return QueryStatistics(
        queries=len(queries),
        words_per_query=sum(len(text.split()) for text in queries.values()) / len(queries),
        judged_queries=len(judged),
        judgments=sum(map(len, judged)),
        relevant=relevant,
        relevant_per_query=relevant / len(judged) if judged else 0.0,
    )


def describe_documents(
    documents: Iterable[Document],
    read: Callable[[list[Document]], Sequence[ReadDocument]] | None = None,
    limits: ReadingLimits | None = None,
) -> DocumentStatistics:
    """Measure documents: their words, separated by white space, and with a model's `read` also tokens and passages.

    A document is its title, headings and text, as an index and a model read it.

    >>> describe_documents([Document("1", "It rains."), Document("2", "")]).words.mean
    1.0
    """
    words, tokens, passages = array("q"), array("q"), array("q")
    for batch in _batches(documents):
        words.extend(len(document.contents().split()) for document in batch)
        if read is not None:
            for found in read(batch):
                tokens.append(found.tokens)
                passages.append(found.passages)
    if not words:
        raise InputError("there are no documents to describe.")
    shares = {} if limits is None else _shares(np.asarray(tokens), np.asarray(passages), limits)
    return DocumentStatistics(
        documents=len(words),
        empty=words.count(0),
        words=Lengths.of(words),
        tokens=Lengths.of(tokens) if tokens else None,
        passages=Lengths.of(passages) if passages else None,
        **shares,
    )


def _shares(tokens: "np.ndarray", passages: "np.ndarray", limits: ReadingLimits) -> dict[str, float]:
    most = limits.max_passages or int(passages.max())
    return {
        "over_one_input": float((tokens > limits.one_input).mean()),
        "over_max_passages": float((passages > most).mean()),
        "unread": float(np.clip(passages - most, 0, None).sum() / passages.sum()),
    }


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    source = iter(documents)
    while batch := list(islice(source, BATCH)):
        yield batch
