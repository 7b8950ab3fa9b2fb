"""The section `training` of a recipe: arguments of `RankingTrainingArguments`, as far as a run does not decide them."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace
from typing import Any, cast, get_type_hints

from docparade.reranking.caches.vector_types import VectorType
from docparade.retrieval.errors import InputError
from docparade.trainer.arguments import RankingTrainingArguments, check_vector_settings

from .typed_values import check_keys, check_mapping, inside, plain, typed

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
# Arguments of Trainer that it takes unchecked.
_ABOVE_ZERO = (
    "learning_rate",
    "head_learning_rate",
    "margin",
    "eval_steps",
    "save_steps",
    "logging_steps",
    "adam_epsilon",
)
_FROM_ZERO = (
    *("num_train_epochs", "weight_decay", "max_grad_norm", "warmup_epochs", "warmup_steps", "decay_rate"),
    *("dataloader_num_workers", "adam_beta1", "adam_beta2", "neftune_noise_alpha"),
)
_FROM_ONE = ("gradient_accumulation_steps", "batch_size", "save_total_limit")
_BOUNDS = (
    *((name, "above 0", lambda value: value > 0) for name in _ABOVE_ZERO),
    *((name, "at least 0", lambda value: value >= 0) for name in _FROM_ZERO),
    *((name, "at least 1", lambda value: value >= 1) for name in _FROM_ONE),
)


def read_training(content: Any, place: str) -> dict[str, Any]:
    """The section, checked, with every argument of ranking that it leaves out.

    Args:
        content: What the file holds.
        place: The section's place, for errors: `recipe.yaml, training`.
    """
    check_mapping(content, place)
    for key in content:
        if key in list(_NOT_IN_TRAINING):
            raise InputError(f"{inside(place, key)}: does not belong here; {_NOT_IN_TRAINING[key]}.")
    arguments = {one.name: one for one in fields(RankingTrainingArguments) if one.init}
    hints = get_type_hints(RankingTrainingArguments) | {"batch_size": int, "vectors": VectorType | None}
    known = [*(name for name in arguments if name not in _NOT_IN_TRAINING), "batch_size", "vectors"]
    check_keys(content, known, place)
    given = {key: typed(value, hints[key], inside(place, key)) for key, value in content.items()}
    for name, bound, is_within in _BOUNDS:
        if given.get(name) is not None and not is_within(given[name]):
            raise InputError(f"{inside(place, name)}: is {given[name]}, and has to be {bound}.")
    for key, value in given.items():
        choices = arguments[key].metadata.get("choices") if key in arguments else None
        if value is not None and choices and value not in choices:
            raise InputError(f"{inside(place, key)}: is {value!r}, and has to be one of {', '.join(choices)}.")
    defaults = {"batch_size": 8, "vectors": None, "learning_rate": 5e-5, "num_train_epochs": 3.0}
    own = {
        name: typed(arguments[name].default, hints[name], place) for name in RankingTrainingArguments.__annotations__
    }
    settings = SimpleNamespace(**{**defaults, **own, **given})
    try:
        RankingTrainingArguments._check(cast(Any, settings))
        if settings.vectors is not None:
            check_vector_settings(vars(settings))
    except InputError as error:
        raise InputError(f"{place}.{error}") from None
    return plain(vars(settings))
