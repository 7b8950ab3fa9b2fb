"""`DistillationTrainer`: trains a student on a teacher's scores, which are computed once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torch import nn
from transformers import TrainerCallback

from docparade.modeling import DocumentRanker
from docparade.modeling.engine import EncodeDocuments
from docparade.reranking.caches.document_lookup import Documents
from docparade.reranking.caches.vector_cache import VectorCache
from docparade.reranking.loading import load_ranker
from docparade.reranking.query_set import QuerySet
from docparade.retrieval.errors import InputError
from docparade.trainer.data.labeled_documents import LabeledDocuments, TrainingExample
from docparade.trainer.data.pairs import PairDataset

from .arguments import RankingTrainingArguments
from .saving_trainer import unwrap_ranker
from .teacher_scores import TeacherCollator, TeacherScores
from .trainer import RankingTrainer


class DistillationTrainer(RankingTrainer):
    """Trains a student on the judgments and a teacher's scores (Li et al., 2023, section 5.3).

    Args:
        model: The student: any ranker, such as one made with `take_layers`.
        args: As for `RankingTrainer`; `loss` is one that learns from a teacher, such as `margin_mse`.
        train_dataset: As for `RankingTrainer`, like `queries`, `documents`, `validation`, `encode_documents`, `vectors`
            and `callbacks`.
        teacher: A ranker, or the folder or Hub id of one.
        teacher_encode_documents: Replaces the method of the teacher's processor, such as a `TokenCache`'s.
        scores_folder: The folder for the teacher's scores, which several trainings may share; `None` is a folder inside
            the output folder.

    Example:
        ```python
        student = take_layers(teacher, [0, 2, 4])
        DistillationTrainer(student, args, pairs, queries, documents, teacher=teacher).train()
        ```
    """

    learns_from_teacher = True

    def __init__(
        self,
        model: DocumentRanker | nn.Module,
        args: RankingTrainingArguments,
        train_dataset: PairDataset | LabeledDocuments,
        queries: Mapping[str, str] | None = None,
        documents: Documents | None = None,
        validation: QuerySet | Sequence[QuerySet] | None = None,
        *,
        teacher: DocumentRanker | nn.Module | str | Path,
        teacher_encode_documents: EncodeDocuments | None = None,
        scores_folder: str | Path | None = None,
        encode_documents: EncodeDocuments | None = None,
        vectors: VectorCache | None = None,
        callbacks: list[TrainerCallback] | None = None,
    ) -> None:
        if vectors is not None and documents is None:
            raise InputError("the teacher reads the documents' texts: give documents besides vectors.")
        super().__init__(
            model,
            args,
            train_dataset,
            queries,
            documents,
            validation,
            encode_documents=encode_documents,
            vectors=vectors,
            callbacks=callbacks,
        )
        loaded = load_ranker(str(teacher), "teacher") if isinstance(teacher, (str, Path)) else unwrap_ranker(teacher)
        folder = scores_folder or self.folder / "teacher_scores"
        self.teacher_scores = TeacherScores(loaded, folder, self.data_collator, teacher_encode_documents)
        self.data_collator = TeacherCollator(self.data_collator, self.teacher_scores)

    def _prepare_training(self) -> None:
        """Score all pairs of the training with the teacher, except those that are scored already."""
        self.teacher_scores.compute(self._iterate_pairs(), self.args.device)

    def _iterate_pairs(self) -> Iterator[TrainingExample]:
        """All pairs of the whole training."""
        sampler = self.build_sampler()
        steps = self.args.max_steps
        if steps < 0:
            steps = math.ceil(self.args.num_train_epochs * sampler.steps)
        epochs = math.ceil(steps / sampler.steps)
        return (self.train_dataset[number] for number in range(epochs * len(sampler)))
