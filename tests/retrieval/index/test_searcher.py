"""Scores against formulas written out, against bm25s, and rankings against the one rule of ties."""

import json
import math
import random
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from docparade.retrieval.collections.catalog import load_collection
from docparade.retrieval.errors import InputError
from docparade.retrieval.index.analyzer import analyze
from docparade.retrieval.index.inverted_index import Index, open_index
from docparade.retrieval.index.rm3 import RM3
from docparade.retrieval.index.searcher import Searcher
from docparade.retrieval.index.similarity import BM25, QueryLikelihood, lucene_lengths
from docparade.retrieval.runs import ranking
from docparade.retrieval.storage.arrays import Array

analyzed = cache(analyze)


def lucene_length(length: int) -> int:
    """One length through Lucene's byte and back: 24 values as they are, the rest as 4 significant bits."""
    if length < 24:
        return length
    rest = length - 24
    dropped = max(rest.bit_length() - 4, 0)
    return 24 + (rest >> dropped << dropped)


def bm25(query: str, name: str, texts: dict[str, str], k1: float, b: float) -> float:
    terms = {document: analyzed(text) for document, text in texts.items()}
    filled = [document for document in terms if terms[document]]
    average = sum(map(len, terms.values())) / len(filled)
    score = 0.0
    for term in analyze(query):
        n = sum(term in found for found in terms.values())
        idf = math.log(1 + (len(filled) - n + 0.5) / (n + 0.5))
        tf = terms[name].count(term)
        if tf:
            score += idf * tf / (tf + k1 * (1 - b + b * lucene_length(len(terms[name])) / average))
    return score


def query_likelihood(query: str, name: str, texts: dict[str, str], mu: float) -> float:
    terms = {document: analyze(text) for document, text in texts.items()}
    total = sum(map(len, terms.values()))
    score = 0.0
    for term in analyze(query):
        tf = terms[name].count(term)
        if tf:
            share = (sum(found.count(term) for found in terms.values()) + 1) / (total + 1)
            length = lucene_length(len(terms[name]))
            score += max(0.0, math.log(1 + tf / (mu * share)) + math.log(mu / (length + mu)))
    return score


@pytest.fixture
def index(small: Any) -> Index:
    return open_index(load_collection(small.folder))


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.5, 0.75), (0.0, 0.0), (2.0, 1.0)])
def test_bm25_is_the_formula(small: Any, index: Index, k1: float, b: float) -> None:
    for query in small.queries.values():
        expected = {name: bm25(query, name, small.texts, k1, b) for name in small.texts}
        found = Searcher(index, BM25(k1, b)).search(query)
        assert found == pytest.approx({name: score for name, score in expected.items() if score > 0}, rel=1e-6)
        assert list(found) == ranking(found)


@pytest.mark.parametrize("mu", [1000.0, 10.0])
def test_query_likelihood_is_the_formula(small: Any, index: Index, mu: float) -> None:
    for query in small.queries.values():
        expected = {name: query_likelihood(query, name, small.texts, mu) for name in small.texts}
        found = Searcher(index, QueryLikelihood(mu)).search(query)
        assert found == pytest.approx({name: score for name, score in expected.items() if score > 0}, rel=1e-5)


def test_bm25_equals_bm25s_where_lengths_are_short(tmp_path: Path) -> None:
    """To 40 terms, Lucene's lengths are exact, and bm25s' eager scores of the same documents must be the same."""
    import bm25s

    chance = random.Random(1)
    texts = [" ".join(chance.choices([f"w{n}x" for n in range(30)], k=chance.randint(1, 40))) for _ in range(50)]
    (tmp_path / "docs.jsonl").write_text(
        "\n".join(json.dumps({"id": f"{number}", "text": text}) for number, text in enumerate(texts)), encoding="utf-8"
    )
    retriever = bm25s.BM25(method="lucene", k1=1.2, b=0.6)
    retriever.index([analyze(text) for text in texts], show_progress=False)
    searcher = Searcher(open_index(load_collection(tmp_path)), BM25(1.2, 0.6))
    for query in ("w1x w2x", "w3x w3x w29x", "w5x"):
        expected = retriever.get_scores(analyze(query))
        found = searcher.search(query)
        assert found == pytest.approx({str(at): expected[at] for at in np.flatnonzero(expected)}, rel=1e-5)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1))
def test_lengths_are_as_lucene_remembers_them(lengths: list[int]) -> None:
    assert lucene_lengths(np.array(lengths)).tolist() == [lucene_length(length) for length in lengths]


def test_ties_at_the_cut_go_by_the_one_rule(tmp_path: Path) -> None:
    names = [f"d{number}" for number in range(20)]
    random.Random(3).shuffle(names)
    (tmp_path / "docs.jsonl").write_text(
        "\n".join(json.dumps({"id": name, "text": "same words"}) for name in names), encoding="utf-8"
    )
    searcher = Searcher(open_index(load_collection(tmp_path)), BM25())
    every = searcher.search("words", hits=1000)
    assert list(every) == sorted(names, reverse=True)
    for hits in (1, 7, 20):
        assert list(searcher.search("words", hits)) == list(every)[:hits]


class NearlyEqual:
    """A similarity whose scores differ beyond 32 bits: the earlier a document, the higher."""

    def document_norms(self, index: Index) -> Array:
        return np.zeros(len(index))

    def weights(self, index: Index, term: int, frequencies: Array, norms: Array) -> Array:
        return 1 - 1e-12 * np.arange(len(frequencies))


