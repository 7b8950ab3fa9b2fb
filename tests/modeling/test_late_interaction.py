"""Late interaction: scores also compare every token of the query with those of the passage."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from support.project import DOCUMENTS, LICENSE, QUERY, run_elsewhere
from support.scores import model_scores
from support.training import without_dropout
from torch.nn import functional as F
from transformers import AutoModel, AutoTokenizer

from docparade import MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.modeling.engine_vectors import encode_passages, encode_query_texts
from docparade.modeling.reader_late_interaction import match_tokens, without_tokens
from docparade.trainer.gradient_cache import CachedBackward

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
PAIRS = [(QUERY, document) for document in DOCUMENTS]
SETTINGS = {"window": 12, "stride": 8, "max_length": 24, "max_query_tokens": 8}
WITHOUT_DOCPARADE = """
import json, sys
sys.modules["docparade"] = None
from transformers import AutoModel
query, documents, folder = json.load(sys.stdin)
model = AutoModel.from_pretrained(folder, trust_remote_code=True)
print(json.dumps(model.score([(query, document) for document in documents])))
"""

Rankers = Callable[..., MaxPForSequenceClassification]


@pytest.fixture
def late_ranker(encoder_folder: Callable[..., Path]) -> Rankers:
    """A tiny ranker with late interaction, whose learned numbers are not those that it starts with."""

    def ranker(architecture: str = "bert", aggregation: Any = "max", pooling: Any = "mean") -> Any:
        model = MaxPForSequenceClassification.from_bi_encoder(
            encoder_folder(architecture), aggregation, pooling=pooling, late_interaction=True, **SETTINGS
        )
        with torch.no_grad():
            model.calibration.scale.fill_(1.5)
            model.calibration.match_weight.fill_(0.7)
        return model.eval()

    return ranker


def watch_comparisons(model: MaxPForSequenceClassification, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list to which each comparison with queries adds its number of passages."""
    compared: list[int] = []
    compare = model.reader.compare

    def watched(queries: torch.Tensor, passages: torch.Tensor) -> tuple[torch.Tensor, ...]:
        compared.append(len(passages))
        return compare(queries, passages)

    monkeypatch.setattr(model.reader, "compare", watched)
    return compared


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("architecture", ["bert", "roberta", "mpnet"])
def test_scores_equal_the_formula(
    architecture: str, pooling: str, late_ranker: Rankers, encoder_folder: Callable[..., Path]
) -> None:
    """1.5 (cos(q, p) + 0.7 mean_i max_j cos(q_i, p_j)), computed one text at a time, without special tokens."""
    model = late_ranker(architecture, pooling=pooling)
    encoder = AutoModel.from_pretrained(encoder_folder(architecture)).eval()
    tokenizer = AutoTokenizer.from_pretrained(encoder_folder(architecture))

    def states(text: str) -> torch.Tensor:
        with torch.no_grad():
            return encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]

    def pooled(tokens: torch.Tensor) -> torch.Tensor:
        return tokens[0] if pooling == "cls" else tokens.mean(dim=0)

    for text in ("the terms of this license", "patent", ""):
        query, passage = states(QUERY), states(text)
        expected = float(F.cosine_similarity(pooled(query), pooled(passage), dim=0))
        best = [max((float(F.cosine_similarity(q, p, dim=0)) for p in passage[1:-1]), default=0) for q in query[1:-1]]
        expected = 1.5 * (expected + 0.7 * sum(best) / len(best))
        assert model_scores(model, [(QUERY, text)]) == pytest.approx([expected], abs=1e-5)


def test_padding_never_matches() -> None:
    """Where all cosines are negative, the zero of padding would be the greatest."""
    query, passage = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), torch.tensor([[[-1.0, 0.0], [-0.6, -0.8]]])
    assert match_tokens(query, passage).tolist() == pytest.approx([(-0.6 + 0.0) / 2])
    more = torch.tensor([[[-0.6, -0.8]]])
    assert match_tokens(query, more).tolist() == pytest.approx([(-0.6 - 0.8) / 2])
    padded = F.pad(query, (0, 0, 0, 3)), F.pad(more, (0, 0, 0, 4))
    assert match_tokens(*padded).tolist() == pytest.approx([(-0.6 - 0.8) / 2])


