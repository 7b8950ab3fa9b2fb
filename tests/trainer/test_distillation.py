"""A student learns its teacher's scores, which are computed once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.marks import others_slow
from support.training import arguments, without_dropout, world

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.retrieval import InputError
from docparade.trainer import teacher_scores
from docparade.trainer.data.collator import PairCollator
from docparade.trainer.data.pairs import TrainingPair
from docparade.trainer.distillation import DistillationTrainer
from docparade.trainer.layer_selection import take_layers
from docparade.trainer.teacher_scores import TeacherScores

WORLD = world()
Rankers = Callable[..., DocumentRanker]


def trainer_of(student: DocumentRanker, teacher: Any, folder: Path, **options: Any) -> DistillationTrainer:
    args = arguments(folder, **{"loss": "distillation", "num_train_epochs": 2, **options})
    return DistillationTrainer(student, args, WORLD.sampler(), WORLD.queries, WORLD.documents, teacher=teacher)


def test_the_loss_is_that_of_the_teachers_own_scores(tiny_ranker: Rankers, tmp_path: Path) -> None:
    teacher = tiny_ranker(ParadeForSequenceClassification, "transformer")
    student = without_dropout(take_layers(teacher, [0]))
    trainer = trainer_of(student, teacher, tmp_path, max_steps=1, distillation_alpha=0.0)
    pairs = [WORLD.sampler()[number] for number in range(4)]
    named = [(WORLD.queries[pair.query], WORLD.documents[name]) for pair in pairs for name in pair.documents]
    squares = [(t - s) ** 2 for t, s in zip(teacher.score(named), student.score(named), strict=True)]
    trainer.train()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(sum(squares) / len(squares), rel=1e-4)


def test_an_empty_document_keeps_the_score_that_the_model_gives_it(tiny_ranker: Rankers, tmp_path: Path) -> None:
    teacher = tiny_ranker(ParadeForSequenceClassification, "transformer")
    scores = TeacherScores(teacher, tmp_path, PairCollator(teacher.processor))
    pair = TrainingPair("query", "", "other")
    scores.compute([pair])
    with torch.no_grad():
        logits = teacher(**teacher.processor(["query"], [""])).logits
    torch.testing.assert_close(scores([pair])[:, 0], logits[:, 0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("loss", others_slow(["distillation", "margin_mse"]))
def test_a_student_comes_nearer_to_its_teacher(loss: str, tiny_ranker: Rankers, tmp_path: Path) -> None:
    teacher = tiny_ranker(ParadeForSequenceClassification, "avg")
    teacher.save_pretrained(tmp_path / "teacher")
    student = without_dropout(take_layers(teacher, [0]))
    options = {"loss": loss, "distillation_alpha": 0.0, "learning_rate": 3e-3, "num_train_epochs": 15}
    trainer = trainer_of(student, tmp_path / "teacher", tmp_path, **options)
    before = distance(trainer, teacher)
    trainer.train()
    assert distance(trainer, teacher) < 0.5 * before


def distance(trainer: DistillationTrainer, teacher: DocumentRanker) -> float:
    """The loss over many pairs, without dropout."""
    pairs = [WORLD.sampler()[number] for number in range(100)]
    named = [(WORLD.queries[pair.query], WORLD.documents[name]) for pair in pairs for name in pair.documents]
    own, theirs = (torch.tensor(model.score(named)).view(-1, 2) for model in (trainer.ranker, teacher))
    return float(trainer.loss(own, theirs).mean())


def test_a_teacher_reads_a_document_once(tiny_ranker: Rankers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teacher_scores, "PART_SCORES", 8)
    teacher = copy.deepcopy(tiny_ranker(MaxPForSequenceClassification, "avg"))
    read: list[int] = []
    read_pairs = teacher_scores.read_pairs

    def counted(model: Any, pairs: Any, *options: Any) -> Any:
        read.append(len(pairs))
        return read_pairs(model, pairs, *options)

    monkeypatch.setattr(teacher_scores, "read_pairs", counted)
    collator = PairCollator(teacher.require_processor(), WORLD.queries, WORLD.documents)
    pairs = [WORLD.sampler()[number] for number in range(40)]
    wanted = {(pair.query, name) for pair in pairs for name in pair.documents}
    TeacherScores(teacher, tmp_path, collator).compute(pairs[:10])
    begun = sum(read)
    # Another run, after an interruption, goes on where the first one stopped.
    scores = TeacherScores(teacher, tmp_path, collator)
    scores.compute(pairs)
    assert begun < len(wanted) == sum(read)
    TeacherScores(teacher, tmp_path, collator).compute(pairs)
    assert sum(read) == len(wanted)
    named = [(WORLD.queries[pair.query], WORLD.documents[name]) for pair in pairs for name in pair.documents]
    assert scores(pairs).flatten().tolist() == pytest.approx(teacher.score(named), abs=1e-5)
    # Another text under the same id, and another teacher, are read anew.
    changed = {**WORLD.documents, pairs[0].positive: {"id": pairs[0].positive, "text": "changed"}}
    other = PairCollator(teacher.require_processor(), WORLD.queries, changed)
    TeacherScores(teacher, tmp_path, other).compute(pairs[:1])
    assert sum(read) == len(wanted) + 1
    with torch.no_grad():
        next(iter(teacher.parameters())).add_(1)
    TeacherScores(teacher, tmp_path, collator).compute(pairs[:1])
    assert sum(read) == len(wanted) + 3


def test_pairs_of_texts(tiny_ranker: Rankers, tmp_path: Path) -> None:
    teacher = tiny_ranker(MaxPForSequenceClassification, "max")
    scores = TeacherScores(teacher, tmp_path, PairCollator(teacher.require_processor()))
    pair = TrainingPair("license", "the license of the work", "contributor")
    scores.compute([pair])
    expected = teacher.score([(pair.query, pair.positive), (pair.query, pair.negative)])
    assert scores([pair]).tolist()[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "hinge"}, "'distillation' or 'margin_mse' or 'listwise_distillation'"),
        ({"passage_level": True}, "whole documents"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(
    options: dict[str, Any], message: str, tiny_ranker: Rankers, tmp_path: Path
) -> None:
    teacher = tiny_ranker(MaxPForSequenceClassification, "max")
    with pytest.raises(InputError, match=message):
        trainer_of(copy.deepcopy(teacher), teacher, tmp_path, **options)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_damaged_scores_are_computed_again(
    damage: str, tiny_ranker: Rankers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    teacher = tiny_ranker(MaxPForSequenceClassification, "avg")
    collator = PairCollator(teacher.require_processor(), WORLD.queries, WORLD.documents)
    pairs = [WORLD.sampler()[number] for number in range(4)]
    whole = TeacherScores(teacher, tmp_path, collator)
    whole.compute(pairs)
    [part] = whole.folder.glob("part-*.json")
    content = part.read_bytes()
    digit = content.index(b".") + 1
    flipped = content[:digit] + bytes([content[digit] ^ 1]) + content[digit + 1 :]
    part.write_bytes({"truncated": content[:-20], "flipped": flipped, "empty": b""}[damage])
    again = TeacherScores(teacher, tmp_path, collator)
    assert f"{part} is damaged: its documents are scored again" in caplog.text
    assert not again.scores
    again.compute(pairs)
    assert again.scores == whole.scores
    assert TeacherScores(teacher, tmp_path, collator).scores == whole.scores
