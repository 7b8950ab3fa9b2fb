"""`rank_all`: from readings to rankings, one for each query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from .checks import check_limit
from .documents import Document, DocumentLike
from .engine import read_pairs
from .engine_budget import read_within_budget
from .engine_results import RankedDocument, Reading
from .reading_options import READ_ALL, ReadingOptions

if TYPE_CHECKING:
    from .modeling_ranker import DocumentRanker


def rank_all(
    model: DocumentRanker,
    requests: Sequence[tuple[str, Iterable[DocumentLike]]],
    top_k: int | None = None,
    options: ReadingOptions = READ_ALL,
) -> list[list[RankedDocument]]:
    """See `DocumentRanker.rank_all`."""
    for i, request in enumerate(requests):
        if isinstance(request, str) or not isinstance(request, Sequence) or len(request) != 2:
            raise TypeError(f"requests[{i}] is not a pair of a query and a list of documents.")
    for _, documents in requests:
        if isinstance(documents, (str, Mapping)):
            raise TypeError("documents is a single document: give a list of them.")
        if not isinstance(documents, Iterable):
            raise TypeError(f"documents is {documents!r}: give a list of documents.")
    check_limit("top_k", top_k)
    lists = []
    for i, (query, documents) in enumerate(requests):
        place = f"requests[{i}]: " if len(requests) > 1 else ""
        named = (Document.of(document, f"{place}documents[{j}]") for j, document in enumerate(documents))
        lists.append((query, list(named)))
    pairs = [(query, document) for query, documents in lists for document in documents]
    if options.max_passages_per_query is not None:
        return [_rank_within_budget(model, query, documents, options)[:top_k] for query, documents in lists]
    readings = iter(read_pairs(model, pairs, options))
    return [_in_order(dict(enumerate(islice(readings, len(documents)))))[:top_k] for _, documents in lists]


def _rank_within_budget(
    model: DocumentRanker, query: str, documents: Sequence[Document], options: ReadingOptions
) -> list[RankedDocument]:
    """Rank documents if some were not read: unread documents come last, the most promising first."""
    named = {str(index): document for index, document in enumerate(documents)}
    readings, unread = read_within_budget(model, query, named, options)
    ranked = _in_order({int(name): reading for name, reading in readings.items()})
    read = [one for one in ranked if not one.empty]
    lowest = read[-1].score if read else 0.0
    skipped = [
        RankedDocument(int(name), named[name].id, lowest - place, [], text=named[name].text)
        for place, name in enumerate(unread, start=1)
    ]
    return [*read, *skipped, *ranked[len(read) :]]


def _in_order(readings: Mapping[int, Reading]) -> list[RankedDocument]:
    # Of equal scores, the greater id is first, as in runs; without ids, the order is that of the input.
    by_id = sorted(readings, key=lambda index: _sortable(readings[index].document.id), reverse=True)
    by_score = sorted(by_id, key=lambda index: readings[index].score, reverse=True)
    return [readings[index].to_ranked(index) for index in by_score]


def _sortable(identifier: Any) -> str:
    return "" if identifier is None else str(identifier)
