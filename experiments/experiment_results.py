"""`Results`: what was measured on a test set, and the files that it is written to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from docparade.experiments.recipes.rerank_recipe import SignificanceRecipe
from docparade.retrieval.birch import BirchWeights
from docparade.retrieval.evaluation.measure_table import caption, mean_rows
from docparade.retrieval.evaluation.measures import Evaluation, evaluate
from docparade.retrieval.evaluation.significance import Correction, PairedTest, compare_to_baseline
from docparade.retrieval.runs import Qrels, Run
from docparade.retrieval.storage.files import atomic_write

from .output_folder import OutputFolder

FIRST_STAGE, UNTRAINED, RERANKED = "first stage", "untrained", "reranked"
INTERPOLATED = "interpolated"


@dataclass(frozen=True)
class Results:
    """The measures of several runs on one test set, each compared with the first stage."""

    name: str
    evaluations: dict[str, Evaluation]
    tests: dict[str, dict[str, PairedTest]]
    weight: float | dict[str, float | None] | None = None
    """The first stage's share in the interpolated run, chosen on validation queries; with folds, that of each fold."""
    correction: Correction = "bonferroni"
    birch_weights: Mapping[str, Mapping[str, BirchWeights]] = field(default_factory=dict)
    """Of each of Birch's runs: the weights that each fold chose on its training queries."""

    @property
    def queries(self) -> int:
        """How many judged queries were measured."""
        return len(next(iter(next(iter(self.evaluations.values())).per_query.values())))

    @property
    def measures(self) -> list[str]:
        """The names of the measures."""
        return list(self.evaluations[FIRST_STAGE].means)

    @property
    def caption(self) -> str:
        """What the marks of the table mean."""
        return caption(f"the {FIRST_STAGE}", self.tests, self.correction)

    def rows(self) -> list[list[str]]:
        """The table: a row for each run, with its name and its means."""
        return mean_rows(self.evaluations, self.tests, self.measures)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        weights = {
            run: {fold: {"document": one.document, "passages": list(one.passages)} for fold, one in folds.items()}
            for run, folds in self.birch_weights.items()
        }
        return {
            "queries": self.queries,
            "baseline": FIRST_STAGE,
            "correction": self.correction,
            "first_stage_weight": self.weight,
            **({"birch_weights": weights} if weights else {}),
            "runs": {
                run: {
                    "means": evaluation.means,
                    "significance": {name: asdict(test) for name, test in self.tests.get(run, {}).items()},
                    "per_query": evaluation.per_query,
                }
                for run, evaluation in self.evaluations.items()
            },
        }


def measure(
    name: str,
    runs: Mapping[str, Run],
    qrels: Qrels,
    measures: str,
    weight: float | dict[str, float | None] | None = None,
    significance: SignificanceRecipe | None = None,
) -> Results:
    """Measure runs, one of which is the first stage's, and compare the others with it."""
    significance = significance or SignificanceRecipe()
    evaluations = {label: evaluate(qrels, run, measures) for label, run in runs.items()}
    # Papers test their rankers; the interpolated run that a recipe adds would raise Bonferroni's number of tests.
    tested = {label: one for label, one in evaluations.items() if significance.interpolated or label != INTERPOLATED}
    tests = compare_to_baseline(FIRST_STAGE, tested, significance.correction)
    return Results(name, evaluations, tests, weight, significance.correction)


def write_measures(results: Sequence[Results], output: OutputFolder) -> None:
    """Write everything that was measured as JSON, and the means as a Markdown table."""
    with atomic_write(output.measures) as file:
        json.dump({one.name: one.to_dict() for one in results}, file, indent=1)
        file.write("\n")
    with atomic_write(output.measures_table) as file:
        file.write("\n".join(line for one in results for line in _markdown(one)) + "\n")


def _markdown(results: Results) -> list[str]:
    head = [f"| {results.name} | {' | '.join(results.measures)} |", "|" + "---|" * (len(results.measures) + 1)]
    rows = [f"| {' | '.join(cell.strip() for cell in row)} |" for row in results.rows()]
    return [*head, *rows, "", f"{results.queries} judged queries, {results.caption}.", ""]
