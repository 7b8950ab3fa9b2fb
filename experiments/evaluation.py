"""How good a trained ranker is: query sets reranked, interpolated with the first stage, and measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers.utils import logging

from docparade.experiments.recipes.data_recipe import birch_label
from docparade.experiments.recipes.recipe import Recipe
from docparade.experiments.recipes.rerank_recipe import RerankRecipe
from docparade.modeling import DocumentRanker
from docparade.reranking.caches.token_cache import TokenCache
from docparade.reranking.caches.vector_cache import VectorCache
from docparade.reranking.full_ranking import rank_all_documents
from docparade.reranking.processes.resumable_work import is_done
from docparade.reranking.query_set import QuerySet
from docparade.reranking.rerank_run import append_unread, mix_with_first_stage, rerank_to_file
from docparade.retrieval.birch import BirchWeights, cross_validate_birch, read_passage_scores
from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.measures import evaluate
from docparade.retrieval.folds import Folds
from docparade.retrieval.runs import Run, cut, read_run, top_documents, write_run

from .experiment_results import FIRST_STAGE, INTERPOLATED, RERANKED, UNTRAINED, Results, measure
from .query_splits import tested_queries

logger = logging.get_logger(__name__)

WEIGHTS = tuple(step / 10 for step in range(11))


@dataclass(frozen=True)
class BirchSettings:
    """Birch on a test set: how many passages of a document count, and the folds on which weights are chosen."""

    passages: tuple[int, ...]
    """For each of them, a run is made; documents are read once."""
    folds: Folds


def evaluate_ranker(
    recipe: Recipe,
    model: DocumentRanker,
    queries: QuerySet,
    runs: Path,
    weight: float | None = None,
    birch: BirchSettings | None = None,
    untrained: DocumentRanker | None = None,
) -> Results:
    """Rerank a test set and measure it, alone and together with the first stage. All processes call this.

    Args:
        recipe: How to rerank, and what to measure.
        model: The ranker.
        queries: The test set.
        runs: The folder for the runs.
        weight: The first stage's share in the interpolated run; `None` leaves that run out.
        birch: Adds Birch's runs, which interpolate the first stage with the best passages.
        untrained: Adds the run of the ranker as it was before the training.
    """
    scores = runs / f"{queries.name}-passages.jsonl" if birch else None
    output = runs / f"{queries.name}.txt"
    if recipe.rerank.candidates == "all" and scores is not None:  # Birch needs those of the first stage's documents
        first_stage = runs / f"{queries.name}-first-stage.txt"
        rerank_query_set(model, queries, recipe.rerank, first_stage, scores)
    reranked = rank_candidates(model, queries, recipe.rerank, output, scores)
    compared: dict[str, Run] = {FIRST_STAGE: queries.run}
    if untrained is not None:
        path = runs / f"{queries.name}-untrained.txt"
        compared[UNTRAINED] = rank_candidates(untrained, queries, recipe.rerank, path)
    compared[RERANKED] = reranked
    if weight is not None:
        fused = interpolate_with_first_stage(queries.run, reranked, weight, _depth(recipe.rerank))
        compared[INTERPOLATED] = write_once(fused, runs / f"{queries.name}-interpolated.txt", INTERPOLATED)
    chosen: dict[str, dict[str, BirchWeights]] = {}
    if birch is not None and scores is not None:
        first = cut(queries.run, recipe.rerank.depth)
        passages = read_passage_scores(scores)
        for count in birch.passages:
            label = birch_label(count)
            fused, chosen[label] = cross_validate_birch(first, passages, queries.qrels, birch.folds, count)
            compared[label] = write_once(fused, runs / f"{queries.name}-{label}.txt", label)
    # Queries that only choose weights have no Birch run, and are left out of every run's measures.
    tested = queries.queries if birch is None else tested_queries(birch.folds)
    judged = {query: grades for query, grades in queries.judged().items() if query in tested}
    results = measure(queries.name, compared, judged, recipe.measures, weight, recipe.significance)
    return replace(results, birch_weights=chosen)


def choose_weight(recipe: Recipe, model: DocumentRanker, validation: Sequence[QuerySet], runs: Path) -> float | None:
    """The first stage's share that measures best on the validation sets; `None` if there are none."""
    if not validation:
        logger.warning("There are no validation queries to choose the first stage's share on: no run is interpolated.")
        return None
    reranked = [
        (queries, rank_candidates(model, queries, recipe.rerank, runs / f"validation-{queries.name}.txt"))
        for queries in validation
    ]
    return best_weight(reranked, recipe.stages[-1].training["measure"], _depth(recipe.rerank))


