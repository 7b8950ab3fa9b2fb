"""`DistillationTrainer`: a student that learns from a teacher's scores, which are computed once."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import AutoModel
from transformers.trainer_utils import TrainOutput
from transformers.utils import logging

from docparade.modeling import DocumentRanker
from docparade.modeling.documents import Document
from docparade.modeling.engine import EncodeDocuments, read_pairs
from docparade.reranking import fingerprints
from docparade.reranking.processes import gather, hide_bar, place_among_processes
from docparade.reranking.rerank_run import as_float32
from docparade.reranking.resumable_parts import read_checked, write_checked
from docparade.retrieval.storage.files import make_folder

from .collator import PairCollator
from .pairs import TrainingPair
from .trainer import RankingTrainer, unwrap_ranker

logger = logging.get_logger(__name__)

# Pairs of a query and a document that are scored before what is known is written; and that are scored together.
PART_SCORES = 4096
SCORED_TOGETHER = 64

Wanted = tuple[str, str]
"""A query and a document, as a training pair names them."""


class TeacherScores:
    """A teacher's scores of the documents of training pairs, computed once and kept in a folder.

    They are found by the contents of query and document, under the teacher's fingerprint: another teacher, or another
    text under the same id, is scored anew. What was scored before an interruption is not scored again.

    Args:
        teacher: The ranker whose scores are learned.
        folder: Where they are kept.
        collator: Knows the texts behind the pairs' ids.
        encode_documents: In place of the teacher's processor's own, such as a `TokenCache`'s.
    """

    def __init__(
        self,
        teacher: DocumentRanker,
        folder: str | Path,
        collator: PairCollator,
        encode_documents: EncodeDocuments | None = None,
    ) -> None:
        self.teacher = teacher
        self.folder = Path(folder) / fingerprints.of_model(teacher)[:16]
        self.collator = collator
        self.encode_documents = encode_documents
        self.scores: dict[str, float] = {}
        self._keys: dict[Wanted, str] = {}
        self._documents: dict[str, bytes] = {}
        for part in sorted(self.folder.glob("part-*.json")):
            self.scores |= self._read(part)

    def _read(self, part: Path) -> dict[str, float]:
        scores = read_checked(part, self.folder.name)
        if scores is None:
            logger.warning(f"{part} is damaged: its documents are scored again.")
        return scores or {}

    def compute(self, pairs: Iterable[TrainingPair], device: torch.device | str = "cpu") -> None:
        """Score what is missing. In a process group, all of its processes call this, and share the work."""
        make_folder(self.folder)
        missing = self._missing(pairs)
        module = cast(nn.Module, self.teacher)
        rank, _ = place_among_processes()
        bar = tqdm(desc="Teacher", unit=" documents", disable=hide_bar(None))
        while part := list(islice(missing, PART_SCORES)):
            module.to(device)
            scores = self._score(part)
            if rank == 0:
                numbers = [int(part.stem.removeprefix("part-")) for part in self.folder.glob("part-*.json")]
                path = self.folder / f"part-{max(numbers, default=-1) + 1:06}.json"
                write_checked(path, scores, self.folder.name)
            self.scores |= scores
            bar.update(len(part))
        bar.close()
        # Its place on the device is the student's now.
        module.to("cpu")

    def __call__(self, pairs: Sequence[TrainingPair]) -> Tensor:
        """The scores of pairs' documents, `(pairs, candidates)`."""
        return torch.tensor([[self.scores[self._key(pair.query, name)] for name in pair.documents] for pair in pairs])

    def __getstate__(self) -> dict[str, Any]:
        # Workers that build batches look scores up, and have no use for the teacher itself.
        return {**self.__dict__, "teacher": None, "encode_documents": None}

    def _missing(self, pairs: Iterable[TrainingPair]) -> Iterator[Wanted]:
        asked: set[str] = set()
        for pair in pairs:
            for name in pair.documents:
                key = self._key(pair.query, name)
                if key not in self.scores and key not in asked:
                    asked.add(key)
                    yield pair.query, name

    def _score(self, wanted: list[Wanted]) -> dict[str, float]:
        """Scores by key; each process takes every so many-th group, and gets those of the others."""
        rank, processes = place_among_processes()
        groups = [wanted[start : start + SCORED_TOGETHER] for start in range(0, len(wanted), SCORED_TOGETHER)]
        mine: dict[str, float] = {}
        for group in groups[rank::processes]:
            fields = self.collator.document_fields(list(dict.fromkeys(name for _, name in group)))
            texts = [(self.collator.query_text(query), fields[name]) for query, name in group]
            readings = read_pairs(self.teacher, texts, progress=False, encode_documents=self.encode_documents)
            for (query, name), reading in zip(group, readings, strict=True):
                mine[self._key(query, name)] = as_float32(reading.score)
        return {key: score for share in gather(mine) for key, score in share.items()}

    def _key(self, query: str, name: str) -> str:
        if (query, name) not in self._keys:
            if name not in self._documents:
                fields = self.collator.document_fields([name])[name]
                self._documents[name] = fingerprints.of_document(Document.of(fields, f"document {name}"))
            text = self.collator.query_text(query).encode()
            self._keys[query, name] = hashlib.blake2b(text, digest_size=16, salt=self._documents[name]).hexdigest()
        return self._keys[query, name]


