"""Weights that accelerate keeps on disk, in memory or apart give the same scores."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import accelerate
import pytest
import torch
from support.project import DOCUMENTS, QUERY
from support.scores import model_scores
from transformers import AutoModel

from docparade import (
    CedrForSequenceClassification,
    DocumentRanker,
    MaxPForSequenceClassification,
    ParadeForSequenceClassification,
)

KINDS = [
    (MaxPForSequenceClassification, "max", {}),
    (MaxPForSequenceClassification, "birch", {"architecture": "modernbert"}),  # padded
    (MaxPForSequenceClassification, "max", {"pooling": "mean"}),
    (MaxPForSequenceClassification, "max", {"pooling": "mean", "late_interaction": True}),
    (MaxPForSequenceClassification, "max", {"architecture": "t5"}),
    (ParadeForSequenceClassification, "transformer", {}),
    (ParadeForSequenceClassification, "attn", {"pooling": "cls"}),
    (CedrForSequenceClassification, "max", {}),
    (CedrForSequenceClassification, "avg", {"formula": "capreolus"}),
]


def scores(model: DocumentRanker) -> torch.Tensor:
    return torch.tensor(model_scores(model, [(QUERY, document) for document in DOCUMENTS]))


# The model sees the hooks of accelerate alone, which are the same for both places.
@pytest.mark.parametrize(
    "family, aggregation, options, place",
    [(*kind, "memory" if number % 2 else "disk") for number, kind in enumerate(KINDS)],
)
def test_offloaded_weights(
    family: type[DocumentRanker],
    aggregation: str,
    options: dict,
    place: str,
    tiny_ranker: Callable[..., DocumentRanker],
    tmp_path: Path,
) -> None:
    model = copy.deepcopy(tiny_ranker(family, aggregation, **options))
    expected = scores(model)
    batch = model.processor([QUERY] * 3, DOCUMENTS)
    if place == "memory":
        accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    else:
        accelerate.disk_offload(model, tmp_path, execution_device=torch.device("cpu"))
    assert model.encoder.device.type == "meta"
    assert model.device.type == "cpu"
    torch.testing.assert_close(scores(model), expected, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(model(**batch).logits[:, 0], expected, rtol=1e-5, atol=1e-5)
    assert model.encoder.device.type == "meta", "the weights are to be dropped again"


@pytest.mark.parametrize("family, aggregation", [(case[0], case[1]) for case in KINDS if not case[2]])
def test_a_device_map_with_layers_on_disk(
    family: type[DocumentRanker], aggregation: str, tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    model = tiny_ranker(family, aggregation)
    model.save_pretrained(tmp_path / "model")
    body = "encoder" if model.encoder.base_model is model.encoder else f"encoder.{model.encoder.base_model_prefix}"
    parts = {f"encoder.{name}": "cpu" for name, _ in model.encoder.named_children()} if body != "encoder" else {}
    parts |= {f"{body}.{name}": "cpu" for name, _ in model.encoder.base_model.named_children()}
    parts.pop(body, None)
    parts.pop(f"{body}.encoder")
    layers = {f"{body}.encoder.layer.0": "cpu", f"{body}.encoder.layer.1": "disk"}
    loaded = AutoModel.from_pretrained(
        tmp_path / "model", device_map={**parts, **layers, "aggregator": "disk"}, offload_folder=tmp_path / "kept"
    )
    assert {parameter.device.type for parameter in loaded.parameters()} == {"cpu", "meta"}
    torch.testing.assert_close(scores(loaded), scores(model), rtol=1e-5, atol=1e-5)
