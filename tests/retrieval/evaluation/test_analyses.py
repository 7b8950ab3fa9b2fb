"""The analyses against counts made by hand."""

import pytest

from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.analyses import (
    BINS,
    differences,
    passage_shares,
    relevant_by_rank,
    relevant_passages,
    unique_relevant,
)

QRELS = {"1": {"a": 1, "b": 2, "c": 0, "x": 4}, "2": {"a": 3, "e": -1}, "3": {"z": 1}}
FIRST = {"1": {"a": 3.0, "b": 2.0, "c": 1.0}, "2": {"e": 2.0, "a": 1.0}}
SECOND = {"1": {"x": 3.0, "a": 2.0, "d": 1.0}, "2": {"a": 1.0}}


def test_unique_relevant_documents() -> None:
    # First has b (grade 2) and c (not relevant) for query 1 and e (grade -1) for query 2, and 5 documents in all.
    found = unique_relevant(QRELS, FIRST, SECOND, depth=10)
    assert (found.retrieved, found.new, found.by_grade) == (5, 3, {2: 1})
    assert (found.share, found.new_share, found.grade_shares) == (1 / 5, 3 / 5, {2: 1.0})
    # Second has x (grade 4) and d (unjudged), and 4 documents in all.
    found = unique_relevant(QRELS, SECOND, FIRST, depth=10)
    assert (found.retrieved, found.new, found.by_grade) == (4, 2, {4: 1})
    # At depth 1: a and e against x and a.
    found = unique_relevant(QRELS, SECOND, FIRST, depth=1)
    assert (found.retrieved, found.new, found.by_grade, found.grade_shares) == (2, 2, {3: 1, 4: 1}, {3: 0.5, 4: 0.5})


def test_a_run_against_itself_or_of_nothing_has_nothing_unique() -> None:
    assert unique_relevant(QRELS, FIRST, FIRST, depth=10).new == 0
    assert unique_relevant(QRELS, {}, FIRST, depth=10).share == 0.0


def test_relevant_documents_by_rank() -> None:
    reranked = {
        "1": {"x": 9.0, "n": 8.0, "a": 7.0, "b": 6.0},
        "2": {f"n{i}": 100.0 - i for i in range(10)} | {"a": 1.0},
    }
    bins = relevant_by_rank(QRELS, reranked, FIRST, SECOND)
    assert [(found.first, found.last) for found in bins] == list(BINS)
    # Over three judged queries: in ranks 1-10 a (both), b (first), x (second); in 11-20 a of query 2 (both).
    top = bins[0]
    assert (top.both, top.only_first, top.only_second, top.neither) == (1 / 3, 1 / 3, 1 / 3, 0.0)
    assert (bins[1].both, bins[1].only_first) == (1 / 3, 0.0)
    assert all(found.both == found.neither == 0 for found in bins[2:])


def test_depth_limits_both_the_ranks_and_what_the_others_retrieve() -> None:
    bins = relevant_by_rank(QRELS, FIRST, FIRST, SECOND, depth=1)
    # Only rank 1 counts: a of query 1, which is at rank 1 of the first run and not of the second.
    assert len(bins) == 1
    assert (bins[0].both, bins[0].only_first, bins[0].neither) == (0.0, 1 / 3, 0.0)


PASSAGES = {"1": {"d": {"p1": 3, "p2": 3, "p3": 2}, "e": {"p4": 3}, "f": {"p5": 0}}, "2": {"d": {"p1": 3}}}


def test_documents_by_their_number_of_relevant_passages() -> None:
    assert relevant_passages(PASSAGES, min_grade=3) == {1: 2, 2: 1}
    assert relevant_passages(PASSAGES, min_grade=2) == {1: 2, 3: 1}
    qrels = {"1": {"d": 2, "e": 1}}
    assert relevant_passages(PASSAGES, 3, qrels, min_document_grade=2) == {2: 1}


def test_shares_are_those_of_the_table() -> None:
    assert passage_shares({1: 38, 2: 22, 3: 30, 9: 10}) == {"1": 0.38, "1-2": 0.6, "3+": 0.4}
    with pytest.raises(InputError, match="no document has a relevant passage"):
        passage_shares({})


def test_differences_are_sorted_by_gain() -> None:
    found = differences(QRELS, FIRST, SECOND, "RR")
    assert [(entry.query, entry.first, entry.second, entry.value) for entry in found] == [
        ("2", 0.5, 1.0, 0.5),
        ("1", 1.0, 1.0, 0.0),
        ("3", 0.0, 0.0, 0.0),
    ]
    with pytest.raises(InputError, match="names 2 measures"):
        differences(QRELS, FIRST, SECOND, "RR AP")
