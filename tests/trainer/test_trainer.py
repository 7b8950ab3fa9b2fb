"""RankingTrainer: learning, learning rates, evaluation, checkpoints, adapters."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from support.marks import others_slow
from support.project import FAMILIES
from support.training import World, arguments, without_dropout, world
from transformers import AutoModel, TrainerCallback, set_seed

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.reranking import QuerySet
from docparade.reranking.rerank_run import rerank
from docparade.retrieval import InputError, evaluate
from docparade.trainer.checkpoints import last_checkpoint
from docparade.trainer.data.triples import Triple, Triples
from docparade.trainer.saving_trainer import unwrap_ranker
from docparade.trainer.trainer import RankingTrainer
from docparade.trainer.validation import check_validation_set

WORLD = world()
Rankers = Callable[..., DocumentRanker]


def fresh(
    tiny_ranker: Rankers, family: type = MaxPForSequenceClassification, aggregation: str = "max"
) -> DocumentRanker:
    return copy.deepcopy(tiny_ranker(family, aggregation))


def trainer_of(
    model: Any, folder: Path, there: World = WORLD, validation: Any = None, **options: Any
) -> RankingTrainer:
    return RankingTrainer(
        model, arguments(folder, **options), there.sampler(), there.queries, there.documents, validation
    )


@pytest.mark.parametrize(("family", "aggregation"), others_slow(FAMILIES))
def test_every_aggregation_can_overfit_twenty_pairs(
    family: type, aggregation: str, tiny_ranker: Rankers, tmp_path: Path
) -> None:
    model = without_dropout(fresh(tiny_ranker, family, aggregation))
    sampler = WORLD.sampler()
    rows = [Triple(pair.query, pair.positive, (pair.negative,)) for pair in (sampler[n] for n in range(20))]
    trainer = RankingTrainer(
        model,
        arguments(
            tmp_path, max_steps=70, per_device_train_batch_size=10, learning_rate=3e-3, warmup_steps=5, logging_steps=2
        ),
        Triples(lambda: iter(rows), 20, seed=0),
        WORLD.queries,
        WORLD.documents,
    )
    trainer.add_callback(_StopAtZero())
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    # One epoch is two steps: each value is the mean over all twenty pairs.
    assert losses[0] > 0.1
    assert losses[-1] == 0, losses


class _StopAtZero(TrainerCallback):
    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **kwargs: Any) -> None:
        control.should_training_stop = logs.get("loss") == 0


def test_two_learning_rates_and_inverse_time_decay(tiny_ranker: Rankers, tmp_path: Path) -> None:
    trainer = trainer_of(
        fresh(tiny_ranker),
        tmp_path,
        num_train_epochs=4,
        warmup_epochs=1,
        decay="inverse_time",
        decay_rate=0.5,
        learning_rate=1e-5,
        head_learning_rate=1e-3,
        weight_decay=0.01,
    )
    rates: list[tuple[float, float]] = []
    trainer.add_callback(_Recorder(lambda: rates.append((rate(trainer, 0), rate(trainer, -1)))))
    trainer.train()
    names = {id(parameter): name for name, parameter in trainer.model.named_parameters()}
    groups = {
        (group["initial_lr"], group["weight_decay"]): {names[id(parameter)] for parameter in group["params"]}
        for group in trainer.optimizer.param_groups
    }
    assert groups.keys() == {(1e-5, 0.01), (1e-5, 0.0), (1e-3, 0.01), (1e-3, 0.0)}
    assert groups[1e-3, 0.01] == {"encoder.classifier.weight"}
    assert groups[1e-3, 0.0] == {"encoder.classifier.bias"}
    assert all(name.startswith("encoder.bert.") for name in groups[1e-5, 0.01] | groups[1e-5, 0.0])
    assert sum(map(len, groups.values())) == len(names)
    # Three steps an epoch: warm-up over the first epoch, then 1 / (1 + 0.5 * epochs since).
    expected = [0, 1 / 3, 2 / 3, *(1 / (1 + 0.5 * step / 3) for step in range(9))]
    assert [body for body, _ in rates] == pytest.approx([1e-5 * factor for factor in expected])
    assert [head for _, head in rates] == pytest.approx([1e-3 * factor for factor in expected])


def rate(trainer: RankingTrainer, group: int) -> float:
    return float(trainer.optimizer.param_groups[group]["lr"])


@pytest.mark.parametrize(
    ("decay", "expected"),
    [("linear", [0, 0.5, 1, 0.75, 0.5, 0.25]), ("constant", [0, 0.5, 1, 1, 1, 1])],
)
def test_decays(decay: str, expected: list[float], tiny_ranker: Rankers, tmp_path: Path) -> None:
    trainer = trainer_of(fresh(tiny_ranker), tmp_path, max_steps=6, warmup_steps=2, decay=decay)
    rates: list[float] = []
    trainer.add_callback(_Recorder(lambda: rates.append(rate(trainer, 0) / 1e-3)))
    trainer.train()
    assert rates == pytest.approx(expected)


class _Recorder(TrainerCallback):
    """Calls a function at the beginning of every step."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        self.function()


