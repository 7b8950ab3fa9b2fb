"""Whatever is given, there is a defined result or one clear error."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from support.project import LICENSE

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.modeling import engine
from docparade.modeling.documents import DocumentLike
from docparade.modeling.engine import read_pairs
from docparade.modeling.passages import EncodedDocument


@pytest.fixture(params=[(MaxPForSequenceClassification, "max"), (ParadeForSequenceClassification, "transformer")])
def model(request: pytest.FixtureRequest, tiny_ranker: Callable[..., DocumentRanker]) -> DocumentRanker:
    return tiny_ranker(*request.param)


def test_no_documents_give_an_empty_ranking(model: DocumentRanker) -> None:
    assert model.rank("query", []) == []
    assert model.score([]) == []


@pytest.mark.parametrize("query", ["", "  \n"])
def test_an_empty_query_is_an_error(model: DocumentRanker, query: str) -> None:
    with pytest.raises(ValueError, match="query is empty"):
        model.rank(query, ["a document"])


def test_a_query_without_tokens_is_read(model: DocumentRanker) -> None:
    query = "\u200b \t"  # a zero-width space is a character, which this tokenizer drops
    assert model.processor.encode_query(query) == []
    assert math.isfinite(model.rank(query, ["a document"])[0].score)


@pytest.mark.parametrize("query", [None, 7, ["query"]])
def test_a_query_that_is_not_a_string_is_an_error(model: DocumentRanker, query: object) -> None:
    with pytest.raises(TypeError, match=re.escape(f"The query is {query!r}: give a string.")):
        model.rank(query, ["a document"])


def test_half_a_surrogate_pair_in_a_query_is_replaced(model: DocumentRanker) -> None:
    found = model.rank("grant \ud83d", ["a document"])
    assert found == model.rank("grant \ufffd", ["a document"])


def test_an_error_does_not_repeat_a_long_value(model: DocumentRanker) -> None:
    for query, document in (
        (["x"] * 10**5, "x"),
        ("x", {"x" * 10**5: 1}),
        ("x", {"text": "x", "title": ["x"] * 10**5}),
    ):
        with pytest.raises(TypeError) as caught:
            model.rank(query, [document])
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("empty", ["", " ", "\n\t", {"text": ""}])
def test_an_empty_document_has_one_passage(model: DocumentRanker, empty: object) -> None:
    [ranked] = model.rank("grant of license", [empty])
    assert ranked.empty
    [passage] = ranked.passages
    assert passage.text == ""


def test_none_is_named_by_its_place(model: DocumentRanker) -> None:
    with pytest.raises(TypeError, match=r"documents\[1\] is None"):
        model.rank("query", ["fine", None])
    with pytest.raises(TypeError, match=r"documents\[0\] has no 'text'.*title"):
        model.rank("query", [{"title": "only"}])


def test_what_is_no_list_is_said(model: DocumentRanker) -> None:
    with pytest.raises(TypeError, match="documents is None"):
        model.rank("query", None)
    with pytest.raises(TypeError, match=r"requests\[0\] is not a pair"):
        model.rank_all(["cat", "dog"])
    for name in ("vectors", "choose_by"):
        with pytest.raises(TypeError, match=rf"{name} is a list: .*encode_documents"):
            model.rank("query", ["a document"], **{name: [0.5]})


def test_a_single_document_is_not_a_list(model: DocumentRanker) -> None:
    """A string would be taken for a list of letters."""
    for single in ("a document", {"text": "a document"}):
        with pytest.raises(TypeError, match="single document"):
            model.rank("query", single)


def test_top_k(model: DocumentRanker) -> None:
    documents = [f"{word} of the license" for word in ("grant", "terms", "work")]
    whole = model.rank("grant", documents)
    assert [ranked.score for ranked in whole] == sorted((ranked.score for ranked in whole), reverse=True)
    assert model.rank("grant", documents, top_k=2) == whole[:2]
    assert model.rank("grant", documents, top_k=9) == whole
    with pytest.raises(ValueError, match="top_k is 0"):
        model.rank("grant", documents, top_k=0)


def test_equal_scores_are_in_the_order_of_ids(model: DocumentRanker) -> None:
    documents = [{"id": name, "text": "the same"} for name in (3, "b", None, 12, "a")]
    assert [ranked.id for ranked in model.rank("grant", documents)] == ["b", "a", 3, 12, None]
    assert [ranked.index for ranked in model.rank("grant", ["the same"] * 3)] == [0, 1, 2]


def test_a_query_that_leaves_no_room(model: DocumentRanker) -> None:
    limit = model.processor.max_query_tokens
    try:
        model.processor.max_query_tokens = None
        with pytest.raises(ValueError, match=r"max_length=24.*max_query_tokens"):
            model.rank("work " * 60, ["a document"])
        # One token of room is room.
        query = "work " * (24 - 3 - 1)
        assert len(model.rank(query, ["the work"])[0].passages) == 2
    finally:
        model.processor.max_query_tokens = limit


@pytest.mark.parametrize(
    "text",
    [
        "😀" * 50 + " family: 👨‍👩‍👧‍👦 and flags 🇩🇪",
        "هذا نص طويل باللغة العربية " * 10,
        "עברית מימין לשמאל " * 10,
        "漢字だけの文章です。" * 20,
        "\u202eright to left override\u202c",
        "half a surrogate \ud83d here",
        "nul \x00 and bell \x07 and \ufffe",
        "a" * 5000,
        "e\u0301" * 100,
    ],
)
def test_any_text(model: DocumentRanker, text: str) -> None:
    [ranked] = model.rank("grant 😀 منحة", [{"id": "x", "text": text}])
    assert torch.isfinite(torch.tensor(ranked.score))
    readable = text.replace("\ud83d", "\ufffd")
    assert all(readable[passage.start : passage.end] == passage.text for passage in ranked.passages)


@pytest.mark.slow
def test_a_million_words(model: DocumentRanker) -> None:
    text = "the work of the licensor " * 200_000
    [ranked] = model.rank("grant", [text])
    assert len(ranked.passages) == model.processor.max_passages
    assert ranked.unread > 100_000
    assert ranked.passages[0].start == 0
    assert ranked.passages[-1].end == len(text) - 1


def test_scores_that_are_no_numbers_are_an_error(model: DocumentRanker) -> None:
    broken = copy.deepcopy(model)
    with torch.no_grad():
        next(broken.encoder.parameters()).fill_(torch.nan)
    with pytest.raises(FloatingPointError, match="document d7 is not a finite number"):
        broken.rank("grant", [{"id": "d7", "text": "work"}])
    with pytest.raises(FloatingPointError, match=r"documents\[0\], .*work.* is not a finite number"):
        broken.score([("grant", "work")])


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_infinite_scores_are_an_error(value: float, tiny_ranker: Callable[..., DocumentRanker]) -> None:
    broken = copy.deepcopy(tiny_ranker(MaxPForSequenceClassification, "max"))
    with torch.no_grad():
        broken.encoder.classifier.bias.fill_(value)
    with pytest.raises(FloatingPointError, match="not a finite number"):
        broken.score([("grant", "work")])


def test_threads_share_a_model_that_is_training(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    model = copy.deepcopy(tiny_ranker(MaxPForSequenceClassification, "sum"))
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    pairs = [("grant of license", LICENSE[start : start + 400]) for start in range(0, 4000, 400)]
    expected = model.eval().score(pairs)
    model.train()
    model.aggregator.eval()  # a part that is not training stays so
    with ThreadPoolExecutor(4) as threads:
        # Some calls are short and some are long, so that they end while others are at work.
        found = list(threads.map(lambda call: model.score(pairs[: 1 + call % len(pairs)]), range(60)))
    for scores in found:
        assert scores == pytest.approx(expected[: len(scores)], abs=1e-5)
    assert model.training and model.encoder.training and not model.aggregator.training


def test_training_waits_for_a_ranking(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    model = copy.deepcopy(tiny_ranker(MaxPForSequenceClassification, "max"))
    [before] = model.score([("grant", "work")])
    processor = model.require_processor()

    def score_while(change: Callable[[], object]) -> list[float]:
        """Score while another thread changes the model."""

        def encode(documents: Sequence[DocumentLike]) -> list[EncodedDocument]:
            with ThreadPoolExecutor(1) as thread:
                thread.submit(change).result()
            return processor.encode_documents(documents)

        return [reading.score for reading in read_pairs(model, [("grant", "work")], encode_documents=encode)]

    for wrapped in (model, torch.nn.Sequential(model)):
        with pytest.raises(RuntimeError, match=r"model\.train\(\)"):
            score_while(wrapped.train)
        assert not any(module.training for module in model.modules())
    with pytest.raises(RuntimeError, match="training mode"):
        score_while(model.encoder.train)
    model.train()
    assert score_while(model.eval) == [before]
    assert not model.training


@pytest.mark.parametrize("wrong", ["ab", ("a",), ("a", "b", "c"), None, 7])
def test_what_is_not_a_pair_is_named(wrong: Any, model: DocumentRanker) -> None:
    with pytest.raises(TypeError, match=r"pairs\[1\] is not a pair"):
        model.score([("grant", "work"), wrong])


def test_documents_may_come_from_anywhere(model: DocumentRanker) -> None:
    documents = [{"text": "grant", "title": math.nan}, {"text": "work", "title": None}]
    assert model.rank("grant", iter(documents)) == model.rank("grant", ["grant", "work"])


def test_sums_of_positive_scores_follow_length(tiny_ranker: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []
    monkeypatch.setattr(engine.logger, "warning_once", warned.append)

    def rank_with_bias(aggregation: str, bias: float) -> None:
        model = copy.deepcopy(tiny_ranker(MaxPForSequenceClassification, aggregation))
        torch.nn.init.constant_(model.encoder.classifier.bias, bias)
        model.rank("the work", ["a license " * 30, "a license"])

    for aggregation, bias in (("sum", -50.0), ("max", 50.0)):
        rank_with_bias(aggregation, bias)
    assert warned == []
    rank_with_bias("sum", 50.0)
    [sentence] = warned
    assert "the more passages a document has, the higher its score" in sentence
