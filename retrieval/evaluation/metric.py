"""The measures as a metric for Hugging Face `evaluate`: `evaluate.load(RANKING_METRIC)`.

Training validates with it. Importing `evaluate` imports torch, so whatever needs no model calls `measures.evaluate`,
which the metric calls, too.
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from docparade.retrieval.runs import Qrels, Run

RANKING_METRIC = str(Path(__file__).parent / "ranking_metric")
"""the folder to give to `evaluate.load`"""


def compute_metric(qrels: Qrels, run: Run, measures: str) -> dict[str, float]:
    """The mean of each measure over a run's queries, by the metric.

    ```python
    compute_metric({"1": {"a": 1}}, {"1": {"a": 2.0, "b": 3.0}}, "RR P@1")  # {'RR': 0.5, 'P@1': 0.0}
    ```
    """
    # The file that evaluate.load finds in the folder, which is no package; importing it fills no cache of the user.
    from .ranking_metric.ranking_metric import RankingMetric  # type: ignore[import-not-found]

    with TemporaryDirectory() as folder:
        metric = RankingMetric(keep_in_memory=True, cache_dir=folder)
        # The metric takes as many predictions as references; measures ignore queries without judgments.
        ranked = {query: run.get(query, {}) for query in qrels}
        predictions, references = _entries(ranked, "scores"), _entries(qrels, "grades")
        means: dict[str, float] = metric.compute(predictions=predictions, references=references, measures=measures)
    return means


def _entries(table: Mapping[str, Mapping[str, float]], field: Literal["scores", "grades"]) -> list[dict[str, Any]]:
    """One entry for each query, as the metric takes them."""
    return [{"query": query, "documents": list(of), field: list(of.values())} for query, of in table.items()]