def test_evaluation_reranks_and_the_best_checkpoint_is_kept(tiny_ranker: Rankers, tmp_path: Path) -> None:
    half = world(queries=3)
    validations = [WORLD.validation("all"), half.validation("half")]
    trainer = trainer_of(
        fresh(tiny_ranker, ParadeForSequenceClassification, "avg"),
        tmp_path,
        validation=validations,
        num_train_epochs=6,
        eval_strategy="epoch",
        evaluation_epochs=2,
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        measure="nDCG@3",
        rerank_depth=6,
    )
    trainer.train()
    measured = json.loads((last_checkpoint(tmp_path) / "measured.json").read_text())
    assert [entry["step"] for entry in measured["history"]] == [6, 12, 18]
    assert [entry["epoch"] for entry in measured["history"]] == [2, 4, 6]
    values = [entry["nDCG@3"] for entry in measured["history"]]
    assert measured["best"]["nDCG@3"] == max(values)
    assert measured["arguments"]["loss"] == "hinge"
    assert str(tmp_path) not in json.dumps(measured)
    assert measured["versions"]["transformers"]
    # The best checkpoint and the last one are among the two that are left, and the best one is loaded.
    best = trainer.state.best_model_checkpoint
    steps = {int(path.name.rpartition("-")[2]) for path in tmp_path.glob("checkpoint-*")}
    assert {18, measured["best"]["step"]} <= steps and len(steps) == 2
    loaded = AutoModel.from_pretrained(best)
    means = []
    for validation in validations:
        run = rerank(loaded, validation.run, validation.queries, validation.documents, 6)
        means.append(evaluate(validation.qrels, run, "nDCG@3").means["nDCG@3"])
    assert sum(means) / 2 == pytest.approx(max(values))
    again = trainer.evaluate()
    assert again["eval_nDCG@3"] == max(values)
    assert [again["eval_all_nDCG@3"], again["eval_half_nDCG@3"]] == means
    trainer.save_model(str(tmp_path / "best"))
    assert json.loads((tmp_path / "best" / "measured.json").read_text())["best"] == measured["best"]


def test_validation_leaves_other_queries_aside() -> None:
    one = {"q1": WORLD.queries["q1"]}
    validation = QuerySet("one", one, WORLD.run, WORLD.qrels, WORLD.documents)
    assert validation.judged() == {"q1": WORLD.qrels["q1"]}
    assert validation.to_rerank() == {"q1": WORLD.run["q1"]}
    with pytest.raises(InputError, match="validation set none"):
        check_validation_set(QuerySet("none", {"q9": "text"}, WORLD.run, WORLD.qrels, WORLD.documents))