def test_scores_that_are_equal_in_32_bits_are_ties_at_the_cut(tmp_path: Path) -> None:
    lines = [json.dumps({"id": name, "text": "wing"}) + "\n" for name in ("a", "c", "b")]
    (tmp_path / "docs.jsonl").write_text("".join(lines), encoding="utf-8")
    searcher = Searcher(open_index(load_collection(tmp_path)), NearlyEqual())
    assert list(searcher.search("wing", hits=1)) == ["c"]


@pytest.mark.filterwarnings("error")
def test_a_collection_of_empty_documents_is_searched(tmp_path: Path) -> None:
    (tmp_path / "docs.jsonl").write_text('{"id": "a", "text": ""}\n', encoding="utf-8")
    index = open_index(load_collection(tmp_path))
    assert np.isfinite(BM25().document_norms(index)).all()
    assert Searcher(index, BM25()).search("wing") == {}


def test_queries_that_find_nothing(small: Any, index: Index) -> None:
    for method in (BM25(), QueryLikelihood()):
        for feedback in (None, RM3()):
            assert Searcher(index, method, feedback).search(small.queries["q3"]) == {}
            assert Searcher(index, method, feedback).search(small.queries["q4"]) == {}
            assert Searcher(index, method, feedback).search("") == {}


def expanded_by_hand(
    query: str, best: dict[str, float], texts: dict[str, str], terms_wanted: int, weight: float
) -> dict[str, float]:
    """RM3 written out, without the index; terms of equal weight: the rarer first, then the one met first."""
    terms = {name: analyze(text) for name, text in texts.items()}
    filled = sum(bool(found) for found in terms.values())
    df = Counter(term for found in terms.values() for term in set(found))
    met = {term: at for at, term in enumerate(dict.fromkeys(term for found in terms.values() for term in found))}

    def heaviest(weights: dict[str, float]) -> dict[str, float]:
        may = [t for t in weights if df[t] <= 0.1 * filled and t.isascii() and t.isalnum() and 2 <= len(t) <= 20]
        kept = sorted(may, key=lambda t: (-weights[t], df[t], met[t]))[:terms_wanted]
        total = sum(weights[t] for t in kept)
        return {t: weights[t] / total for t in kept}

    pool: Counter[str] = Counter()
    for name, score in best.items():
        for term, share in heaviest({t: float(c) for t, c in Counter(terms[name]).items()}).items():
            pool[term] += share * score  # type: ignore[assignment]
    feedback = heaviest(dict(pool))
    known = [term for term in analyze(query) if term in df]
    original = {term: count / len(known) for term, count in Counter(known).items()}
    return {t: weight * original.get(t, 0) + (1 - weight) * feedback.get(t, 0) for t in original | feedback}


def test_rm3_is_the_formula(tmp_path: Path) -> None:
    chance = random.Random(5)
    words = [f"w{n}x" for n in range(400)] + ["a.b", "é" * 3, "x" * 25]
    texts = {f"d{n}": " ".join(chance.choices(words, k=chance.randint(5, 60))) for n in range(200)}
    (tmp_path / "docs.jsonl").write_text(
        "\n".join(json.dumps({"id": n, "text": t}) for n, t in texts.items()), encoding="utf-8"
    )
    index = open_index(load_collection(tmp_path))
    for query in ("w1x w2x w3x unknown", "w7x w7x w8x", "w11x"):
        first = Searcher(index, BM25()).search(query, hits=5)
        expected = expanded_by_hand(query, first, texts, terms_wanted=6, weight=0.3)
        searcher = Searcher(index, BM25(), RM3(5, 6, 0.3))
        numbers = {index.document_ids.find(name): score for name, score in first.items()}
        original = searcher._parse(query)
        expanded = RM3(5, 6, 0.3).expand(index, original, {n: s for n, s in numbers.items() if n is not None})
        assert {index.terms[term]: weight for term, weight in expanded.items()} == pytest.approx(expected, rel=1e-5)
        scores = {
            name: sum(weight * bm25(term, name, texts, 0.9, 0.4) for term, weight in expected.items())
            for name in list(texts)[:20]
        }
        found = searcher.search(query)
        assert {name: found.get(name, 0.0) for name in scores} == pytest.approx(scores, rel=1e-4, abs=1e-7)


def test_rm3_at_the_ends_of_its_weight(small: Any, index: Index) -> None:
    """With all weight on the original query, RM3 ranks as plain BM25 does."""
    for query in small.queries.values():
        plain = Searcher(index, BM25()).search(query)
        assert list(Searcher(index, BM25(), RM3(original_weight=1.0)).search(query)) == list(plain)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BM25(k1=-1), "k1 .*0, .*-1"),
        (lambda: BM25(k1=math.nan), "k1 must be"),
        (lambda: BM25(b=1.1), "b .*0 to 1, .*1.1"),
        (lambda: QueryLikelihood(mu=0), "mu .*0"),
        (lambda: RM3(feedback_documents=0), "feedback_documents .*1, .*0"),
        (lambda: RM3(feedback_terms=0), "feedback_terms .*1, .*0"),
        (lambda: RM3(original_weight=2), "original_weight .*0 to 1, .*2"),
    ],
)
def test_parameters_out_of_range(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
