"""The paired t-test against its closed form, and Bonferroni's correction over a table."""

import math

import pytest

from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.measures import Evaluation
from docparade.retrieval.evaluation.significance import PairedTest, compare_to_baseline, paired_t_test


def evaluation(**per_query: list[float]) -> Evaluation:
    values = {name: {str(query): value for query, value in enumerate(column)} for name, column in per_query.items()}
    return Evaluation({name: sum(column) / len(column) for name, column in per_query.items()}, values, (), ())


def test_three_queries_have_a_closed_form() -> None:
    # With two degrees of freedom the two-tailed p-value is 1 - |t| / sqrt(t^2 + 2).
    baseline, other = [0.1, 0.4, 0.2], [0.2, 0.5, 0.4]
    differences = [b - a for a, b in zip(baseline, other, strict=True)]
    mean = sum(differences) / 3
    deviation = math.sqrt(sum((d - mean) ** 2 for d in differences) / 2)
    t = mean / (deviation / math.sqrt(3))
    columns = [{str(i): value for i, value in enumerate(column)} for column in (baseline, other)]
    assert paired_t_test(*columns) == pytest.approx(1 - t / math.sqrt(t**2 + 2))
    assert paired_t_test(*reversed(columns)) == pytest.approx(paired_t_test(*columns))


def test_it_pairs_by_query_and_not_by_order() -> None:
    baseline = {"1": 0.1, "2": 0.4, "3": 0.2}
    other = {"3": 0.4, "2": 0.5, "1": 0.2}
    assert paired_t_test(baseline, other) == pytest.approx(paired_t_test(baseline, dict(sorted(other.items()))))


def test_the_ends_of_the_scale() -> None:
    assert paired_t_test({"1": 0.5, "2": 0.1}, {"1": 0.5, "2": 0.1}) == 1.0
    assert paired_t_test({"1": 0.5}, {"1": 0.9}) == 1.0
    assert paired_t_test({"1": 0.25, "2": 0.5}, {"1": 0.5, "2": 0.75}) == 0.0
    with pytest.raises(InputError, match="same queries"):
        paired_t_test({"1": 0.5}, {"2": 0.5})


def test_all_tests_of_the_table_are_counted() -> None:
    base = evaluation(AP=[0.1, 0.4, 0.2], P=[0.1, 0.2, 0.3])
    other = evaluation(AP=[0.2, 0.5, 0.4], P=[0.1, 0.2, 0.3])
    tests = compare_to_baseline("base", {"base": base, "x": other, "y": other})
    assert list(tests) == ["x", "y"]
    p_value = paired_t_test(base.per_query["AP"], other.per_query["AP"])
    assert tests["x"]["AP"] == PairedTest(pytest.approx(0.4 / 3), p_value, pytest.approx(4 * p_value))
    assert tests["y"]["P"] == PairedTest(0.0, 1.0, 1.0)
    alone = compare_to_baseline("base", {"base": base, "x": other, "y": other}, correction="none")
    assert alone["x"]["AP"] == PairedTest(pytest.approx(0.4 / 3), p_value, p_value)
    with pytest.raises(InputError, match=r"correction is 'holm', .*bonferroni, none"):
        compare_to_baseline("base", {"base": base}, "holm")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"baseline z .*base"):
        compare_to_baseline("z", {"base": base})


@pytest.mark.parametrize(("corrected", "marker"), [(0.0099, "‡"), (0.01, "†"), (0.0499, "†"), (0.05, ""), (1.0, "")])
def test_markers(corrected: float, marker: str) -> None:
    assert PairedTest(0.1, 0.0, corrected).marker == marker
