"""Training pairs, drawn from a first-stage run and judgments.

Pairs are numbered 0, 1, 2, ... without end; each epoch takes the next `pairs_per_epoch` of them. Pair n depends only on
the seed and n, so the number of processes and workers, or an interruption, does not change what a model is trained on.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from torch.utils.data import Dataset, Sampler
from transformers.utils import logging

from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import Qrels, Run, ranking

logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class TrainingPair:
    """A query, a relevant document and at least one negative.

    They are ids, or texts if the trainer gets neither queries nor documents.

    Example:
        >>> TrainingPair("q1", "d7", "d3").documents
        ('d7', 'd3')
    """

    query: str
    positive: str
    negative: str
    further: tuple[str, ...] = ()
    """Negatives after the first."""
    number: int = 0
    """The pair's number; it seeds what is drawn at random for the pair, such as passages."""
    relevant: frozenset[str] = field(default=frozenset(), repr=False)
    """All documents known to be relevant to the query: none of them becomes an in-batch negative."""

    @property
    def documents(self) -> tuple[str, ...]:
        """All documents of the pair, the relevant one first."""
        return (self.positive, self.negative, *self.further)


class PairDataset(Protocol):
    """Pairs by number, without end; `len` is the pairs of an epoch."""

    def __getitem__(self, number: int) -> TrainingPair: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class _Candidates:
    query: str
    positives: list[str]
    negatives: list[str]
    relevant: frozenset[str]
    """All that were judged relevant, retrieved or not."""


class PairSampler(Dataset[TrainingPair]):
    """Pairs drawn from the first-stage results of training queries.

    Positives are a query's retrieved documents that were judged relevant; negatives are all its other retrieved
    documents, judged or not. Every round goes through all queries in a newly shuffled order, so each query gives
    equally many pairs. A query's documents are drawn uniformly.

    Args:
        run: The first-stage run.
        qrels: The judgments; grades above 0 are relevant.
        query_ids: The training queries.
        pairs_per_epoch: Pairs in an epoch: `len` of the dataset; `None` is as many as there are positives.
        seed: Seed of all random draws.
        max_rank: How many top documents of each query are used.
        negative_ranks: First and last rank from which negatives are drawn; `None` is any.
        negatives: Negatives drawn for each positive.
        unretrieved_positives: Whether documents that were judged relevant are positives even if they were not
            retrieved.

    Example:
        >>> PairSampler({"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": 1}}, ["q"], pairs_per_epoch=4, seed=0)[0]
        TrainingPair(query='q', positive='a', negative='b', further=(), number=0)
    """

    def __init__(
        self,
        run: Run,
        qrels: Qrels,
        query_ids: Iterable[str],
        *,
        pairs_per_epoch: int | None,
        seed: int,
        max_rank: int = 1000,
        negative_ranks: tuple[int, int] | None = None,
        negatives: int = 1,
        unretrieved_positives: bool = False,
    ) -> None:
        if (pairs_per_epoch is not None and pairs_per_epoch < 1) or negatives < 1:
            raise InputError(f"pairs_per_epoch={pairs_per_epoch}, negatives={negatives}: both have to be at least 1.")
        self.seed = seed
        self.negatives = negatives
        ids = list(query_ids)
        window = negative_ranks or (1, max_rank)
        found = [
            _find_candidates(query, run.get(query, {}), qrels.get(query, {}), max_rank, window, unretrieved_positives)
            for query in ids
        ]
        self._queries = [candidates for candidates in found if candidates.positives and candidates.negatives]
        place = "" if unretrieved_positives else f" in its top {max_rank}"
        if not self._queries:
            raise InputError(
                f"none of the {len(ids)} training queries has both a relevant document{place} and "
                f"another document in ranks {window[0]} to {window[1]}: there are no pairs to train on."
            )
        if len(self._queries) < len(ids):
            logger.warning(
                f"{len(ids) - len(self._queries)} of {len(ids)} training queries give no pairs: they have no relevant "
                f"document{'' if unretrieved_positives else ' among those retrieved'}, or no other one."
            )
        self.pairs_per_epoch = pairs_per_epoch or sum(len(candidates.positives) for candidates in self._queries)

    def __len__(self) -> int:
        return self.pairs_per_epoch

    def __getitem__(self, number: int) -> TrainingPair:
        turn, position = divmod(number, len(self._queries))
        candidates = self._queries[shuffle_order(len(self._queries), self.seed, turn)[position]]
        draw = random.Random(f"pair {self.seed} {number}")
        positive = draw.choice(candidates.positives)
        negative, *further = draw_negatives(draw, candidates.negatives, self.negatives)
        return TrainingPair(candidates.query, positive, negative, tuple(further), number, candidates.relevant)


