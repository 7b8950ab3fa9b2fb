"""Training on all documents of the lists: what the examples are, and what is learned from them."""

from __future__ import annotations

import copy
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.training import Job, arguments, run_job, without_dropout, world

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.retrieval import InputError
from docparade.trainer.data.collator import PairCollator
from docparade.trainer.data.labeled_documents import LabeledDocument, LabeledDocuments
from docparade.trainer.distillation import DistillationTrainer
from docparade.trainer.trainer import RankingTrainer

WORLD = world()
LISTS: dict[str, Any] = {"examples": "lists", "loss": "cross_entropy"}
Rankers = Callable[..., DocumentRanker]


def examples_of(seed: int = 7, **options: Any) -> LabeledDocuments:
    return LabeledDocuments.from_run(WORLD.run, WORLD.qrels, WORLD.queries, seed=seed, **options)


def first(examples: LabeledDocuments, count: int) -> list[tuple[str, str, int]]:
    found = [examples[number] for number in range(count)]
    assert [example.number for example in found] == list(range(count))
    return [(example.query, example.document, example.label) for example in found]


def test_every_document_of_the_lists_once_in_a_pass() -> None:
    # Documents are named after their place in the list; those in places 2 and 5 are relevant, 6 and 7 not judged.
    expected = {(q, f"{q}-d{place}", int(place in (2, 5))) for q in WORLD.queries for place in range(7)}
    examples = examples_of(max_rank=7)
    assert len(examples) == len(expected) == 35
    passes = first(examples, 105)
    assert all(set(passes[start : start + 35]) == expected for start in (0, 35, 70))
    assert len({tuple(passes[start : start + 35]) for start in (0, 35, 70)}) == 3
    assert passes[:35] != sorted(passes[:35])
    # Only the seed and the number count.
    again = examples_of(max_rank=7, examples_per_epoch=4)
    assert len(again) == 4
    numbers = range(80, -1, -9)
    assert [again[number] for number in numbers] == [examples[number] for number in numbers]
    assert first(examples_of(seed=8, max_rank=7), 35) != passes[:35]


def test_negative_grades_and_queries_without_judgments_or_lists(caplog: pytest.LogCaptureFixture) -> None:
    run = {"a": {"d1": 2.0, "d2": 1.0}, "b": {"d1": 1.0}, "c": {"d3": 1.0}}
    qrels = {"a": {"d1": -1, "d2": 4}, "c": {"d9": 1}, "d": {"d1": 1}}
    found = LabeledDocuments.from_run(run, qrels, ["a", "b", "c", "d"], seed=0)
    assert set(first(found, len(found))) == {("a", "d1", 0), ("a", "d2", 1), ("c", "d3", 0)}
    assert "2 of 4 training queries give no examples" in caplog.text
    more = LabeledDocuments.from_run(run, qrels, ["a", "b", "c", "d"], seed=0, unretrieved_positives=True)
    assert set(first(more, len(more))) == {*first(found, len(found)), ("c", "d9", 1), ("d", "d1", 1)}


def test_pairs_with_positives_that_were_not_retrieved() -> None:
    sampler = WORLD.sampler(max_rank=3, unretrieved_positives=True)
    drawn = [sampler[number] for number in range(200)]
    assert {pair.positive[-2:] for pair in drawn} == {"d2", "d5"}
    assert {pair.negative[-2:] for pair in drawn} == {"d0", "d1"}
    assert len(WORLD.sampler(None, max_rank=3)) == 5
    assert len(WORLD.sampler(None, max_rank=3, unretrieved_positives=True)) == 10
    # A list without any relevant document will do, and one without negatives will not.
    assert WORLD.sampler(max_rank=2, unretrieved_positives=True)[0].negative[-2:] in ("d0", "d1")
    with pytest.raises(InputError, match="in ranks 3 to 3"):
        WORLD.sampler(max_rank=3, negative_ranks=(3, 3), unretrieved_positives=True)


def test_texts_of_files_count_once(tmp_path: Path) -> None:
    rows = [
        {"query": "q", "positive": "yes", "negatives": ["no", "never"]},
        {"query": "q", "positive": "indeed", "negatives": ["no", "yes"]},
        {"query": "r", "positive": "no"},
    ]
    path = tmp_path / "triples.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = LabeledDocuments.from_files([path, path], seed=0)
    expected = {("q", "yes", 1), ("q", "indeed", 1), ("q", "no", 0), ("q", "never", 0), ("r", "no", 1)}
    assert set(first(found, 5)) == expected and len(found) == 5
    path.write_text(json.dumps(rows[2]) + "\n")
    with pytest.raises(InputError, match="one kind"):
        LabeledDocuments.from_files([path], seed=0)


# --- Learning ---------------------------------------------------------------------------------------------------------


def train(model: DocumentRanker, folder: Path, resume: bool = False, **options: Any) -> RankingTrainer:
    settings = arguments(folder, **{**LISTS, "num_train_epochs": 2, "per_device_train_batch_size": 16, **options})
    trainer = RankingTrainer(model, settings, examples_of(), WORLD.queries, WORLD.documents)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def entropy(scores: list[float], labels: list[int]) -> float:
    """The mean cross-entropy, by its formula."""
    values = [math.log1p(math.exp(-score if label else score)) for score, label in zip(scores, labels, strict=True)]
    return sum(values) / len(values)


