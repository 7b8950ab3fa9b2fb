"""Rankers on bi-encoders learn like the others."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from support.marks import others_slow
from support.project import ON_BI_ENCODERS
from support.training import arguments, without_dropout, world
from transformers import AutoModel, TrainerCallback

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.experiments.model_building import merged, with_lora
from docparade.trainer.data.collator import PairCollator
from docparade.trainer.data.triples import Triple, Triples
from docparade.trainer.distillation import DistillationTrainer
from docparade.trainer.gradient_cache import CachedBackward
from docparade.trainer.trainer import RankingTrainer

WORLD = world()
Rankers = Callable[..., DocumentRanker]
BOTH = [(MaxPForSequenceClassification, "max"), (ParadeForSequenceClassification, "transformer")]


@pytest.fixture
def bi_ranker(tiny_ranker: Rankers) -> Rankers:
    """A new tiny ranker on a bi-encoder, without dropout."""

    def ranker(family: type[DocumentRanker], aggregation: str, pooling: str = "mean") -> DocumentRanker:
        return without_dropout(copy.deepcopy(tiny_ranker(family, aggregation, pooling=pooling)))

    return ranker


def losses_of(trainer: RankingTrainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize(
    "family, aggregation, loss, negatives",
    others_slow(
        [
            *[(*family, "hinge", 1) for family in ON_BI_ENCODERS],
            *[(*family, "listwise_softmax", 2) for family in BOTH],
        ]
    ),
)
def test_overfits_twenty_pairs(
    family: type, aggregation: str, loss: str, negatives: int, bi_ranker: Rankers, tmp_path: Path
) -> None:
    sampler = WORLD.sampler(negatives=negatives)
    rows = [Triple(pair.query, pair.positive, tuple(pair.documents[1:])) for pair in (sampler[n] for n in range(20))]
    trainer = RankingTrainer(
        bi_ranker(family, aggregation),
        arguments(
            tmp_path,
            max_steps=80,
            per_device_train_batch_size=10,
            learning_rate=3e-3,
            # Similarities are close to each other: their scale has to grow.
            head_learning_rate=3e-2 if family is MaxPForSequenceClassification else 3e-3,
            warmup_steps=5,
            logging_steps=2,
            loss=loss,
            negatives=negatives,
        ),
        Triples(lambda: iter(rows), 20, seed=0, negatives=negatives),
        WORLD.queries,
        WORLD.documents,
    )
    trainer.add_callback(_StopBelow(0.05))
    trainer.train()
    losses = losses_of(trainer)
    # One epoch is two steps: each value is the mean over all twenty pairs.
    assert losses[0] > 0.1
    assert losses[-1] < 0.05, losses


class _StopBelow(TrainerCallback):
    def __init__(self, loss: float) -> None:
        self.loss = loss

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **kwargs: Any) -> None:
        control.should_training_stop = logs.get("loss", self.loss) < self.loss


@pytest.mark.parametrize(
    ("family", "aggregation", "precision"),
    others_slow(
        [(*family, torch.float64) for family in ON_BI_ENCODERS] + [(*family, torch.float32) for family in BOTH],
        fast=(1, 6),
    ),
)
def test_cached_gradients_are_the_plain_ones(
    family: type, aggregation: str, precision: torch.dtype, bi_ranker: Rankers
) -> None:
    plain, chunked = (bi_ranker(family, aggregation).train().to(precision) for _ in range(2))
    collator = PairCollator(plain.require_processor(), WORLD.queries, WORLD.documents)
    batch = collator([WORLD.sampler()[number] for number in range(4)])
    assert batch["query_input_ids"].size(0) == 8

    def hinge(scores: torch.Tensor) -> torch.Tensor:
        return (5 - scores[::2] + scores[1::2]).relu().mean()

    loss = hinge(plain(**batch).logits[:, 0])
    loss.backward()
    found = CachedBackward(chunked, 3, torch.Tensor.backward, nullcontext)(batch, hinge)
    torch.testing.assert_close(found, loss.detach())
    expected = dict(plain.named_parameters())
    assert all(parameter.grad is not None for parameter in expected.values())
    difference = torch.cat([(p.grad - expected[name].grad).flatten() for name, p in chunked.named_parameters()])
    length = torch.cat([parameter.grad.flatten() for parameter in expected.values()]).norm()
    # Similarities are computed in single precision.
    assert length > 0
    assert difference.norm() <= 5e-6 * length


@pytest.mark.parametrize(
    ("family", "aggregation", "compare_all"),
    others_slow([(*family, number % 2 == 0) for number, family in enumerate(ON_BI_ENCODERS)], fast=(1, 6)),
)
def test_cached_gradients_with_dropout(family: type, aggregation: str, compare_all: bool, bi_ranker: Rankers) -> None:
    """Chunks that are encoded again have the same dropout: the gradients are those of one graph of all chunks."""
    plain, chunked, other = (without_dropout(bi_ranker(family, aggregation), 0.2).train().double() for _ in range(3))
    processor = plain.require_processor()
    collator = PairCollator(processor, WORLD.queries, WORLD.documents, in_batch_negatives=compare_all)
    batch = collator([WORLD.sampler()[number] for number in range(4)])
    batch.pop("candidates", None)

    def loss_of(scores: torch.Tensor) -> torch.Tensor:
        return (1 + scores.flatten()[1:] - scores.flatten()[:-1]).relu().mean()

    def cached(model: DocumentRanker, seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return CachedBackward(model, 3, torch.Tensor.backward, nullcontext, compare_all)(batch, loss_of)

    torch.manual_seed(5)
    loss = loss_of(_score_in_one_graph(plain, batch, compare_all))
    loss.backward()
    after_plain = torch.rand(3)
    torch.testing.assert_close(cached(chunked, 5), loss.detach())
    torch.testing.assert_close(torch.rand(3), after_plain)
    expected = {name: p.grad for name, p in plain.named_parameters() if p.grad is not None}
    difference = torch.cat([(p.grad - expected[n]).flatten() for n, p in chunked.named_parameters() if n in expected])
    length = torch.cat([gradient.flatten() for gradient in expected.values()]).norm()
    assert difference.norm() <= 1e-12 * length
    assert abs(cached(other, 6) - loss) > 1e-6, "dropout does nothing, and the test shows nothing"


def _score_in_one_graph(model: DocumentRanker, batch: dict[str, torch.Tensor], compare_all: bool) -> torch.Tensor:
    """The scores from the same chunks with the same dropout, all kept until one backward pass."""
    mask = batch["passage_mask"]
    queries = model.encode_queries(batch["query_input_ids"], batch["query_attention_mask"])
    ids, attention = batch["input_ids"][mask], batch["attention_mask"][mask]
    segments = batch["token_type_ids"][mask]
    order = sorted(range(len(ids)), key=lambda row: -int(attention[row].sum()))
    parts: dict[int, torch.Tensor] = {}
    for start in range(0, len(order), 3):
        rows = order[start : start + 3]
        longest = int(attention[rows[0]].sum())
        encoded = model.encode(ids[rows, :longest], attention[rows, :longest], segments[rows, :longest])
        parts |= dict(zip(rows, encoded, strict=True))
    vectors = torch.stack([parts[row] for row in range(len(ids))])
    if compare_all:
        return model.aggregate_all(model.relate_all(queries, vectors), mask.sum(dim=1))
    features = model.relate(queries.repeat_interleave(mask.sum(dim=1), dim=0), vectors)
    passages = features.new_zeros((*mask.shape, *features.shape[1:]))
    passages[mask] = features
    return model.aggregator(passages, mask).score


@pytest.mark.parametrize(("family", "aggregation"), others_slow(BOTH))
def test_settings_that_change_no_loss(family: type, aggregation: str, bi_ranker: Rankers, tmp_path: Path) -> None:
    def losses(**options: Any) -> list[float]:
        args = arguments(tmp_path, num_train_epochs=2, **options)
        model = bi_ranker(family, aggregation)
        trainer = RankingTrainer(model, args, WORLD.sampler(), WORLD.queries, WORLD.documents)
        trainer.train()
        return losses_of(trainer)

    plain = losses()
    assert len(plain) == 6
    for options in (
        {"chunk_passages": 3},
        {"gradient_checkpointing": True},
        {"gradient_checkpointing": True, "chunk_passages": 3},
    ):
        assert losses(**options) == pytest.approx(plain, rel=1e-3), options


def test_training_on_single_passages(bi_ranker: Rankers, tmp_path: Path) -> None:
    model = bi_ranker(*BOTH[0])
    args = arguments(tmp_path, max_steps=3, passage_level=True)
    trainer = RankingTrainer(model, args, WORLD.sampler(), WORLD.queries, WORLD.documents)
    trainer.train()
    assert len(losses_of(trainer)) == 3


@pytest.mark.parametrize("student_is_bi", [True, False])
@pytest.mark.parametrize("loss", others_slow(["distillation", "margin_mse", "listwise_distillation"]))
def test_distillation_between_cross_encoder_and_bi_encoder(
    loss: str, student_is_bi: bool, bi_ranker: Rankers, tiny_ranker: Rankers, tmp_path: Path
) -> None:
    bi, cross = bi_ranker(*BOTH[0]), without_dropout(copy.deepcopy(tiny_ranker(*BOTH[0])))
    student, teacher = (bi, cross) if student_is_bi else (cross, bi)
    options = {"loss": loss, "distillation_alpha": 0.0, "learning_rate": 3e-3, "head_learning_rate": 3e-2}
    args = arguments(tmp_path, num_train_epochs=10, **options)
    trainer = DistillationTrainer(student, args, WORLD.sampler(), WORLD.queries, WORLD.documents, teacher=teacher)

    def distance() -> float:
        pairs = [WORLD.sampler()[number] for number in range(40)]
        named = [(WORLD.queries[pair.query], WORLD.documents[name]) for pair in pairs for name in pair.documents]
        own, theirs = (torch.tensor(model.score(named)).view(-1, 2) for model in (trainer.ranker, teacher))
        return float(trainer.loss(own, theirs).mean())

    before = distance()
    trainer.train()
    assert distance() < 0.8 * before


@pytest.mark.parametrize(("family", "aggregation"), BOTH)
def test_lora_trains_all_that_is_on_top_of_the_encoder(
    family: type, aggregation: str, bi_ranker: Rankers, tmp_path: Path
) -> None:
    base = bi_ranker(family, aggregation)
    base.save_pretrained(tmp_path / "base")
    before = copy.deepcopy(base.state_dict())
    model = with_lora(base)
    trainer = RankingTrainer(
        model,
        arguments(tmp_path, max_steps=4, learning_rate=1e-2, loss="cross_entropy"),
        WORLD.sampler(),
        WORLD.queries,
        WORLD.documents,
    )
    trainer.train()
    pairs = [("query", fields["text"]) for fields in list(WORLD.documents.values())[:4]]
    expected = trainer.ranker.score(pairs)
    trainer.save_model(str(tmp_path / "adapter"))
    loaded = PeftModel.from_pretrained(AutoModel.from_pretrained(tmp_path / "base"), tmp_path / "adapter")
    assert loaded.get_base_model().eval().score(pairs) == pytest.approx(expected, abs=1e-5)
    ranker = merged(model)
    assert ranker.score(pairs) == pytest.approx(expected, abs=1e-4)
    after = ranker.state_dict()
    assert after.keys() == before.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    on_top = {name for name in before if not name.startswith("encoder.")}
    assert on_top <= changed, on_top - changed
    in_encoder = {name.rpartition(".")[0].rpartition(".")[2] for name in changed - on_top}
    assert in_encoder == {"query", "value"}