def best_weight(reranked: Sequence[tuple[QuerySet, Run]], name: str, depth: int) -> float:
    """The first stage's share that measures best on reranked query sets; of equal ones the smallest."""

    def value(weight: float) -> float:
        values = [
            evaluate(queries.qrels, interpolate_with_first_stage(queries.run, run, weight, depth), name).means[name]
            for queries, run in reranked
        ]
        return sum(values) / len(values)

    return max(WEIGHTS, key=lambda weight: (value(weight), -weight))


def rank_candidates(
    model: DocumentRanker, queries: QuerySet, settings: RerankRecipe, output: Path, passage_scores: Path | None = None
) -> Run:
    """Rank what the recipe asks for, the first stage's documents or all, into a file. All processes call this.

    Args:
        model: The ranker.
        queries: The query set.
        settings: The recipe's section.
        output: The file; if it is complete, it is read.
        passage_scores: Where the scores of passages go; those of all documents are not kept.
    """
    if settings.candidates == "all":
        return rank_query_set(model, queries, settings, output)
    return rerank_query_set(model, queries, settings, output, passage_scores)


def rerank_query_set(
    model: DocumentRanker, queries: QuerySet, settings: RerankRecipe, output: Path, passage_scores: Path | None = None
) -> Run:
    """Rerank a query set's first-stage run into a file, unless that is there already. All processes call this."""
    if not is_done(output):
        if not queries.run:
            raise InputError(f"{queries.name}: not one of its queries has a list to rerank.")
        wanted = top_documents(queries.run, settings.depth)
        model.to(PartialState().device)
        caches: dict[str, Any] = {}
        if settings.vectors is None:
            tokens = TokenCache.open(None, model.require_processor(), queries.documents, wanted)
            caches["encode_documents"] = tokens.encode_documents
        else:
            caches["vectors"] = VectorCache.open(None, model, queries.documents, wanted, settings.vectors)
        rerank_to_file(
            model,
            queries.run,
            queries.queries,
            queries.documents,
            output,
            settings.depth,
            passage_scores=passage_scores,
            **caches,
        )
    return read_run(output)


def rank_query_set(model: DocumentRanker, queries: QuerySet, settings: RerankRecipe, output: Path) -> Run:
    """Rank all documents for a query set into a file, unless that is there already. All processes call this."""
    if not is_done(output):
        model = model.to(PartialState().device)
        tokens, vectors = None, None
        if model.scores_by_vectors:
            vectors = VectorCache.open(None, model, queries.documents, vector_type="float32")
        else:
            tokens = TokenCache.open(None, model.require_processor(), queries.documents).encode_documents
        rank_all_documents(
            model,
            queries.queries,
            queries.documents,
            output,
            settings.hits,
            encode_documents=tokens,
            vectors=vectors,
        )
    return read_run(output)


def interpolate_with_first_stage(first: Run, reranked: Run, weight: float, depth: int) -> Run:
    """The weighted sum of both, as z-scores over the documents that the ranker read; the others stay below, in order.

    Example:
        >>> reranked = {"q": {"a": 1.0, "b": 2.0}}
        >>> interpolate_with_first_stage({"q": {"a": 3.0, "b": 1.0}}, reranked, weight=1.0, depth=2)
        {'q': {'b': -1.0, 'a': 1.0}}
    """
    return {
        query: append_unread(mix_with_first_stage(scores, first.get(query, {}), weight), reranked[query])
        for query, scores in cut(reranked, depth).items()
    }


def write_once(run: Run, path: Path, tag: str) -> Run:
    """Write a run, by the first process only, and return it."""
    if PartialState().is_main_process:
        write_run(run, path, tag=tag)
    return run


def _depth(settings: RerankRecipe) -> int:
    """How many documents of each query in the ranker's run have its scores."""
    return settings.depth if settings.candidates == "first_stage" else settings.hits
