"""Heads and aggregators compute in 32-bit floats, whatever the type of the encoder is."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import peft
import pytest
import torch
from support.marks import others_slow
from support.project import ENCODERS, FAMILIES, QUERY, WORDS
from transformers import AutoModel

from docparade import CedrForSequenceClassification, DocumentRanker, MaxPForSequenceClassification

HALF = (torch.bfloat16, torch.float16)
DOCUMENTS = [f"{WORDS[number]} {WORDS[number + 1]} " * (1 + number % 7) for number in range(60)]
SHORT = {"window": 12, "stride": 8, "max_length": 24, "max_query_tokens": 8}


def head_types(model: DocumentRanker) -> set[torch.dtype]:
    return {weights.dtype for head in model._heads().values() for weights in head.parameters()}


def check_distinct(model: DocumentRanker) -> None:
    scores = model.score([(QUERY, text) for text in DOCUMENTS])
    as_half = torch.tensor(scores).to(torch.bfloat16).float()
    # Scores in half precision would be equal to themselves in it.
    assert (torch.tensor(scores) != as_half).float().mean() > 0.9
    assert len(set(scores)) >= 58


@pytest.mark.parametrize("family, aggregation", others_slow(FAMILIES, fast=(1, 11, 13)))
def test_scores_have_all_digits(
    family: type[DocumentRanker], aggregation: str, encoder_folder: Callable[..., Path], tmp_path: Path
) -> None:
    single = family.from_encoder(encoder_folder("bert"), aggregation=aggregation, **SHORT)
    single.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path, dtype=torch.bfloat16)
    converted = copy.deepcopy(single).to(torch.bfloat16)
    for model in (loaded, converted):
        assert model.dtype == torch.bfloat16
        assert head_types(model) <= {torch.float32}
        check_distinct(model)
    # The heads' weights are those of the file to the bit, not rounded on the way.
    for name, weights in converted.state_dict().items():
        exact = name.startswith("aggregator") or name.startswith("encoder.classifier")
        assert torch.equal(weights, single.state_dict()[name]) or not exact
        assert torch.equal(weights, loaded.state_dict()[name])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check_distinct(single)
        assert single(**single.processor([QUERY], DOCUMENTS[:1])).logits.dtype == torch.float32
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("family, aggregation", FAMILIES)
def test_what_stays_in_32_bits_has_weights(
    family: type[DocumentRanker], aggregation: str, encoder_folder: Callable[..., Path]
) -> None:
    model = family.from_encoder(encoder_folder("bert"), aggregation=aggregation, **SHORT)
    kept = model._keep_in_fp32_modules_strict
    assert kept and all(any(name.startswith(f"{part}.") for name in model.state_dict()) for part in kept)


@pytest.mark.parametrize(
    ("architecture", "dtype"), [(name, HALF[number % 2]) for number, name in enumerate(sorted(ENCODERS))]
)
def test_every_head(architecture: str, dtype: torch.dtype, encoder_folder: Callable[..., Path]) -> None:
    model = MaxPForSequenceClassification.from_encoder(encoder_folder(architecture), dtype=dtype, **SHORT)
    assert head_types(model) == {torch.float32}
    assert model.encoder.base_model.dtype == dtype
    output = model(**model.processor([QUERY] * 2, DOCUMENTS[:2]))
    assert output.logits.dtype == torch.float32
    output.logits.sum().backward()
    pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("late_interaction", [False, True])
def test_bi_encoders(late_interaction: bool, encoder_folder: Callable[..., Path]) -> None:
    options = {"pooling": "mean", "late_interaction": late_interaction, **SHORT}
    model = MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), **options)
    for changed in (copy.deepcopy(model).to(torch.bfloat16), model):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=changed is model):
            check_distinct(changed)


@pytest.mark.parametrize("aggregation", ["knrm", "max", "avg"])
@pytest.mark.parametrize("head_size", [0, 8])
def test_lora_learns_on_the_head_of_cedr(aggregation: str, head_size: int, encoder_folder: Callable[..., Path]) -> None:
    base = CedrForSequenceClassification.from_encoder(
        encoder_folder("bert"), aggregation=aggregation, head_size=head_size, **SHORT
    )
    heads = ["aggregator.score", "aggregator.hidden"] if head_size else ["aggregator.score"]
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=heads, init_lora_weights=False))
    before = base.score([(QUERY, DOCUMENTS[0])])
    model(**base.processor([QUERY], DOCUMENTS[:1])).logits.sum().backward()
    trained = {name: weights for name, weights in model.named_parameters() if weights.requires_grad}
    assert len(trained) == 2 * len(heads)
    assert all(weights.grad is not None and weights.grad.abs().sum() > 0 for weights in trained.values())
    with model.disable_adapter():
        assert base.score([(QUERY, DOCUMENTS[0])]) != before
    merged = model.merge_and_unload()
    assert merged.score([(QUERY, DOCUMENTS[0])]) == pytest.approx(before, rel=1e-4)
