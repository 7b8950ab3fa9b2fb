"""The ways in from outside: the pipeline, the endpoint handler, sentence-transformers."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from support.project import LICENSE
from transformers import AutoModel, pipeline

from docparade import DocumentRanker, ParadeForSequenceClassification, TextRankingPipeline
from docparade.modeling.engine import PROGRESS_FROM_DOCUMENTS
from docparade.retrieval.collections.collection import Document

QUERY = "grant of patent license"
DOCUMENTS = [LICENSE[:900], "", LICENSE[2000:2400], LICENSE[5000:5100]]


@pytest.fixture(scope="module")
def checkpoint(tiny_ranker: Callable[..., DocumentRanker], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    tiny_ranker(ParadeForSequenceClassification, "attn").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def ranking(checkpoint: Path) -> list[dict]:
    return [ranked.to_dict(True, True) for ranked in AutoModel.from_pretrained(checkpoint).rank(QUERY, DOCUMENTS)]


def close(found: list[dict], expected: list[dict]) -> bool:
    return [(r["index"], pytest.approx(r["score"], rel=1e-6, abs=1e-5)) for r in expected] == [
        (r["index"], r["score"]) for r in found
    ]


# --- Pipeline --------------------------------------------------------------------------------------------------------


def test_pipeline_needs_no_trust_under_its_second_name(checkpoint: Path, ranking: list[dict]) -> None:
    ranker = pipeline("document-ranking", model=str(checkpoint))
    assert type(ranker) is TextRankingPipeline
    assert close(ranker({"query": QUERY, "documents": DOCUMENTS}), ranking)


def test_pipeline(checkpoint: Path, ranking: list[dict]) -> None:
    ranker = pipeline("text-ranking", model=str(checkpoint), trust_remote_code=True)
    assert close(ranker({"query": QUERY, "documents": DOCUMENTS}, top_k=2), ranking[:2])
    several = ranker([{"query": QUERY, "documents": DOCUMENTS}, {"query": "terms", "documents": DOCUMENTS[:1]}])
    assert close(several[0], ranking)
    assert len(several[1]) == 1
    json.dumps(several)
    with pytest.raises(ValueError, match="'query' and 'documents'"):
        ranker({"text": "?"})


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_requests_in_batches(batch_size: int, checkpoint: Path) -> None:
    ranker = pipeline("document-ranking", model=str(checkpoint))
    requests = [
        {"query": query, "documents": DOCUMENTS[:count]}
        for query, count in [(QUERY, 4), ("terms", 1), ("work", 0), (QUERY, 2), ("notice", 3)]
    ]
    alone = [ranker(request, top_k=2) for request in requests]
    together = ranker(requests, batch_size=batch_size, top_k=2)
    streamed = ranker((request for request in requests), batch_size=batch_size, top_k=2)
    assert isinstance(together, list) and not isinstance(streamed, list)
    for found in (together, list(streamed)):
        assert [len(one) for one in found] == [2, 1, 0, 2, 2]
        assert all(close(one, expected) for one, expected in zip(found, alone, strict=True))


def test_the_answer_has_what_was_asked_for(checkpoint: Path, ranking: list[dict]) -> None:
    ranker = pipeline("document-ranking", model=str(checkpoint))
    request = {"query": QUERY, "documents": DOCUMENTS}
    assert ranker(request)[0].keys() == {"index", "id", "score", "unread", "empty"}
    shown = ranker(request, return_passages=True, return_text=True)
    assert [one["text"] for one in shown] == [DOCUMENTS[one["index"]] for one in shown]
    assert [one["passages"] for one in shown] == [one["passages"] for one in ranking]
    with pytest.raises(TypeError, match=r"topk: .*top_k"):
        ranker(request, topk=3)
    with pytest.raises(TypeError, match="return_pasages"):
        pipeline("document-ranking", model=str(checkpoint), return_pasages=True)
    with pytest.raises(ValueError, match="return_text is 'yes'"):
        ranker(request, return_text="yes")
    with pytest.raises(ValueError, match="batch_size is 0"):
        ranker([request], batch_size=0)
    assert ranker([]) == []
    with pytest.raises(ValueError, match=r"^top_k: "):
        ranker({**request, "top_k": 3})


# --- Handler ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def handler(checkpoint: Path) -> Any:
    return load_handler(checkpoint)


def load_handler(checkpoint: Path) -> Any:
    """As an endpoint loads it: the file alone, from the checkpoint's folder."""
    spec = importlib.util.spec_from_file_location("handler", checkpoint / "handler.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.EndpointHandler(str(checkpoint))


def error_of(handler: Any, body: Any) -> str:
    """The sentence about a wrong request, which an endpoint answers with status 400: a value would be status 200."""
    with pytest.raises((TypeError, ValueError)) as caught:
        handler(body)
    json.dumps(str(caught.value), ensure_ascii=False).encode()
    assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("names", [("query", "documents"), ("query", "texts")])
@pytest.mark.parametrize("wrapped", [True, False])
def test_handler(names: tuple[str, str], wrapped: bool, handler: Any, ranking: list[dict]) -> None:
    body = dict(zip(names, (QUERY, DOCUMENTS), strict=True))
    found = handler({"inputs": body} if wrapped else body)
    assert close(found, ranking)
    json.dumps(found)


SIMILARITY = {"source_sentence": QUERY, "sentences": DOCUMENTS}


@pytest.mark.parametrize("body", [SIMILARITY, {"inputs": SIMILARITY}, {"inputs": SIMILARITY, "parameters": {}}])
def test_sentence_similarity_has_scores_in_the_order_of_the_sentences(
    body: dict, handler: Any, checkpoint: Path, ranking: list[dict]
) -> None:
    scores = [one["score"] for one in sorted(ranking, key=lambda one: one["index"])]
    assert handler(body) == pytest.approx(scores, abs=1e-5)
    assert pipeline("document-ranking", model=str(checkpoint))(SIMILARITY) == pytest.approx(scores, abs=1e-5)
    assert "top_k: has no effect" in error_of(handler, {"inputs": SIMILARITY, "parameters": {"top_k": 1}})


def test_a_list_of_inputs_has_a_list_of_answers(handler: Any, checkpoint: Path, ranking: list[dict]) -> None:
    inputs = [{"query": QUERY, "documents": DOCUMENTS}, SIMILARITY, {"query": "work", "texts": []}]
    first, scores, empty = handler({"inputs": inputs})
    assert close(first, ranking) and len(scores) == len(DOCUMENTS) and empty == []
    (shown,) = handler({"inputs": inputs[:1], "parameters": {"top_k": 1, "return_documents": True}})
    assert [one["text"] for one in shown] == [DOCUMENTS[ranking[0]["index"]]]
    assert handler({"inputs": []}) == []
    ranker = pipeline("document-ranking", model=str(checkpoint))
    assert close(ranker({"query": QUERY, "texts": DOCUMENTS}, return_documents=True), ranking)
    assert [len(one) for one in ranker(inputs, batch_size=2)] == [len(DOCUMENTS), len(DOCUMENTS), 0]


@pytest.mark.parametrize(
    "inputs, sentence",
    [
        (
            [{"query": "a", "texts": []}, {"query": "b"}],
            "inputs[1]: The request has none of the keys documents, texts.",
        ),
        ([{"query": "a", "texts": ["x", 7]}], "inputs[0]: documents[1] is of type int"),
        ([7], "inputs[0]: A request is a JSON object"),
        ({"texts": ["x"]}, "The request has no key query."),
        ({"query": "a", "texts": "x"}, "documents is not a list"),
        ({"query": "a", "texts": {"text": "x"}}, "documents is not a list"),
        ({"query": "a", "texts": ["x"], "documents": ["x"]}, "more than one of the keys documents, texts"),
        ({"query": "a", "texts": [{"title": "x"}]}, "documents[0] is of type dict: send a text, or an object"),
        ({"query": ["a"], "texts": ["x"]}, "query"),
        ({"source_sentence": "a"}, "none of the keys sentences"),
    ],
)
def test_wrong_payloads_are_named(inputs: Any, sentence: str, handler: Any) -> None:
    assert sentence in error_of(handler, {"inputs": inputs})


# A thousand characters in many places, and as many where the text is.
TOO_LONG = [
    {"query": "work", "documents": ["a" * 1000, each]}
    for each in (
        "b" * 1000,
        {"title": "b" * 1000, "text": "c"},
        {"headings": ["b" * 10] * 100, "text": "c"},
        {"text": "c", "id": ["b" * 1000]},
        {"text": "c", "other": {"b" * 1000: 1}},
    )
] + [
    {"query": "b" * 2000, "documents": ["a"]},
    {"query": "work", "documents": ["a"], "b" * 2000: 1},
    {"inputs": [{"query": "b" * 500, "documents": []}] * 4},
]


def test_the_environment_limits_requests(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, ranking: list[dict]
) -> None:
    monkeypatch.setenv("DOCPARADE_MAX_DOCUMENTS", "4")
    monkeypatch.setenv("DOCPARADE_MAX_CHARACTERS", "2000")
    monkeypatch.setenv("DOCPARADE_MAX_PASSAGES", "2")
    limited = load_handler(checkpoint)
    answer = limited({"query": QUERY, "documents": DOCUMENTS})
    assert max(one["unread"] for one in answer) > 0  # said, and not cut in silence
    two = [{"query": "a", "documents": ["x"] * 3}, {"query": "b", "documents": ["x"] * 2}]
    assert error_of(limited, {"inputs": two}) == "The request has 5 documents, and at most 4 are allowed."
    empty = [{"query": "a", "documents": []}] * 5
    assert error_of(limited, {"inputs": empty}) == "The request has 5 inputs, and at most 4 are allowed."
    long = "The request has more than 2000 characters, which is the limit."
    for body in TOO_LONG:
        assert error_of(limited, body) == long
    monkeypatch.setenv("DOCPARADE_MAX_DOCUMENTS", "many")
    with pytest.raises(ValueError, match="DOCPARADE_MAX_DOCUMENTS is 'many'"):
        load_handler(checkpoint)


def nest(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "extra, sentence",
    [
        ({"documents": [{"text": "x", "id": math.nan}]}, "documents[0].id is nan, which is no number"),
        ({"documents": [{"text": "x", "id": {"a": [-math.inf]}}]}, "documents[0].id.a[0] is -inf, which is no number"),
        ({"parameters": {"top_k": math.inf}}, "parameters.top_k is inf, which is no number"),
        ({"documents": ["x", "\ud83d"]}, "documents[1] has half of a surrogate pair"),
        ({"documents": [{"text": "x", "\ud83d" * 500: 1}]}, r"documents[0].\ud83d"),
        ({"query": "a \udc00"}, "query has half of a surrogate pair"),
        ({"documents": [{"text": "x", "id": nest(100_000)}]}, "documents[0].id[0][0][0][0][0][0][0] is nested too"),
        ({"documents": [{"text": "x", "headings": nest(50)}]}, "is nested too deeply"),
        ({"documents": [{"text": "x", "y" * 10_000: nest(50)}]}, "is nested too deeply"),
        ({"documents": nest(20)}, "is nested too deeply"),
        ({"documents": [None] * 1_000_001}, "The request has more than 1000000 values"),
        ({"documents": [{"text": "x", "id": [[]] * 1_000_000}]}, "The request has more than 1000000 values"),
        ({"documents": [{"text": "x", "title": ["a", "b"]}]}, "documents[0] has a 'title' that is not a string: ['a'"),
        ({"documents": [{"text": "x", "headings": 7}]}, "documents[0] has a 'headings' that is not a string: 7"),
        ({"documents": [{"text": "x", "headings": ["a", 7]}]}, "documents[0] has 'headings' with one that is not"),
        ({"documents": [{"text": "x", "headings": {"a": "b"}}]}, "documents[0] has a 'headings' that is not a string"),
        ({"documents": [{"text": "x", "title": True}]}, "documents[0] has a 'title' that is not a string: True"),
        ({"query": ["x" * 1000], "documents": []}, "query is of type list: send a text"),
        ({"query": None}, "query is None: send a text"),
        ({"documents": ["x"] * 1001}, "The request has 1001 documents, and at most 1000 are allowed"),
        ({"top_k": 10**400}, None),
        ({"top_k": "x" * 10_000}, "top_k is 'xxx"),
        ({"return_text": ["x"] * 10_000}, "return_text is ['x', 'x'"),
        ({"x" * 10_000: 1}, "Unknown option xxx"),
    ],
)
def test_hostile_requests_are_one_sentence(extra: dict[str, Any], sentence: str | None, handler: Any) -> None:
    body = {"query": QUERY, "documents": ["x"], **extra}
    if sentence is None:
        assert len(handler(body)) == 1
    else:
        assert sentence in error_of(handler, body)


def test_a_wrong_document_is_named_with_its_input(handler: Any) -> None:
    inputs = [{"query": "a", "documents": ["x"] * 3}, {"query": "b", "documents": ["x", {"text": "y", "title": 7}]}]
    assert "requests[1]: documents[1] has a 'title'" in error_of(handler, {"inputs": inputs})


def test_handler_cuts_and_answers_mistakes(handler: Any) -> None:
    body = {"query": QUERY, "documents": DOCUMENTS}
    assert len(handler({"inputs": body, "parameters": {"top_k": 1}})) == 1
    assert len(handler({**body, "top_k": 2})) == 2
    assert "query is empty" in error_of(handler, {"query": "", "documents": DOCUMENTS})
    assert "documents, texts" in error_of(handler, {"inputs": {"query": QUERY}})
    assert "documents[0] is None" in error_of(handler, {"query": QUERY, "documents": [None]})
    for wrong in (0, 1.5, "x", True, [3]):
        assert f"top_k is {wrong!r}" in error_of(handler, {**body, "top_k": wrong})


@pytest.mark.parametrize("body", ["text", None, 7, []])
def test_a_body_is_an_object(body: Any, handler: Any) -> None:
    assert "The body is not a JSON object" in error_of(handler, body)


@pytest.mark.parametrize("body", [{"inputs": 7}, {"inputs": "text"}, {"inputs": {}, "parameters": [1]}])
def test_inputs_and_parameters_are_objects(body: Any, handler: Any) -> None:
    assert "'inputs' and 'parameters' must be JSON objects" in error_of(handler, body)


def test_handler_shows_what_was_asked_for(handler: Any, ranking: list[dict]) -> None:
    body = {"query": QUERY, "documents": DOCUMENTS}
    assert handler(body)[0].keys() == {"index", "id", "score", "unread", "empty"}
    asked = {"return_passages": True, "return_text": True}
    for request in ({**body, **asked}, {"inputs": body, "parameters": asked}, {"inputs": body, **asked}):
        shown = handler(request)
        assert [one["text"] for one in shown] == [DOCUMENTS[one["index"]] for one in shown]
        assert len(shown[0]["passages"]) == len(ranking[0]["passages"])
        json.dumps(shown)
    assert "return_text is 'yes'" in error_of(handler, {**body, "return_text": "yes"})
    assert "Unknown option truncate" in error_of(handler, {**body, "truncate": True})


# --- sentence-transformers -------------------------------------------------------------------------------------------


def test_cross_encoder_reads_whole_documents(checkpoint: Path, ranking: list[dict], tmp_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers", reason="the extra is not installed")
    model = sentence_transformers.CrossEncoder(str(checkpoint), trust_remote_code=True)
    found = [{"index": r["corpus_id"], "score": float(r["score"])} for r in model.rank(QUERY, DOCUMENTS)]
    assert close(found, ranking)
    # The end of the document counts: a CrossEncoder of its own would have cut it away.
    start, end = LICENSE[:900], LICENSE[:900].replace("entity", "work")
    assert start[:200] == end[:200]
    scores = model.predict([(QUERY, start), (QUERY, end)])
    assert abs(scores[0] - scores[1]) > 1e-6
    model.save_pretrained(str(tmp_path))
    again = sentence_transformers.CrossEncoder(str(tmp_path), trust_remote_code=True)
    torch.testing.assert_close(torch.tensor(again.predict([(QUERY, start)])), torch.tensor(scores[:1]))
    assert type(AutoModel.from_pretrained(tmp_path)) is ParadeForSequenceClassification


def test_cross_encoder_refuses_what_would_have_no_effect(checkpoint: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers", reason="the extra is not installed")
    load = partial(sentence_transformers.CrossEncoder, str(checkpoint), trust_remote_code=True)
    with pytest.raises(ValueError, match=r"max_length: .*max_passages"):
        load(max_length=128)
    with pytest.raises(ValueError, match="backend='onnx'"):
        load(backend="onnx")
    with pytest.raises(ValueError, match=r"^num_labels: "):
        load(num_labels=2)
    with pytest.raises(ValueError, match=r"^max_length: "):
        load().max_seq_length = 20
    with pytest.raises(ValueError, match=r"^processing_kwargs: "):
        load().predict([(QUERY, LICENSE)], processing_kwargs={"text": {"max_length": 8}})


def test_cross_encoder_reads_as_much_as_it_is_told(checkpoint: Path, caplog: pytest.LogCaptureFixture) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers", reason="the extra is not installed")
    options = {"trust_remote_code": True, "model_kwargs": {"max_passages": 2}}
    model = sentence_transformers.CrossEncoder(str(checkpoint), **options)
    expected = AutoModel.from_pretrained(checkpoint, max_passages=2).score([(QUERY, LICENSE)])
    torch.testing.assert_close(torch.tensor(model.predict([(QUERY, LICENSE)])), torch.tensor(expected))
    assert caplog.text.count("max_passages=2 leaves") == 2  # one of each model


# --- Documents of collections ----------------------------------------------------------------------------------------


def test_ids_come_back_as_given(checkpoint: Path) -> None:
    # Not at the top: it would be imported before the tests that say where its files are.
    from ir_datasets.formats import GenericDoc

    model = AutoModel.from_pretrained(checkpoint)
    documents = [
        {"id": 7, "text": DOCUMENTS[0]},
        {"_id": "MED-10", "title": "License", "text": DOCUMENTS[2]},
        Document("clueweb", DOCUMENTS[3], title="Work"),
        GenericDoc("irds", DOCUMENTS[2]),
        DOCUMENTS[1],
    ]
    ranked = model.rank(QUERY, documents)
    assert {one.index: one.id for one in ranked} == {0: 7, 1: "MED-10", 2: "clueweb", 3: "irds", 4: None}
    plain = [
        {"text": DOCUMENTS[0]},
        {"title": "License", "text": DOCUMENTS[2]},
        {"title": "Work", "text": DOCUMENTS[3]},
        DOCUMENTS[2],
        DOCUMENTS[1],
    ]
    expected = {one.index: one.score for one in model.rank(QUERY, plain)}
    assert {one.index: one.score for one in ranked} == pytest.approx(expected, abs=1e-6)


def test_bars_need_a_terminal(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = AutoModel.from_pretrained(checkpoint)
    capsys.readouterr()
    model.rank("work", ["work"] * PROGRESS_FROM_DOCUMENTS)
    assert capsys.readouterr().err == ""
    model.rank("work", ["work"], progress=True)
    assert "Ranking" in capsys.readouterr().err
