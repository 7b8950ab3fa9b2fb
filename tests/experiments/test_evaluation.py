"""The interpolation with the first stage, and the choice of its weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from support.recipes import tiny_recipe
from support.training import world

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.experiments.evaluation import (
    BirchSettings,
    best_weight,
    choose_weight,
    evaluate_ranker,
    interpolate_with_first_stage,
    rank_query_set,
)
from docparade.experiments.recipes.recipe import Recipe
from docparade.experiments.recipes.recipe_loading import load_recipe
from docparade.experiments.recipes.rerank_recipe import RerankRecipe
from docparade.reranking.query_set import QuerySet
from docparade.retrieval import Qrels, Run, ranking, read_run
from docparade.retrieval.folds import Fold

FIRST: Run = {"q": {"a": 9.0, "b": 7.0, "c": 5.0, "d": 4.0, "e": 3.0}}
# Three documents were read; d and e are below them, in their old order.
RERANKED: Run = {"q": {"c": 8.0, "b": 6.0, "a": 4.0, "d": 3.0, "e": 2.0}}
DEVIATION = (8 / 3) ** 0.5  # of 9, 7, 5 and of 8, 6, 4


def query_set(qrels: Qrels, run: Run) -> QuerySet:
    return QuerySet("dev", dict.fromkeys(run, "text"), run, qrels, {})


def test_scores_are_added_as_z_scores_of_the_documents_that_were_read() -> None:
    found = interpolate_with_first_stage(FIRST, RERANKED, weight=0.75, depth=3)["q"]
    high = 2 / DEVIATION
    expected = {"a": 0.75 * high - 0.25 * high, "b": 0.0, "c": 0.25 * high - 0.75 * high}
    assert {name: found[name] for name in "abc"} == pytest.approx(expected)
    assert ranking(found) == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(("weight", "order"), [(0.0, "cbade"), (0.4, "cbade"), (0.6, "abcde"), (1.0, "abcde")])
def test_the_weight_is_the_first_stages_share(weight: float, order: str) -> None:
    assert ranking(interpolate_with_first_stage(FIRST, RERANKED, weight, depth=3)["q"]) == list(order)


def test_a_query_that_the_first_stage_does_not_have_keeps_the_rankers_order() -> None:
    assert ranking(interpolate_with_first_stage({}, RERANKED, weight=0.5, depth=3)["q"]) == list("cbade")


def test_the_best_weight_is_that_with_the_best_measure() -> None:
    likes_first, likes_ranker = query_set({"q": {"a": 1}}, FIRST), query_set({"q": {"c": 1}}, FIRST)
    # From 0.6 on, a is above c; at 0.5 they are equal.
    assert best_weight([(likes_first, RERANKED)], "RR@1", depth=3) in (0.5, 0.6)
    # Of equally good weights, the smallest.
    assert best_weight([(likes_ranker, RERANKED)], "RR@1", depth=3) == 0.0


def test_the_best_weight_is_that_of_the_mean_over_all_sets() -> None:
    likes_first, likes_ranker = query_set({"q": {"a": 1}}, FIRST), query_set({"q": {"c": 1}}, FIRST)
    sets = [(likes_first, RERANKED), (likes_first, RERANKED), (likes_ranker, RERANKED)]
    assert best_weight(sets, "RR@1", depth=3) >= 0.5
    assert best_weight([*sets, (likes_ranker, RERANKED), (likes_ranker, RERANKED)], "RR@1", depth=3) == 0.0


@pytest.mark.parametrize("kind", ["cross-encoder", "bi-encoder"])
def test_a_full_ranker_needs_no_first_stage(
    kind: str,
    tiny_ranker: Callable[..., DocumentRanker],
    encoder_folder: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "cache"))
    model = tiny_ranker(MaxPForSequenceClassification, "max")
    if kind == "bi-encoder":
        options = {"pooling": "mean", "window": 12, "stride": 8, "max_length": 24, "max_query_tokens": 12}
        model = MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), **options)
    few = world(2)
    queries = QuerySet("test", few.queries, {}, few.qrels, few.documents)
    run = rank_query_set(model, queries, RerankRecipe(candidates="all", hits=3), tmp_path / "run.txt")
    assert run == read_run(tmp_path / "run.txt") and run.keys() == few.queries.keys()
    for query, found in run.items():
        texts = list(few.documents.values())
        scores = dict(zip(few.documents, model.score([(few.queries[query], text) for text in texts]), strict=True))
        assert found == pytest.approx({name: scores[name] for name in ranking(scores)[:3]}, abs=1e-5)


@pytest.fixture
def recipe(tmp_path: Path, encoder_folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Recipe:
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "cache"))
    content = tiny_recipe(encoder_folder("bert"), {"rerank": {"depth": 3}, "measures": "nDCG@5"})
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(content))
    return load_recipe(tmp_path / "tiny.yaml")


def test_queries_that_only_choose_birchs_weights_are_not_measured(
    recipe: Recipe, tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    model, queries = tiny_ranker(MaxPForSequenceClassification, "max"), world(3).validation("test")
    settings = BirchSettings((1,), {"s1": Fold(("q0", "q1"), (), ("q2",))})
    results = evaluate_ranker(recipe, model, queries, tmp_path, birch=settings)
    assert results.evaluations.keys() == {"first stage", "reranked", "birch-1s"}
    assert all(one.per_query["nDCG@5"].keys() == {"q2"} for one in results.evaluations.values())


def test_a_full_ranker_is_one_also_untrained_and_where_the_weight_is_chosen(
    recipe: Recipe, tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    recipe = replace(recipe, rerank=RerankRecipe(depth=1, candidates="all", hits=5))
    model, few = tiny_ranker(MaxPForSequenceClassification, "max"), world(2)
    queries = few.validation("dev")
    full = rank_query_set(model, queries, recipe.rerank, tmp_path / "full.txt")
    evaluate_ranker(recipe, model, queries, tmp_path, untrained=model)
    assert read_run(tmp_path / "dev-untrained.txt") == read_run(tmp_path / "dev.txt") == full
    # The first stage has the fifth document of the ranker first: its share helps, if all five are fused.
    fifth = {query: ranking(found)[4] for query, found in full.items()}
    first = {query: {name: float(name == fifth[query]) for name in found} for query, found in full.items()}
    queries = QuerySet("dev", few.queries, first, {query: {name: 1} for query, name in fifth.items()}, few.documents)
    weight = choose_weight(recipe, model, [queries], tmp_path)
    assert read_run(tmp_path / "validation-dev.txt") == full
    assert weight == best_weight([(queries, full)], "nDCG@5", depth=5) != best_weight([(queries, full)], "nDCG@5", 1)
