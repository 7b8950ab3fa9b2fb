"""Folds of queries for cross-validation: made from a seed, or read from fold files of Capreolus and Anserini."""

import json
import logging
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from .errors import InputError
from .storage.files import atomic_write, is_text, open_text

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fold:
    """Query ids to train on, to choose a model on (dev) and to test on; no query is in two of them."""

    train: tuple[str, ...]
    dev: tuple[str, ...]
    test: tuple[str, ...]


Folds: TypeAlias = dict[str, Fold]
"""fold name -> fold; no query is in the test part of two folds"""
Deciding: TypeAlias = Literal["train", "dev", "train+dev"]
"""which of a fold's queries choose weights or parameters"""
DECIDING: tuple[Deciding, ...] = get_args(Deciding)


def k_folds(queries: Iterable[str], k: int = 5, seed: int = 42, dev: bool = True) -> Folds:
    """Split the queries into k parts; fold i tests on part i, its dev part is the next one, and it trains on the rest.

    The folds depend on the queries and the seed, not on the order of the queries. With k = 2, or without `dev`, the dev
    part is empty, and all parts but one are trained on; the test parts are the same.

    >>> fold = k_folds(["q1", "q2", "q3", "q4", "q5"], k=5)["s1"]
    >>> len(fold.train), len(fold.dev), len(fold.test)
    (3, 1, 1)
    """
    ids = sorted(queries)
    _check_unique(ids)
    if not 2 <= k <= len(ids):
        raise InputError(f"the number of folds must be from 2 to the number of queries, {len(ids)}, and is {k}.")
    random.Random(seed).shuffle(ids)
    return _folds_of_parts([tuple(ids[start::k]) for start in range(k)], dev)


def _folds_of_parts(parts: list[tuple[str, ...]], dev: bool = True) -> Folds:
    folds = {}
    for number in range(len(parts)):
        following = (number + 1) % len(parts) if dev and len(parts) > 2 else None
        train = tuple(query for i, part in enumerate(parts) if i not in (number, following) for query in part)
        folds[f"s{number + 1}"] = Fold(train, () if following is None else parts[following], parts[number])
    return folds


def leave_one_out(collections: Mapping[str, Iterable[str]], dev_share: float = 0.1, seed: int = 42) -> Folds:
    """One fold for each collection: test on it, train on all others except for a random share of dev queries.

    >>> leave_one_out({"2011": ["MB001"], "2012": ["MB051"], "2013": ["MB111"]})["2013"].test
    ('MB111',)
    """
    if len(collections) < 2:
        raise InputError(f"leaving one collection out needs at least 2 collections; given: {len(collections)}.")
    if not 0 <= dev_share < 1:
        raise InputError(f"dev_share must be at least 0 and less than 1, and is {dev_share}.")
    ids = {name: sorted(queries) for name, queries in collections.items()}
    _check_unique([query for queries in ids.values() for query in queries])
    folds = {}
    for name, test in ids.items():
        others = [query for other, queries in ids.items() if other != name for query in queries]
        random.Random(seed).shuffle(others)
        count = round(dev_share * len(others))
        folds[name] = Fold(tuple(others[count:]), tuple(others[:count]), tuple(test))
    return folds


def deciding_queries(fold: Fold, deciding: Deciding) -> tuple[str, ...]:
    """A fold's queries that choose weights or parameters.

    >>> deciding_queries(Fold(train=("1", "2"), dev=("3",), test=("4",)), "train+dev")
    ('1', '2', '3')
    """
    parts = {"train": fold.train, "dev": fold.dev, "train+dev": (*fold.train, *fold.dev)}
    return parts[deciding]


def read_folds(path: str | Path) -> Folds:
    """Read a fold file of Capreolus: `{"s1": {"train_qids": [...], "predict": {"dev": [...], "test": [...]}}, ...}`.

    Anserini's fold files are lists of the test queries of each fold, `[["302", "303"], ["301", "308"], ...]`; the other
    parts are as in `k_folds`. A query that stands twice in one part is used once, with a warning.

    ```python
    folds = read_folds("rob04_cedr_folds.json")
    ```
    """
    with open_text(path) as file:
        text = file.read()
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON ({error.msg}).") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or thousands of nested brackets
        raise InputError(f"{path}: not JSON ({error}).") from error
    if isinstance(content, list) and len(content) > 1:
        parts = [_part_of(entry, f"{path}, list {number}") for number, entry in enumerate(content, start=1)]
        folds = _folds_of_parts(parts)
    elif isinstance(content, dict) and content:
        if not all(map(is_text, content)):
            raise InputError(f"{path}: the name of a fold has half a character (a lone surrogate such as \\ud800).")
        folds = {name: _fold_of(entry, f"{path}, fold {name}") for name, entry in content.items()}
    else:
        raise InputError(
            f"{path}: a fold file is a JSON object with one entry for each fold, or a list of two or more lists of "
            "query ids."
        )
    _check_unique([query for fold in folds.values() for query in fold.test], f"{path}: the test parts: ")
    return folds


def write_folds(folds: Folds, path: str | Path) -> None:
    """Write a fold file that `read_folds` and Capreolus read.

    >>> folds = k_folds(["q1", "q2", "q3"], k=3)
    >>> write_folds(folds, "folds.json")
    >>> read_folds("folds.json") == folds
    True
    """
    content = {
        name: {"train_qids": list(fold.train), "predict": {"dev": list(fold.dev), "test": list(fold.test)}}
        for name, fold in folds.items()
    }
    with atomic_write(path) as file:
        json.dump(content, file, indent=1, ensure_ascii=False)
        file.write("\n")


def _fold_of(entry: object, place: str) -> Fold:
    try:
        named = {
            "train_qids": entry["train_qids"],  # type: ignore[index]
            "predict.dev": entry["predict"]["dev"],  # type: ignore[index]
            "predict.test": entry["predict"]["test"],  # type: ignore[index]
        }
    except (KeyError, TypeError):
        raise InputError(f"{place}: needs train_qids, predict.dev and predict.test.") from None
    parts = [_part_of(part, f"{place}, {name}") for name, part in named.items()]
    _check_unique([query for part in parts for query in part], f"{place}: ")
    return Fold(*parts)


def _part_of(queries: object, place: str) -> tuple[str, ...]:
    """The queries of one part, each once: the fold files that are in use repeat some, which changes nothing."""
    if not isinstance(queries, list) or not all(is_text(query) for query in queries):
        raise InputError(f"{place}: is not a list of query ids as strings.")
    unique = tuple(dict.fromkeys(queries))
    if len(unique) < len(queries):
        repeated = next(query for query in unique if queries.count(query) > 1)
        logger.warning(
            "%s: %d of %d query ids occur a second time, such as %s; each is used once.",
            place,
            len(queries) - len(unique),
            len(queries),
            repeated,
        )
    return unique


def _check_unique(queries: list[str], place: str = "") -> None:
    seen: set[str] = set()
    for query in queries:
        if query in seen:
            raise InputError(f"{place}query {query} occurs twice; a query belongs to one part.")
        seen.add(query)
