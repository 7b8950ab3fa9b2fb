"""Rankings by one or two methods."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.project import LICENSE, QUERY

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.hub_cards.space.ranking import METHOD_NAMES, list_methods, rank_documents
from docparade.hub_cards.space.sources import SourceDocument

DOCUMENTS = [
    SourceDocument("first", LICENSE[:900]),
    SourceDocument("second", LICENSE[2000:2700], title="Patents"),
    SourceDocument("third", "It rains."),
]
TinyRanker = Callable[..., DocumentRanker]


def test_methods_of_a_score_model(tiny_ranker: TinyRanker) -> None:
    model = tiny_ranker(MaxPForSequenceClassification, "avg")
    methods = list_methods({"tiny": model})
    assert [method.aggregation for method in methods.values()] == ["avg", "max", "first", "kmax_avg", "sum"]
    assert list(methods) == [METHOD_NAMES[method.aggregation] for method in methods.values()]


def test_methods_of_two_models(tiny_ranker: TinyRanker) -> None:
    parade = tiny_ranker(ParadeForSequenceClassification, "attn")
    birch = tiny_ranker(MaxPForSequenceClassification, "birch")
    labels = list(list_methods({"a": parade, "b": birch}))
    assert labels[:3] == ["a: PARADE, attn", "b: birch", "b: MaxP, the best passage"]
    assert len(labels) == 7


@pytest.mark.parametrize("aggregation", METHOD_NAMES)
def test_another_aggregation_is_that_of_a_model_made_with_it(aggregation: str, tiny_ranker: TinyRanker) -> None:
    own = tiny_ranker(MaxPForSequenceClassification, aggregation)
    other = tiny_ranker(MaxPForSequenceClassification, "max")
    [method] = [one for one in list_methods({"tiny": other}).values() if one.aggregation == aggregation]
    [ranking] = rank_documents([method], QUERY, DOCUMENTS)
    expected = own.rank(QUERY, DOCUMENTS)
    assert [document.index for document in ranking.documents] == [document.index for document in expected]
    for document, same in zip(ranking.documents, expected, strict=True):
        assert document.score == pytest.approx(same.score, abs=1e-5)
        weights = [passage.weight for passage in document.passages]
        assert weights == pytest.approx([passage.weight for passage in same.passages], abs=1e-5)
    assert ranking.weight_means == own.config.weight_means


def test_methods_of_a_model_share_a_reading(tiny_ranker: TinyRanker) -> None:
    model = tiny_ranker(MaxPForSequenceClassification, "max")
    parade = tiny_ranker(ParadeForSequenceClassification, "max")
    methods = list_methods({"scores": model, "vectors": parade})
    chosen = [method for method in methods.values() if method.aggregation == "max" or "FirstP" in method.label]
    best, first, vectors = rank_documents(chosen, QUERY, DOCUMENTS)
    assert best.seconds == first.seconds != vectors.seconds
    assert best.tokens == first.tokens == vectors.tokens > 100
    assert {document.index for document in vectors.documents} == {0, 1, 2}
    read = {document.index: len(document.passages) for document in best.documents}
    assert read[0] == 5 and best.documents[[d.index for d in best.documents].index(0)].unread > 0
