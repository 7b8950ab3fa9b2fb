"""A full ranker, which scores all documents, against the first stage and its reranking (Ghasemi and Hiemstra, 2021)."""

from collections.abc import Sequence
from dataclasses import dataclass

from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import Qrels, Run

from .analyses import UniqueRelevant, unique_relevant
from .gains import Gains
from .measures import Evaluation, evaluate
from .significance import PairedTest, compare_to_baseline

FIRST_STAGE, RERANKER, FULL_RANKER = "first stage", "re-ranker", "full ranker"


@dataclass(frozen=True)
class FullRankingComparison:
    """How effective the three rankers are, and what each finds that the other does not."""

    evaluations: dict[str, Evaluation]
    tests: dict[str, dict[str, PairedTest]]
    """against the first stage, not corrected"""
    unique: dict[tuple[str, str], list[UniqueRelevant]]
    """(found by, not by) -> an entry for each depth"""
    not_ranked: list[str]
    """queries with judgments that the full ranker does not rank; they are not counted"""


def compare_full_ranking(
    qrels: Qrels,
    first_stage: Run,
    reranked: Run,
    full: Run,
    measures: str | Sequence[str] = "AP@100 nDCG@20",
    depths: Sequence[int] = (10, 20, 100),
    gains: Gains | None = None,
) -> FullRankingComparison:
    """Compare the runs on the judged queries that the full ranker ranks; the first stage may have found nothing.

    Unique relevant documents have their grades, or the gains that are named for these; `gains.binary` is for the
    measures alone.

    ```python
    compared = compare_full_ranking(qrels, bm25, reranked, full)
    compared.unique["full ranker", "first stage"][0].share
    ```
    """
    gains = gains or Gains()
    judged = {query: grades for query, grades in gains.regrade(qrels).items() if grades}
    counted = {query: grades for query, grades in judged.items() if full.get(query)}
    if not counted:
        raise InputError("no query of the full ranker has judgments; name the judgments of its collection.")
    found = {FIRST_STAGE: first_stage, RERANKER: reranked, FULL_RANKER: full}
    runs = {label: gains.rank(run, qrels) for label, run in found.items()}
    measured = {query: grades for query, grades in gains.judge(qrels).items() if query in counted}
    evaluations = {label: evaluate(measured, run, measures) for label, run in runs.items()}
    pairs = [pair for other in (FIRST_STAGE, RERANKER) for pair in ((other, FULL_RANKER), (FULL_RANKER, other))]
    return FullRankingComparison(
        evaluations,
        compare_to_baseline(FIRST_STAGE, evaluations, "none"),
        {pair: [unique_relevant(counted, runs[pair[0]], runs[pair[1]], depth) for depth in depths] for pair in pairs},
        [query for query in judged if query not in counted],
    )
