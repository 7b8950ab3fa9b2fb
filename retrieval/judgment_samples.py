"""Samples of judgments, to find out how many a model needs: few queries with many judgments, or many with few.

Sample the judgments for training and validation; test on all judgments.
"""

import math
import random
from typing import Literal, TypeAlias, get_args

from .errors import InputError, check_choice
from .runs import Qrels

SampleStyle: TypeAlias = Literal["deep", "shallow"]
SAMPLE_STYLES: tuple[SampleStyle, ...] = get_args(SampleStyle)


def sample_judgments(qrels: Qrels, rate: float, style: SampleStyle, seed: int = 42) -> Qrels:
    """Keep exactly round(rate * M) of M judgments.

    `shallow` keeps ceil(rate * D) of each query's D judgments. `deep` keeps all judgments of ceil(rate * Q) of the Q
    queries, and of more queries if these have too few. Then judgments are dropped, one of each query in turn, until
    the number is right; a query loses its last judgment only when every query is down to one. So `shallow` keeps every
    query as long as round(rate * M) is at least Q.

    >>> qrels = {"q1": {"a": 1, "b": 0}, "q2": {"a": 0, "c": 2}}
    >>> [len(grades) for grades in sample_judgments(qrels, rate=0.5, style="shallow").values()]
    [1, 1]
    >>> [len(grades) for grades in sample_judgments(qrels, rate=0.5, style="deep").values()]
    [2]
    """
    check_choice(style, SAMPLE_STYLES, "style")
    if not 0 < rate <= 1:
        raise InputError(f"rate must be above 0 and at most 1, and is {rate}.")
    # Sorted first: the sample depends on the judgments and the seed, not on their order in a file.
    chance = random.Random(seed)
    shuffled = {query: _shuffled(sorted(qrels[query]), chance) for query in _shuffled(sorted(qrels), chance)}
    target = round(rate * sum(map(len, shuffled.values())))
    kept = _keep_queries(shuffled, rate, target) if style == "deep" else _keep_documents(shuffled, rate)
    _drop_to(target, kept)
    return {
        query: {document: grade for document, grade in grades.items() if document in documents}
        for query, grades in qrels.items()
        if (documents := set(kept.get(query, ())))
    }


def _shuffled(items: list[str], chance: random.Random) -> list[str]:
    chance.shuffle(items)
    return items


def _keep_documents(judged: dict[str, list[str]], rate: float) -> dict[str, list[str]]:
    return {query: documents[: math.ceil(rate * len(documents))] for query, documents in judged.items()}


def _keep_queries(judged: dict[str, list[str]], rate: float, target: int) -> dict[str, list[str]]:
    kept: dict[str, list[str]] = {}
    wanted, count = math.ceil(rate * len(judged)), 0
    for query, documents in judged.items():
        if len(kept) >= wanted and count >= target:
            break
        kept[query] = list(documents)
        count += len(documents)
    return kept


def _drop_to(target: int, kept: dict[str, list[str]]) -> None:
    """Drop the last document of each query in turn; documents are shuffled, so the last is a random one."""
    excess = sum(map(len, kept.values())) - target
    for spare in (1, 0):  # first down to one judgment for each query, then to none
        while excess and any(len(documents) > spare for documents in kept.values()):
            for documents in kept.values():
                if excess and len(documents) > spare:
                    documents.pop()
                    excess -= 1
