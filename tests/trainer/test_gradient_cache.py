"""Cached gradients are the plain ones."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from support.marks import others_slow
from support.project import FAMILIES
from support.training import world

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.modeling.reader import join_features
from docparade.trainer.data.collator import PairCollator
from docparade.trainer.gradient_cache import CachedBackward

CHUNK = 3


def batch_for(model: DocumentRanker) -> dict[str, torch.Tensor]:
    there = world()
    collator = PairCollator(model.require_processor(), there.queries, there.documents)
    batch = collator([there.sampler()[number] for number in range(4)])
    assert batch["passage_mask"].sum() > 4 * CHUNK
    assert not batch["passage_mask"].all()
    return batch


def in_training(model: DocumentRanker, dropout: float) -> DocumentRanker:
    model = copy.deepcopy(model).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = dropout
    return model


def hinge(scores: torch.Tensor) -> torch.Tensor:
    return (5 - scores[::2] + scores[1::2]).relu().mean()


def gradients(model: DocumentRanker) -> dict[str, torch.Tensor]:
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert sum(bool(gradient.any()) for gradient in found.values()) > 10
    return found


def cached(model: DocumentRanker, batch: dict[str, torch.Tensor], **options: Any) -> torch.Tensor:
    step = CachedBackward(model, CHUNK, torch.Tensor.backward, options.get("autocast", nullcontext))
    return step(batch, hinge)


# Double precision leaves no room for a mistake; single precision rounds each of the many sums on the way,
# at the size of its terms, which for these models comes to about a millionth of the gradient.
CLOSE = {torch.float64: 1e-13, torch.float32: 5e-6}
# Single precision for one method of each family: what is computed is the same.
CASES = [(*family, torch.float64) for family in FAMILIES] + [
    (*next(family for family in FAMILIES if family[0] is kind), torch.float32)
    for kind in dict.fromkeys(kind for kind, _ in FAMILIES)
]


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    difference = torch.cat([(found[name] - expected[name]).flatten() for name in expected])
    length = torch.cat([gradient.flatten() for gradient in expected.values()]).norm()
    assert difference.norm() <= CLOSE[difference.dtype] * length


@pytest.mark.parametrize(("family", "aggregation", "precision"), others_slow(CASES, fast=(1, 11, 13)))
def test_without_dropout(
    family: type, aggregation: str, precision: torch.dtype, tiny_ranker: Callable[..., DocumentRanker]
) -> None:
    plain, chunked = (in_training(tiny_ranker(family, aggregation), 0.0).to(precision) for _ in range(2))
    batch = batch_for(plain)
    loss = hinge(plain(**batch).logits[:, 0])
    loss.backward()
    torch.testing.assert_close(cached(chunked, batch), loss.detach())
    assert_same(gradients(chunked), gradients(plain))


@pytest.mark.parametrize(("family", "aggregation", "precision"), others_slow(CASES, fast=(1, 11, 13)))
def test_with_dropout(
    family: type, aggregation: str, precision: torch.dtype, tiny_ranker: Callable[..., DocumentRanker]
) -> None:
    plain, chunked = (in_training(tiny_ranker(family, aggregation), 0.2).to(precision) for _ in range(2))
    batch = batch_for(plain)
    torch.manual_seed(5)
    loss = in_one_graph(plain, batch)
    after_plain = torch.rand(3)
    torch.manual_seed(5)
    torch.testing.assert_close(cached(chunked, batch), loss)
    # What is drawn next is the same as well.
    torch.testing.assert_close(torch.rand(3), after_plain)
    assert_same(gradients(chunked), gradients(plain))
    different = in_training(tiny_ranker(family, aggregation), 0.2).to(precision)
    torch.manual_seed(6)
    assert abs(cached(different, batch) - loss) > 1e-4, "dropout does nothing, and the test shows nothing"


def in_one_graph(model: DocumentRanker, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The same chunks with the same dropout, all kept until one backward pass."""
    mask = batch["passage_mask"]
    ids, attention = batch["input_ids"][mask], batch["attention_mask"][mask]
    segments = batch["token_type_ids"][mask]
    order = sorted(range(len(ids)), key=lambda row: -int(attention[row].sum()))
    parts = {}
    for start in range(0, len(order), CHUNK):
        rows = order[start : start + CHUNK]
        longest = int(attention[rows[0]].sum())
        encoded = model.encode(ids[rows, :longest], attention[rows, :longest], segments[rows, :longest])
        parts |= dict(zip(rows, encoded, strict=True))
    flat = join_features([parts[row][None] for row in range(len(ids))])
    passages = flat.new_zeros((*mask.shape, *flat.shape[1:]))
    passages[mask] = flat
    loss = hinge(model.aggregator(passages, mask).score)
    loss.backward()
    return loss.detach()


def test_mixed_precision(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    autocast = partial(torch.autocast, "cpu", dtype=torch.bfloat16)
    plain, chunked = (in_training(tiny_ranker(ParadeForSequenceClassification, "attn"), 0.0) for _ in range(2))
    batch = batch_for(plain)
    with autocast():
        loss = hinge(plain(**batch).logits[:, 0])
    loss.backward()
    cached(chunked, batch, autocast=autocast)
    largest = max(float(gradient.abs().max()) for gradient in gradients(plain).values())
    torch.testing.assert_close(gradients(chunked), gradients(plain), atol=0.05 * largest, rtol=0.05)


def test_passages_that_took_no_part_are_not_encoded_again(
    tiny_ranker: Callable[..., DocumentRanker], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = in_training(tiny_ranker(MaxPForSequenceClassification, "first"), 0.0)
    batch = batch_for(model)
    calls = []
    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda **inputs: calls.append(len(inputs["input_ids"])) or encode(**inputs))
    cached(model, batch)
    passages = int(batch["passage_mask"].sum())
    # All are read once, and of those that took part all but the last chunk, whose graph is still there, again.
    assert passages <= sum(calls) < 2 * passages - CHUNK
    assert max(calls) == CHUNK
