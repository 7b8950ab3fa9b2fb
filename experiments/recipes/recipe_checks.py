"""What no section of a recipe can see alone: which keys go together, and which files would have the same name."""

from __future__ import annotations

from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.measures import parse_measures
from docparade.trainer.arguments import SEEDS
from docparade.trainer.losses import LOSSES

from .data_recipe import DataRecipe, birch_label, is_triple_file
from .recipe import Recipe, Stage
from .typed_values import check_name, check_place


def check_recipe(recipe: Recipe) -> None:
    """Refuse a recipe whose sections do not fit together."""
    check_name("name:", recipe.name)
    if not 0 <= recipe.seed < SEEDS:
        raise InputError(f"seed is {recipe.seed}, and has to be from 0 to {SEEDS - 1}.")
    parse_measures(recipe.measures)
    if recipe.data.folds is not None and (recipe.test or recipe.stages[-1].validation):
        raise InputError("data.folds: says what is validated and tested; leave out validation and test.")
    for stage in recipe.stages:
        check_name("stages: the name of a stage", stage.name)
        prefix = recipe.place("", stage).removeprefix(f"{recipe.file}, ")
        _check_stage(stage, prefix)
        if stage.training["vectors"] is not None and recipe.lora:
            raise InputError(
                f"{prefix}training.vectors: freezes the encoder, which lora trains; leave one of them out."
            )
        if stage.data.folds and stage is not recipe.stages[-1]:
            raise InputError(f"{prefix}data.folds: belong to the last stage; set them to null here.")
        for number, data in enumerate(stage.validation, start=1):
            if data.folds is not None:  # which Birch and lists of folds need
                raise InputError(f"{prefix}validation.{number}: folds and birch are for test sets; leave them out.")
        _check_sets(stage.validation, f"{prefix}validation")
    _check_sets(recipe.test, "test")
    _check_files(recipe)


def _check_stage(stage: Stage, prefix: str) -> None:
    if stage.teacher is not None:
        check_place(f"{prefix}teacher:", stage.teacher)
    if stage.training["passage_level"] and not stage.model.config_class.scores_passages():
        raise InputError(f"{prefix}training.passage_level: trains single passages, which family maxp does.")
    if LOSSES[stage.training["loss"]].needs_teacher != (stage.teacher is not None):
        learning = [name for name, loss in LOSSES.items() if loss.needs_teacher]
        raise InputError(f"{prefix}teacher: goes with training.loss {' or '.join(learning)}, and those with a teacher.")
    if stage.training["vectors"] is not None and (stage.data.triples or stage.data.passage_filter):
        raise InputError(f"{prefix}training.vectors: needs documents of a collection; triples and passages are texts.")
    if stage.training["unretrieved_positives"] and (stage.data.triples or stage.data.passage_filter):
        raise InputError(
            f"{prefix}training.unretrieved_positives: is for the lists of a collection; triples name their positives, "
            "and a passage filter takes those of the judgments."
        )
    if stage.training["examples"] == "lists" and any(not is_triple_file(name) for name in stage.data.triples):
        raise InputError(
            f"{prefix}training.examples: of triples, lists are read from files of JSON lines alone (.jsonl, .gz, .xz)."
        )
    if stage.data.birch:
        raise InputError(f"{prefix}data.birch: is for test sets.")


def _check_sets(sets: tuple[DataRecipe, ...], key: str) -> None:
    """What is measured on has judgments, a name of its own, and nothing that is for training."""
    for number, data in enumerate(sets, start=1):
        place = f"{key}.{number}"
        if not data.collection:
            raise InputError(f"{place}: needs a collection, with judgments.")
        if data.folds is not None and not (data.birch or data.varies_by_fold):
            raise InputError(f"{place}.folds: choose weights or parameters; leave them out, or set birch or tune.")
        for name in ("fold", "sample", "passage_filter", "validation_share"):
            if getattr(data, name) is not None:
                raise InputError(f"{place}.{name}: is for training; leave it out.")
        if data.label in [other.label for other in sets[: number - 1]]:
            raise InputError(f"{place}.name: {data.label} is the name of two sets; give them a name each.")


def _check_files(recipe: Recipe) -> None:
    """Refuse names of sets whose runs would be written to the same file."""
    written = {f"validation-{data.label}": "a validation set" for data in recipe.stages[-1].validation}
    for number, data in enumerate(recipe.test, start=1):
        kinds = ("interpolated", "first-stage", "untrained", *(birch_label(count) for count in data.birch))
        names = (data.label, *(f"{data.label}-{kind}" for kind in kinds))
        for file in names:
            if file in written:
                raise InputError(
                    f"test.{number}.name: is {data.label}, and runs/{file}.txt is of {written[file]}; choose another."
                )
            written[file] = f"test.{number}"
