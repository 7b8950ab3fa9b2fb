"""A document in which there is nothing to read is last, with every family, aggregation, reader and way of ranking."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.project import FAMILIES, QUERY
from transformers import pipeline

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.modeling.engine_results import EMPTY_SCORE
from docparade.modeling.handler import EndpointHandler

SHORT = {"window": 12, "stride": 8, "max_length": 24, "max_query_tokens": 8}
DOCUMENTS = [
    {"id": "white space", "text": " \n\t\u00a0"},
    {"id": "long", "text": "permission is granted to any person who gives notice of the license " * 3},
    {"id": "nothing", "text": "", "title": "", "headings": []},
    {"id": "title", "text": "", "title": "license"},
    {"id": "invisible", "text": "\x00\x07\u200b\ufeff\u00ad"},
    {"id": "headings", "text": " ", "headings": ["notice", "warranty"]},
    {"id": "mark", "text": "?"},
]
EMPTY = ["white space", "nothing", "invisible"]


def check_order(model: DocumentRanker, **options: object) -> None:
    ranked = model.rank(QUERY, DOCUMENTS, **options)
    # Equal scores: the greater id is first.
    assert [document.id for document in ranked][-3:] == sorted(EMPTY, reverse=True)
    assert [document.empty for document in ranked] == [False] * 4 + [True] * 3
    assert {document.score for document in ranked[-3:]} == {EMPTY_SCORE}
    assert ranked[3].score > -1e30
    assert all(document.best_passage.text is not None for document in ranked)
    json.dumps([document.to_dict(True, True) for document in ranked], allow_nan=False)


@pytest.mark.parametrize("family, aggregation", FAMILIES)
def test_empty_documents_are_last(
    family: type[DocumentRanker], aggregation: str, encoder_folder: Callable[..., Path]
) -> None:
    check_order(family.from_encoder(encoder_folder("bert"), aggregation=aggregation, **SHORT))


@pytest.mark.parametrize("architecture", ["roberta", "xlm-roberta", "distilbert"])
def test_with_every_tokenizer(architecture: str, encoder_folder: Callable[..., Path]) -> None:
    check_order(MaxPForSequenceClassification.from_encoder(encoder_folder(architecture), **SHORT))


@pytest.mark.parametrize("late_interaction", [False, True])
@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
def test_bi_encoders_with_and_without_kept_vectors(
    similarity: str, late_interaction: bool, encoder_folder: Callable[..., Path]
) -> None:
    model = MaxPForSequenceClassification.from_bi_encoder(
        encoder_folder("roberta"),
        pooling="mean",
        similarity=similarity,
        late_interaction=late_interaction,
        passage_prompt="passage: ",
        **SHORT,
    )
    check_order(model)
    check_order(model, vectors=model.encode_documents(DOCUMENTS))


def test_fewer_passages(encoder_folder: Callable[..., Path]) -> None:
    check_order(MaxPForSequenceClassification.from_encoder(encoder_folder("bert"), **SHORT), keep_passages=1)


def test_markup_is_no_text_where_it_is_left_out(encoder_folder: Callable[..., Path]) -> None:
    model = MaxPForSequenceClassification.from_encoder(encoder_folder("bert"), strip_tags=True, **SHORT)
    markup = "<html><body>\n<br/></body></html>"
    assert model.rank(QUERY, [markup, "?"])[-1].empty
    model.processor = model.processor.with_options(strip_tags=False)
    assert not model.rank(QUERY, [markup, "?"])[-1].empty


def test_a_text_without_tokens_is_empty(encoder_folder: Callable[..., Path]) -> None:
    # BERT's tokenizer leaves out the replacement character, which a failed extraction is full of.
    model = MaxPForSequenceClassification.from_encoder(encoder_folder("bert"), **SHORT)
    assert model.rank(QUERY, ["\ufffd\ufffd", "?"])[-1].empty


def test_scores_and_several_queries(encoder_folder: Callable[..., Path]) -> None:
    model = MaxPForSequenceClassification.from_encoder(encoder_folder("bert"), **SHORT)
    scores = model.score([(QUERY, ""), (QUERY, "?"), ("notice", "\n")])
    assert [score == EMPTY_SCORE for score in scores] == [True, False, True]
    rankings = model.rank_all([(QUERY, ["", "?"]), ("notice", [" ", ""])])
    assert [[document.index for document in ranking] for ranking in rankings] == [[1, 0], [0, 1]]


def test_it_is_said_once(encoder_folder: Callable[..., Path], caplog: pytest.LogCaptureFixture) -> None:
    model = MaxPForSequenceClassification.from_encoder(encoder_folder("bert"), **SHORT)
    with caplog.at_level(logging.WARNING):
        model.rank(QUERY, ["?"])
        assert "without text" not in caplog.text
        model.rank(QUERY, DOCUMENTS)
        model.rank(QUERY, ["", "?"])
    assert "last: 3, such as document white space" in caplog.text
    assert caplog.text.count("without text") == 1


def test_pipeline_and_handler(encoder_folder: Callable[..., Path], tmp_path: Path) -> None:
    MaxPForSequenceClassification.from_encoder(encoder_folder("bert"), **SHORT).save_pretrained(tmp_path)
    request = {"query": QUERY, "documents": DOCUMENTS}
    answers = [
        EndpointHandler(str(tmp_path))(request),
        pipeline("text-ranking", model=str(tmp_path), trust_remote_code=True)(request),
    ]
    for answer in answers:
        assert [document["empty"] for document in answer] == [False] * 4 + [True] * 3
    scores = EndpointHandler(str(tmp_path))({"source_sentence": QUERY, "sentences": ["", "?"]})
    assert scores[0] == EMPTY_SCORE < scores[1]


@pytest.mark.parametrize("family, aggregation", FAMILIES)
def test_training_keeps_the_score_of_the_model(
    family: type[DocumentRanker], aggregation: str, encoder_folder: Callable[..., Path]
) -> None:
    model = family.from_encoder(encoder_folder("bert"), aggregation=aggregation, **SHORT)
    with torch.no_grad():
        logits = model(**model.processor([QUERY] * 2, ["", "permission"])).logits
    assert logits.abs().max() < 1e6
