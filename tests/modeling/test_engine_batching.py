"""Batches by a budget of tokens: found, kept to, lowered when memory runs out."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, strategies as st
from support.project import LICENSE

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.modeling import engine_batching, engine_pairs
from docparade.modeling.engine_batching import (
    CPU_TOKENS,
    LEAST_TOKENS,
    MOST_TOKENS,
    budget_for,
    bytes_per_token,
    default_budget,
)

QUERY = "grant of patent license"
PAIRS = [(QUERY, LICENSE[start : start + 60 * (1 + start % 7)]) for start in range(0, 3000, 111)]


@pytest.fixture
def model(tiny_ranker: Callable[..., DocumentRanker]) -> DocumentRanker:
    return copy.copy(tiny_ranker(MaxPForSequenceClassification, "sum"))


def watch(model: DocumentRanker, monkeypatch: pytest.MonkeyPatch, limit: float = float("inf")) -> list[int]:
    """Sizes of the batches that reach the encoder; above `limit` tokens, memory is out."""
    sizes: list[int] = []
    encode = model.encode

    def encode_within_limit(input_ids: torch.Tensor, **others: torch.Tensor) -> torch.Tensor:
        if input_ids.numel() > limit:
            raise torch.OutOfMemoryError("out of memory")
        sizes.append(input_ids.numel())
        return encode(input_ids, **others)

    monkeypatch.setattr(model, "encode", encode_within_limit)
    return sizes


@pytest.mark.parametrize("budget", [1, 50, 300])
def test_a_batch_keeps_to_its_budget(budget: int, model: DocumentRanker, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = watch(model, monkeypatch)
    model.score(PAIRS, batch_tokens=budget)
    assert max(sizes) <= max(budget, model.processor.max_length)
    assert len(sizes) > 3


def test_memory_that_runs_out_lowers_the_budget(model: DocumentRanker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_batching, "thread_count", lambda device: 1)  # as on an accelerator
    expected = model.score(PAIRS)
    sizes = watch(model, monkeypatch, limit=100)
    assert model.score(PAIRS) == pytest.approx(expected, abs=1e-5)
    assert max(sizes) <= 100


def test_memory_that_ran_out_does_not_run_out_again(model: DocumentRanker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_batching, "thread_count", lambda device: 1)
    monkeypatch.setattr(engine_pairs, "BATCHES_PER_SORT", 1)  # so that there is more than one
    watch(model, monkeypatch, limit=100)
    warnings: list[str] = []
    monkeypatch.setattr(engine_batching.logger, "warning", warnings.append)
    model.score(PAIRS, batch_tokens=300)
    assert 1 <= len(warnings) <= 3  # 300 tokens, half of that, and half again


def test_one_input_that_does_not_fit_is_an_error(model: DocumentRanker, monkeypatch: pytest.MonkeyPatch) -> None:
    watch(model, monkeypatch, limit=10)
    with pytest.raises(torch.OutOfMemoryError):
        model.score(PAIRS)


def test_a_cpu_has_its_own_budget(model: DocumentRanker) -> None:
    assert default_budget(model) == CPU_TOKENS
    model.batch_tokens = 77
    assert default_budget(model) == 77


@given(st.integers(0, 2**40), st.integers(1, 10**7))
def test_half_of_the_free_memory(free: int, token: int) -> None:
    budget = budget_for(free, token)
    assert LEAST_TOKENS <= budget <= MOST_TOKENS
    assert budget == LEAST_TOKENS or budget * token <= free / 2
    assert budget == MOST_TOKENS or 2 * budget * token > free / 2
    assert budget & (budget - 1) == 0


def test_a_wider_model_takes_more_memory(tiny_ranker: Callable[..., DocumentRanker], model: DocumentRanker) -> None:
    whole = bytes_per_token(model)
    assert whole == (6 * 32 + 2 * 48 + 2 * 4 * 24) * 4
    half = copy.deepcopy(tiny_ranker(MaxPForSequenceClassification, "sum")).to(torch.bfloat16)
    assert bytes_per_token(half) * 2 == whole
