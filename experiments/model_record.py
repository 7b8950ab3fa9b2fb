"""Where a model comes from, for its card: encoder, data, stages and results, by names that others can use.

The path of a local file or folder is never recorded: of a local collection only the folder's own name, of local weights
nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from transformers.utils import cached_file

from docparade.experiments.recipes.data_recipe import SCORED_DOCUMENTS, DataRecipe
from docparade.experiments.recipes.first_stage_recipe import FirstStageRecipe
from docparade.experiments.recipes.model_recipe import PACKAGE, ModelRecipe
from docparade.experiments.recipes.recipe import Recipe, Stage
from docparade.hub_cards.record_files import CARD_FILE, RECIPE_FILE, RECORD_FILE
from docparade.retrieval.errors import InputError
from docparade.retrieval.storage.files import atomic_write

from .experiment_results import Results
from .model_building import locate

_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?").fullmatch
_PREFIXES = ("docparade:", "hf:")


def record_provenance(
    trained: Path, recipe: Recipe, results: Sequence[Results], parameters: int, fold: str | None = None
) -> None:
    """Add to a model's record what its card needs; save its recipe beside it, if others can run that.

    Args:
        trained: The model's folder.
        recipe: What it was trained by.
        results: What was measured on the test sets.
        parameters: How many the model has: encoder, aggregator and head.
        fold: The fold's name, if there are folds.
    """
    path = trained / RECORD_FILE
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    content["recipe"] = recipe.name
    content |= {name: value for name, value in {"fold": fold, "paper": recipe.paper}.items() if value}
    content["lora"] = recipe.lora
    content["parameters"] = parameters
    content["encoder"] = describe_encoder(recipe.stages[0].model)
    content["stages"] = [_describe_stage(stage) for stage in recipe.stages if stage.is_trained]
    content["test"] = _describe_tests(recipe, results)
    if is_public(recipe):
        # Temporary files are outside the model's folder, which never holds anything unfinished.
        with atomic_write(trained / RECIPE_FILE, folder=trained.parent) as file:
            file.write(recipe.to_yaml())
    with atomic_write(path, folder=trained.parent) as file:
        json.dump(content, file, indent=2)
        file.write("\n")


def describe_encoder(model: ModelRecipe) -> dict[str, Any]:
    """The encoder that a first stage starts from: its public name, and the license that it names."""
    record = _record_beside(model.source) if model.checkpoint is not None else None
    if record is not None:
        return record
    described = {
        "source": public_model(model.source),
        "used_as": model.source_key,
        "revision": model.revision,
        "license": _read_license(model),
    }
    return {name: value for name, value in described.items() if value is not None}


def is_public(recipe: Recipe) -> bool:
    """Whether others can run a recipe: it names no local files or folders.

    Example:
        >>> from docparade.experiments import load_recipe
        >>> is_public(load_recipe("cranfield-minilm"))
        True
    """
    stages = {stage.name for stage in recipe.stages}
    return all(
        [
            *(public_model(name) is not None for name in _model_names(recipe) if name not in stages),
            *(_is_public_data(data) for data in _data(recipe)),
        ]
    )


def public_model(name: str) -> str | None:
    """A model's Hub id or package; `None` for a local folder.

    Example:
        >>> public_model("microsoft/MiniLM-L12-H384-uncased"), public_model("../my/encoder")
        ('microsoft/MiniLM-L12-H384-uncased', None)
    """
    if name.startswith(PACKAGE):
        return name
    return name if _HUB_ID(name) and not Path(name).exists() else None


def public_collection(name: str) -> str | None:
    """The id of a collection or of triples; `None` for local ones."""
    if name.startswith(_PREFIXES):
        return name
    is_path = name.startswith(("/", ".", "~")) or name.endswith((".tsv", ".jsonl", ".jsonl.gz"))
    return None if is_path or Path(name).exists() else name


def _model_names(recipe: Recipe) -> Iterator[str]:
    for number, stage in enumerate(recipe.stages):
        if number == 0:
            yield stage.model.source
        if stage.teacher is not None:
            yield stage.teacher
        if stage.data.passage_filter is not None:
            yield stage.data.passage_filter.scorer


def _data(recipe: Recipe) -> Iterator[DataRecipe]:
    for stage in recipe.stages:
        yield from (stage.data, *stage.validation)
    yield from recipe.test


def _is_public_data(data: DataRecipe) -> bool:
    files = (data.qrels, data.folds and data.folds.file, None if data.run == SCORED_DOCUMENTS else data.run)
    return not any(files) and all(public_collection(name) for name in (*data.collection, *data.triples))


def _describe_stage(stage: Stage) -> dict[str, Any]:
    described = {
        "name": stage.name,
        "training": stage.training,
        "data": _describe_data(stage.data),
        "validation": [_describe_data(data) for data in stage.validation],
        "layers": stage.model.layers,
        "teacher": stage.teacher and (public_model(stage.teacher) or "a local model"),
    }
    return {name: value for name, value in described.items() if value}


def _describe_data(data: DataRecipe) -> dict[str, Any]:
    names = (*data.collection, *data.triples)
    public = [public_collection(name) for name in names]
    described: dict[str, Any] = {
        "name": (data.name or Path(names[0]).name) if public[0] is None else data.label,
        # Only all of them together can be read again under these names.
        "collection": list(public) if data.collection and None not in public else None,
        "triples": list(public) if data.triples and None not in public else None,
        "local": None in public,
        "run": data.run and (data.run if data.run == SCORED_DOCUMENTS else "file"),
        "first_stage": data.first_stage and _describe_first_stage(data.first_stage),
        "query_field": data.query_field,
        "max_queries": data.max_queries,
        "qrels": "file" if data.qrels else None,
        "binary": data.binary,
        "gains": data.gains,
        "folds": data.folds and _without_none({**vars(data.folds), "file": None}),
        "fold": data.fold,
        "sample": data.sample and vars(data.sample),
    }
    return {name: value for name, value in described.items() if value}


def _describe_first_stage(stage: FirstStageRecipe) -> dict[str, Any]:
    """Its settings; of parameters that each fold chose, the names alone."""
    described = _without_none({**vars(stage), "tune": None})
    if stage.tune is None:
        return described
    tuned = {"parameters": list(stage.tune.grid), "queries": stage.tune.queries, "measure": stage.tune.measure}
    return {name: value for name, value in described.items() if name not in stage.tune.grid} | {"tuned": tuned}


def _describe_tests(recipe: Recipe, results: Sequence[Results]) -> list[dict[str, Any]]:
    by_label = {data.label: data for data in recipe.test}
    described = []
    for one in results:
        # With folds, the test queries are the fold's.
        tested = by_label.get(one.name)
        data = _describe_data(tested or recipe.data)
        measured = one.to_dict()
        for run in measured["runs"].values():
            del run["per_query"]
        described.append(
            {
                **data,
                **({"trained_on_it": True} if tested and _is_trained_on(recipe, tested) else {}),
                "measures": recipe.measures,
                "depth": recipe.rerank.depth,
                "candidates": recipe.rerank.candidates,
                **({"processor": recipe.rerank.processor_options} if recipe.rerank.processor else {}),
                **measured,
            }
        )
    return described


def _is_trained_on(recipe: Recipe, tested: DataRecipe) -> bool:
    """Whether a test set's queries may be among those of training."""
    trained = [stage for stage in recipe.stages if stage.is_trained]
    return any(set(stage.data.collection) & set(tested.collection) for stage in trained)


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _record_beside(checkpoint: str) -> dict[str, Any] | None:
    """The encoder of a ranker's checkpoint, if that was recorded when it was trained."""
    try:
        content = json.loads((Path(checkpoint) / RECORD_FILE).read_text(encoding="utf-8"))
        return dict(content["encoder"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read_license(model: ModelRecipe) -> str | None:
    """The license in the metadata of the encoder's own card, if that is at hand."""
    try:
        source = locate(model.source, "model")
        quiet = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
        card = cached_file(source, CARD_FILE, revision=model.revision, local_files_only=True, **quiet)
        text = Path(card).read_text(encoding="utf-8") if card else ""
        metadata = yaml.safe_load(text.split("---", 2)[1]) if text.startswith("---") else None
    except (OSError, ValueError, InputError, yaml.YAMLError):
        return None
    found = metadata.get("license") if isinstance(metadata, dict) else None
    return found if isinstance(found, str) else None
