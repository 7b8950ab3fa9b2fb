"""In-batch negatives: the documents of a batch's other queries are further negatives of a query.

Only a bi-encoder can use them at no cost: it reads each document once, and compares its vectors with every query.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import torch
from torch import Tensor

from .pairs import TrainingPair

NONE = -1
"""Fills the rows of shorter lists of candidates."""


def number_documents(contents: Mapping[str, Hashable]) -> dict[str, int]:
    """Number documents from 0; those with equal contents get the same number.

    Example:
        >>> number_documents({"a": "rain", "b": "snow", "c": "rain"})
        {'a': 0, 'b': 1, 'c': 0}
    """
    numbers = {content: number for number, content in enumerate(dict.fromkeys(contents.values()))}
    return {name: numbers[content] for name, content in contents.items()}


def list_candidates(pairs: Sequence[TrainingPair], numbers: Mapping[str, int]) -> Tensor:
    """For each pair, the numbers of the documents that its query is compared with, `(pairs, documents)`.

    First come the pair's own documents, the relevant one first, then the batch's other documents. Documents that are
    known to be relevant to the query are left out: the positives of its other pairs, and the pair's `relevant`. A
    document counts once, under whatever ids. Rows are filled up with `NONE`.

    Example:
        >>> pairs = [TrainingPair("q1", "a", "b"), TrainingPair("q2", "c", "d", relevant=frozenset("b"))]
        >>> list_candidates(pairs, {"a": 0, "b": 1, "c": 2, "d": 3})
        tensor([[ 0,  1,  2,  3],
                [ 2,  3,  0, -1]])
    """
    relevant: dict[str, set[int]] = {}
    for pair in pairs:
        known = (numbers[name] for name in (pair.positive, *pair.relevant) if name in numbers)
        relevant.setdefault(pair.query, set()).update(known)
    rows = []
    for pair in pairs:
        own = [numbers[name] for name in pair.documents]
        left_out = relevant[pair.query].union(own)
        rows.append([*own, *(number for number in dict.fromkeys(numbers.values()) if number not in left_out)])
    longest = max(map(len, rows))
    return torch.tensor([row + [NONE] * (longest - len(row)) for row in rows])
