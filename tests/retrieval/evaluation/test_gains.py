"""What grades count: named gains, all alike, or taken out of judgments and runs."""

import pytest

from docparade.retrieval import Gains, InputError, evaluate

QRELS = {"1": {"best": 1, "weak": 4, "source": -1, "no": 0}}
RUN = {"1": {"source": 4.0, "best": 3.0, "no": 2.0, "weak": 1.0}}


def measured(text: str | None, binary: bool = False, names: str = "nDCG@20 AP RR") -> dict[str, float]:
    gains = Gains.of(text, binary)
    return evaluate(gains.judge(QRELS), gains.rank(RUN, QRELS), names).means


def test_named_gains_are_those_of_the_measure() -> None:
    by_measure = evaluate(QRELS, RUN, "nDCG(gains={1:4,4:1})@20").means
    assert measured("1=4, 4=1")["nDCG@20"] == pytest.approx(by_measure["nDCG(gains={1:4,4:1})@20"])
    # 4 / log2(3) + 1 / log2(5) over 4 + 1 / log2(3)
    assert measured("1=4 4=1")["nDCG@20"] == pytest.approx((4 / 1.5849625 + 1 / 2.3219281) / (4 + 1 / 1.5849625))


def test_without_gains_grades_count_as_they_are() -> None:
    assert measured(None) == evaluate(QRELS, RUN, "nDCG@20 AP RR").means


def test_binary_counts_all_gains_above_0_alike() -> None:
    assert Gains.of(None, binary=True).judge(QRELS) == {"1": {"best": 1, "weak": 1, "source": -1, "no": 0}}
    assert Gains.of("-1=4,4=0", binary=True).judge(QRELS) == {"1": {"best": 1, "weak": 0, "source": 1, "no": 0}}


def test_the_three_ways_to_count_minus_one() -> None:
    assert measured(None, binary=True)["RR"] == 1 / 2
    assert measured("-1=1", binary=True)["RR"] == 1
    taken_out = measured("-1=out", binary=True)
    assert taken_out["RR"] == 1
    assert taken_out["AP"] == pytest.approx((1 + 2 / 3) / 2)
    gains = Gains.of("-1=out", binary=True)
    assert gains.judge(QRELS) == {"1": {"best": 1, "weak": 1, "no": 0}}
    assert gains.rank(RUN, QRELS) == {"1": {"best": 3.0, "no": 2.0, "weak": 1.0}}
    assert gains.rank({"2": {"source": 1.0}}, QRELS) == {"2": {"source": 1.0}}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1=4,x=2", "'x=2'"),
        ("1", "'1'"),
        ("1=-1", "'1=-1'"),
        ("1=2000000", "'1=2000000'"),
        ("1=1.5", "'1=1.5'"),
        ("", "''"),
        ("1=4,1=3", "grade 1 has two gains"),
    ],
)
def test_wrong_gains_are_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        Gains.of(text)


def test_a_grade_without_a_gain_is_named() -> None:
    with pytest.raises(InputError, match="grade 4"):
        Gains.of("1=4").judge(QRELS)


def test_only_finished_runs_lose_documents() -> None:
    Gains.of("-1=4").check_none_out()
    with pytest.raises(InputError, match="finished runs"):
        Gains.of("-1=out").check_none_out()
