"""The folds that a recipe asks for, and the queries that it holds out for validation."""

from __future__ import annotations

import random
from collections.abc import Iterable

from docparade.experiments.recipes.data_recipe import DataRecipe, FoldsRecipe
from docparade.experiments.recipes.typed_values import check_name
from docparade.reranking.query_set import QuerySet
from docparade.retrieval.collections.catalog import load_collection
from docparade.retrieval.errors import InputError, errors_at
from docparade.retrieval.folds import Fold, Folds, k_folds, leave_one_out, read_folds


def make_folds(data: DataRecipe, queries: QuerySet, place: str) -> Folds:
    """The folds that a section asks for, made of the queries that have judgments.

    Args:
        data: The recipe's section.
        queries: Its query set.
        place: The section's place, for errors: `recipe.yaml, data`.
    """
    folds = _required(data)
    with errors_at(f"{place}.folds"):
        if folds.file is not None:
            read = read_named_folds(folds.file)
            unknown = [query for fold in read.values() for query in fold.test if query not in queries.queries]
            if unknown:
                raise InputError(f"{folds.file} tests query {unknown[0]}, which {queries.name} does not have.")
            return read
        if folds.leave_one_out:
            named = leave_one_out(_judged_by_collection(data, queries), folds.dev_share, folds.seed)
            return {f"s{number}": fold for number, fold in enumerate(named.values(), start=1)}
        assert folds.count is not None
        return k_folds(queries.judged(), folds.count, folds.seed, folds.dev)


def fold_names(data: DataRecipe, place: str) -> list[str]:
    """The names of the folds that a section asks for; no data is read."""
    folds = _required(data)
    if folds.file is not None:
        with errors_at(f"{place}.folds.file"):
            return list(read_named_folds(folds.file))
    count = len(data.collection) if folds.leave_one_out else folds.count
    assert count is not None
    return [f"s{number}" for number in range(1, count + 1)]


def tested_queries(folds: Folds) -> set[str]:
    """The queries that a fold tests; files of folds may leave some out."""
    return {query for fold in folds.values() for query in fold.test}


def read_named_folds(path: str) -> Folds:
    """Read a fold file, and check that folders can have the names of its folds."""
    folds = read_folds(path)
    for name in folds:
        check_name(f"{path}: the name of a fold", name)
    return folds


def choose_fold(names: Iterable[str], wanted: str, place: str) -> str:
    """The name of the fold that was asked for by its name or its number."""
    known = list(names)
    for name in (wanted, f"s{wanted}"):
        if name in known:
            return name
    raise InputError(f"{place}: there is no fold {wanted}; the folds are {', '.join(known)}.")


def hold_out(queries: QuerySet, share: float, seed: int) -> Fold:
    """Split the judged queries into training queries and a share that is held out for validation."""
    ids = sorted(queries.judged())
    random.Random(f"hold out {seed}").shuffle(ids)
    count = round(share * len(ids))
    return Fold(tuple(ids[count:]), tuple(ids[:count]), ())


def _required(data: DataRecipe) -> FoldsRecipe:
    assert data.folds is not None
    return data.folds


def _judged_by_collection(data: DataRecipe, queries: QuerySet) -> dict[str, list[str]]:
    judged = queries.judged()
    collections = [load_collection(name) for name in data.collection]
    return {
        collection.name: [query for query in judged if query in found]
        for collection, found in ((one, one.queries(data.query_field)) for one in collections)
    }
