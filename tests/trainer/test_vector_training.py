"""Training on kept vectors: what is on top of a frozen bi-encoder learns as it does from texts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.marks import others_slow
from support.training import arguments, without_dropout, world
from transformers import AutoModel

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.experiments.model_building import with_lora
from docparade.modeling import VECTOR_AGGREGATORS
from docparade.reranking import VectorCache
from docparade.retrieval import InputError
from docparade.trainer.data.triples import Triple, Triples
from docparade.trainer.distillation import DistillationTrainer
from docparade.trainer.trainer import RankingTrainer
from docparade.trainer.vector_training import VectorCollator, encoder_weights, freeze_encoder

WORLD = world()
Rankers = Callable[..., DocumentRanker]
LEARNED = [
    (MaxPForSequenceClassification, "max"),
    (MaxPForSequenceClassification, "birch"),
    *[(ParadeForSequenceClassification, name) for name in VECTOR_AGGREGATORS],
]
ATTENTION = (ParadeForSequenceClassification, "attn")
TRANSFORMER = (ParadeForSequenceClassification, "transformer")


@pytest.fixture
def bi_ranker(tiny_ranker: Rankers) -> Rankers:
    """A new tiny ranker on a bi-encoder, without dropout."""

    def ranker(family: type[DocumentRanker], aggregation: str) -> DocumentRanker:
        return without_dropout(copy.deepcopy(tiny_ranker(family, aggregation, pooling="mean")))

    return ranker


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Callable[[DocumentRanker], VectorCache]:
    """The kept vectors of a ranker's encoder, which all aggregations share."""
    folder = tmp_path_factory.mktemp("vectors")

    def cache(model: DocumentRanker, vector_type: Any = "float32") -> VectorCache:
        return VectorCache.open(folder, model, WORLD.documents, vector_type=vector_type)

    return cache


def losses_of(trainer: RankingTrainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


# Every method with one of the two ways to compare, and each way with methods of both families.
@pytest.mark.parametrize(
    ("family", "aggregation", "options"),
    others_slow(
        [
            (*family, {"in_batch_negatives": True, "loss": "listwise_softmax"} if number % 2 else {})
            for number, family in enumerate(LEARNED)
        ],
        fast=(0, 3),
    ),
)
def test_learns_what_it_learns_from_texts(
    family: type, aggregation: str, options: dict[str, Any], bi_ranker: Rankers, caches: Any, tmp_path: Path
) -> None:
    from_texts, from_vectors = bi_ranker(family, aggregation), bi_ranker(family, aggregation)
    freeze_encoder(from_texts)
    args = arguments(tmp_path, max_steps=3, learning_rate=1e-2, max_grad_norm=0.0, optim="sgd", **options)
    plain = RankingTrainer(from_texts, args, WORLD.sampler(), WORLD.queries, WORLD.documents)
    plain.train()
    cache = caches(from_vectors)
    before = copy.deepcopy(from_vectors.state_dict())
    # No documents: no text can be read.
    trainer = RankingTrainer(from_vectors, args, WORLD.sampler(), WORLD.queries, vectors=cache)
    trainer.train()
    assert len(losses_of(plain)) == 3
    assert losses_of(trainer) == pytest.approx(losses_of(plain), rel=1e-5, abs=1e-6)
    expected = from_texts.state_dict()
    for name, weights in from_vectors.state_dict().items():
        torch.testing.assert_close(weights, expected[name], rtol=1e-4, atol=1e-6)
    changed = {name for name, weights in before.items() if not torch.equal(weights, expected[name])}
    assert changed
    assert not {name for name in changed if name.startswith(("encoder.", "reader."))}


def test_the_saved_model_is_a_whole_ranker(bi_ranker: Rankers, caches: Any, tmp_path: Path) -> None:
    model = bi_ranker(*TRANSFORMER)
    trainer = RankingTrainer(
        model, arguments(tmp_path, max_steps=2), WORLD.sampler(), WORLD.queries, vectors=caches(model)
    )
    trainer.train()
    trainer.save_model(str(tmp_path / "saved"))
    pairs = [("the license", fields["text"]) for fields in list(WORLD.documents.values())[:4]]
    assert AutoModel.from_pretrained(tmp_path / "saved").score(pairs) == pytest.approx(model.score(pairs), abs=1e-5)


def test_a_continued_training_ends_with_the_same_bits(tiny_ranker: Rankers, caches: Any, tmp_path: Path) -> None:
    def train(folder: Path, resume: bool = False, **options: Any) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        # With dropout in the aggregator.
        model = copy.deepcopy(tiny_ranker(*TRANSFORMER, pooling="mean"))
        args = arguments(folder, **{"max_steps": 6, "decay": "constant", **options})
        RankingTrainer(model, args, WORLD.sampler(), WORLD.queries, vectors=caches(model)).train(
            resume_from_checkpoint=resume
        )
        return model.state_dict()

    expected = train(tmp_path / "whole")
    train(tmp_path / "stopped", max_steps=3, save_strategy="steps", save_steps=3)
    found = train(tmp_path / "stopped", resume=True)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_validation_on_kept_vectors(tiny_ranker: Rankers, caches: Any, tmp_path: Path) -> None:
    # With dropout, which must not count in validation.
    model = without_dropout(copy.deepcopy(tiny_ranker(*TRANSFORMER, pooling="mean")), 0.5)
    cache = caches(model)
    texts = WORLD.validation()
    args = arguments(tmp_path, max_steps=2, eval_strategy="steps", eval_steps=1, measure="nDCG@5", rerank_depth=8)
    kept = replace(texts, vectors=cache)
    trainer = RankingTrainer(model, args, WORLD.sampler(), WORLD.queries, validation=kept, vectors=cache)
    trainer.train()
    measured = [entry["eval_nDCG@5"] for entry in trainer.state.log_history if "eval_nDCG@5" in entry]
    assert len(measured) == 2
    trainer.model.train()
    assert trainer.evaluate()["eval_nDCG@5"] == measured[-1]
    assert trainer.evaluate(texts)["eval_nDCG@5"] == measured[-1]
    assert all(module.training for module in model.modules())


def test_learning_from_a_teacher(bi_ranker: Rankers, tiny_ranker: Rankers, caches: Any, tmp_path: Path) -> None:
    model, teacher = bi_ranker(*ATTENTION), tiny_ranker(MaxPForSequenceClassification, "max")
    args = arguments(tmp_path, num_train_epochs=8, loss="margin_mse", learning_rate=1e-2)
    trainer = DistillationTrainer(
        model, args, WORLD.sampler(), WORLD.queries, WORLD.documents, teacher=teacher, vectors=caches(model)
    )
    trainer.train()
    losses = losses_of(trainer)
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])
    with pytest.raises(InputError, match="teacher"):
        DistillationTrainer(model, args, WORLD.sampler(), WORLD.queries, teacher=teacher, vectors=caches(model))


