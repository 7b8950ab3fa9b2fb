"""Deep and shallow samples: exactly the stated number of judgments, for every rate and every shape."""

import math

import pytest
from hypothesis import given, strategies as st

from docparade.retrieval.errors import InputError
from docparade.retrieval.judgment_samples import sample_judgments
from docparade.retrieval.runs import Qrels

QRELS = st.dictionaries(
    st.integers(0, 99).map(str),
    st.dictionaries(st.integers(0, 999).map(str), st.integers(-1, 4), min_size=1, max_size=30),
    min_size=1,
    max_size=20,
)
RATES = st.floats(0.001, 1.0) | st.sampled_from([0.1, 0.2, 0.25, 0.3, 0.5, 0.7, 0.75, 0.9, 1.0])
STYLES = st.sampled_from(["deep", "shallow"])


def size(qrels: Qrels) -> int:
    return sum(map(len, qrels.values()))


@given(QRELS, RATES, STYLES, st.integers(0, 3))
def test_exactly_the_stated_number_is_left(qrels: Qrels, rate: float, style: str, seed: int) -> None:
    sample = sample_judgments(qrels, rate, style, seed)
    assert size(sample) == round(rate * size(qrels))
    for query, grades in sample.items():
        assert grades.items() <= qrels[query].items()
        assert grades


@given(QRELS, RATES, st.integers(0, 3))
def test_shallow_keeps_every_query_as_long_as_there_is_a_judgment_for_each(
    qrels: Qrels, rate: float, seed: int
) -> None:
    sample = sample_judgments(qrels, rate, "shallow", seed)
    assert len(sample) == min(len(qrels), round(rate * size(qrels)))
    for query, grades in sample.items():
        assert len(grades) <= math.ceil(rate * len(qrels[query]))


@given(st.integers(1, 40), st.integers(1, 40), RATES, st.integers(0, 3))
def test_deep_drops_whole_queries(queries: int, depth: int, rate: float, seed: int) -> None:
    # As in the paper, all queries have equally many judgments; then ceil(rate * Q) of them are enough.
    qrels = {str(query): {str(document): 0 for document in range(depth)} for query in range(queries)}
    sample = sample_judgments(qrels, rate, "deep", seed)
    kept = math.ceil(rate * queries)
    assert len(sample) == min(kept, round(rate * size(qrels)))
    dropped = kept * depth - round(rate * size(qrels))
    sizes = [len(grades) for grades in sample.values()]
    if depth > 1 and dropped <= kept:  # looping over the queries, none loses two before each has lost one
        assert sorted(sizes) == [depth - 1] * dropped + [depth] * (kept - dropped)


@given(QRELS, RATES, st.integers(0, 3))
def test_deep_takes_further_queries_only_while_judgments_are_too_few(qrels: Qrels, rate: float, seed: int) -> None:
    sample = sample_judgments(qrels, rate, "deep", seed)
    extra = len(sample) - math.ceil(rate * len(qrels))
    if extra > 0:
        sizes = [len(qrels[query]) for query in sample]
        assert sum(sizes) - max(sizes) < round(rate * size(qrels))


def test_deep_keeps_its_share_of_the_queries_even_if_one_has_enough_judgments() -> None:
    qrels = {str(query): {str(document): 1 for document in range(90 if query == 0 else 1)} for query in range(10)}
    for seed in range(10):
        assert len(sample_judgments(qrels, 0.5, "deep", seed)) >= 5


def test_deep_and_shallow_differ_as_they_should() -> None:
    qrels = {str(query): {str(document): 1 for document in range(10)} for query in range(10)}
    deep, shallow = (sample_judgments(qrels, 0.2, style) for style in ("deep", "shallow"))
    assert [len(grades) for grades in deep.values()] == [10, 10]
    assert [len(grades) for grades in shallow.values()] == [2] * 10


@given(QRELS, RATES, STYLES)
def test_the_sample_depends_on_the_judgments_and_the_seed_alone(qrels: Qrels, rate: float, style: str) -> None:
    turned = {query: dict(reversed(grades.items())) for query, grades in reversed(qrels.items())}
    assert sample_judgments(qrels, rate, style) == sample_judgments(turned, rate, style)


def test_another_seed_is_another_sample() -> None:
    qrels = {str(query): {str(document): 1 for document in range(10)} for query in range(10)}
    for style in ("deep", "shallow"):
        assert sample_judgments(qrels, 0.3, style, seed=1) != sample_judgments(qrels, 0.3, style, seed=2)


def test_wrong_arguments_are_named() -> None:
    for rate in (0.0, -0.1, 1.1, math.nan):
        with pytest.raises(InputError, match="rate must be"):
            sample_judgments({"1": {"a": 1}}, rate, "deep")
    with pytest.raises(InputError, match=r"style is 'wide', .*deep, shallow"):
        sample_judgments({"1": {"a": 1}}, 0.5, "wide")  # type: ignore[arg-type]
