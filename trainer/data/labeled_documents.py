"""Training examples of one document each: all documents of the training queries' lists, with their own labels.

Relevant documents are as frequent as they are in the lists, where pairs have one for each negative. Like pairs,
examples are numbered without end, and example n depends only on the seed and n: the examples of a first pass come in
random order, then the second pass has another order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch.utils.data import Dataset
from transformers.utils import logging

from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import Qrels, Run, ranking

from .pairs import TrainingPair, shuffle_order, unretrieved_relevant
from .triples import check_file, read_triples

logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class LabeledDocument:
    """A query and one document, as ids or texts, with the document's label.

    Example:
        >>> LabeledDocument("q1", "d7", label=1).documents
        ('d7',)
    """

    query: str
    document: str
    label: int
    """1 for a relevant document, 0 for any other."""
    number: int = 0
    """The example's number; it seeds what is drawn at random for it, such as passages."""

    @property
    def documents(self) -> tuple[str, ...]:
        """The document, as `TrainingPair.documents`."""
        return (self.document,)


TrainingExample = TrainingPair | LabeledDocument
"""What a batch is made of."""


class LabeledDocuments(Dataset[LabeledDocument]):
    """Labeled documents by number; an epoch is one pass over all of them.

    Args:
        examples: Queries and documents, as ids or texts, with labels.
        seed: Seed of the order.
        examples_per_epoch: Examples in an epoch: `len` of the dataset; `None` is all.

    Example:
        >>> run, qrels = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}, {"q": {"a": 1, "b": -1}}
        >>> examples = LabeledDocuments.from_run(run, qrels, ["q"], seed=0)
        >>> sorted((examples[number].document, examples[number].label) for number in range(len(examples)))
        [('a', 1), ('b', 0), ('c', 0)]
    """

    def __init__(
        self, examples: Sequence[tuple[str, str, int]], *, seed: int, examples_per_epoch: int | None = None
    ) -> None:
        if {label for _, _, label in examples} != {0, 1}:
            raise InputError(
                "the training examples have to be relevant documents and others, and there are only documents of one "
                "kind, or none."
            )
        if examples_per_epoch is not None and examples_per_epoch < 1:
            raise InputError(f"examples_per_epoch={examples_per_epoch}: has to be at least 1.")
        self.examples = examples
        self.seed = seed
        self.examples_per_epoch = examples_per_epoch or len(examples)

    @classmethod
    def from_run(
        cls,
        run: Run,
        qrels: Qrels,
        query_ids: Iterable[str],
        *,
        seed: int,
        max_rank: int = 1000,
        unretrieved_positives: bool = False,
        examples_per_epoch: int | None = None,
    ) -> LabeledDocuments:
        """Every document of the training queries' lists; what was not judged relevant is not relevant.

        A query without any judgments is left out.

        Args:
            run: The first-stage run.
            qrels: The judgments; grades above 0 are relevant.
            query_ids: The training queries.
            seed: Seed of the order.
            max_rank: How many top documents of each query are used.
            unretrieved_positives: Whether documents that were judged relevant are used even if they were not retrieved.
            examples_per_epoch: As for the class.
        """
        ids = list(query_ids)
        examples: list[tuple[str, str, int]] = []
        empty = 0
        for query in ids:
            grades = qrels.get(query, {})
            documents = ranking(run.get(query, {}))[:max_rank] if grades else []
            used = documents + (unretrieved_relevant(documents, grades) if unretrieved_positives else [])
            examples += [(query, document, int(grades.get(document, 0) > 0)) for document in used]
            empty += not used
        if empty:
            logger.warning(
                f"{empty} of {len(ids)} training queries give no examples: nothing was judged or retrieved for them."
            )
        return cls(examples, seed=seed, examples_per_epoch=examples_per_epoch)

    @classmethod
    def from_files(
        cls, paths: Sequence[str | Path], *, seed: int, examples_per_epoch: int | None = None
    ) -> LabeledDocuments:
        """The texts in files of triples, as `Triples.from_files` reads them; a text counts once for a query.

        All of them are kept in memory. A text that is both positive and negative for a query is relevant.
        """
        labels: dict[tuple[str, str], int] = {}
        for path in paths:
            check_file(path)
            for row in read_triples(path):
                labels[row.query, row.positive] = 1
                for text in row.negatives:
                    labels.setdefault((row.query, text), 0)
        examples = [(query, text, label) for (query, text), label in labels.items()]
        return cls(examples, seed=seed, examples_per_epoch=examples_per_epoch)

    def __len__(self) -> int:
        return self.examples_per_epoch

    def __getitem__(self, number: int) -> LabeledDocument:
        turn, position = divmod(number, len(self.examples))
        return LabeledDocument(*self.examples[shuffle_order(len(self.examples), self.seed, turn)[position]], number)
