"""Encoders in 8-bit integers: near the exact ones, saved and loaded as any, and no score depends on another's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.project import LICENSE
from torch import nn
from transformers import AutoModel

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification, to_int8
from docparade.modeling import engine_int8 as int8
from docparade.modeling.engine_int8 import Int8Linear

QUERY = "grant of patent license"
PAIRS = [(QUERY, LICENSE[start : start + 60 * (1 + start % 7)]) for start in range(0, 3000, 111)]


def rounded_product(linear: nn.Linear, rows: torch.Tensor) -> torch.Tensor:
    """The formula, in doubles: weights in steps of their row's largest, inputs from their row's least to greatest."""
    weight, rows = linear.weight.detach().double(), rows.double()
    scale = weight.abs().amax(1, keepdim=True) / 127
    least, greatest = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
    step = (greatest - least) / 127
    inputs = ((rows - least) / step + 0.5).floor() * step + least
    return inputs @ ((weight / scale).round() * scale).T + linear.bias.detach().double()


@pytest.mark.parametrize("integers", [True, False], ids=["oneDNN", "floats"])
def test_the_layer_against_its_formula(integers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if integers and not int8._has_integer_products(torch.device("cpu")):
        pytest.skip("torch has no integer products on this machine")
    monkeypatch.setattr(int8, "_has_integer_products", lambda device: integers)
    torch.manual_seed(0)
    linear = nn.Linear(96, 40)
    # One row has a vector that is far from 0, one is all the same, one has values that would overflow 16 bits in pairs.
    rows = torch.randn(5, 96) + torch.tensor([0.0, 50.0, 0.0, 0.0, -3.0])[:, None]
    rows[2], rows[3] = 0.25, torch.tensor([-9.0, 9.0]).repeat(48)
    found = Int8Linear.of(linear)(rows)
    torch.testing.assert_close(
        found[[0, 1, 3, 4]].double(), rounded_product(linear, rows)[[0, 1, 3, 4]], rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(found[2], linear(rows)[2], atol=0.02, rtol=0)
    batched = Int8Linear.of(linear)(rows.expand(2, 5, 96))
    assert batched.shape == (2, 5, 40)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "distilbert", "albert", "mpnet", "deberta-v2"])
def test_scores_are_near_and_each_is_its_own(architecture: str, tiny_ranker: Callable[..., DocumentRanker]) -> None:
    model = tiny_ranker(MaxPForSequenceClassification, "max", architecture)
    quantized = to_int8(model)
    exact, near = (torch.tensor(ranker.score(PAIRS)) for ranker in (model, quantized))
    assert not torch.equal(exact, near)
    assert torch.corrcoef(torch.stack([exact, near]))[0, 1] > 0.97
    alone = torch.tensor([quantized.score([pair])[0] for pair in PAIRS[:6]])
    torch.testing.assert_close(alone, near[:6], atol=1e-5, rtol=1e-5)


def test_the_ranker_it_is_made_of_stays_as_it_is(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    model = tiny_ranker(ParadeForSequenceClassification, "transformer")
    before = model.score(PAIRS)
    quantized = to_int8(model)
    assert model.score(PAIRS) == before and not model.config.int8
    with pytest.raises(ValueError, match="int8"):
        to_int8(quantized)


def test_saved_and_loaded(tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path) -> None:
    model = tiny_ranker(ParadeForSequenceClassification, "attn")
    quantized = to_int8(model)
    quantized.save_pretrained(tmp_path / "int8")
    loaded = AutoModel.from_pretrained(tmp_path / "int8")
    assert loaded.score(PAIRS) == pytest.approx(quantized.score(PAIRS), abs=1e-6)
    kinds = {type(module) for name, module in loaded.encoder.encoder.named_modules() if hasattr(module, "weight")}
    assert Int8Linear in kinds and nn.Linear not in kinds
    assert all(tensor.dtype == quantized.state_dict()[name].dtype for name, tensor in loaded.state_dict().items())


def test_it_is_copied_cast_and_loaded_after_it_was_used() -> None:
    torch.manual_seed(0)
    first, second = Int8Linear.of(nn.Linear(8, 4)), Int8Linear.of(nn.Linear(8, 4))
    rows = torch.randn(3, 8)
    expected = second(rows)
    first(rows)
    torch.testing.assert_close(copy.deepcopy(first)(rows), first(rows), rtol=0, atol=0)
    first.load_state_dict(second.state_dict())
    torch.testing.assert_close(first(rows), expected, rtol=0, atol=0)
    torch.testing.assert_close(first.bfloat16()(rows), expected, rtol=0.05, atol=0.05)


def test_it_cannot_be_trained(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    quantized = to_int8(tiny_ranker(MaxPForSequenceClassification, "max")).train()
    with pytest.raises(RuntimeError, match="cannot be trained"):
        quantized(**quantized.processor([QUERY], [LICENSE[:200]]))


def test_the_command(
    tiny_ranker: Callable[..., DocumentRanker], command_line: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    model = tiny_ranker(MaxPForSequenceClassification, "max")
    model.save_pretrained(tmp_path / "model")
    code, _, err = command_line("export", "--model", "model", "--output", "small")
    assert code == 0, err
    assert AutoModel.from_pretrained(tmp_path / "small").score(PAIRS) == pytest.approx(
        to_int8(model).score(PAIRS), abs=1e-6
    )
    code, _, err = command_line("export", "--model", "model", "--output", "small")
    assert code == 2 and "already exists" in err
    code, _, err = command_line("export", "--model", "small", "--output", "smaller")
    assert code == 2 and "in int8 already" in err
    assert not (tmp_path / "smaller").exists()
