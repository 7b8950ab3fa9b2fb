"""How the time to rank grows: with the documents of a query, with their length, with the limit of passages.

Time should depend on the real tokens alone: twice the documents or twice the words take twice as long, and a higher
`max_passages` costs nothing if no document has that many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from docparade.modeling import Document, DocumentLike, DocumentRanker

from .systems import docparade
from .timing import Turn, time_in_turns
from .workload import Workload

SHARES = (0.25, 0.5, 0.75, 1.0)
WORDS = (200, 400, 800, 1600)
LIMIT_FACTORS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Growth:
    """Times of workloads that differ in one thing."""

    what: str
    sizes: list[int]
    tokens: list[int]
    seconds: list[float]

    @property
    def fit(self) -> tuple[float, float, float]:
        """The line through the times: seconds at no tokens, seconds for 1000 tokens, and R²."""
        tokens, seconds = np.array(self.tokens) / 1000, np.array(self.seconds)
        slope, start = np.polyfit(tokens, seconds, 1)
        rest = ((seconds - start - slope * tokens) ** 2).sum()
        return float(start), float(slope), float(1 - rest / ((seconds - seconds.mean()) ** 2).sum())


def measure_growth(
    model: DocumentRanker, query: str, documents: Sequence[DocumentLike], turns: int = 3
) -> list[Growth]:
    """Time lists, documents and limits of growing size; the best of several turns counts.

    Example:
        ```python
        measure_growth(model, query, documents)[0].fit
        ```
    """
    counts = sorted({max(1, round(len(documents) * share)) for share in SHARES})
    lists = [(count, Workload.of(model, query, documents[:count])) for count in counts]
    text = " ".join(Document.of(document, "documents").text for document in documents).split()
    long = [(words, Workload.of(model, query, _documents_of(text, words))) for words in WORDS]
    return [
        _measure_works("documents", model, lists, turns),
        _measure_works("words of a document", model, long, turns),
        _measure_limits(model, lists[-1][1], turns),
    ]


def _documents_of(words: list[str], length: int) -> list[DocumentLike]:
    """Eight documents of `length` words, cut from a text that starts over when it ends."""
    starts = [number * length for number in range(8)]
    return [" ".join(words[place % len(words)] for place in range(s, s + length)) for s in starts]


def _measure_works(what: str, model: DocumentRanker, works: Sequence[tuple[int, Workload]], turns: int) -> Growth:
    best = _best_times(model, [docparade(model, work) for _, work in works], turns)
    return Growth(what, [size for size, _ in works], [work.real_tokens for _, work in works], best)


def _measure_limits(model: DocumentRanker, work: Workload, turns: int) -> Growth:
    before = model.require_processor().max_passages or len(work.lengths)
    limits = [before * factor for factor in LIMIT_FACTORS]
    best = _best_times(model, [_with_limit(model, work, limit) for limit in limits], turns)
    return Growth("max_passages", limits, [work.real_tokens] * len(limits), best)


def _best_times(model: DocumentRanker, runs: Sequence[Turn], turns: int) -> list[float]:
    timings = time_in_turns({str(place): run for place, run in enumerate(runs)}, turns, model.device)
    return [timing.seconds for timing in timings.values()]


def _with_limit(model: DocumentRanker, work: Workload, max_passages: int) -> Turn:
    """Rank with another limit of passages."""
    processor, rank = model.require_processor(), docparade(model, work)

    def run() -> tuple[list[float], dict[str, float]]:
        before, processor.max_passages = processor.max_passages, max_passages
        try:
            return rank()
        finally:
            processor.max_passages = before

    return run