@pytest.mark.parametrize("options", [{}, {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}], ids=str)
def test_the_loss_is_the_cross_entropy_of_single_documents(
    options: dict[str, Any], tiny_ranker: Rankers, tmp_path: Path
) -> None:
    model = tiny_ranker(ParadeForSequenceClassification, "max")
    trainer = train(without_dropout(copy.deepcopy(model)), tmp_path, **options)
    step = first(examples_of(), 16)
    scores = model.score([(WORLD.queries[query], WORLD.documents[name]) for query, name, _ in step])
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert logged[0]["loss"] == pytest.approx(entropy(scores, [label for *_, label in step]), rel=1e-3)
    # 40 documents are three steps of 16.
    assert [entry["epoch"] for entry in logged] == pytest.approx([1 / 3, 2 / 3, 1, 4 / 3, 5 / 3, 2])


def test_a_teacher_of_single_documents(tiny_ranker: Rankers, tmp_path: Path) -> None:
    model, teacher = (tiny_ranker(ParadeForSequenceClassification, name) for name in ("max", "attn"))
    settings = arguments(tmp_path, **{**LISTS, "loss": "distillation"}, max_steps=1, per_device_train_batch_size=8)
    student = without_dropout(copy.deepcopy(model))
    trainer = DistillationTrainer(student, settings, examples_of(), WORLD.queries, WORLD.documents, teacher=teacher)
    trainer.train()
    step = first(examples_of(), 8)
    pairs = [(WORLD.queries[query], WORLD.documents[name]) for query, name, _ in step]
    scores, wanted = model.score(pairs), teacher.score(pairs)
    squares = sum((score - z) ** 2 for score, z in zip(scores, wanted, strict=True)) / 8
    expected = 0.75 * entropy(scores, [label for *_, label in step]) + 0.25 * squares
    assert trainer.state.log_history[0]["loss"] == pytest.approx(expected, rel=1e-3)


def test_every_passage_has_the_label_of_its_document(tiny_ranker: Rankers) -> None:
    processor = tiny_ranker(MaxPForSequenceClassification, "max").require_processor()
    collator = PairCollator(processor, WORLD.queries, WORLD.documents, passage_probability=1.0)
    examples = [LabeledDocument("q0", f"q0-d{place}", int(place in (2, 5))) for place in range(8)]
    sizes = [len(collator([example])["input_ids"]) for example in examples]
    assert sizes != sizes[::-1] and max(sizes) > 2
    batch = collator(examples)
    expected = [example.label for example, size in zip(examples, sizes, strict=True) for _ in range(size)]
    assert batch["labels"].tolist() == expected
    assert len(batch["labels"]) == len(batch["input_ids"])
    assert "labels" not in collator([WORLD.sampler()[0]])


def test_a_training_that_continues_ends_with_the_same_weights(tiny_ranker: Rankers, tmp_path: Path) -> None:
    """From step 4: in the second epoch, and after the second pass began in the last step of the first."""
    model = tiny_ranker(ParadeForSequenceClassification, "transformer")
    saving = {"save_strategy": "steps", "save_steps": 4}
    whole = train(copy.deepcopy(model), tmp_path / "whole", **saving).ranker.state_dict()
    shutil.copytree(tmp_path / "whole/checkpoint-4", tmp_path / "cut/checkpoint-4")
    found = train(copy.deepcopy(model), tmp_path / "cut", resume=True, **saving).ranker.state_dict()
    assert all(torch.equal(found[name], whole[name]) for name in whole)
    assert any(not torch.equal(whole[name], weights) for name, weights in model.state_dict().items())


@pytest.mark.slow
def test_two_processes_learn_what_one_does(tiny_ranker: Rankers, tmp_path: Path) -> None:
    model = without_dropout(copy.deepcopy(tiny_ranker(MaxPForSequenceClassification, "max")))
    model.config.encoder_config.hidden_dropout_prob = model.config.encoder_config.attention_probs_dropout_prob = 0.0
    model.save_pretrained(tmp_path / "start")
    reports = {}
    for processes in (1, 2):
        options = {**LISTS, "num_train_epochs": 2, "learning_rate": 1e-4}
        options["per_device_train_batch_size"] = 16 // processes
        reports[processes] = run_job(Job(str(tmp_path / "start"), str(tmp_path / str(processes)), options), processes)
    assert [report["processes"] for report in reports[2]] == [2, 2]
    numbers = [number for report in reports[2] for number in report["numbers"]]
    assert sorted(numbers) == sorted(reports[1][0]["numbers"]) == list(range(96))
    assert reports[2][0]["losses"] == pytest.approx(reports[1][0]["losses"], abs=1e-5)
    assert reports[2][0]["norms"] == pytest.approx(reports[1][0]["norms"], rel=1e-4)


# --- What is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "hinge"}, "loss='hinge' .*cross_entropy or distillation"),
        ({"negatives": 2}, "^negatives .*examples is 'lists'"),
        ({"negative_ranks": (2, 3)}, "negative_ranks .*pairs"),
        ({"in_batch_negatives": True}, "in_batch_negatives .*pairs"),
        ({"examples": "triples"}, "examples is 'triples', .*pairs, lists"),
    ],
)
def test_settings_that_exclude_each_other(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        arguments(tmp_path, **{**LISTS, **options})


def test_training_data_of_the_other_kind(tiny_ranker: Rankers, tmp_path: Path) -> None:
    model = tiny_ranker(MaxPForSequenceClassification, "max")
    with pytest.raises(InputError, match=r"examples is 'lists', .*PairSampler"):
        RankingTrainer(model, arguments(tmp_path, **LISTS), WORLD.sampler(), WORLD.queries, WORLD.documents)
    with pytest.raises(InputError, match=r"examples is 'pairs', .*LabeledDocuments"):
        RankingTrainer(model, arguments(tmp_path), examples_of(), WORLD.queries, WORLD.documents)
