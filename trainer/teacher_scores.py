"""`TeacherScores`: a teacher's scores of training documents, computed once and stored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.utils import logging

from docparade.modeling import DocumentRanker
from docparade.modeling.documents import Document
from docparade.modeling.engine import EncodeDocuments, read_pairs
from docparade.reranking.caches.fingerprints import fingerprint_model, hash_document
from docparade.reranking.processes.process_group import gather_shares, is_main_process, should_hide_bar, take_share
from docparade.reranking.processes.resumable_work import read_checked, write_checked
from docparade.reranking.rerank_run import as_float32
from docparade.retrieval.progress import show_progress
from docparade.retrieval.storage.files import make_folder
from docparade.trainer.data.collator import PairCollator
from docparade.trainer.data.labeled_documents import TrainingExample

logger = logging.get_logger(__name__)

# Scores in one file, and in one group, which a process scores at a time.
PART_SCORES = 4096
GROUP_SCORES = 64

QueryDocument = tuple[str, str]
"""A query and a document, as in a training pair: ids or texts."""


class TeacherScores:
    """A teacher's scores of the documents of training pairs, computed once and stored in a folder.

    They are stored by the contents of query and document, under the teacher's fingerprint: with another teacher, or
    another text under the same id, they are computed again. After an interruption, finished scores are not.

    Args:
        teacher: The ranker to learn from.
        folder: The folder for the scores.
        collator: Looks up the texts of pairs.
        encode_documents: Replaces the method of the teacher's processor, such as a `TokenCache`'s.
    """

    def __init__(
        self,
        teacher: DocumentRanker,
        folder: str | Path,
        collator: PairCollator,
        encode_documents: EncodeDocuments | None = None,
    ) -> None:
        self.teacher = teacher
        self.folder = Path(folder) / fingerprint_model(teacher)[:16]
        self.collator = collator
        self.encode_documents = encode_documents
        self.scores: dict[str, float] = {}
        self._keys: dict[QueryDocument, str] = {}
        self._documents: dict[str, bytes] = {}
        for part in sorted(self.folder.glob("part-*.json")):
            self.scores |= self._read_part(part)

    def _read_part(self, part: Path) -> dict[str, float]:
        scores = read_checked(part, self.folder.name)
        if scores is None:
            logger.warning(f"{part} is damaged: its documents are scored again.")
        return scores or {}

    def compute(self, pairs: Iterable[TrainingExample], device: torch.device | str = "cpu") -> None:
        """Score what is missing. In a process group, all processes must call this; they share the work."""
        make_folder(self.folder)
        missing = self._find_missing(pairs)
        module = cast(nn.Module, self.teacher)
        bar = show_progress(desc="Teacher", unit=" documents", hide=should_hide_bar(None))
        while part := list(islice(missing, PART_SCORES)):
            module.to(device)
            scores = self._score(part)
            if is_main_process():
                numbers = [int(file.stem.removeprefix("part-")) for file in self.folder.glob("part-*.json")]
                path = self.folder / f"part-{max(numbers, default=-1) + 1:06}.json"
                write_checked(path, scores, self.folder.name)
            self.scores |= scores
            bar.update(len(part))
        bar.close()
        # Free the device's memory for the student.
        module.to("cpu")

    def __call__(self, pairs: Sequence[TrainingExample]) -> Tensor:
        """Look up the scores of pairs' documents; the shape is `(pairs, documents of a pair)`."""
        return torch.tensor([[self.scores[self._key(pair.query, name)] for name in pair.documents] for pair in pairs])

    def __getstate__(self) -> dict[str, Any]:
        # The workers of a DataLoader look scores up, and do not need the teacher.
        return {**self.__dict__, "teacher": None, "encode_documents": None}

    def _find_missing(self, pairs: Iterable[TrainingExample]) -> Iterator[QueryDocument]:
        seen: set[str] = set()
        for pair in pairs:
            for name in pair.documents:
                key = self._key(pair.query, name)
                if key not in self.scores and key not in seen:
                    seen.add(key)
                    yield pair.query, name

    def _score(self, missing: list[QueryDocument]) -> dict[str, float]:
        """Compute scores by key; the processes share the groups, and each gets all scores."""
        groups = [missing[start : start + GROUP_SCORES] for start in range(0, len(missing), GROUP_SCORES)]
        scores = [self._score_group(group) for group in take_share(groups)]
        return {key: score for group in gather_shares(scores) for key, score in group.items()}

    def _score_group(self, group: list[QueryDocument]) -> dict[str, float]:
        fields = self.collator.document_fields(list(dict.fromkeys(name for _, name in group)))
        texts = [(self.collator.query_text(query), fields[name]) for query, name in group]
        readings = read_pairs(self.teacher, texts, progress=False, encode_documents=self.encode_documents)
        return {
            self._key(query, name): as_float32(reading.model_score)
            for (query, name), reading in zip(group, readings, strict=True)
        }

    def _key(self, query: str, name: str) -> str:
        """The key of a score: a hash of the contents of query and document."""
        if (query, name) not in self._keys:
            if name not in self._documents:
                fields = self.collator.document_fields([name])[name]
                self._documents[name] = hash_document(Document.of(fields, f"document {name}"))
            text = self.collator.query_text(query).encode()
            self._keys[query, name] = hashlib.blake2b(text, digest_size=16, salt=self._documents[name]).hexdigest()
        return self._keys[query, name]


@dataclass(frozen=True)
class TeacherCollator:
    """Adds the teacher's scores to the batches of a collator."""

    collator: PairCollator
    scores: TeacherScores

    def __call__(self, pairs: Sequence[TrainingExample]) -> dict[str, Tensor]:
        """Build a batch with `teacher_scores`."""
        return {**self.collator(pairs), "teacher_scores": self.scores(pairs)}

    def lengths(self, names: Sequence[str]) -> dict[str, int]:
        """The lengths of documents."""
        return self.collator.lengths(names)
