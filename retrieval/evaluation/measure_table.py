"""The table of measures that commands print and recipes write: a row for each run, with marks of significance."""

from collections.abc import Mapping

from .measures import Evaluation
from .significance import Correction, PairedTest


def mean_rows(
    evaluations: Mapping[str, Evaluation], tests: Mapping[str, Mapping[str, PairedTest]], names: list[str]
) -> list[list[str]]:
    """A row for each run: its name and its means; † and ‡ mark significant differences to the baseline.

    The last character of a mean is its mark, or a space, so that columns stay aligned.
    """
    return [
        [label, *(f"{evaluation.means[name]:.4f}{_mark(tests, label, name):1}" for name in names)]
        for label, evaluation in evaluations.items()
    ]


def caption(baseline: str, tests: Mapping[str, Mapping[str, PairedTest]], correction: Correction = "bonferroni") -> str:
    """What the marks mean; empty if nothing was tested."""
    count = sum(map(len, tests.values()))
    if not count:
        return ""
    number = "1 test" if count == 1 else f"{count} tests"
    corrected = f"Bonferroni over {number}" if correction == "bonferroni" else f"{number}, not corrected"
    return f"against {baseline}: † p < .05, ‡ p < .01 (paired t-test, {corrected})"


def _mark(tests: Mapping[str, Mapping[str, PairedTest]], label: str, name: str) -> str:
    return tests[label][name].marker if label in tests else ""
