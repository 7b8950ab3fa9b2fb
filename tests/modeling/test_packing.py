"""Packed inputs give what padded ones give: features, gradients, and no look across the borders."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests_support import ENCODERS, LICENSE

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.modeling import packing

QUERY = "grant of patent license"
DOCUMENTS = [LICENSE[:900], "", LICENSE[2000:2200], LICENSE[5000:5100]]
PACKABLE = [name for name in ENCODERS if name in packing.PACKABLE]
BOTH = [(MaxPForSequenceClassification, "sum"), (ParadeForSequenceClassification, "attn")]


@pytest.fixture
def padded(monkeypatch: pytest.MonkeyPatch) -> Callable[[DocumentRanker], None]:
    return lambda model: monkeypatch.setattr(model, "_packs", False)


def step(model: DocumentRanker) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Scores and gradients of one batch."""
    model.zero_grad()
    output = model(**model.processor([QUERY] * 4, DOCUMENTS), labels=torch.tensor([1.0, 0.0, 1.0, 0.0]))
    output.loss.backward()
    return output.logits.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("architecture", PACKABLE)
@pytest.mark.parametrize("family, aggregation", BOTH)
def test_packed_equals_padded(
    architecture: str,
    family: type[DocumentRanker],
    aggregation: str,
    tiny_ranker: Callable[..., DocumentRanker],
    padded: Callable,
) -> None:
    model = tiny_ranker(family, aggregation, architecture)
    assert model._packs
    scores, gradients = step(model)
    padded(model)
    plain_scores, plain_gradients = step(model)
    torch.testing.assert_close(scores, plain_scores, rtol=1e-5, atol=1e-5)
    assert gradients.keys() == plain_gradients.keys()
    for name, gradient in plain_gradients.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-4, atol=1e-5, msg=name)


def test_the_pooler_reads_packed_inputs(
    tiny_ranker: Callable[..., DocumentRanker], padded: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for architecture in ("bert", "albert"):
        model = tiny_ranker(ParadeForSequenceClassification, "avg", architecture, passage_vector="pooler")
        scores, _ = step(model)
        monkeypatch.setattr(model, "_packs", False)
        torch.testing.assert_close(step(model)[0], scores, rtol=1e-5, atol=1e-5)


def test_attention_stays_inside_an_input() -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = [3, 3, 5, 1]
    query, key, value = (torch.randn(1, 2, sum(lengths), 4, generator=generator) for _ in range(3))
    token = packing._lengths.set(lengths)
    try:
        found, _ = packing.packed_attention(torch.nn.Identity(), query, key, value, None, scaling=0.5)
    finally:
        packing._lengths.reset(token)
    start = 0
    for length in lengths:
        part = slice(start, start + length)
        weights = torch.softmax(query[0, :, part] @ key[0, :, part].transpose(1, 2) * 0.5, dim=-1)
        torch.testing.assert_close(found[0, part].transpose(0, 1), weights @ value[0, :, part])
        start += length


def test_dropout_reaches_packed_attention(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    model = tiny_ranker(MaxPForSequenceClassification, "max")
    batch = model.processor([QUERY] * 4, DOCUMENTS)
    model.train()
    try:
        torch.manual_seed(0)
        first = model(**batch).logits
        again = model(**batch).logits
        torch.manual_seed(0)
        same = model(**batch).logits
    finally:
        model.eval()
    assert not torch.equal(first, again)
    assert torch.equal(first, same)


def test_encoders_with_other_attention_are_padded(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    for architecture in ("mpnet", "deberta-v2", "modernbert"):
        assert not tiny_ranker(MaxPForSequenceClassification, "max", architecture)._packs


def test_the_usual_attention_comes_back(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    model = tiny_ranker(MaxPForSequenceClassification, "max")
    usual = model.encoder.config._attn_implementation
    model.score([(QUERY, document) for document in DOCUMENTS])
    assert model.encoder.config._attn_implementation == usual
    with pytest.raises(RuntimeError), packing.packed(model.encoder, [1]):
        raise RuntimeError
    assert model.encoder.config._attn_implementation == usual
    assert packing._lengths.get() is None
