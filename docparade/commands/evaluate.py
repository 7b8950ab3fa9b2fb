"""`docparade evaluate`: measure runs, compare them with a baseline."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from docparade.commands.inputs import (
    BinaryOption,
    CollectionOption,
    GainsOption,
    QrelsOption,
    name_runs,
    parse_gains,
    read_judgments,
    read_query_ids,
)
from docparade.commands.output import JsonOption, counted, counted_queries, note, print_json, print_table
from docparade.retrieval.errors import InputError, check_choice

if TYPE_CHECKING:
    from docparade.retrieval.evaluation.measures import Evaluation
    from docparade.retrieval.evaluation.significance import Correction, PairedTest
    from docparade.retrieval.runs import Qrels

Evaluations = dict[str, "Evaluation"]
Tests = dict[str, dict[str, "PairedTest"]]


def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="TREC run files, also as .gz.")],
    collection: CollectionOption = None,
    qrels: QrelsOption = None,
    measures: Annotated[
        str, typer.Option(help="Measures of ir_measures or trec_eval, nERR or Q, separated by spaces.")
    ] = "nDCG@20 AP@100 P@20",
    baseline: Annotated[
        Path | None, typer.Option(help="The run to test the others against; may be one of them.")
    ] = None,
    correction: Annotated[
        str | None,
        typer.Option(
            help="bonferroni: p-values times the number of tests in the table. none: p-values as they are.",
            show_default="bonferroni",
        ),
    ] = None,
    queries: Annotated[
        Path | None, typer.Option(help="Measure only the queries in this file of query ids, one a line.")
    ] = None,
    retrieved_only: Annotated[
        bool,
        typer.Option(
            "--retrieved-only",
            help="Leave out queries without documents in a run, as trec_eval without -c, instead of scoring 0.",
        ),
    ] = False,
    binary: BinaryOption = False,
    gains: GainsOption = None,
    per_query: Annotated[bool, typer.Option("--per-query", help="Also show the values of every query.")] = False,
    as_json: JsonOption = False,
) -> None:
    r"""Measure runs, and test them against a baseline.

    Means are over all judged queries; a query that is not in a run scores 0, unless --retrieved-only is given.
    Significance is by the two-tailed paired t-test over queries, with Bonferroni's correction for all tests in the
    table unless --correction none is given: † p < .05, ‡ p < .01.

    Measures: nDCG@20, AP@100, P@20, R@1000, RR@10, ERR@20, nERR@10, Q@10, nDCG(dcg='exp-log2')@20 with exponential
    gain, P(rel=2)@10 for grades from 2, and others; or trec_eval's names: map, map_cut_100, ndcg_cut_10, P_20,
    recall_1000, recip_rank, bpref, Rprec.

    With -1=out among the --gains, documents with a grade of -1 are taken out of judgments and runs before anything is
    measured.

    Examples:

        docparade evaluate --collection cranfield --binary --measures "nDCG@20 AP" \
            --baseline bm25.txt bm25.txt rm3.txt
        docparade evaluate --collection cranfield --gains 1=4,2=3,3=2,4=1 rm3.txt
    """
    from docparade.retrieval.evaluation.measures import evaluate as evaluate_run, parse_measures
    from docparade.retrieval.evaluation.significance import CORRECTIONS
    from docparade.retrieval.runs import read_run

    if correction is not None and baseline is None:
        raise InputError("--correction is for tests against a baseline; name one with --baseline, or leave it out.")
    chosen = check_choice(correction or "bonferroni", CORRECTIONS, "--correction")

    names = list(parse_measures(measures))
    grades = read_judgments(collection, qrels)
    counting = parse_gains(gains, binary, collection)
    judgments = counting.judge(grades)
    wanted = _judged_of(queries, judgments) if queries else None
    labels = _name_all(runs, baseline)
    base = labels[baseline] if baseline else None
    paths = {label: path for path, label in labels.items()}
    evaluations = {}
    for label, path in paths.items():
        run = counting.rank(read_run(path), grades)
        if retrieved_only and not any(run.get(query) for query in wanted or judgments):
            raise InputError(f"{path} has no document for any judged query; leave out --retrieved-only.")
        evaluations[label] = evaluate_run(judgments, run, names, wanted, retrieved_only)
    tests = _test(base, evaluations, chosen) if base else {}
    _note_missing_queries(evaluations, retrieved_only)
    if as_json:
        counted_as = {"binary": binary, "gains": gains}
        print_json(counted_as | _as_json(evaluations, tests, base, chosen, per_query))
        return
    kind = "judged and retrieved query" if retrieved_only else "judged query"
    _print_means(evaluations, tests, base, chosen, names, kind)
    if per_query:
        for name in names:
            _print_queries(evaluations, name)


def _judged_of(file: Path, judgments: "Qrels") -> list[str]:
    """The queries in a file that have judgments."""
    ids = read_query_ids(file)
    judged = [query for query in ids if judgments.get(query)]
    if not judged:
        raise InputError(f"--queries {file}: none of its queries has judgments.")
    if missing := [query for query in ids if query not in judged]:
        note(f"{counted_queries(missing)} of {file} without judgments: not counted.")
    return judged


def _name_all(runs: list[Path], baseline: Path | None) -> dict[Path, str]:
    """A name for each run; the baseline comes first, unless it is one of the runs."""
    if baseline is None:
        return name_runs(runs)
    labels = name_runs([baseline, *runs])
    if len(set(labels.values())) == 1:
        note(f"there is no run other than the baseline {baseline}, so nothing is tested.")
    among = {run: labels[run] for run in runs}
    return among | labels if labels[baseline] in among.values() else labels


def _test(base: str, evaluations: Evaluations, correction: "Correction") -> Tests:
    from docparade.retrieval.evaluation.significance import compare_to_baseline

    for label, evaluation in evaluations.items():
        if evaluation.queries != evaluations[base].queries:
            raise InputError(
                f"{label} and the baseline {base} have documents for different queries, so their means over retrieved "
                "queries cannot be compared; leave out --retrieved-only or --baseline."
            )
    return compare_to_baseline(base, evaluations, correction)


def _note_missing_queries(evaluations: Evaluations, retrieved_only: bool) -> None:
    for label, evaluation in evaluations.items():
        if evaluation.not_retrieved:
            outcome = "not counted" if retrieved_only else "scored 0"
            note(f"{label} has no document for {counted_queries(evaluation.not_retrieved)}: {outcome}.")
        if evaluation.not_judged:
            note(f"{label} has {counted_queries(evaluation.not_judged)} without judgments: not counted.")


def _print_means(
    evaluations: Evaluations, tests: Tests, base: str | None, correction: "Correction", names: list[str], kind: str
) -> None:
    from docparade.retrieval.evaluation.measure_table import caption, mean_rows

    rows = mean_rows(evaluations, tests, names)
    columns = ["run", *names]
    counts = [len(evaluation.queries) for evaluation in evaluations.values()]
    title = counted(counts[0], kind)
    if len(set(counts)) > 1:
        title = counted(2, kind).removeprefix("2 ")
        columns.insert(1, "queries")
        for row, count in zip(rows, counts, strict=True):
            row.insert(1, str(count))
    print_table(title, columns, rows, caption(base or "", tests, correction))


def _print_queries(evaluations: Evaluations, measure: str) -> None:
    values = {label: evaluation.per_query[measure] for label, evaluation in evaluations.items()}
    queries = dict.fromkeys(query for of_run in values.values() for query in of_run)
    rows = [
        [query, *(f"{of_run[query]:.4f}" if query in of_run else "–" for of_run in values.values())]
        for query in queries
    ]
    print_table(measure, ["query", *values], rows)


def _as_json(
    evaluations: Evaluations, tests: Tests, base: str | None, correction: "Correction", per_query: bool
) -> dict[str, Any]:
    return {
        "baseline": base,
        "tests": sum(map(len, tests.values())),
        "correction": correction if tests else None,
        "runs": {
            label: {
                "queries": len(evaluation.queries),
                "means": evaluation.means,
                "not_retrieved": evaluation.not_retrieved,
                "not_judged": evaluation.not_judged,
                "significance": {name: asdict(test) for name, test in tests.get(label, {}).items()},
                **({"per_query": evaluation.per_query} if per_query else {}),
            }
            for label, evaluation in evaluations.items()
        },
    }