@pytest.mark.slow
def test_lora(tiny_ranker: Rankers, tmp_path: Path) -> None:
    base = fresh(tiny_ranker, ParadeForSequenceClassification, "attn")
    base.save_pretrained(tmp_path / "base")
    frozen = copy.deepcopy(base.encoder.state_dict())
    set_seed(0)
    lora = LoraConfig(r=4, target_modules=r"encoder\..*\.(query|value)", modules_to_save=["aggregator"])
    model = get_peft_model(base, lora)
    trainer = trainer_of(
        model,
        tmp_path / "run",
        validation=WORLD.validation(),
        num_train_epochs=2,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        measure="nDCG@5",
        head_learning_rate=1e-3,
        chunk_passages=3,
    )
    trainer.train()
    assert trainer.state.best_model_checkpoint is not None
    assert {group["initial_lr"] for group in trainer.optimizer.param_groups} == {1e-3}
    assert all(p.requires_grad for group in trainer.optimizer.param_groups for p in group["params"])
    adapters = [p for n, p in model.named_parameters() if "lora_B" in n]
    assert adapters and all(bool(parameter.any()) for parameter in adapters)
    trained = model.get_base_model().encoder.state_dict()
    for name, tensor in frozen.items():
        assert any(
            torch.equal(tensor, trained[n])
            for n in (name, name.replace(".weight", ".base_layer.weight").replace(".bias", ".base_layer.bias"))
            if n in trained
        ), name
    trainer.save_model(str(tmp_path / "adapter"))
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    loaded = PeftModel.from_pretrained(AutoModel.from_pretrained(tmp_path / "base"), tmp_path / "adapter")
    pairs = [("query", fields["text"]) for fields in list(WORLD.documents.values())[:4]]
    expected = trainer.ranker.score(pairs)
    assert loaded.get_base_model().eval().score(pairs) == pytest.approx(expected, abs=1e-5)
    assert AutoModel.from_pretrained(tmp_path / "base").score(pairs) != pytest.approx(expected, abs=1e-3)


# --- Settings of Trainer ----------------------------------------------------------------------------------------------


def train_without_dropout(tiny_ranker: Rankers, folder: Path, **options: Any) -> RankingTrainer:
    """Train two epochs of three steps."""
    model = without_dropout(fresh(tiny_ranker, ParadeForSequenceClassification, "max"))
    args = arguments(folder, num_train_epochs=2, **options)
    trainer = RankingTrainer(model, args, WORLD.sampler(negatives=args.negatives), WORLD.queries, WORLD.documents)
    trainer.train()
    return trainer


def losses_of(trainer: RankingTrainer) -> list[float]:
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 6
    return losses


