"""Fusion against sums worked out by hand."""

import pytest

from docparade.retrieval.errors import InputError
from docparade.retrieval.fusion import interpolate, normalize, reciprocal_rank_fusion
from docparade.retrieval.runs import ranking

FIRST = {"1": {"a": 10.0, "b": 20.0, "c": 15.0}, "2": {"a": 1.0}}
SECOND = {"1": {"b": 0.0, "d": 1.0}}


def test_minmax() -> None:
    assert normalize(FIRST, "minmax") == {"1": {"a": 0.0, "b": 1.0, "c": 0.5}, "2": {"a": 0.0}}


def test_zscore_has_mean_0_and_deviation_1() -> None:
    scores = list(normalize(FIRST, "zscore")["1"].values())
    assert sum(scores) == pytest.approx(0)
    assert sum(score**2 for score in scores) / 3 == pytest.approx(1)


@pytest.mark.parametrize("normalization", ["minmax", "zscore"])
def test_equal_scores_say_nothing(normalization: str) -> None:
    run = {"1": dict.fromkeys("abcdefg", 0.1), "2": {}}
    assert normalize(run, normalization) == {"1": dict.fromkeys("abcdefg", 0.0), "2": {}}


def test_a_document_that_a_run_lacks_has_its_lowest_score() -> None:
    fused = interpolate([FIRST, SECOND], [0.3, 0.7], "none")
    assert fused["1"] == pytest.approx({"a": 3.0, "b": 6.0, "c": 4.5, "d": 0.3 * 10 + 0.7})
    assert fused["2"] == {"a": 0.3}
    fused = interpolate([FIRST, SECOND], [0.3, 0.7], "minmax")
    assert fused["1"] == pytest.approx({"a": 0.0, "b": 0.3, "c": 0.15, "d": 0.7})


def test_interpolation_with_one_run_keeps_its_order() -> None:
    assert ranking(interpolate([FIRST], [0.5], "zscore")["1"]) == ranking(FIRST["1"])


def test_reciprocal_ranks() -> None:
    fused = reciprocal_rank_fusion([FIRST, SECOND], k=60)
    # Ranks: first run b c a, second run d b.
    assert fused["1"] == pytest.approx({"b": 1 / 61 + 1 / 62, "c": 1 / 62, "a": 1 / 63, "d": 1 / 61})
    assert fused["2"] == {"a": 1 / 61}


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(InputError, match=r"runs: 2, weights: 1"):
        interpolate([FIRST, SECOND], [1.0])
    for weights in ([0.0, 0.0], [1.0, float("nan")], [float("inf"), 1.0]):
        with pytest.raises(InputError, match=r"weights are .*not all 0"):
            interpolate([FIRST, SECOND], weights)
    with pytest.raises(InputError, match=r"normalization is 'softmax', .*none, minmax, zscore"):
        normalize(FIRST, "softmax")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="k must not be negative"):
        reciprocal_rank_fusion([FIRST], k=-1)
