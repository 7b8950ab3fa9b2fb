"""What a card says about a model's method: its name, how it scores a document, and a picture of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from docparade.modeling import FAMILIES, Aggregator

from .saved_model import SavedModel


@dataclass(frozen=True)
class Method:
    """One way to combine passages."""

    name: str
    does: str
    """The document's score, in the words of a sentence that begins with: A document's score is …"""
    drawn: tuple[str, ...]
    """The steps from all passages to the score."""
    papers: tuple[str, ...]
    """Keys of `papers.BIBTEX`."""


def find_aggregator(model: SavedModel) -> type[Aggregator]:
    """The class of a model's aggregation; for one that is not installed here, the class of all."""
    return FAMILIES[model.family].aggregators.get(model.aggregation, Aggregator)


def describe_method(model: SavedModel) -> Method:
    """The method of a model, as its aggregator describes itself."""
    kind, name = find_aggregator(model), model.aggregation
    papers = (*kind.papers, *model.reader.papers)
    if not kind.does:
        return Method(name, f"that of the aggregation “{name}”, which is not one of docparade's own", (name,), papers)
    values = {**model.config, **kind.words(model.config)}
    steps = tuple(step.format(**values) for step in kind.drawn)
    return Method((kind.title or name).format(**values), kind.does.format(**values), steps, papers)


def draw_method(model: SavedModel) -> str:
    """A picture, in plain text, of how passages become a score.

    ```text
    query + passage 1 ─► encoder ─► s1 ─┐
    query + passage 2 ─► encoder ─► s2 ─┼─► max ─► score
    query + passage n ─► encoder ─► sn ─┘
    ```
    """
    if find_aggregator(model).reads_first:
        unused = [f"{_input(model, number)}     not used" for number in "2n"]
        return _with_query(model, [f"{_read(model, '1')} ─► score", *unused])
    lines = [_read(model, number) for number in "12n"]
    joints = (" ─┐", f" ─┼─► {' ─► '.join(describe_method(model).drawn)} ─► score", " ─┘")
    return _with_query(model, [line + joint for line, joint in zip(lines, joints, strict=True)])


def _input(model: SavedModel, number: str) -> str:
    return f"passage {number}" if model.reader.separate else f"query + passage {number}"


def _read(model: SavedModel, number: str) -> str:
    """From a passage to its score or vector."""
    features = model.reader.draw_features(model.feature, model.config, number)
    return f"{_input(model, number)} ─► {model.reader.drawn_encoder} ─► {features}"


def _with_query(model: SavedModel, lines: Sequence[str]) -> str:
    first = ["query     ─► encoder ─► q"] if model.reader.separate else []
    return "\n".join([*first, *lines])


def passage_settings(model: SavedModel) -> list[tuple[str, Any]]:
    """All settings by which documents are cut and read."""
    left_out = ("auto_map", "processor_class")
    named = {name: value for name, value in sorted(model.processor.items()) if name not in left_out}
    return [(name, "all" if name == "max_passages" and value is None else value) for name, value in named.items()]


def describe_passages(model: SavedModel) -> str:
    """How documents are cut into passages, as sentences."""
    settings = model.processor
    if not settings:
        return ""
    unit, window, stride = settings.get("unit"), settings.get("window"), settings.get("stride")
    if window is None and settings.get("max_passages") == 1:
        cut = "A document is one passage, as long as fits beside the query"
    elif window is None:
        cut = "A document is cut into passages as long as fits beside the query"
    else:
        cut = f"A document is cut into passages of {window} {unit}s"
        if stride and stride != window:
            cut += f"; a new one begins every {stride}"
    limit = settings.get("max_passages")
    selection = settings.get("selection", "")
    kept = {
        "first": f"the first {limit} are read",
        "first_last_sample": f"the first, the last and a sample of the others are read, {limit} in all",
    }
    if limit is None:
        rest = "All of them are read."
    elif limit == 1:
        rest = "Only the first is read." if selection == "first" else "Only one is read."
    else:
        rest = f"Of a document with more than {limit} passages, {kept.get(selection, f'{limit} are read')}."
    return f"{cut}. {rest}"