@pytest.mark.parametrize("length", [0, 3])
def test_a_passage_without_tokens_matches_nothing(length: int) -> None:
    query = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]], requires_grad=True)
    found = match_tokens(query, torch.zeros(1, length, 2))
    assert found.tolist() == [0]
    (found.sum() + query.sum()).backward()
    assert query.grad is not None and bool(query.grad.isfinite().all())


def test_an_empty_document_has_the_same_score_in_all_ways(late_ranker: Rankers) -> None:
    model = late_ranker()
    documents = ["", DOCUMENTS[0], "patent"]
    expected = model.score([(QUERY, document) for document in documents])
    assert model.score([(QUERY, "")]) == pytest.approx(expected[:1], abs=1e-5)
    for asked in (documents, [""]):
        kept = model.encode_documents(asked)
        found = {document.text: document.score for document in model.rank(QUERY, asked, vectors=kept)}
        assert [found[document] for document in asked] == pytest.approx(expected[: len(asked)], abs=1e-5)


@pytest.mark.parametrize("aggregation", ["first", "max", "sum", "avg", "kmax_avg", "birch"])
def test_a_score_does_not_depend_on_other_documents(aggregation: str, late_ranker: Rankers) -> None:
    model = late_ranker(aggregation=aggregation)
    together = torch.tensor(model.score([*PAIRS, ("another, much longer query of the same call", DOCUMENTS[0])]))
    alone = torch.tensor([model.score([pair])[0] for pair in PAIRS])
    torch.testing.assert_close(together[:-1], alone, **CLOSE)
    torch.testing.assert_close(torch.tensor(model.score(PAIRS, batch_tokens=30)), alone, **CLOSE)


def test_the_engine_equals_forward(late_ranker: Rankers) -> None:
    model = late_ranker()
    batch = model.require_processor()([QUERY] * len(DOCUMENTS), list(DOCUMENTS))
    with torch.no_grad():
        found = model(**batch).logits[:, 0]
    torch.testing.assert_close(found, torch.tensor(model_scores(model, PAIRS)), **CLOSE)


