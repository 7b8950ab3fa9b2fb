"""The metadata of a card, which the Hub reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from .fields import CardFields
from .methods import describe_method
from .result_tables import OURS, best_run, public_collection_of
from .saved_model import SavedModel

EXAMPLE = {
    "example_title": "Two documents",
    "source_sentence": "who may grant a patent license",
    "sentences": [
        "Each contributor grants you a perpetual, worldwide patent license to make, use and sell the work.",
        "The sky is blue because air scatters short wavelengths more than long ones.",
    ],
}
TASK = "text-ranking"


def build_card_data(model: SavedModel, fields: CardFields, kept: dict[str, Any], title: str) -> ModelCardData:
    """The metadata of a model's card.

    Args:
        model: The checkpoint.
        fields: What only a person knows.
        kept: Metadata of the old card that is not ours, such as a thumbnail.
        title: The model's name in the results.
    """
    results = list(_results(model))
    languages = list(fields.language)
    others = {name: value for name, value in kept.items() if name not in GENERATED}
    if emissions := _emissions(model):
        others["co2_eq_emissions"] = emissions
    return ModelCardData(
        language=languages if len(languages) > 1 else next(iter(languages), None),
        license=fields.license,
        license_name=fields.license_name,
        license_link=fields.license_link,
        library_name="transformers",
        pipeline_tag=TASK,
        base_model=fields.base_model or hub_id(model),
        datasets=list(dict.fromkeys([*fields.datasets, *_hub_datasets(model)])) or None,
        tags=[*_tags(model), *kept.get("tags", [])],
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        eval_results=results or None,
        model_name=title if results else None,
        widget=list(fields.examples) or [EXAMPLE],
        **others,
    )


GENERATED = (
    *("language", "license", "license_name", "license_link", "library_name", "pipeline_tag", "base_model", "datasets"),
    *("tags", "metrics", "model-index", "widget", "co2_eq_emissions"),
)
"""Keys that every new card writes again."""


def hub_id(model: SavedModel) -> str | None:
    """The encoder's name on the Hub, if it came from there."""
    source = model.encoder.get("source")
    return source if isinstance(source, str) and ":" not in source else None


def _tags(model: SavedModel) -> list[str]:
    method = describe_method(model).name.lower()
    return ["docparade", "reranker", "long-documents", model.reader.card_tag, method, "sentence-transformers"]


def _hub_datasets(model: SavedModel) -> Iterator[str]:
    for stage in model.record.get("stages", []):
        for name in (*stage["data"].get("collection", []), *stage["data"].get("triples", [])):
            if name.startswith("hf:"):
                yield name.removeprefix("hf:")


def _results(model: SavedModel) -> Iterator[EvalResult]:
    for test in model.tests:
        run = best_run(test)
        for measure, value in run["means"].items():
            yield EvalResult(
                task_type=TASK,
                task_name="Reranking",
                dataset_name=test["name"],
                dataset_type=public_collection_of(test) or test["name"],
                metric_type=measure.lower(),
                metric_name=measure if OURS in test["runs"] else f"{measure} ({run['label']})",
                metric_value=round(value, 4),
            )


def _emissions(model: SavedModel) -> dict[str, Any] | None:
    kilograms = model.log.get("emissions_kg")
    if kilograms is None:
        return None
    # The Hub counts in grams.
    return {
        "emissions": round(1000 * kilograms, 3),
        "source": "codecarbon",
        "training_type": "fine-tuning",
        "hardware_used": model.log["hardware"]["name"],
    }
