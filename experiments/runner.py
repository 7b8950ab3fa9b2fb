"""Running a recipe: from a resolved recipe to a folder with models, runs and measures.

    outputs/NAME/
        resolved.yaml, versions.json    what was run, complete, and on what
        first-stage/                    the first stage's runs
        stages/NAME/                    of each stage: the Trainer's checkpoints, and its best model
        model/                          the last stage's best model, with measured.json
        runs/                           validation and test queries, reranked and interpolated
        measures.json, measures.md      what they measure, against the first stage

Every file and folder appears whole. The same command goes on where a run was stopped, repeats nothing that is done, and
ends with the same numbers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from accelerate import PartialState

from docparade.modeling import DocumentRanker
from docparade.reranking.loading import load_ranker
from docparade.reranking.processes import join_processes, one_at_a_time, working_together
from docparade.reranking.rerank_run import check_documents
from docparade.retrieval.birch import cross_validate_birch, read_passage_scores
from docparade.retrieval.errors import InputError
from docparade.retrieval.folds import Fold
from docparade.retrieval.runs import Qrels, Run, cut
from docparade.retrieval.storage.files import TEMPORARY, atomic_write, sweep
from docparade.trainer.checkpoints import make_folder
from docparade.trainer.training_record import MEASURED, versions

from .models import set_processor
from .preflight import check_inputs
from .query_sets import (
    FIRST_STAGE_FOLDER,
    Material,
    choose_fold,
    fold_names,
    load_material,
    make_folds,
    told_as,
    training_judgments,
)
from .recipe import Recipe
from .results import (
    BIRCH,
    FIRST_STAGE,
    INTERPOLATED,
    RERANKED,
    Results,
    choose_weight,
    interpolated,
    keep,
    measure,
    read_depth,
    rerank_material,
    write_measures,
)
from .stages import train_stage
from .training_data import MODEL_FOLDER, Lesson, lesson_of_queries, lesson_of_stage, stage_folder

RESOLVED = "resolved.yaml"
VERSIONS = "versions.json"
RUNS_FOLDER = "runs"
FOLD = "fold-"
"""how the name of a fold's folder begins"""


@dataclass(frozen=True)
class Exam:
    """Test queries, with what Birch needs if it is asked for."""

    material: Material
    birch: int | None = None
    folds: dict[str, Fold] | None = None


@working_together()
def run_recipe(recipe: Recipe, folder: Path) -> list[Results]:
    """Train, rerank and measure; returns what was measured on each test set. All processes call this.

    Args:
        recipe: What `load_recipe` gave. If it has folds, it names one of them.
        folder: Where everything goes; made if it is not there.

    Example:
        ```python
        recipe = load_recipe("cranfield-minilm")
        run_recipe(recipe, Path("outputs/cranfield"))
        ```
    """
    if recipe.data.folds is not None and recipe.data.fold is None:
        raise InputError(
            f"{recipe.place('data.folds', recipe.stages[-1])}: there are several; train on one with --data.fold 1, or "
            "on all with docparade crossval."
        )
    place, fold = recipe.place("data", recipe.stages[-1]), None
    if recipe.data.fold is not None:
        fold = choose_fold(fold_names(recipe.data, place), recipe.data.fold, f"{place}.fold")
    check_inputs(recipe, folder, [] if (folder / MODEL_FOLDER).is_dir() else [fold])
    join_processes()
    with one_at_a_time(folder):
        return _run(recipe, folder, fold)


def _run(recipe: Recipe, folder: Path, fold: str | None) -> list[Results]:
    open_folder(recipe, folder)
    place = recipe.place("data", recipe.stages[-1])
    tests = [_test_set(recipe, number, folder) for number in range(len(recipe.test))]
    start = train_earlier_stages(recipe, folder)
    if fold is None:
        lesson = lesson_of_stage(recipe, recipe.stages[-1], folder)
        return run_last_stage(recipe, folder, lesson, tests, start=start)
    material = load_material(recipe.data, folder, place)
    return run_fold(recipe, folder, material, fold, make_folds(recipe.data, material, place)[fold], start)


def open_folder(recipe: Recipe, folder: Path) -> None:
    """Make the folder, or see that what is in there is of the same recipe."""
    with join_processes().main_process_first():
        path = folder / RESOLVED
        content = recipe.to_yaml()
        _make(folder)
        # What a killed process was writing. The lock on the folder says that no other one is at work, but in folds.
        for place in folder.iterdir():
            if place.is_dir() and not place.name.startswith(FOLD):
                sweep(place)
            elif place.name.startswith(TEMPORARY):
                place.unlink()
        if path.is_file():
            before, now = _read_resolved(path), yaml.safe_load(content)
            if before == now:
                return
            # Where nothing was trained yet, nothing is lost.
            if {entry.name for entry in folder.iterdir()} - {RESOLVED, VERSIONS, FIRST_STAGE_FOLDER}:
                raise InputError(
                    f"{folder} holds a run of another recipe ({_difference(before, now)}); choose another folder with "
                    "--output, or move this one away."
                )
        elif {entry.name for entry in folder.iterdir()} - {VERSIONS}:
            raise InputError(f"{folder} is not empty, and holds no run of a recipe; choose another with --output.")
        with atomic_write(folder / VERSIONS) as file:
            json.dump(versions(), file, indent=1)
        with atomic_write(path) as file:
            file.write(content)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made ({error.strerror}); choose another folder with --output.") from None


