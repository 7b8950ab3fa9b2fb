"""Training rankers on decoders: losses, gradients, adapters."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from support.training import arguments, world
from transformers import AutoModel

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.experiments.model_building import merged, with_lora
from docparade.trainer.data.collator import PairCollator
from docparade.trainer.gradient_cache import CachedBackward
from docparade.trainer.trainer import RankingTrainer

WORLD = world()
PAIRS = [("grant of license", fields["text"]) for fields in list(WORLD.documents.values())[:4]]
Folders = Callable[..., Path]


def fresh(decoder_folder: Folders, architecture: str = "qwen3", labels: int | None = None) -> DocumentRanker:
    words = {} if labels else {"true_token": "yes", "false_token": "no"}
    return MaxPForSequenceClassification.from_cross_encoder(
        decoder_folder(architecture, labels),
        prompt="Query: {query}\nDocument: {document}\nRelevance:",
        window=12,
        stride=8,
        max_length=128,
        **words,
    )


def trainer_of(model: Any, folder: Path, **options: Any) -> RankingTrainer:
    args = arguments(folder, **options)
    return RankingTrainer(model, args, WORLD.sampler(), WORLD.queries, WORLD.documents)


@pytest.mark.parametrize(("loss", "labels"), [("hinge", None), ("cross_entropy", None), ("hinge", 1)])
def test_it_learns(loss: str, labels: int | None, decoder_folder: Folders, tmp_path: Path) -> None:
    model = fresh(decoder_folder, labels=labels)
    trainer = trainer_of(model, tmp_path, loss=loss, max_steps=30, learning_rate=3e-3)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert sum(losses[-5:]) < 0.75 * sum(losses[:5]), losses
    trainer.save_model(str(tmp_path / "model"))
    expected = trainer.ranker.eval().score(PAIRS)
    assert AutoModel.from_pretrained(tmp_path / "model").score(PAIRS) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("architecture", ["qwen3", "qwen2"])
def test_passages_in_chunks_have_the_plain_gradients(architecture: str, decoder_folder: Folders) -> None:
    """Whether the head is the word embeddings or not."""
    plain, chunked, checkpointed = (fresh(decoder_folder, architecture).double().train() for _ in range(3))
    collator = PairCollator(plain.require_processor(), WORLD.queries, WORLD.documents)
    batch = collator([WORLD.sampler()[number] for number in range(4)])

    def hinge(scores: torch.Tensor) -> torch.Tensor:
        return (5 - scores[::2] + scores[1::2]).relu().mean()

    hinge(plain(**batch).logits[:, 0]).backward()
    CachedBackward(chunked, 3, torch.Tensor.backward, nullcontext)(batch, hinge)
    checkpointed.gradient_checkpointing_enable({"use_reentrant": False})
    hinge(checkpointed(**batch).logits[:, 0]).backward()
    expected = {name: weights.grad for name, weights in plain.named_parameters()}
    assert all(gradient is not None and bool(gradient.any()) for gradient in expected.values())
    for other in (chunked, checkpointed):
        for name, weights in other.named_parameters():
            torch.testing.assert_close(weights.grad, expected[name], rtol=1e-8, atol=1e-11)


def test_lora(decoder_folder: Folders, tmp_path: Path) -> None:
    base = fresh(decoder_folder)
    base.save_pretrained(tmp_path / "base")
    before = copy.deepcopy(base.state_dict())
    model = with_lora(base)
    trainer = trainer_of(model, tmp_path, max_steps=3, learning_rate=1e-2)
    trainer.train()
    expected = trainer.ranker.eval().score(PAIRS)
    trainer.save_model(str(tmp_path / "adapter"))
    loaded = PeftModel.from_pretrained(AutoModel.from_pretrained(tmp_path / "base"), tmp_path / "adapter")
    assert loaded.get_base_model().eval().score(PAIRS) == pytest.approx(expected, abs=1e-5)
    after = merged(model).state_dict()
    assert merged(model).score(PAIRS) == pytest.approx(expected, abs=1e-4)
    assert after.keys() == before.keys()
    changed = {name.split(".")[-2] for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"q_proj", "v_proj"}