def _find_candidates(
    query: str,
    found: dict[str, float],
    grades: dict[str, int],
    max_rank: int,
    window: tuple[int, int],
    unretrieved_positives: bool,
) -> _Candidates:
    documents = ranking(found)[:max_rank]
    more = unretrieved_relevant(documents, grades) if unretrieved_positives else []
    return _Candidates(
        query,
        positives=[document for document in documents if grades.get(document, 0) > 0] + more,
        negatives=[document for document in documents[window[0] - 1 : window[1]] if grades.get(document, 0) <= 0],
        relevant=frozenset(document for document, grade in grades.items() if grade > 0),
    )


def unretrieved_relevant(documents: Sequence[str], grades: Mapping[str, int]) -> list[str]:
    """The documents that were judged relevant and are not in a list.

    Example:
        >>> unretrieved_relevant(["a", "b"], {"a": 1, "c": 2, "d": 0})
        ['c']
    """
    listed = set(documents)
    return [document for document, grade in grades.items() if grade > 0 and document not in listed]


@lru_cache(maxsize=2)
def shuffle_order(count: int, seed: int, turn: int) -> list[int]:
    """The order in which a round goes through queries or documents."""
    order = list(range(count))
    random.Random(f"turn {seed} {turn}").shuffle(order)
    return order


def draw_negatives(draw: random.Random, choices: list[str], count: int) -> list[str]:
    """Draw `count` of the choices, without replacement if there are enough."""
    return draw.sample(choices, count) if len(choices) >= count else draw.choices(choices, k=count)


class EpochSampler(Sampler[int]):
    """The numbers of an epoch's pairs, rounded up to whole optimizer steps.

    The last step of an epoch is filled with further pairs, and the next epoch continues after them, so every process
    gets equally many and no pair is used twice.

    Args:
        pairs_per_epoch: The least number of pairs in an epoch.
        step_pairs: Pairs of one optimizer step, over all processes.
        lengths: To put pairs of similar length together: a function from pair numbers to lengths.

    Example:
        >>> list(EpochSampler(5, step_pairs=2))
        [0, 1, 2, 3, 4, 5]
    """

    # Pairs are sorted by length within this many steps: few enough that their order stays random.
    STEPS_SORTED_TOGETHER = 50

    def __init__(self, pairs_per_epoch: int, step_pairs: int, lengths: LengthsOf | None = None) -> None:
        self.step_pairs = step_pairs
        self.pairs = -(-pairs_per_epoch // step_pairs) * step_pairs
        self.lengths = lengths
        self.epoch = 0

    @property
    def steps(self) -> int:
        """The optimizer steps of an epoch."""
        return self.pairs // self.step_pairs

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; Trainer calls this."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.pairs

    def __iter__(self) -> Iterator[int]:
        numbers = range(self.epoch * self.pairs, (self.epoch + 1) * self.pairs)
        return iter(numbers) if self.lengths is None else self._group_by_length(numbers, self.lengths)

    def _group_by_length(self, numbers: range, lengths_of: LengthsOf) -> Iterator[int]:
        together = self.step_pairs * self.STEPS_SORTED_TOGETHER
        for start in range(0, len(numbers), together):
            block = numbers[start : start + together]
            lengths = dict(zip(block, lengths_of(block), strict=True))
            by_length = sorted(block, key=lambda number: lengths[number], reverse=True)
            steps = [by_length[i : i + self.step_pairs] for i in range(0, len(by_length), self.step_pairs)]
            random.Random(f"steps {block[0]}").shuffle(steps)
            for step in steps:
                yield from step


class LengthsOf(Protocol):
    """Returns the lengths of the pairs with these numbers."""

    def __call__(self, numbers: range) -> list[int]: ...
