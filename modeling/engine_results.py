"""The results of reading: a score for each document, with the passages that were read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from .documents import Document

EMPTY_SCORE = -3.4e38
"""The score of a document in which there is nothing to read. It is below every other score, and a finite 32-bit float:
JSON has no infinity."""


class AggregatedDocument(NamedTuple):
    """The score of a document, and the scores and weights of its passages."""

    score: float
    passage_scores: list[float]
    weights: list[float]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read in the document."""
        return self.score == EMPTY_SCORE


@dataclass(frozen=True)
class RankedPassage:
    """A passage that was read: its span in the document's text, its score and its weight."""

    text: str
    start: int
    end: int
    score: float
    """The score of a document that consists of this passage."""
    weight: float
    """The weight in the model's aggregation; `model.config.weight_means` explains it."""


@dataclass(frozen=True)
class RankedDocument:
    """A document in a ranking."""

    index: int
    """Its position in the given list."""
    id: Any
    """Its id as it was given; `None` if it has none."""
    score: float
    passages: list[RankedPassage] = field(repr=False)
    """The passages that were read, in document order."""
    unread: int = 0
    """How many passages were not read because of the processor's `max_passages` or of `keep_passages`."""
    text: str = field(default="", repr=False)
    """The document's text."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read in the document: it is ranked last, with the score `EMPTY_SCORE`."""
        return self.score == EMPTY_SCORE

    @property
    def best_passage(self) -> RankedPassage:
        """The passage with the greatest weight, and among equal weights the greatest score."""
        if not self.passages:
            raise ValueError("No passage of this document was read (max_passages_per_query), so none is the best.")
        return max(self.passages, key=lambda passage: (passage.weight, passage.score))

    def to_dict(self, return_passages: bool = False, return_text: bool = False) -> dict[str, Any]:
        """Plain values, ready for JSON: `index`, `id`, `score`, `unread`, `empty`; optionally `passages` and `text`."""
        values: dict[str, Any] = {name: getattr(self, name) for name in ("index", "id", "score", "unread", "empty")}
        if return_passages:
            values["passages"] = [asdict(passage) for passage in self.passages]
        return {**values, "text": self.text} if return_text else values


@dataclass(frozen=True)
class Reading:
    """The result of one pair of a query and a document."""

    document: Document
    spans: list[tuple[int, int]]
    """The spans of the passages that were read, in the document's text."""
    unread: int
    score: float
    passage_scores: list[float]
    weights: list[float]
    model_score: float
    """The model's own score; it differs from `score` only for an empty document."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read in the document."""
        return self.score == EMPTY_SCORE

    @classmethod
    def of(
        cls,
        document: Document,
        spans: list[tuple[int, int]],
        unread: int,
        scored: AggregatedDocument,
        empty: bool,
    ) -> Reading:
        """The result, from the model's own score."""
        score = EMPTY_SCORE if empty else scored.score
        return cls(document, spans, unread, score, scored.passage_scores, scored.weights, scored.score)

    def to_ranked(self, index: int) -> RankedDocument:
        """The result as users get it."""
        text = self.document.text
        columns = zip(self.spans, self.passage_scores, self.weights, strict=True)
        return RankedDocument(
            index=index,
            id=self.document.id,
            score=self.score,
            passages=[
                RankedPassage(text[start:end], start, end, score, weight) for (start, end), score, weight in columns
            ],
            unread=self.unread,
            text=text,
        )