@dataclass(frozen=True)
class _WithTeacher:
    """Batches with the teacher's scores beside them."""

    collator: PairCollator
    scores: TeacherScores

    def __call__(self, pairs: Sequence[TrainingPair]) -> dict[str, Tensor]:
        return {**self.collator(pairs), "teacher_scores": self.scores(pairs)}

    def document_fields(self, names: Sequence[str]) -> dict[str, Any]:
        """The contents of pairs' documents."""
        return self.collator.document_fields(names)


class DistillationTrainer(RankingTrainer):
    """Trains a student with a teacher's scores beside the judgments (Li et al., 2023, section 5.3).

    Args:
        model: The student: any ranker, also one made with `take_layers`.
        args: As for `RankingTrainer`; `loss` is `distillation` or `margin_mse`.
        *data: As for `RankingTrainer`.
        teacher: A ranker, or the folder or Hub id of one.
        teacher_encode_documents: In place of the teacher's processor's own, such as a `TokenCache`'s.
        scores_folder: Where the teacher's scores are kept; `None` is in the output folder. Trainings may share one.
        **options: As for `RankingTrainer`.

    Example:
        ```python
        student = take_layers(teacher, [0, 2, 4])
        DistillationTrainer(student, args, pairs, queries, documents, teacher=teacher).train()
        ```
    """

    learns_from_teacher = True

    def __init__(
        self,
        model: Any,
        args: Any,
        *data: Any,
        teacher: DocumentRanker | str | Path,
        teacher_encode_documents: EncodeDocuments | None = None,
        scores_folder: str | Path | None = None,
        **options: Any,
    ) -> None:
        super().__init__(model, args, *data, **options)
        loaded = (
            AutoModel.from_pretrained(teacher, trust_remote_code=False) if isinstance(teacher, (str, Path)) else teacher
        )
        folder = scores_folder or self.folder / "teacher_scores"
        self.teacher_scores = TeacherScores(unwrap_ranker(loaded), folder, self.data_collator, teacher_encode_documents)
        self.data_collator = _WithTeacher(self.data_collator, self.teacher_scores)

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        """Score all pairs of the training with the teacher, where that is not done yet, and train."""
        self.teacher_scores.compute(self._all_pairs(), self.args.device)
        return super().train(resume_from_checkpoint, trial, ignore_keys_for_eval)

    def _all_pairs(self) -> Iterator[TrainingPair]:
        sampler = self._get_train_sampler()
        steps = self.args.max_steps
        if steps < 0:
            steps = math.ceil(self.args.num_train_epochs * len(sampler) / sampler.step_pairs)
        epochs = math.ceil(steps * sampler.step_pairs / len(sampler))
        return (self.train_dataset[number] for number in range(epochs * len(sampler)))