@pytest.fixture(scope="module")
def plain(tiny_ranker: Rankers, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of a training with no further settings."""
    return losses_of(train_without_dropout(tiny_ranker, tmp_path_factory.mktemp("plain")))


@pytest.mark.parametrize(
    "options",
    [
        {"chunk_passages": 3},
        {"gradient_checkpointing": True},
        {"gradient_checkpointing": True, "chunk_passages": 3},
        pytest.param(
            {"dataloader_num_workers": 2, "dataloader_multiprocessing_context": "forkserver"}, marks=pytest.mark.slow
        ),
    ],
    ids=str,
)
def test_settings_that_change_no_loss(
    options: dict[str, Any], plain: list[float], tiny_ranker: Rankers, tmp_path: Path
) -> None:
    assert losses_of(train_without_dropout(tiny_ranker, tmp_path, **options)) == pytest.approx(plain, rel=1e-3)


def test_chunks_change_no_loss_of_single_passages(tiny_ranker: Rankers, tmp_path: Path) -> None:
    def losses(folder: str, **options: Any) -> list[float]:
        model = without_dropout(fresh(tiny_ranker, MaxPForSequenceClassification, "max"))
        settings = {"max_steps": 2, "passage_level": True, "passage_probability": 0.5}
        trainer = trainer_of(model, tmp_path / folder, **settings, **options)
        trainer.train()
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

    found = losses("chunks", chunk_passages=3)
    assert len(found) == 2
    assert found == pytest.approx(losses("plain"), rel=1e-3)


@pytest.mark.parametrize("options", [{}, {"chunk_passages": 3}], ids=str)
def test_bf16_changes_the_losses_by_rounding(
    options: dict[str, Any], plain: list[float], tiny_ranker: Rankers, tmp_path: Path
) -> None:
    losses = losses_of(train_without_dropout(tiny_ranker, tmp_path, bf16=True, **options))
    assert losses[0] != pytest.approx(plain[0], rel=1e-6)
    assert losses[0] == pytest.approx(plain[0], rel=0.05)


def test_gradients_are_clipped_to_their_limit(tiny_ranker: Rankers, tmp_path: Path) -> None:
    start = tiny_ranker(ParadeForSequenceClassification, "max").state_dict()

    def moved(limit: float) -> float:
        """How far plain gradient descent went."""
        found = train_without_dropout(tiny_ranker, tmp_path, max_grad_norm=limit, optim="sgd").ranker.state_dict()
        return float(sum((found[name] - weights).square().sum() for name, weights in start.items())) ** 0.5

    # Six steps of at most the limit times the learning rate, 1e-3; 0 is no limit.
    assert 0 < moved(0.01) <= 6e-5 * 1.01
    assert moved(0.0) > 1e-3


def test_passages_are_resampled_in_training(plain: list[float], tiny_ranker: Rankers, tmp_path: Path) -> None:
    assert losses_of(train_without_dropout(tiny_ranker, tmp_path, resample_passages=True)) != pytest.approx(plain)


def test_pairs_of_like_length_are_read_together(tiny_ranker: Rankers, tmp_path: Path) -> None:
    trainer = trainer_of(fresh(tiny_ranker), tmp_path, train_sampling_strategy="group_by_length")
    sampler = WORLD.sampler()
    words = [sum(len(WORLD.documents[name]["text"]) for name in sampler[n].documents) for n in range(12)]
    numbers = [number for step in trainer.get_train_dataloader().batch_sampler for number in step]
    assert sorted(numbers) == list(range(12))
    by_length = sorted(range(12), key=words.__getitem__, reverse=True)
    steps = {frozenset(numbers[start : start + 4]) for start in (0, 4, 8)}
    assert steps == {frozenset(by_length[start : start + 4]) for start in (0, 4, 8)}


def test_the_loss_is_that_of_all_candidates(tiny_ranker: Rankers, tmp_path: Path) -> None:
    trainer = train_without_dropout(tiny_ranker, tmp_path, loss="listwise_softmax", negatives=3)
    model = tiny_ranker(ParadeForSequenceClassification, "max")
    pairs = [WORLD.sampler(negatives=3)[number] for number in range(4)]
    named = [(WORLD.queries[pair.query], WORLD.documents[name]) for pair in pairs for name in pair.documents]
    scores = torch.tensor(model.score(named)).view(4, 4)
    assert losses_of(trainer)[0] == pytest.approx(float(-scores.log_softmax(dim=1)[:, 0].mean()), rel=1e-3)


# --- What is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        (ParadeForSequenceClassification, {"passage_level": True}, "passage_level"),
        (MaxPForSequenceClassification, {"loss": "margin_mse"}, "use DistillationTrainer"),
        (MaxPForSequenceClassification, {"negatives": 2}, "1 negatives, .*negatives=2"),
        (
            MaxPForSequenceClassification,
            {"train_sampling_strategy": "sequential"},
            "train_sampling_strategy .*random, group",
        ),
    ],
)
def test_settings_that_exclude_each_other_are_refused(
    family: type, options: dict[str, Any], message: str, tiny_ranker: Rankers, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        trainer_of(fresh(tiny_ranker, family, "max"), tmp_path, max_steps=1, **options).train()


def test_the_sigmoid_of_a_probability_is_refused(encoder_folder: Callable[..., Path], tmp_path: Path) -> None:
    sizes = {"window": 12, "stride": 8, "max_length": 24, "max_query_tokens": 8}
    model = MaxPForSequenceClassification.from_encoder(encoder_folder(), passage_score="probability", **sizes)
    with pytest.raises(InputError, match=r"probabilities: .*'hinge'"):
        trainer_of(model, tmp_path, max_steps=1, loss="cross_entropy")
    trainer_of(model, tmp_path, max_steps=1, loss="hinge").train()
    with pytest.raises(ValueError, match="the cross-entropy needs logits"):
        model(**model.processor(["work"], ["the work"]), labels=torch.ones(1))


def test_a_validation_set_that_would_not_be_used(tiny_ranker: Rankers, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="eval_strategy is 'no'"):
        trainer_of(fresh(tiny_ranker), tmp_path, validation=WORLD.validation())
    with pytest.raises(InputError, match="not a ranker"):
        trainer_of(torch.nn.Linear(2, 2), tmp_path)
    with pytest.raises(InputError, match="no validation set"):
        trainer_of(fresh(tiny_ranker), tmp_path).evaluate()


def test_a_model_that_runs_its_checkpoints_code_is_refused() -> None:
    remote = type("MaxPForSequenceClassification", (torch.nn.Module,), {"__module__": "transformers_modules.a.ranker"})
    with pytest.raises(InputError, match="import docparade"):
        unwrap_ranker(remote())