def test_reading_holds_the_tokens_of_one_batch(late_ranker: Rankers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of tokens are compared batch by batch, also those of one long document, and for all of its queries."""
    model = late_ranker()
    long = " ".join(["rain falls on the plain", LICENSE[:3000]])
    expected = [model.score([(query, long)])[0] for query in (QUERY, "a longer query")]
    compared = watch_comparisons(model, monkeypatch)
    found = model.score([(QUERY, long), ("a longer query", long)], batch_tokens=48)
    assert found == pytest.approx(expected, abs=1e-5)
    # At 24 tokens each, two or three inputs fit into a batch, and each has two queries.
    assert len(compared) > 10
    assert max(compared) <= 6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype, late_ranker: Rankers) -> None:
    """Inputs of different length are padded with vectors of length 0, which must not become NaN."""
    expected = torch.tensor(model_scores(late_ranker(), PAIRS))
    model = late_ranker().to(dtype)
    torch.testing.assert_close(torch.tensor(model_scores(model, PAIRS)), expected, rtol=0, atol=0.1)
    batch = model.require_processor()([QUERY] * len(DOCUMENTS), list(DOCUMENTS))
    with torch.no_grad():
        torch.testing.assert_close(model(**batch).logits[:, 0].float(), expected, rtol=0, atol=0.1)


@pytest.mark.slow
def test_saved_and_loaded_with_and_without_docparade(late_ranker: Rankers, tmp_path: Path) -> None:
    model = late_ranker()
    model.save_pretrained(tmp_path / "saved")
    expected = torch.tensor(model.score(PAIRS))
    loaded = AutoModel.from_pretrained(tmp_path / "saved")
    assert loaded.calibration.match_weight.item() == pytest.approx(0.7)
    torch.testing.assert_close(torch.tensor(loaded.score(PAIRS)), expected, **CLOSE)
    (tmp_path / "cache").mkdir()
    found = run_elsewhere(WITHOUT_DOCPARADE, [QUERY, DOCUMENTS, str(tmp_path / "saved")], tmp_path / "cache")
    torch.testing.assert_close(torch.tensor(json.loads(found)), expected, **CLOSE)


@pytest.mark.parametrize("compare_all", [False, True])
def test_cached_gradients_are_the_plain_ones(compare_all: bool, late_ranker: Rankers) -> None:
    plain, chunked = (without_dropout(late_ranker()).train().double() for _ in range(2))
    batch = plain.require_processor()([QUERY, "a longer query", QUERY], list(DOCUMENTS))
    scores = plain.score_all(**batch) if compare_all else plain(**batch).logits
    scores.square().sum().backward()
    backward = CachedBackward(chunked, 2, lambda loss: loss.backward(), nullcontext, compare_all)
    backward(batch, lambda scores: scores.square().sum())
    found = dict(chunked.named_parameters())
    assert plain.calibration.match_weight.grad is not None
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(found[name].grad, parameter.grad, rtol=1e-10, atol=1e-12, msg=name)


@pytest.mark.parametrize("compare_all", [False, True])
def test_cached_gradients_hold_the_tokens_of_one_chunk(
    compare_all: bool, late_ranker: Rankers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors of tokens are compared chunk by chunk; only scores of passages are in memory for a whole batch."""
    model = late_ranker().train()
    batch = model.require_processor()([QUERY] * len(DOCUMENTS), list(DOCUMENTS))
    compared = watch_comparisons(model, monkeypatch)
    backward = CachedBackward(model, 2, lambda loss: loss.backward(), nullcontext, compare_all)
    backward(batch, lambda scores: scores.square().sum())
    assert int(batch["passage_mask"].sum()) > 4
    assert max(compared) == 2


def test_vectors_without_tokens_are_those_of_the_plain_bi_encoder(
    late_ranker: Rankers, encoder_folder: Callable[..., Path]
) -> None:
    late = late_ranker()
    plain = MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), pooling="mean", **SETTINGS)
    for of_late, of_plain in zip(encode_passages(late, DOCUMENTS), encode_passages(plain, DOCUMENTS), strict=True):
        torch.testing.assert_close(without_tokens(of_late.vectors), of_plain.vectors, **CLOSE)
    torch.testing.assert_close(encode_query_texts(late, [QUERY]), encode_query_texts(plain, [QUERY]), **CLOSE)


def test_a_ranker_on_another_one_compares_tokens_as_that_does_or_as_is_said(
    late_ranker: Rankers, encoder_folder: Callable[..., Path], tmp_path: Path
) -> None:
    build = MaxPForSequenceClassification.from_bi_encoder
    late, plain = late_ranker(), build(encoder_folder("bert"), pooling="mean", **SETTINGS)
    late.save_pretrained(tmp_path / "late")
    plain.save_pretrained(tmp_path / "plain")
    for said in (None, True):
        kept = build(tmp_path / "late", late_interaction=said)
        torch.testing.assert_close(torch.tensor(kept.score(PAIRS)), torch.tensor(late.score(PAIRS)), **CLOSE)
    off = build(tmp_path / "late", late_interaction=False)
    assert off.reader.single_vector and not hasattr(off.calibration, "match_weight")
    # The learned scale is kept.
    expected = 1.5 * torch.tensor(model_scores(plain, PAIRS))
    torch.testing.assert_close(torch.tensor(model_scores(off, PAIRS)), expected, **CLOSE)
    assert build(tmp_path / "plain", late_interaction=True).calibration.match_weight.item() == 1
    for said in (None, False):
        assert build(tmp_path / "plain", late_interaction=said).reader.single_vector
        assert ParadeForSequenceClassification.from_bi_encoder(
            tmp_path / "late", late_interaction=said
        ).reader.single_vector


def test_what_is_refused(encoder_folder: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match="late_interaction gives no vector"):
        ParadeForSequenceClassification.from_bi_encoder(
            encoder_folder("bert"), pooling="mean", late_interaction=True, **SETTINGS
        )
