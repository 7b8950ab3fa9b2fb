"""Significance of differences between runs: the two-tailed paired t-test over queries, corrected or not."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from docparade.retrieval.errors import InputError, check_choice

from .measures import Evaluation

Correction: TypeAlias = Literal["bonferroni", "none"]
"""`bonferroni`: p-values times the number of tests in the table; `none`: as they are"""
CORRECTIONS: tuple[Correction, ...] = get_args(Correction)
MARKERS = ((0.01, "‡"), (0.05, "†"))
"""(p below, marker), smallest p first"""


@dataclass(frozen=True)
class PairedTest:
    """One paired t-test of a run against the baseline."""

    difference: float
    """mean of the run minus mean of the baseline"""
    p_value: float
    """of the t-test, uncorrected"""
    corrected: float
    """the p-value after the table's correction; with Bonferroni's, times the number of tests, at most 1"""

    @property
    def marker(self) -> str:
        """‡ for a corrected p below .01, † for one below .05, nothing otherwise."""
        return next((marker for level, marker in MARKERS if self.corrected < level), "")


def paired_t_test(baseline: Mapping[str, float], other: Mapping[str, float]) -> float:
    """The two-tailed p-value of the paired t-test over queries.

    If all values are the same, or there are fewer than two queries, p is 1.

    >>> paired_t_test({"1": 0.1, "2": 0.4, "3": 0.2}, {"1": 0.2, "2": 0.5, "3": 0.4})
    0.05719095841793...
    """
    if baseline.keys() != other.keys():
        raise InputError(
            "a paired test needs the same queries on both sides; evaluate both runs on the same judgments."
        )
    differences = [other[query] - value for query, value in baseline.items()]
    if len(differences) < 2 or not any(differences):
        return 1.0
    if len(set(differences)) == 1:
        return 0.0  # the limit for a difference without variance
    from scipy.stats import ttest_1samp

    return float(ttest_1samp(differences, 0.0).pvalue)


def compare_to_baseline(
    baseline: str, evaluations: Mapping[str, Evaluation], correction: Correction = "bonferroni"
) -> dict[str, dict[str, PairedTest]]:
    """Test every other run against the baseline on every measure; run name -> measure -> test.

    Bonferroni's correction counts all tests: (runs - 1) x measures. Without a correction, each test stands alone.

    ```python
    tests = compare_to_baseline("bm25", {"bm25": bm25, "rm3": rm3})
    tests["rm3"]["nDCG@20"].marker  # '†'
    ```
    """
    if baseline not in evaluations:
        raise InputError(f"the baseline {baseline} is not among the runs: {', '.join(evaluations)}.")
    check_choice(correction, CORRECTIONS, "correction")
    base = evaluations[baseline]
    others = {name: evaluation for name, evaluation in evaluations.items() if name != baseline}
    count = len(others) * len(base.means) if correction == "bonferroni" else 1
    return {
        name: {measure: _test(base, evaluation, measure, count) for measure in base.means}
        for name, evaluation in others.items()
    }


def _test(baseline: Evaluation, other: Evaluation, measure: str, count: int) -> PairedTest:
    p_value = paired_t_test(baseline.per_query[measure], other.per_query[measure])
    return PairedTest(other.means[measure] - baseline.means[measure], p_value, min(1.0, p_value * count))
