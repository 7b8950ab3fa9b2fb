"""What a card says about results: a table for each test set, and the commands that give its figures."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any

from docparade.hub_cards.record_files import RECIPE_FILE
from docparade.retrieval.evaluation.significance import MARKERS

from .markdown import as_table
from .saved_model import SavedModel

OURS = "reranked"
"""In the results of recipes, the name of the run that the model alone made."""
_SIMILARITY = ("k1", "b", "mu", "feedback_documents", "feedback_terms", "original_weight")


@dataclass(frozen=True)
class ResultTable:
    """The results on one test set."""

    title: str
    about: str
    table: str
    caption: str
    commands: str


def result_tables(model: SavedModel, name: str) -> list[ResultTable]:
    """The results of a model.

    Args:
        model: The checkpoint.
        name: Its Hub id, for commands.
    """
    return [
        ResultTable(_title(test, model), _about(test), _table(test), _caption(test), commands(test, model, name))
        for test in model.tests
    ]


def public_collection_of(test: dict[str, Any]) -> str | None:
    """The id of the one collection of a test set, if others can read it."""
    names = test.get("collection") or []
    return names[0] if len(names) == 1 else None


def best_run(test: dict[str, Any]) -> dict[str, Any]:
    """The run that the model made alone, with its label: `reranked`, or else the last one that is not the baseline."""
    runs = test["runs"]
    others = [label for label in runs if label != test.get("baseline")]
    label = OURS if OURS in runs else (others or list(runs))[-1]
    return {"label": label, **runs[label]}


def worse_than_first_stage(test: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Measures by which the model's run is below the baseline: name, its own value, the baseline's."""
    base = test["runs"].get(test.get("baseline"))
    if base is None:
        return []
    means = best_run(test)["means"]
    return [(name, value, base["means"][name]) for name, value in means.items() if value < base["means"][name]]


def commands(test: dict[str, Any], model: SavedModel, name: str) -> str:
    """The commands that give the figures of a test set; empty if others cannot run them."""
    simple = _retrieve_and_rerank(test, name)
    if simple:
        return simple
    if test not in model.record.get("test", []) or not model.has_recipe:
        return ""
    return f"docparade {recipe_command(model)}"


def recipe_command(model: SavedModel) -> str:
    """The command, without `docparade`, that runs the recipe beside the model."""
    fold, stages = model.record.get("fold"), model.record.get("stages", [])
    # A recipe that names no fold was run by cross-validation.
    if fold and stages and "fold" not in stages[-1]["data"]:
        return f"crossval {RECIPE_FILE} --fold {shlex.quote(fold)}"
    return f"train {RECIPE_FILE}"


def _retrieve_and_rerank(test: dict[str, Any], name: str) -> str:
    """The three commands, if they give exactly the test's figures."""
    collection, first = public_collection_of(test), test.get("first_stage")
    if not collection or not first or test.get("candidates") != "first_stage" or OURS not in test["runs"]:
        return ""
    if any(test.get(key) for key in ("max_queries", "folds", "qrels", "processor")):
        return ""
    where = f"--collection {shlex.quote(collection)}"
    field = f" --field {shlex.quote(test['query_field'])}" if test.get("query_field") else ""
    options = "".join(f" --{key.replace('_', '-')} {first[key]}" for key in _SIMILARITY if first.get(key) is not None)
    engine = "" if first.get("engine", "embedded") == "embedded" else f" --engine {first['engine']}"
    gains = " --binary" if test.get("binary") else ""
    gains += f" --gains {shlex.quote(test['gains'])}" if test.get("gains") else ""
    measures = shlex.quote(test["measures"])
    return "\n".join(
        [
            f"docparade retrieve {where}{field} --method {first['method']}{options} --hits {first['hits']}{engine}"
            " --output first-stage.txt",
            f"docparade rerank --model {shlex.quote(name)} {where}{field} --run first-stage.txt --depth {test['depth']}"
            " --output reranked.txt",
            f"docparade evaluate {where}{gains} --measures {measures} --baseline first-stage.txt"
            " first-stage.txt reranked.txt",
        ]
    )


def _title(test: dict[str, Any], model: SavedModel) -> str:
    fold = model.record.get("fold") if test.get("folds") else None
    return f"{test['name']}, fold {fold}" if fold else str(test["name"])


def _about(test: dict[str, Any]) -> str:
    parts = []
    if collection := ", ".join(test.get("collection", [])):
        parts.append(f"Collection: `{collection}`.")
    elif test.get("local"):
        parts.append("A collection that is not public.")
    if first := test.get("first_stage"):
        values = [f"{key} = {first[key]}" for key in _SIMILARITY if first.get(key) is not None]
        if tuned := first.get("tuned"):
            values.append(f"{', '.join(tuned['parameters'])} tuned on the {tuned['queries']} queries of each fold")
        parts.append(f"First stage: {first['method'].upper()} ({', '.join(values)}).")
    elif test.get("run"):
        parts.append("The first stage is a run from elsewhere.")
    if test.get("candidates") == "all":
        parts.append("Every document of the collection was ranked.")
    elif test.get("depth"):
        parts.append(f"The first {test['depth']} documents of each query were reranked.")
    if test.get("binary"):
        parts.append("All grades above 0 count as 1.")
    if test.get("gains"):
        parts.append(f"Grades count as these gains: {test['gains']}.")
    weight = test.get("first_stage_weight")
    if isinstance(weight, float) and "interpolated" in test["runs"]:
        parts.append(f"Interpolated: z-scores, the first stage's weighted {weight:g} (chosen on validation queries).")
    return " ".join(parts)


def _table(test: dict[str, Any]) -> str:
    measures = list(next(iter(test["runs"].values()))["means"])
    rows = [
        [_label(label), *(f"{run['means'][name]:.4f}{_mark(run, name)}" for name in measures)]
        for label, run in test["runs"].items()
    ]
    return as_table(["run", *measures], rows)


def _label(label: str) -> str:
    """A run's label; a file's name is given without folder and ending."""
    return re.sub(r"(\.txt|\.run|\.trec)?(\.gz)?$", "", re.split(r"[/\\]", label)[-1], count=1)


def _mark(run: dict[str, Any], measure: str) -> str:
    test = run.get("significance", {}).get(measure)
    return next((mark for level, mark in MARKERS if test and test["corrected"] < level), "")


def _caption(test: dict[str, Any]) -> str:
    queries = test.get("queries")
    count = "" if queries is None else f"{queries} judged {'query' if queries == 1 else 'queries'}. "
    tests = sum(len(run.get("significance", {})) for run in test["runs"].values())
    if not tests:
        return count.strip()
    number = "1 test" if tests == 1 else f"{tests} tests"
    base = f"the {test['baseline']}" if test["baseline"] == "first stage" else _label(test["baseline"])
    corrected = f"{number}, not corrected" if test.get("correction") == "none" else f"Bonferroni over {number}"
    return f"{count}† p < .05, ‡ p < .01 against {base} (two-tailed paired t-test, {corrected})."