def _read_resolved(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        raise InputError(
            f"{path} cannot be read; put it back as it was, or choose another folder with --output."
        ) from None


def train_earlier_stages(recipe: Recipe, folder: Path) -> Path | None:
    """All stages but the last, which may have folds; returns the last one's checkpoint."""
    start = None
    for stage in recipe.stages[:-1]:
        place = stage_folder(folder, stage)
        done = place / MODEL_FOLDER
        # Of a stage that is done, the data need not even be there.
        if not done.is_dir():
            train_stage(recipe, stage, place, lesson_of_stage(recipe, stage, folder), start=start)
        start = done
    return start


def run_fold(
    recipe: Recipe, folder: Path, material: Material, name: str, fold: Fold, start: Path | None
) -> list[Results]:
    """The last stage on one fold: trained on its training queries, chosen on dev, tested on test."""
    stage = recipe.stages[-1]
    qrels = training_judgments(stage.data, material)
    dev = material.of(fold.dev, "dev", qrels).to_measure()
    known = [query for query in fold.train if query in material.queries]
    with told_as(recipe.place("data", stage)):
        lesson = lesson_of_queries(stage, recipe.seed, material, known, (dev,) if dev.queries else (), qrels)
    test = Exam(material.of(fold.test, "test"))
    return run_last_stage(recipe, folder, lesson, [test], fold=name, start=start)


def run_last_stage(
    recipe: Recipe,
    folder: Path,
    lesson: Lesson,
    tests: list[Exam],
    fold: str | None = None,
    start: Path | None = None,
) -> list[Results]:
    """Train the last stage, and rerank and measure the test sets with its model."""
    trained = train_stage(recipe, recipe.stages[-1], folder, lesson, fold, start)
    runs = folder / RUNS_FOLDER
    make_folder(runs)
    model = _load(recipe, trained)
    weight = _weight(recipe, model, lesson, runs)
    results = [_test(recipe, model, test, runs, weight) for test in tests]
    if PartialState().is_main_process:
        write_measures(results, folder)
        _add_to_measured(trained, recipe, results)
    PartialState().wait_for_everyone()
    return results


def _load(recipe: Recipe, trained: Path) -> DocumentRanker:
    model = load_ranker(str(trained))
    if recipe.rerank.processor:
        set_processor(model, recipe.rerank.processor_options, f"{recipe.file}, rerank.processor")
    return model


def _weight(recipe: Recipe, model: DocumentRanker, lesson: Lesson, runs: Path) -> float | None:
    """The first stage's share, chosen on the validation queries, if there are any."""
    if not lesson.validation:
        return None
    settings = recipe.rerank.on_first_stage()
    reranked = [
        (one, rerank_material(model, one, settings, runs / f"validation-{one.name}.txt")) for one in lesson.validation
    ]
    return choose_weight(reranked, recipe.stages[-1].training["measure"], settings.depth)


def _test(recipe: Recipe, model: DocumentRanker, test: Exam, runs: Path, weight: float | None) -> Results:
    material = test.material
    scores = runs / f"{material.name}-passages.jsonl" if test.birch else None
    reranked = rerank_material(model, material, recipe.rerank, runs / f"{material.name}.txt", scores)
    compared: dict[str, Run] = {FIRST_STAGE: material.run, RERANKED: reranked}
    if weight is not None:
        depth = read_depth(material, recipe.rerank)
        fused = interpolated(material.run, reranked, weight, depth)
        compared[INTERPOLATED] = keep(fused, runs / f"{material.name}-interpolated.txt", INTERPOLATED)
    if scores is not None:
        assert test.folds is not None and test.birch is not None
        first = cut(material.run, recipe.rerank.depth)
        fused, _ = cross_validate_birch(first, read_passage_scores(scores), material.qrels, test.folds, test.birch)
        compared[BIRCH] = keep(fused, runs / f"{material.name}-birch.txt", BIRCH)
    return measure(material.name, compared, _judged(material), recipe.measures, weight)


def _judged(material: Material) -> Qrels:
    return {query: material.qrels[query] for query in material.judged()}


def _test_set(recipe: Recipe, number: int, folder: Path) -> Exam:
    data, place = recipe.test[number], recipe.place(f"test.{number + 1}")
    material = load_material(data, folder, place).to_measure()
    if data.run is not None and recipe.rerank.candidates == "first_stage":
        # A list from elsewhere may name documents that are not there; that should not show after the training.
        with told_as(f"{place}.run"):
            check_documents(material.documents, cut(material.run, recipe.rerank.depth))
    return Exam(material, data.birch, make_folds(data, material, place) if data.birch else None)


def _add_to_measured(trained: Path, recipe: Recipe, results: list[Results]) -> None:
    """What the tests said, beside the model, for its card."""
    path = trained / MEASURED
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    content["recipe"] = recipe.name
    content["test"] = {
        one.name: {run: evaluation.means for run, evaluation in one.evaluations.items()} for one in results
    }
    # Written beside the model's folder: nothing unfinished is ever in there.
    with atomic_write(path, folder=trained.parent) as file:
        json.dump(content, file, indent=2)
        file.write("\n")


def _difference(before: Any, now: Any, place: str = "") -> str:
    """The first key at which two resolved recipes differ, with both values."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*before, *now]):
            if before.get(key) != now.get(key):
                return _difference(before.get(key), now.get(key), f"{place}.{key}".lstrip("."))
    return f"{place or 'all of it'} is {now!r}, and was {before!r}"
