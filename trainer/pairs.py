"""Training pairs: drawn from a first-stage run and judgments, the same on any number of processes.

Pairs are numbered from 0 without end; an epoch is the next so many of them. What pair number n is depends on the seed
and on n alone, so that neither processes nor workers nor an interruption change what a model learns from.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from torch.utils.data import Dataset, Sampler
from transformers.utils import logging

from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import Qrels, Run, ranking

logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class TrainingPair:
    """A query, a relevant document and one that is not: ids, or texts where no lookup is given to the trainer.

    Example:
        >>> TrainingPair("q1", "d7", "d3").documents
        ('d7', 'd3')
    """

    query: str
    positive: str
    negative: str
    further: tuple[str, ...] = ()
    """Negatives beside the first."""
    number: int = 0
    """The pair's own number: what is drawn for it at random, such as passages, depends on it."""

    @property
    def documents(self) -> tuple[str, ...]:
        """The candidates, the relevant one first."""
        return (self.positive, self.negative, *self.further)


class PairDataset(Protocol):
    """Pairs by their numbers, without end; `len` is an epoch."""

    def __getitem__(self, number: int) -> TrainingPair: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class _Candidates:
    query: str
    positives: list[str]
    negatives: list[str]


class PairSampler(Dataset[TrainingPair]):
    """Pairs drawn from the first-stage lists of training queries.

    Positives are documents of a query's list that were judged relevant; negatives are all others of the list, judged or
    not. Queries take turns, in an order that is shuffled anew for each round, so that each has its share; a query's
    documents are drawn uniformly.

    Args:
        run: The first-stage lists.
        qrels: The judgments; grades above 0 are relevant.
        query_ids: The training queries.
        pairs_per_epoch: How many pairs an epoch has: `len` of the dataset.
        seed: Of all that is drawn.
        max_rank: How many first documents of a list are used.
        negative_ranks: First and last rank from which negatives are drawn; `None` is any.
        negatives: How many negatives are drawn against each positive.

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
        pairs_per_epoch: int,
        seed: int,
        max_rank: int = 1000,
        negative_ranks: tuple[int, int] | None = None,
        negatives: int = 1,
    ) -> None:
        if pairs_per_epoch < 1 or negatives < 1:
            raise InputError(f"pairs_per_epoch={pairs_per_epoch}, negatives={negatives}: both have to be at least 1.")
        self.pairs_per_epoch = pairs_per_epoch
        self.seed = seed
        self.negatives = negatives
        asked = list(query_ids)
        window = negative_ranks or (1, max_rank)
        drawn = [_candidates(query, run.get(query, {}), qrels.get(query, {}), max_rank, window) for query in asked]
        self._queries = [candidates for candidates in drawn if candidates.positives and candidates.negatives]
        if not self._queries:
            raise InputError(
                f"not one of the {len(asked)} training queries has both a relevant document in the first {max_rank} of "
                f"its list and another in ranks {window[0]} to {window[1]}: there is nothing to learn from."
            )
        if len(self._queries) < len(asked):
            logger.warning(
                f"{len(asked) - len(self._queries)} of {len(asked)} training queries give no pairs: their lists hold "
                f"no relevant document, or no other one."
            )

    def __len__(self) -> int:
        return self.pairs_per_epoch

    def __getitem__(self, number: int) -> TrainingPair:
        turn, place = divmod(number, len(self._queries))
        candidates = self._queries[_shuffled(len(self._queries), self.seed, turn)[place]]
        draw = random.Random(f"pair {self.seed} {number}")
        positive = draw.choice(candidates.positives)
        negative, *further = draw_some(draw, candidates.negatives, self.negatives)
        return TrainingPair(candidates.query, positive, negative, tuple(further), number)


def _candidates(
    query: str, found: dict[str, float], grades: dict[str, int], max_rank: int, window: tuple[int, int]
) -> _Candidates:
    documents = ranking(found)[:max_rank]
    return _Candidates(
        query,
        positives=[document for document in documents if grades.get(document, 0) > 0],
        negatives=[document for document in documents[window[0] - 1 : window[1]] if grades.get(document, 0) <= 0],
    )


@lru_cache(maxsize=2)
def _shuffled(count: int, seed: int, turn: int) -> list[int]:
    order = list(range(count))
    random.Random(f"turn {seed} {turn}").shuffle(order)
    return order


def draw_some(draw: random.Random, choices: list[str], count: int) -> list[str]:
    """So many of the choices, each at most once where there are enough of them."""
    return draw.sample(choices, count) if len(choices) >= count else draw.choices(choices, k=count)


class EpochSampler(Sampler[int]):
    """The numbers of an epoch's pairs, one epoch after the other, in whole optimizer steps.

    The last step of an epoch is filled up with more pairs, and the next epoch goes on after them: each process has as
    many, and no pair counts twice.

    Args:
        pairs_per_epoch: How many pairs an epoch has at least.
        step_pairs: Pairs of one optimizer step, over all processes.
        lengths: Where pairs of like length go together: gives the lengths of pairs by their numbers.

    Example:
        >>> list(EpochSampler(5, step_pairs=2))
        [0, 1, 2, 3, 4, 5]
    """

    # Steps that are sorted by length together; few enough that the order of pairs stays random.
    STEPS_SORTED_TOGETHER = 50

    def __init__(self, pairs_per_epoch: int, step_pairs: int, lengths: LengthsOf | None = None) -> None:
        self.step_pairs = step_pairs
        self.pairs = -(-pairs_per_epoch // step_pairs) * step_pairs
        self.lengths = lengths
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Go to an epoch; Trainer calls it."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.pairs

    def __iter__(self) -> Iterator[int]:
        numbers = range(self.epoch * self.pairs, (self.epoch + 1) * self.pairs)
        return iter(numbers) if self.lengths is None else self._grouped(numbers, self.lengths)

    def _grouped(self, numbers: range, lengths_of: LengthsOf) -> Iterator[int]:
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
    """Gives the lengths of pairs, by their numbers."""

    def __call__(self, numbers: range) -> list[int]: ...
