"""How good a trained ranker is: test queries reranked, interpolated with the first stage, measured and compared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from accelerate import PartialState

from docparade.modeling import DocumentRanker
from docparade.reranking.rerank_run import put_above, rerank_to_file
from docparade.reranking.resumable_parts import is_done
from docparade.reranking.token_cache import TokenCache
from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.measures import Evaluation, evaluate
from docparade.retrieval.evaluation.significance import PairedTest, compare_to_baseline
from docparade.retrieval.fusion import Normalization, interpolate
from docparade.retrieval.runs import Qrels, Run, cut, read_run, write_run
from docparade.retrieval.storage.files import atomic_write

from .query_sets import Material
from .sections import RerankRecipe

FIRST_STAGE, RERANKED, INTERPOLATED, BIRCH = "first stage", "reranked", "interpolated", "birch"
WEIGHTS = tuple(step / 10 for step in range(11))
NORMALIZATION: Normalization = "zscore"


@dataclass(frozen=True)
class Results:
    """What the measures say of the runs on one test set, against the first stage."""

    name: str
    evaluations: dict[str, Evaluation]
    tests: dict[str, dict[str, PairedTest]]
    weight: float | dict[str, float] | None = None
    """The first stage's share in the interpolated run, chosen on validation queries; of each fold, if there are."""

    @property
    def queries(self) -> int:
        """How many judged queries were measured."""
        return len(next(iter(next(iter(self.evaluations.values())).per_query.values())))

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "queries": self.queries,
            "baseline": FIRST_STAGE,
            "first_stage_weight": self.weight,
            "runs": {
                run: {
                    "means": evaluation.means,
                    "significance": {name: asdict(test) for name, test in self.tests.get(run, {}).items()},
                    "per_query": evaluation.per_query,
                }
                for run, evaluation in self.evaluations.items()
            },
        }


def measure(name: str, runs: Mapping[str, Run], qrels: Qrels, measures: str, weight: Any = None) -> Results:
    """Measure runs, of which the first is the first stage's, and compare the others with it."""
    evaluations = {label: evaluate(qrels, run, measures) for label, run in runs.items()}
    return Results(name, evaluations, compare_to_baseline(FIRST_STAGE, evaluations), weight)


def write_measures(results: Sequence[Results], folder: Path) -> None:
    """Write `measures.json`, with everything, and `measures.md`, a table of the means."""
    with atomic_write(folder / "measures.json") as file:
        json.dump({one.name: one.to_dict() for one in results}, file, indent=1)
        file.write("\n")
    with atomic_write(folder / "measures.md") as file:
        file.write("\n".join(line for one in results for line in _table(one)) + "\n")


def _table(results: Results) -> list[str]:
    names = list(results.evaluations[FIRST_STAGE].means)
    rows = [f"| {results.name} | {' | '.join(names)} |", "|" + "---|" * (len(names) + 1)]
    for label, evaluation in results.evaluations.items():
        cells = (f"{evaluation.means[name]:.4f}{_marker(results, label, name)}" for name in names)
        rows.append(f"| {label} | {' | '.join(cells)} |")
    count = sum(map(len, results.tests.values()))
    return [
        *rows,
        "",
        f"{results.queries} judged queries. † p < .05, ‡ p < .01 against the first stage: two-tailed paired t-test, "
        f"Bonferroni over {count} tests.",
        "",
    ]


def _marker(results: Results, label: str, name: str) -> str:
    return results.tests[label][name].marker if label in results.tests else ""


def rerank_material(
    model: DocumentRanker, material: Material, settings: RerankRecipe, output: Path, passage_scores: Path | None = None
) -> Run:
    """The material's queries reranked, into a file that is not made twice. All processes call this."""
    if not is_done(output):
        candidates, depth = _candidates(material, settings), read_depth(material, settings)
        read = {document for found in cut(candidates, depth).values() for document in found}
        cache = TokenCache.open(None, model.require_processor(), material.documents, read)
        rerank_to_file(
            model.to(PartialState().device),
            candidates,
            material.queries,
            material.documents,
            output,
            depth,
            passage_scores=passage_scores,
            encode_documents=cache.encode_documents,
        )
    return read_run(output)


def read_depth(material: Material, settings: RerankRecipe) -> int:
    """How many documents of each query the ranker reads."""
    return settings.depth if settings.candidates == "first_stage" else len(material.documents)


def _candidates(material: Material, settings: RerankRecipe) -> Run:
    if not material.run:
        raise InputError(f"{material.name}: not one of its queries has a list to rerank.")
    if settings.candidates == "first_stage":
        return material.run
    everything = dict.fromkeys(material.documents, 0.0)
    return {query: dict(everything) for query in material.run}


def interpolated(first: Run, reranked: Run, weight: float, depth: int) -> Run:
    """The first stage and the ranker added, as z-scores over what the ranker read; the rest stays below in its order.

    Example:
        >>> interpolated({"q": {"a": 3.0, "b": 1.0}}, {"q": {"a": 1.0, "b": 2.0}}, weight=1.0, depth=2)
        {'q': {'a': 1.0, 'b': -1.0}}
    """
    read = cut(reranked, depth)
    among = {
        query: {document: score for document, score in first.get(query, {}).items() if document in found}
        for query, found in read.items()
    }
    fused = interpolate([among, read], [weight, 1 - weight], NORMALIZATION)
    return {query: put_above(fused[query], reranked[query]) for query in reranked}


def choose_weight(
    validation: Sequence[tuple[Material, Run]], name: str, depth: int, weights: Sequence[float] = WEIGHTS
) -> float:
    """The first stage's share that measures best on validation queries; of equal ones the smallest."""

    def value(weight: float) -> float:
        values = [
            evaluate(material.qrels, interpolated(material.run, run, weight, depth), name).means[name]
            for material, run in validation
        ]
        return sum(values) / len(values)

    return max(weights, key=lambda weight: (value(weight), -weight))


def keep(run: Run, path: Path, tag: str) -> Run:
    """Write a run, by the first process, and give it back."""
    if PartialState().is_main_process:
        write_run(run, path, tag=tag)
    return run
