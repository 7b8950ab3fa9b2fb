"""Recipes: a YAML file that fully names an experiment, read into checked dataclasses.

`load_recipe` reads the file with everything it extends (see `composition`), checks every key, type and range, and
fills in what was left out; it needs neither data nor weights. What it returns says all that a run does, and
`Recipe.to_yaml` writes it as a recipe that is complete in itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_type_hints

import yaml

from docparade.reranking.caches.vector_types import VectorType
from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.measures import parse_measures
from docparade.trainer.arguments import RankingTrainingArguments, check_vector_settings
from docparade.trainer.losses import LOSSES

from .composition import merge, read_recipe
from .model_recipe import ModelRecipe
from .schema import DataRecipe, RerankRecipe, SignificanceRecipe, birch_label, check_seed, is_triple_file
from .typed_values import build, check_keys, check_name, check_place, inside, plain, shown, typed

# What a run decides for itself, and where it is said instead.
_NOT_IN_TRAINING = {
    "output_dir": "name the folder with --output",
    "seed": "set the recipe's seed",
    "data_seed": "set the recipe's seed",
    "per_device_train_batch_size": "set batch_size, which counts the pairs of all processes together",
    "resume_from_checkpoint": "a run continues by itself",
    "load_best_model_at_end": "the best checkpoint by training.measure is always kept",
    "metric_for_best_model": "set training.measure",
    "greater_is_better": "set training.measure",
    "push_to_hub": "publish the finished model with docparade push",
    "hub_token": "a run writes its recipe to its files; log in with hf auth login, or set HF_TOKEN",
    "parallelism_config": "set it with accelerate config",
    "accelerator_config": "a run shares its batches among processes itself",
    "local_rank": "the launcher sets it",
    "save_only_model": "a run that was stopped could not continue, because the optimizer's state would not be saved",
    "ignore_data_skip": "a run that was stopped would begin again with the first pairs of the epoch",
    "dataloader_persistent_workers": "workers that outlive an epoch have a state that a run cannot continue from",
    "dataloader_in_order": "batches in any order would give another model at every run",
    "auto_find_batch_size": "the free memory would decide on the batches; set batch_size",
    "restore_callback_states_from_checkpoint": "a run that continues would stop where the old one was told to",
    "enable_jit_checkpoint": "a stopped training would be taken for a finished one; checkpoints are saved anyway",
    "eval_on_start": "a run that continues would be measured twice at the same step",
    "label_smoothing_factor": "the losses of rankers have no labels to smooth",
}
# Field -> lowest value, and whether the value itself is allowed.
_LOWEST: dict[str, tuple[float, bool]] = {
    "learning_rate": (0, False),
    "head_learning_rate": (0, False),
    "num_train_epochs": (0, True),
    "gradient_accumulation_steps": (1, True),
    "batch_size": (1, True),
    "weight_decay": (0, True),
    "max_grad_norm": (0, True),
    "warmup_epochs": (0, True),
    "decay_rate": (0, True),
    "margin": (0, False),
    "warmup_steps": (0, True),
    "eval_steps": (0, False),
    "save_steps": (0, False),
    "logging_steps": (0, False),
    "save_total_limit": (1, True),
    "dataloader_num_workers": (0, True),
    "adam_beta1": (0, True),
    "adam_beta2": (0, True),
    "adam_epsilon": (0, False),
    "neftune_noise_alpha": (0, True),
}


@dataclass(frozen=True)
class Stage:
    """One training: from weights and data to a checkpoint."""

    name: str
    model: ModelRecipe
    data: DataRecipe
    training: dict[str, Any]
    """Fields of `RankingTrainingArguments`; `batch_size`: pairs of all processes together; and `vectors`: to train what
    is on top of a bi-encoder on kept passage vectors, the type in which they are stored."""
    validation: tuple[DataRecipe, ...] = ()
    teacher: str | None = None
    """A checkpoint to learn from (distillation)."""

    @property
    def is_trained(self) -> bool:
        """Whether there is anything to train; without epochs, the model is measured as it is (zero-shot)."""
        return self.training["num_train_epochs"] > 0 or self.training.get("max_steps", -1) > 0

    def to_dict(self) -> dict[str, Any]:
        """The stage as a file has it."""
        return plain(
            {"model": self.model.to_dict(), "data": self.data.to_dict(), "training": self.training}
            | ({"validation": [one.to_dict() for one in self.validation]} if self.validation else {})
            | ({"teacher": self.teacher} if self.teacher else {})
        )


@dataclass(frozen=True)
class Recipe:
    """An experiment, complete: what is trained, on what, how, and how it is tested.

    Example:
        >>> recipe = load_recipe("cranfield-minilm")
        >>> recipe.stages[0].training["learning_rate"]
        5e-05
    """

    name: str
    stages: tuple[Stage, ...]
    seed: int = 42
    paper: str = ""
    reproduces: str = ""
    lora: bool = False
    test: tuple[DataRecipe, ...] = ()
    rerank: RerankRecipe = field(default_factory=RerankRecipe)
    measures: str = "nDCG@20 AP@100 P@20"
    significance: SignificanceRecipe = field(default_factory=SignificanceRecipe)
    file: str = ""
    """Where it was read; no part of the experiment."""

    @property
    def data(self) -> DataRecipe:
        """What the last stage trains on; its folds are the experiment's."""
        return self.stages[-1].data

    def place(self, key: str, stage: Stage | None = None) -> str:
        """Where a key stands, for what is wrong there: `recipe.yaml, stages.documents.model`."""
        alone = len(self.stages) == 1 and self.stages[0].name == ONLY_STAGE
        return f"{self.file}, {key}" if stage is None or alone else f"{self.file}, stages.{stage.name}.{key}"

    def to_dict(self) -> dict[str, Any]:
        """The content of a recipe file that needs no other, and means the same."""
        return {
            "name": self.name,
            "paper": self.paper,
            "reproduces": self.reproduces,
            "seed": self.seed,
            "lora": self.lora,
            "stages": {stage.name: stage.to_dict() for stage in self.stages},
            "test": [data.to_dict() for data in self.test],
            "rerank": asdict(self.rerank),
            "measures": self.measures,
            "significance": asdict(self.significance),
        }

    def to_yaml(self) -> str:
        """A recipe file that needs no other, and means the same."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True, width=120)


def load_recipe(recipe: str | Path, variant: str = "", overrides: Sequence[tuple[str, str]] = ()) -> Recipe:
    """Read a recipe, complete and checked.

    Args:
        recipe: The YAML file, or the recipe's name if it comes with docparade.
        variant: Labels of the recipe's variants, separated by commas; of an axis without one, the first is taken.
        overrides: Keys with dots, and values as YAML: `[("training.learning_rate", "3e-6")]`.

    Example:
        >>> load_recipe("zhang2021-table1", "gov2-title,sump", [("seed", "7")]).seed
        7
    """
    content = read_recipe(recipe, variant, overrides)
    place = str(recipe)
    check_keys(content, [*_TOP, *_STAGE_KEYS], place)
    if "name" not in content:
        raise InputError(f"{place}, name: is missing; give text.")
    values = {key: typed(content[key], hint, inside(place, key)) for key, hint in _TOP.items() if key in content}
    values["rerank"] = RerankRecipe.of(content.get("rerank", {}), inside(place, "rerank"))
    values["significance"] = build(SignificanceRecipe, content.get("significance", {}), inside(place, "significance"))
    values["test"] = _sets(content.get("test"), inside(place, "test"))
    values["stages"] = _stages(content, place)
    try:
        loaded = Recipe(**values, file=place)
        _check_recipe(loaded)
    except InputError as error:
        raise InputError(f"{place}, {error}") from None
    return loaded


_TOP: dict[str, Any] = {
    "name": str,
    "seed": int,
    "paper": str,
    "reproduces": str,
    "lora": bool,
    "test": Any,
    "stages": Any,
    "rerank": Any,
    "measures": str,
    "significance": Any,
}
ONLY_STAGE = "training"
"""The name of the stage of a recipe that has no stages."""
_STAGE_KEYS = ("model", "data", "training", "validation", "teacher")


def _stages(content: Mapping[str, Any], place: str) -> tuple[Stage, ...]:
    """The stages, each complete: what it leaves out is as above the stages."""
    shared = {key: content[key] for key in _STAGE_KEYS if key in content}
    if "stages" not in content:
        return (_stage(ONLY_STAGE, shared, place),)
    named = content["stages"]
    if not isinstance(named, Mapping) or all(stage is None for stage in named.values()):
        raise InputError(f"{place}, stages: has to be a mapping of names to stages.")
    # A stage that a variant sets to nothing is left out.
    return tuple(
        _stage(str(name), merge(shared, stage), f"{place}, stages.{name}")
        for name, stage in named.items()
        if stage is not None
    )


def _stage(name: str, content: Any, place: str) -> Stage:
    if not isinstance(content, Mapping):
        raise InputError(f"{place}: is {shown(content)}, and has to be a mapping of keys to values.")
    check_keys(content, _STAGE_KEYS, place)
    for key in ("model", "data"):
        if key not in content:
            raise InputError(f"{inside(place, key)}: is missing; a recipe says what is trained, and on what.")
    return Stage(
        name=name,
        model=ModelRecipe.of(content["model"], inside(place, "model")),
        data=DataRecipe.of(content["data"], inside(place, "data")),
        training=_training(content.get("training", {}), inside(place, "training")),
        validation=_sets(content.get("validation"), inside(place, "validation")),
        teacher=typed(content.get("teacher"), str | None, inside(place, "teacher")),
    )


def _sets(content: Any, place: str) -> tuple[DataRecipe, ...]:
    """Validation or test sets: a list of them, or one without a list around it."""
    listed = [] if content is None else content if isinstance(content, list) else [content]
    return tuple(DataRecipe.of(one, f"{place}.{i}") for i, one in enumerate(listed, start=1))


def _training(content: Any, place: str) -> dict[str, Any]:
    """The section, checked, with every argument of ranking that it leaves out."""
    if not isinstance(content, Mapping):
        raise InputError(f"{place}: is {shown(content)}, and has to be a mapping of keys to values.")
    hints = get_type_hints(RankingTrainingArguments)
    known = {f.name: hints[f.name] for f in fields(RankingTrainingArguments) if f.init}
    known |= {"batch_size": int, "vectors": VectorType | None}
    for key in content:
        if key in list(_NOT_IN_TRAINING):
            raise InputError(f"{inside(place, key)}: does not belong here; {_NOT_IN_TRAINING[key]}.")
    check_keys(content, [name for name in known if name not in _NOT_IN_TRAINING], place)
    given = {key: typed(value, known[key], inside(place, key)) for key, value in content.items()}
    for key, (lowest, allowed) in _LOWEST.items():
        value = given.get(key)
        if value is not None and not (lowest < value or (value == lowest and allowed)):
            bound = f"{'at least' if allowed else 'above'} {lowest}"
            raise InputError(f"{inside(place, key)}: is {value}, and has to be {bound}.")
    own = {
        f.name: typed(f.default, hints[f.name], place)
        for f in fields(RankingTrainingArguments)
        if f.name in RankingTrainingArguments.__annotations__
    }
    choices = {f.name: list(f.metadata.get("choices") or []) for f in fields(RankingTrainingArguments)}
    for key, value in given.items():
        if value is not None and choices.get(key) and value not in choices[key]:
            raise InputError(f"{inside(place, key)}: is {value!r}, and has to be one of {', '.join(choices[key])}.")
    defaults = {"batch_size": 8, "vectors": None, "learning_rate": 5e-5, "num_train_epochs": 3.0}
    arguments = SimpleNamespace(**{**defaults, **own, **given})
    try:
        RankingTrainingArguments._check(cast(Any, arguments))
        if arguments.vectors is not None:
            check_vector_settings(vars(arguments))
    except InputError as error:
        raise InputError(f"{place}.{error}") from None
    return plain(vars(arguments))


def _check_recipe(recipe: Recipe) -> None:
    """What no section can see alone."""
    check_name("name:", recipe.name)
    check_seed(recipe.seed)
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
    if stage.training["passage_level"] and stage.model.family != "maxp":
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
