"""Files that ask for too much, lead out of their folder, or hold values that are not numbers are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.project import FAMILIES
from transformers import AutoModel, BertConfig

from docparade import (
    CedrConfig,
    CedrForSequenceClassification,
    DocumentRanker,
    MaxPConfig,
    MaxPForSequenceClassification,
    ParadeConfig,
    ParadeForSequenceClassification,
)
from docparade.modeling.sentence_transformers_files import SentenceTransformersFiles
from docparade.reranking.loading import load_ranker
from docparade.retrieval.errors import InputError

HUGE = 10**9
SHORT = {"window": 12, "stride": 8, "max_length": 24, "max_query_tokens": 8}


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.fixture
def copied(encoder_folder: Callable[..., Path], tmp_path: Path) -> Path:
    """The files of a plain cross-encoder."""
    for file in encoder_folder("bert", labels=1).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


@pytest.mark.parametrize(
    ("field", "value"), [("num_hidden_layers", HUGE), ("num_labels", HUGE), ("num_hidden_layers", -1)]
)
def test_a_plain_model_of_a_billion_layers_or_none(field: str, value: int, copied: Path) -> None:
    edit(copied / "config.json", **{field: value})
    builders: list[Callable[[Path], Any]] = [
        MaxPForSequenceClassification.from_cross_encoder,
        MaxPForSequenceClassification.from_encoder,
        ParadeForSequenceClassification.from_encoder,
        CedrForSequenceClassification.from_encoder,
        lambda folder: MaxPForSequenceClassification.from_bi_encoder(folder, pooling="mean"),
    ]
    for build in builders:
        with pytest.raises(ValueError, match=f"config.json: {field} is {value}"):
            build(copied)
    with pytest.raises(InputError, match=f"{field} is {value}"):
        load_ranker(str(copied))


@pytest.mark.parametrize("field", ["num_hidden_layers", "num_labels"])
def test_a_ranker_of_a_billion_layers(field: str, copied: Path, tmp_path: Path) -> None:
    ranker = tmp_path / "ranker"
    MaxPForSequenceClassification.from_cross_encoder(copied, **SHORT).save_pretrained(ranker)
    config = json.loads((ranker / "config.json").read_text())
    edit(ranker / "config.json", encoder_config={**config["encoder_config"], field: HUGE})
    with pytest.raises(ValueError, match=f"encoder_config: {field} is 1000000000"):
        AutoModel.from_pretrained(ranker)
    edit(ranker / "config.json", encoder_config=config["encoder_config"], num_labels=HUGE)
    with pytest.raises(ValueError, match="num_labels is 1000000000"):
        AutoModel.from_pretrained(ranker)


def test_numbers_as_keys_are_no_counts() -> None:
    config = MaxPConfig(BertConfig(num_labels=2))
    assert 0 in config.to_dict()["encoder_config"]["id2label"]
    assert MaxPConfig.from_dict(config.to_dict()).to_dict() == config.to_dict()


BI_ENCODER = {"kind": "bi_encoder", "pooling": ["mean"], "dense": [], "normalize": True, "similarity": "cosine"}
DENSE = {"out_features": 8, "bias": True, "activation": "Tanh"}


@pytest.mark.parametrize(
    "make, field",
    [
        (lambda: ParadeConfig(BertConfig(), num_aggregator_layers=HUGE), "num_aggregator_layers"),
        (lambda: ParadeConfig(BertConfig(), "cnn", max_passages=HUGE), "max_passages"),
        (lambda: ParadeConfig(BertConfig(), "cnn", cnn_hidden_size=HUGE), "cnn_hidden_size"),
        (lambda: MaxPConfig(BertConfig(num_labels=1), "birch", k=HUGE), "k is"),
        (lambda: CedrConfig(BertConfig(), head_size=HUGE), "head_size"),
        (lambda: CedrConfig(BertConfig(), match_layers=[-1] * 100_000), "match_layers"),
        (lambda: MaxPConfig(BertConfig(), reader={**BI_ENCODER, "pooling": ["mean"] * 1000}), "pooling"),
        (lambda: MaxPConfig(BertConfig(), reader={**BI_ENCODER, "dense": [DENSE] * 1000}), "dense"),
        (
            lambda: MaxPConfig(BertConfig(), reader={**BI_ENCODER, "dense": [{**DENSE, "out_features": HUGE}]}),
            "out_features",
        ),
        (lambda: MaxPConfig(BertConfig(), reader={**BI_ENCODER, "pooling": "mean"}), "pooling"),
    ],
)
def test_fields_of_ours_have_upper_bounds(make: Callable[[], object], field: str) -> None:
    with pytest.raises(ValueError, match=field):
        make()


@pytest.mark.parametrize(
    "path", ["../other", "1_Pooling/../../other", "/etc", "C:\\other", "..\\other", "\\other", "C:other"]
)
@pytest.mark.parametrize("kind", ["Transformer", "Pooling", "Dense"])
def test_paths_of_modules_stay_in_the_folder(path: str, kind: str, tmp_path: Path) -> None:
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": path}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ValueError, match="leads out of the model's folder"):
        SentenceTransformersFiles(tmp_path, {})


@pytest.mark.parametrize(
    "family, aggregation, value",
    [
        (*FAMILIES[1], float("nan")),
        (*FAMILIES[7], float("inf")),
        (*FAMILIES[13], -float("inf")),
    ],
)
def test_weights_that_are_not_numbers(
    value: float, family: type[DocumentRanker], aggregation: str, encoder_folder: Callable[..., Path], tmp_path: Path
) -> None:
    model = family.from_encoder(encoder_folder("bert"), aggregation=aggregation, **SHORT)
    name = next(name for name, _ in model.named_parameters() if name.endswith("query.weight"))
    with torch.no_grad():
        model.get_parameter(name)[3, 4] = value
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=rf"{name} .*not finite"):
        AutoModel.from_pretrained(tmp_path)
    with pytest.raises(InputError, match=rf"{name} .*not finite"):
        load_ranker(str(tmp_path))


def test_weights_of_a_plain_encoder_that_are_not_numbers(encoder_folder: Callable[..., Path], tmp_path: Path) -> None:
    encoder = AutoModel.from_pretrained(encoder_folder("bert"))
    with torch.no_grad():
        encoder.embeddings.word_embeddings.weight[0, 0] = torch.nan
    encoder.save_pretrained(tmp_path)
    for file in encoder_folder("bert").glob("*token*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    for build in (
        ParadeForSequenceClassification.from_encoder,
        lambda folder, **options: MaxPForSequenceClassification.from_bi_encoder(folder, pooling="mean", **options),
    ):
        with pytest.raises(ValueError, match=r"word_embeddings\.weight"):
            build(tmp_path, **SHORT)
