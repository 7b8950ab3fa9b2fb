"""The ways in from outside: the pipeline, the endpoint handler, sentence-transformers."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests_support import LICENSE
from transformers import AutoModel, pipeline

from docparade import DocumentRanker, ParadeForSequenceClassification, TextRankingPipeline

QUERY = "grant of patent license"
DOCUMENTS = [LICENSE[:900], "", LICENSE[2000:2400], LICENSE[5000:5100]]


@pytest.fixture(scope="module")
def checkpoint(tiny_ranker: Callable[..., DocumentRanker], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    tiny_ranker(ParadeForSequenceClassification, "attn").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def ranking(checkpoint: Path) -> list[dict]:
    return [ranked.to_dict() for ranked in AutoModel.from_pretrained(checkpoint).rank(QUERY, DOCUMENTS)]


def close(found: list[dict], expected: list[dict]) -> bool:
    return [(r["index"], pytest.approx(r["score"], abs=1e-5)) for r in expected] == [
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


# --- Handler ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def handler(checkpoint: Path) -> Any:
    """As an endpoint loads it: the file alone, from the checkpoint's folder."""
    spec = importlib.util.spec_from_file_location("handler", checkpoint / "handler.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.EndpointHandler(str(checkpoint))


@pytest.mark.parametrize("names", [("query", "documents"), ("query", "texts"), ("source_sentence", "sentences")])
@pytest.mark.parametrize("wrapped", [True, False])
def test_handler(names: tuple[str, str], wrapped: bool, handler: Any, ranking: list[dict]) -> None:
    body = dict(zip(names, (QUERY, DOCUMENTS), strict=True))
    found = handler({"inputs": body} if wrapped else body)
    assert close(found, ranking)
    json.dumps(found)


def test_handler_cuts_and_answers_mistakes(handler: Any) -> None:
    body = {"query": QUERY, "documents": DOCUMENTS}
    assert len(handler({"inputs": body, "parameters": {"top_k": 1}})) == 1
    assert len(handler({**body, "top_k": 2})) == 2
    assert "query is empty" in handler({"query": "", "documents": DOCUMENTS})["error"]
    assert "documents, texts, sentences" in handler({"inputs": {"query": QUERY}})["error"]
    assert "documents[0] is None" in handler({"query": QUERY, "documents": [None]})["error"]
    assert "query" in handler({"inputs": "text"})["error"]


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
