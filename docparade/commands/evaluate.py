"""`docparade evaluate`: measure runs, compare them with a baseline."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from docparade.commands.inputs import BinaryOption, CollectionOption, QrelsOption, name_runs, read_judgments
from docparade.commands.output import JsonOption, note, print_json, print_table

if TYPE_CHECKING:
    from docparade.retrieval.measures import Evaluation
    from docparade.retrieval.significance import PairedTest

Evaluations = dict[str, "Evaluation"]
Tests = dict[str, dict[str, "PairedTest"]]


def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="TREC run files, gzip or not.")],
    collection: CollectionOption = None,
    qrels: QrelsOption = None,
    measures: Annotated[
        str, typer.Option(help="Names as in ir_measures, parted by spaces; nERR and Q are there too.")
    ] = "nDCG@20 AP@100 P@20",
    baseline: Annotated[
        Path | None, typer.Option(help="The run to test the others against; it may be one of them.")
    ] = None,
    binary: BinaryOption = False,
    per_query: Annotated[bool, typer.Option("--per-query", help="Show every query's values as well.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure runs, and test them against a baseline.

    Means are over all judged queries: one that a run leaves out scores 0 there. Significance is the two-tailed paired
    t-test over queries, with Bonferroni's correction over all tests of the table: † p < .05, ‡ p < .01.

    Measures: nDCG@20, AP@100, P@20, R@1000, RR@10, ERR@20, nERR@10, Q@10, nDCG(dcg='exp-log2')@20 with exponential
    gain, nDCG(gains={1:4,2:3,3:2,4:1})@20 with gains of your own, P(rel=2)@10 from grade 2 on, and others.

    Example: docparade evaluate --collection cranfield --measures "nDCG@20 AP@100 P@20" --baseline bm25.txt bm25.txt
    rm3.txt
    """
    from docparade.retrieval.measures import evaluate as evaluate_run
    from docparade.retrieval.measures import parse_measures
    from docparade.retrieval.runs import read_run
    from docparade.retrieval.significance import compare_to_baseline

    names = [str(measure) for measure in parse_measures(measures)]
    judgments = read_judgments(collection, qrels, binary)
    labels = name_runs([baseline, *runs] if baseline and baseline not in runs else runs)
    evaluations = {label: evaluate_run(judgments, read_run(path), names) for path, label in labels.items()}
    base = labels[baseline] if baseline else None
    tests = compare_to_baseline(base, evaluations) if base else {}
    _say_what_is_missing(evaluations)
    if as_json:
        print_json(_as_json(evaluations, tests, base, per_query))
        return
    _print_means(evaluations, tests, base, names, len(judgments))
    if per_query:
        for name in names:
            _print_queries(evaluations, name)


def _say_what_is_missing(evaluations: Evaluations) -> None:
    for label, evaluation in evaluations.items():
        if evaluation.not_retrieved:
            note(f"{label} has no document for {_some(evaluation.not_retrieved)}; they score 0.")
        if evaluation.not_judged:
            note(f"{label} answers {_some(evaluation.not_judged)} without judgments; they take no part.")


def _some(queries: tuple[str, ...]) -> str:
    shown = ", ".join(queries[:3]) + (", …" if len(queries) > 3 else "")
    return f"{len(queries)} {'query' if len(queries) == 1 else 'queries'} ({shown})"


def _print_means(evaluations: Evaluations, tests: Tests, base: str | None, names: list[str], queries: int) -> None:
    marked = {label: {name: test.marker for name, test in found.items()} for label, found in tests.items()}
    rows = [
        [label, *(f"{evaluation.means[name]:.4f}{marked.get(label, {}).get(name, ''):1}" for name in names)]
        for label, evaluation in evaluations.items()
    ]
    count = sum(map(len, tests.values()))
    caption = f"against {base}: † p < .05, ‡ p < .01 (paired t-test, Bonferroni over {count} tests)" if count else ""
    print_table(f"{queries} judged queries", ["run", *names], rows, caption)


def _print_queries(evaluations: Evaluations, measure: str) -> None:
    values = {label: evaluation.per_query[measure] for label, evaluation in evaluations.items()}
    queries = next(iter(values.values()))
    rows = [[query, *(f"{values[label][query]:.4f}" for label in values)] for query in queries]
    print_table(measure, ["query", *values], rows)


def _as_json(evaluations: Evaluations, tests: Tests, base: str | None, per_query: bool) -> dict[str, Any]:
    return {
        "baseline": base,
        "tests": sum(map(len, tests.values())),
        "runs": {
            label: {
                "means": evaluation.means,
                "not_retrieved": evaluation.not_retrieved,
                "not_judged": evaluation.not_judged,
                "significance": {name: asdict(test) for name, test in tests.get(label, {}).items()},
                **({"per_query": evaluation.per_query} if per_query else {}),
            }
            for label, evaluation in evaluations.items()
        },
    }
