"""The cascade keeps the passages that BM25 likes, and says what it left unread."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st
from support.project import LICENSE

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.modeling.engine_cascade import promising_passages

passages_of_tokens = st.lists(st.lists(st.integers(0, 9), max_size=12), min_size=1, max_size=9)


def bm25(query: list[int], passages: list[list[int]]) -> list[float]:
    """Lucene's BM25, term by term."""
    mean = max(sum(map(len, passages)) / len(passages), 1)
    scores = []
    for passage in passages:
        counts = Counter(passage)
        score = 0.0
        for term in sorted(set(query)):
            having = sum(term in other for other in passages)
            weight = math.log(1 + (len(passages) - having + 0.5) / (having + 0.5))
            score += weight * counts[term] / (counts[term] + 0.9 * (1 - 0.4 + 0.4 * len(passage) / mean))
        scores.append(score)
    return scores


@given(st.lists(st.integers(0, 9), max_size=5), passages_of_tokens, st.integers(1, 6))
def test_the_first_and_the_best_are_kept(query: list[int], passages: list[list[int]], keep: int) -> None:
    kept = promising_passages(query, [np.array(passage, dtype=np.int32) for passage in passages], keep)
    assert kept == sorted(set(kept))
    assert kept[0] == 0
    assert len(kept) == min(keep, len(passages))
    scores = bm25(query, passages)
    left = [score for place, score in enumerate(scores) if place not in kept]
    assert all(scores[place] >= max(left, default=0) - 1e-9 for place in kept[1:])


def test_ranking_with_fewer_passages(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    model = tiny_ranker(MaxPForSequenceClassification, "max")
    [whole] = model.rank("patent license", [LICENSE])
    [fewer] = model.rank("patent license", [LICENSE], keep_passages=2)
    assert len(fewer.passages) == 2
    assert len(fewer.passages) + fewer.unread == len(whole.passages) + whole.unread
    own = {passage.start: passage.score for passage in whole.passages}
    assert all(passage.score == pytest.approx(own[passage.start], abs=1e-5) for passage in fewer.passages)
    assert model.rank("patent license", [LICENSE], keep_passages=99) == [whole]
    with pytest.raises(ValueError, match="keep_passages is 0"):
        model.rank("patent license", [LICENSE], keep_passages=0)
