"""Training rankers on encoder-decoders: losses, gradients, adapters."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from support.marks import others_slow
from support.training import arguments, without_dropout, world
from transformers import AutoModel

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.experiments.model_building import merged, with_lora
from docparade.retrieval import InputError
from docparade.trainer.data.collator import PairCollator
from docparade.trainer.gradient_cache import CachedBackward
from docparade.trainer.losses import CrossEntropyLoss
from docparade.trainer.trainer import RankingTrainer

WORLD = world()
PAIRS = [("grant of license", fields["text"]) for fields in list(WORLD.documents.values())[:4]]
Rankers = Callable[..., DocumentRanker]


def fresh(tiny_ranker: Rankers, passage_score: str = "log_probability") -> DocumentRanker:
    """A ranker on a T5 of its own, without dropout."""
    model = copy.deepcopy(tiny_ranker(MaxPForSequenceClassification, "max", "t5"))
    model.config.passage_score = passage_score
    for module in model.modules():
        if isinstance(getattr(module, "dropout", None), float):  # of T5's attention
            module.dropout = 0.0
    return without_dropout(model)


def trainer_of(model: Any, folder: Path, **options: Any) -> RankingTrainer:
    args = arguments(folder, **options)
    return RankingTrainer(model, args, WORLD.sampler(), WORLD.queries, WORLD.documents)


@pytest.mark.parametrize(("loss", "score"), others_slow([("hinge", "log_probability"), ("cross_entropy", "logit")]))
def test_it_learns(loss: str, score: str, tiny_ranker: Rankers, tmp_path: Path) -> None:
    trainer = trainer_of(fresh(tiny_ranker, score), tmp_path, loss=loss, max_steps=30, learning_rate=3e-3)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert sum(losses[-5:]) < 0.75 * sum(losses[:5]), losses
    trainer.save_model(str(tmp_path / "model"))
    expected = trainer.ranker.eval().score(PAIRS)
    assert AutoModel.from_pretrained(tmp_path / "model").score(PAIRS) == pytest.approx(expected, abs=1e-5)


def test_a_checkpoint_has_shared_weights_once(tiny_ranker: Rankers, tmp_path: Path, caplog: Any) -> None:
    """The word embeddings and the head of the first T5 are one: loading it misses nothing, and warns of nothing."""
    trainer = trainer_of(fresh(tiny_ranker), tmp_path, max_steps=1, save_strategy="steps", save_steps=1)
    trainer.train()
    expected = trainer.ranker.eval().score(PAIRS)
    other = trainer_of(fresh(tiny_ranker), tmp_path, max_steps=1)
    other.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert other.ranker.eval().score(PAIRS) == pytest.approx(expected, abs=1e-6)
    assert "missing keys" not in caplog.text
    kept = load_file(tmp_path / "checkpoint-1" / "model.safetensors")
    assert "encoder.shared.weight" in kept and "encoder.lm_head.weight" not in kept


def test_cross_entropy_is_that_of_the_two_words(tiny_ranker: Rankers) -> None:
    """Minus the log-probability of "true" for the relevant document, and of "false" for the other."""
    true = torch.tensor(fresh(tiny_ranker).score(PAIRS[:2]))
    expected = -(true[0] + (1 - true[1].exp()).log()) / 2
    scores = torch.tensor([fresh(tiny_ranker, "logit").score(PAIRS[:2])])
    torch.testing.assert_close(CrossEntropyLoss()(scores), expected[None])


def test_cross_entropy_of_log_probabilities_is_refused(tiny_ranker: Rankers, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"probabilities: .*'hinge', or passage_score='logit'"):
        trainer_of(fresh(tiny_ranker), tmp_path, loss="cross_entropy")


def test_passages_in_chunks_have_the_plain_gradients(tiny_ranker: Rankers) -> None:
    plain, chunked, checkpointed = (fresh(tiny_ranker).double().train() for _ in range(3))
    collator = PairCollator(plain.require_processor(), WORLD.queries, WORLD.documents)
    batch = collator([WORLD.sampler()[number] for number in range(4)])

    def hinge(scores: torch.Tensor) -> torch.Tensor:
        return (5 - scores[::2] + scores[1::2]).relu().mean()

    hinge(plain(**batch).logits[:, 0]).backward()
    CachedBackward(chunked, 3, torch.Tensor.backward, nullcontext)(batch, hinge)
    checkpointed.gradient_checkpointing_enable({"use_reentrant": False})
    hinge(checkpointed(**batch).logits[:, 0]).backward()
    expected = {name: weights.grad for name, weights in plain.named_parameters()}
    # Distributed training fails on weights that do not contribute to the score.
    assert all(gradient is not None for gradient in expected.values())
    assert sum(bool(gradient.any()) for gradient in expected.values()) > 20
    for other in (chunked, checkpointed):
        for name, weights in other.named_parameters():
            torch.testing.assert_close(weights.grad, expected[name], rtol=1e-9, atol=1e-12)


def test_lora(tiny_ranker: Rankers, tmp_path: Path) -> None:
    base = fresh(tiny_ranker)
    base.save_pretrained(tmp_path / "base")
    before = copy.deepcopy(base.state_dict())
    model = with_lora(base)
    trainer = trainer_of(model, tmp_path, max_steps=3, learning_rate=1e-2)
    trainer.train()
    expected = trainer.ranker.score(PAIRS)
    trainer.save_model(str(tmp_path / "adapter"))
    loaded = PeftModel.from_pretrained(AutoModel.from_pretrained(tmp_path / "base"), tmp_path / "adapter")
    assert loaded.get_base_model().eval().score(PAIRS) == pytest.approx(expected, abs=1e-5)
    after = merged(model).state_dict()
    assert merged(model).score(PAIRS) == pytest.approx(expected, abs=1e-4)
    assert after.keys() == before.keys()
    changed = {name.split(".")[-2] for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"q", "v"}
