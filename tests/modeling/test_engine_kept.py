"""Kept vectors: the same ranking as reading the text, and passages chosen by another model's vectors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from support.project import LICENSE

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.modeling import SCORE_AGGREGATORS, VECTOR_AGGREGATORS, DocumentVectors, engine_kept
from docparade.modeling.engine_kept import scores_by_overlap

QUERY = "patent license"
DOCUMENTS: list[Any] = [
    {"id": "long", "title": "License", "text": LICENSE[:900]},
    {"id": "short", "text": "Grant of Patent License."},
    {"id": "empty", "text": ""},
    {"id": "same", "text": "Grant of Patent License."},
    LICENSE[2000:2500],
]
OPTIONS: dict[str, Any] = {"pooling": "mean", "window": 12, "stride": 8, "max_length": 24, "max_query_tokens": 12}
ALL = [
    *((MaxPForSequenceClassification, name) for name in SCORE_AGGREGATORS),
    *((ParadeForSequenceClassification, name) for name in VECTOR_AGGREGATORS),
]


@pytest.fixture
def bi_encoder(encoder_folder: Callable[..., Path]) -> Callable[..., DocumentRanker]:
    def build(
        family: type[DocumentRanker] = MaxPForSequenceClassification, aggregation: str = "max", **more: Any
    ) -> Any:
        torch.manual_seed(2)
        return family.from_bi_encoder(encoder_folder("bert"), aggregation, **{**OPTIONS, **more})

    return build


@pytest.mark.parametrize("family, aggregation", ALL)
def test_ranking_from_vectors_equals_reading(
    family: type[DocumentRanker],
    aggregation: str,
    bi_encoder: Callable[..., DocumentRanker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_kept, "BLOCK_DOCUMENTS", 2)
    monkeypatch.setattr(engine_kept, "BLOCK_VECTORS", 9)
    model = bi_encoder(family, aggregation, max_passages=5)
    kept = model.encode_documents(DOCUMENTS)
    assert isinstance(kept, DocumentVectors) and len(kept) == 4
    read = model.rank_all([(QUERY, DOCUMENTS), ("grant", DOCUMENTS[::-1])])
    tokens: list[int] = []
    hook = model.encoder.register_forward_pre_hook(
        lambda _, args, kwargs: tokens.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    from_vectors = model.rank_all([(QUERY, DOCUMENTS), ("grant", DOCUMENTS[::-1])], vectors=kept)
    hook.remove()
    assert sum(tokens) < 12, "only the queries are read"
    for expected, found in zip(read, from_vectors, strict=True):
        assert [one.index for one in found] == [one.index for one in expected]
        for one, other in zip(found, expected, strict=True):
            assert (one.id, one.unread, one.text) == (other.id, other.unread, other.text)
            assert one.score == pytest.approx(other.score, abs=1e-5)
            assert [(p.start, p.end, p.text) for p in one.passages] == [
                (p.start, p.end, p.text) for p in other.passages
            ]
            for name in ("score", "weight"):
                values = [[getattr(passage, name) for passage in ranked.passages] for ranked in (one, other)]
                assert values[0] == pytest.approx(values[1], abs=1e-5)
    assert any(one.unread for one in read[0])
    alone = model.rank(QUERY, DOCUMENTS, 2, vectors=kept)
    assert [one.index for one in alone] == [one.index for one in from_vectors[0][:2]]
    assert [one.score for one in alone] == pytest.approx([one.score for one in from_vectors[0][:2]], abs=1e-5)
    (score,) = [one.score for one in from_vectors[1] if one.id == "long"]
    assert model.score([("grant", DOCUMENTS[0])], vectors=kept) == pytest.approx([score], abs=1e-5)
    assert model.rank(QUERY, [], vectors=kept) == []


def test_a_document_with_other_contents_has_no_vectors(bi_encoder: Callable[..., DocumentRanker]) -> None:
    model = bi_encoder()
    kept = model.encode_documents(DOCUMENTS)
    for changed in ({"text": "Grant of Patents License."}, {"title": "A title"}, {"headings": "Headings"}):
        with pytest.raises(ValueError, match="document 'short'"):
            model.rank(QUERY, [{**DOCUMENTS[1], **changed}], vectors=kept)
    with pytest.raises(ValueError, match=r"begins with 'unknown'"):
        model.rank(QUERY, ["unknown"], vectors=kept)


def test_vectors_where_they_make_no_sense(
    bi_encoder: Callable[..., DocumentRanker], tiny_ranker: Callable[..., DocumentRanker]
) -> None:
    model, cross = bi_encoder(), tiny_ranker(MaxPForSequenceClassification, "max")
    kept = model.encode_documents(DOCUMENTS)
    with pytest.raises(ValueError, match=r"vectors are for bi-encoders"):
        cross.rank(QUERY, DOCUMENTS, vectors=kept)
    with pytest.raises(ValueError, match="nothing is read"):
        model.rank(QUERY, DOCUMENTS, vectors=kept, keep_passages=2)
    with pytest.raises(ValueError, match="keep_passages"):
        cross.rank(QUERY, DOCUMENTS, choose_by=kept)
    with pytest.raises(ValueError, match="no passage vectors"):
        cross.encode_documents(DOCUMENTS)
    with pytest.raises(TypeError, match="documents is a single document"):
        model.encode_documents("text")


@pytest.mark.parametrize("how", ["optimizer", "data", "replaced", "loaded"])
def test_vectors_made_before_training_are_refused(how: str, bi_encoder: Callable[..., DocumentRanker]) -> None:
    model, cross = bi_encoder(), bi_encoder()
    kept = model.encode_documents(DOCUMENTS)
    assert len(cross.rank(QUERY, DOCUMENTS, vectors=kept)) == len(DOCUMENTS)  # the same weights in another object
    weights = list(model.encoder.parameters())
    if how == "optimizer":
        for one in weights:
            one.grad = torch.ones_like(one)
        torch.optim.AdamW(weights, lr=1e-3).step()
    elif how == "data":
        for one in weights:
            one.data.add_(1e-3)
    elif how == "replaced":
        weights[3].data = weights[3].data + 1e-3
    else:
        model.encoder.load_state_dict({name: one + 1e-3 for name, one in model.encoder.state_dict().items()})
    with pytest.raises(ValueError, match="before the model was trained"):
        model.rank(QUERY, DOCUMENTS, vectors=kept)
    with pytest.raises(ValueError, match=r"choose_by .* before the model was trained"):
        cross.rank(QUERY, DOCUMENTS, keep_passages=1, choose_by=kept)


def test_vectors_of_another_model_or_of_other_passages_are_refused(bi_encoder: Callable[..., DocumentRanker]) -> None:
    model = bi_encoder()
    kept = model.encode_documents(DOCUMENTS)
    processor = model.require_processor()
    model.processor = processor.with_options(window=7, stride=7)
    with pytest.raises(ValueError, match=f"window={processor.window}, not 7"):
        model.rank(QUERY, DOCUMENTS, vectors=kept)
    model.processor = processor.with_options(max_query_tokens=3)  # no passage depends on this one
    assert len(model.rank(QUERY, DOCUMENTS, vectors=kept)) == len(DOCUMENTS)
    with pytest.raises(ValueError, match="made by another model"):
        bi_encoder(late_interaction=True).rank(QUERY, DOCUMENTS, vectors=kept)


def test_late_interaction_also_keeps_the_tokens(bi_encoder: Callable[..., DocumentRanker]) -> None:
    model = bi_encoder(late_interaction=True)
    kept = model.encode_documents(DOCUMENTS)
    read, from_kept = model.rank(QUERY, DOCUMENTS), model.rank(QUERY, DOCUMENTS, vectors=kept)
    assert [one.index for one in from_kept] == [one.index for one in read]
    assert [one.score for one in from_kept] == pytest.approx([one.score for one in read], abs=1e-5)
    chosen = model.rank(QUERY, DOCUMENTS, keep_passages=1, choose_by=kept)
    assert [len(one.passages) for one in chosen] == [1] * len(DOCUMENTS)


# --- A cascade by vectors ---------------------------------------------------------------------------------------------


def test_a_ranker_reads_the_passages_that_vectors_choose(
    bi_encoder: Callable[..., DocumentRanker], tiny_ranker: Callable[..., DocumentRanker]
) -> None:
    chooser = bi_encoder(window=20, stride=15, max_length=32)
    kept = chooser.encode_documents(DOCUMENTS)
    for model in (tiny_ranker(MaxPForSequenceClassification, "max"), bi_encoder()):
        whole = {one.index: one for one in model.rank(QUERY, DOCUMENTS)}
        theirs = {one.index: one for one in chooser.rank(QUERY, DOCUMENTS)}
        chosen = model.rank(QUERY, DOCUMENTS, keep_passages=2, choose_by=kept)
        for one in chosen:
            passages = whole[one.index].passages
            spans = [(passage.start, passage.end) for passage in passages]
            others = theirs[one.index].passages
            scores = scores_by_overlap(
                spans, [(p.start, p.end) for p in others], np.array([passage.score for passage in others])
            )
            best = 1 + int(np.argmax(scores[1:])) if len(spans) > 1 else 0
            assert [(p.start, p.end) for p in one.passages] == [spans[place] for place in sorted({0, best})]
            assert one.unread == whole[one.index].unread + len(spans) - len(one.passages)
        by_words = model.rank(QUERY, DOCUMENTS, keep_passages=2)
        assert [one.passages for one in by_words] != [one.passages for one in chosen]
        both = model.rank_all([("grant", DOCUMENTS), (QUERY, DOCUMENTS)], keep_passages=2, choose_by=kept)
        assert [one.index for one in both[1]] == [one.index for one in chosen]


def test_the_score_of_the_greatest_overlap() -> None:
    given, scores = [(0, 10), (5, 15), (20, 30)], np.array([1.0, 2.0, 3.0])
    assert scores_by_overlap([(0, 8)], given, scores).tolist() == [1.0]
    assert scores_by_overlap([(5, 10)], given, scores).tolist() == [2.0], "of equal overlaps the higher score"
    assert scores_by_overlap([(12, 24)], given, scores).tolist() == [3.0]
    assert scores_by_overlap([(15, 20), (0, 0)], given, scores).tolist() == [-np.inf, -np.inf]


spans_of_text = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 20)).map(lambda s: (s[0], s[0] + s[1])), min_size=1
)


@given(spans_of_text, spans_of_text)
def test_the_same_passages_keep_their_scores(own: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    scores = np.arange(len(others)) / 8

    def expected(span: tuple[int, int]) -> float:
        overlaps = [max(0, min(span[1], end) - max(span[0], start)) for start, end in others]
        most = max(overlaps)
        return max(s if most and o == most else -np.inf for s, o in zip(scores.tolist(), overlaps, strict=True))

    assert scores_by_overlap(own, others, scores).tolist() == [expected(span) for span in own]
