"""What a card says about limits and speed."""

from __future__ import annotations

from collections.abc import Iterator

from .fields import CardFields
from .markdown import as_table
from .methods import find_aggregator
from .result_tables import best_run, worse_than_first_stage
from .saved_model import SavedModel
from .training import dataset_names


def find_limits(model: SavedModel, fields: CardFields) -> list[str]:
    """The limits of a model, a sentence each, from its settings and results."""
    return [*fields.limits, *_of_results(model), *_of_settings(model)]


def _of_results(model: SavedModel) -> Iterator[str]:
    for test in model.tests:
        if worse := worse_than_first_stage(test):
            name, own, base = worse[0]
            yield (
                f"**On {test['name']} it ranks worse than the first stage**: {name} {own:.4f}, against {base:.4f}"
                f"{f', and {len(worse) - 1} more of the measures above' if len(worse) > 1 else ''}."
            )
        if test.get("trained_on_it"):
            yield (
                f"**{test['name']} is of the collection that it was trained on**: the figures above are not those of "
                "queries it has never seen."
            )
    trained = list(dict.fromkeys(dataset_names(model)))
    if trained:
        yield f"It was trained on {', '.join(trained)} only. On other texts, measure it before you rely on it."
    if not model.tests:
        yield "It was not measured on a test collection."


def _of_settings(model: SavedModel) -> Iterator[str]:
    settings = model.processor
    if limit := settings.get("max_passages"):
        yield (
            f"At most {limit} {'passage' if limit == 1 else 'passages'} of a document are read. The result's `unread` "
            "counts the others, and a warning says so once. `max_passages` changes the limit."
        )
    if settings.get("max_query_tokens"):
        yield f"Of a query, {settings['max_query_tokens']} tokens are read."
    if find_aggregator(model).one_decides:
        yield "One passage decides on the score: evidence that is spread over several passages is not combined."
    yield from model.reader.card_limits
    if model.config.get("int8"):
        yield "The encoder computes in 8-bit integers: scores differ from the original's. It cannot be trained."
    yield "Scores are raw. They order the documents of one query, and are not probabilities."


SYSTEMS = {
    "docparade": "docparade",
    "cached": "docparade, documents tokenized before",
    "int8": "docparade, 8-bit integers",
    "bfloat16": "docparade, bfloat16",
    "cascade": "docparade, two passages of each document",
    "dense": "every document padded to the longest",
    "sentence-transformers": "sentence-transformers CrossEncoder, same passages",
    "limit": "the matrix products alone",
}


def speed_table(model: SavedModel) -> str:
    """How fast the model is beside other systems, as a table; empty if that was not measured."""
    rows = [
        [
            SYSTEMS[name],
            f"{figures['seconds']:.3f}",
            f"{figures['documents_per_second']:.1f}",
            f"{figures['real_tokens_per_second']}",
            f"{figures['docparade_is_faster_by']:.2f}×" if "docparade_is_faster_by" in figures else "",
        ]
        for name, figures in model.speed.items()
        if name in SYSTEMS and isinstance(figures, dict)
    ]
    return as_table(["system", "s", "documents/s", "tokens/s", "docparade is faster by"], rows) if rows else ""


def describe_speed(model: SavedModel) -> str:
    """What was timed, and where."""
    speed = model.speed
    if not speed:
        return ""
    what = f"One query and {speed['documents']} documents ({speed['tokens']} tokens), from text to ranking"
    machine = speed.get("machine") or speed.get("device")
    threads = f", {speed['threads']} threads" if speed.get("threads", 0) > 1 else ""
    return f"{what}, on {machine}{threads}. `docparade benchmark` measures it."


def best_figures(model: SavedModel) -> list[tuple[str, str, float]]:
    """Test set, measure and value of the model's own run, for lists of models."""
    return [
        (test["name"], measure, value) for test in model.tests for measure, value in best_run(test)["means"].items()
    ]
