"""What a model gives documents, also those without text, which are last in every ranking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from docparade import DocumentRanker
from docparade.modeling import DocumentLike, ReadingOptions
from docparade.modeling.engine import read_pairs


def model_scores(model: DocumentRanker, pairs: Sequence[tuple[str, DocumentLike]], **options: Any) -> list[float]:
    return [reading.model_score for reading in read_pairs(model, pairs, ReadingOptions.of(options))]
