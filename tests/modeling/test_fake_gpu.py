"""No tensor is on the wrong device: all families and kinds of readers on a GPU that only says so."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from support.fake_device import GPU, FakeGpu, GpuTensor, move_to_gpu
from support.marks import others_slow
from support.packing import flash_by_formula
from support.project import DOCUMENTS, FAMILIES, ON_BI_ENCODERS, QUERY
from support.scores import model_scores

from docparade import (
    CedrForSequenceClassification,
    DocumentRanker,
    MaxPForSequenceClassification,
    ParadeForSequenceClassification,
)
from docparade.modeling import engine_packing as packing

MAXP, PARADE = MaxPForSequenceClassification, ParadeForSequenceClassification
PAIRS = [(QUERY, document) for document in DOCUMENTS]

KINDS: list[tuple[type[DocumentRanker], str, dict]] = [
    *((family, aggregation, {}) for family, aggregation in FAMILIES),
    *((family, aggregation, {"pooling": "mean"}) for family, aggregation in ON_BI_ENCODERS),
    (MAXP, "max", {"pooling": "cls", "similarity": "euclidean"}),
    (MAXP, "max", {"pooling": "mean", "late_interaction": True}),
    (CedrForSequenceClassification, "avg", {"formula": "capreolus"}),
    (PARADE, "avg", {"passage_vector": "pooler"}),
    (MAXP, "max", {"architecture": "t5"}),
    (MAXP, "max", {"architecture": "modernbert"}),
    (MAXP, "max", {"architecture": "big_bird"}),
    (MAXP, "max", {"architecture": "longformer"}),
    (MAXP, "max", {"architecture": "convbert"}),
]
COMMON = ({}, {"pooling": "mean"})
"""the readers that many kinds have"""


def test_the_fake_refuses_mixed_devices() -> None:
    with FakeGpu():
        check_the_fake()


def check_the_fake() -> None:
    there, here = torch.ones(2, device="cuda"), torch.ones(2)
    assert (there + there).device == there.new_zeros(3).device == torch.zeros_like(there).device == GPU
    assert (there.device, here.device, there.cpu().device, here.to(GPU).device) == (GPU, here.device, here.device, GPU)
    assert not isinstance(there.cpu(), GpuTensor)
    assert (there + torch.tensor(1.0)).tolist() == [2, 2]
    for mix in (lambda: there + here, lambda: torch.cat([here, there]), lambda: here[there.bool()], there.numpy):
        with pytest.raises((RuntimeError, TypeError), match=r"cuda|device"):
            mix()


# What the aggregations see is the same, packed or padded: each has one way to read, and each kind of reader both.
CASES = [
    *((*kind, "packed" if number % 2 else "padded") for number, kind in enumerate(KINDS)),
    *((*kind, "padded" if number % 2 else "packed") for number, kind in enumerate(KINDS) if kind[2] not in COMMON),
]


@pytest.mark.parametrize("family, aggregation, options, reading", others_slow(CASES, fast=range(0, len(KINDS), 6)))
def test_all_tensors_are_on_the_models_device(
    family: type[DocumentRanker],
    aggregation: str,
    options: dict,
    reading: str,
    tiny_ranker: Callable[..., DocumentRanker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = copy.deepcopy(tiny_ranker(family, aggregation, **options))
    expected = torch.tensor(model_scores(model, PAIRS))
    batch = model.processor([QUERY] * len(DOCUMENTS), DOCUMENTS)
    move_to_gpu(model)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**30, 2**30))
    if reading == "packed":
        monkeypatch.setattr(packing, "has_flash_attention", lambda encoder: True)
        monkeypatch.setattr(packing, "varlen_attn", flash_by_formula)
    with FakeGpu():
        check_ranker(model, batch, expected)


def check_ranker(model: DocumentRanker, batch: dict[str, torch.Tensor], expected: torch.Tensor) -> None:
    assert model.device == GPU
    torch.testing.assert_close(torch.tensor(model_scores(model, PAIRS)), expected, rtol=1e-5, atol=1e-5)
    output = model(**{name: values.to(GPU) for name, values in batch.items()})
    assert output.logits.device == output.passage_weights.device == GPU
    torch.testing.assert_close(output.logits[:, 0].detach().cpu(), expected, rtol=1e-5, atol=1e-5)
    if model.reader.separate:
        vectors = model.encode_documents(DOCUMENTS)
        kept = torch.tensor(model_scores(model, PAIRS, vectors=vectors))
        torch.testing.assert_close(kept, expected, rtol=1e-5, atol=1e-5)
        model.rank(QUERY, DOCUMENTS, keep_passages=1, choose_by=vectors)