def test_queries_are_encoded_once(bi_ranker: Rankers, caches: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = bi_ranker(*ATTENTION)
    collator = VectorCollator(caches(model, "float16"), WORLD.queries)
    calls = []
    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda *given, **inputs: calls.append(1) or encode(*given, **inputs))
    for number in range(12):
        batch = collator([WORLD.sampler()[number]])
    assert len(calls) == len(WORLD.queries)
    assert batch["passage_vectors"].dtype == batch["query_vectors"].dtype == torch.float32
    assert collator.lengths(["q0-d0"]) == {"q0-d0": len(caches(model).vectors("q0-d0"))}


def test_pairs_of_similar_length_together(bi_ranker: Rankers, caches: Any, tmp_path: Path) -> None:
    model = bi_ranker(*ATTENTION)
    args = arguments(tmp_path, max_steps=2, train_sampling_strategy="group_by_length")
    trainer = RankingTrainer(model, args, WORLD.sampler(), WORLD.queries, vectors=caches(model))
    trainer.train()
    assert len(losses_of(trainer)) == 2


# --- What is refused -------------------------------------------------------------------------------------------------


def test_vectors_of_another_encoder(bi_ranker: Rankers, caches: Any, tmp_path: Path) -> None:
    model, args = bi_ranker(*ATTENTION), arguments(tmp_path)
    cache = caches(bi_ranker(MaxPForSequenceClassification, "max"))
    assert (
        RankingTrainer(model, args, WORLD.sampler(), WORLD.queries, vectors=cache).data_collator.vectors.model is model
    )
    with torch.no_grad():
        next(encoder_weights(model)).add_(0.1)
    with pytest.raises(InputError, match=r"before the model was trained"):
        RankingTrainer(model, args, WORLD.sampler(), WORLD.queries, vectors=cache)


def test_validation_of_a_changing_encoder(bi_ranker: Rankers, caches: Any, tmp_path: Path) -> None:
    model = bi_ranker(*ATTENTION)
    validation = replace(WORLD.validation(), vectors=caches(model))
    args = arguments(tmp_path, eval_strategy="epoch", measure="nDCG@5")
    given = (args, WORLD.sampler(), WORLD.queries, WORLD.documents, validation)
    with pytest.raises(InputError, match="dev has kept vectors"):
        RankingTrainer(model, *given)
    freeze_encoder(model)
    RankingTrainer(model, *given)


@pytest.mark.parametrize(
    "options",
    [{"chunk_passages": 2}, {"resample_passages": True}, {"passage_level": True}, {"dataloader_num_workers": 1}],
)
def test_settings_that_need_texts(options: dict[str, Any], bi_ranker: Rankers, caches: Any, tmp_path: Path) -> None:
    model = bi_ranker(MaxPForSequenceClassification, "birch")
    with pytest.raises(InputError, match=rf"^{next(iter(options))} .*kept vectors"):
        RankingTrainer(model, arguments(tmp_path, **options), WORLD.sampler(), WORLD.queries, vectors=caches(model))


def test_pairs_and_models_that_do_not_fit(
    bi_ranker: Rankers, tiny_ranker: Rankers, caches: Any, tmp_path: Path
) -> None:
    model, args = bi_ranker(*ATTENTION), arguments(tmp_path)
    cache = caches(model)
    texts = Triples(lambda: iter([Triple("a query", "a text", ("another",))]), 1, seed=0)
    with pytest.raises(InputError, match="found by the ids of documents"):
        RankingTrainer(model, args, texts, vectors=cache)
    with pytest.raises(InputError, match="leave LoRA out"):
        RankingTrainer(with_lora(bi_ranker(*ATTENTION)), args, WORLD.sampler(), WORLD.queries, vectors=cache)
    with pytest.raises(InputError, match="for bi-encoders"):
        RankingTrainer(copy.deepcopy(tiny_ranker(*ATTENTION)), args, WORLD.sampler(), WORLD.queries, vectors=cache)
    late = bi_ranker(MaxPForSequenceClassification, "max")
    late.reader.single_vector = False  # type: ignore[misc]
    with pytest.raises(InputError, match=r"late interaction.*leave vectors out"):
        RankingTrainer(late, args, WORLD.sampler(), WORLD.queries, vectors=cache)
    with pytest.raises(TypeError, match="passage_vectors"):
        tiny_ranker(*ATTENTION)(passage_vectors=torch.zeros(1, 1, 32))
    with pytest.raises(ValueError, match=r"\(documents, passages, 32\)"):
        model(passage_vectors=torch.zeros(1, 1, 31), query_vectors=torch.zeros(1, 32))
