"""What a card says about a model's method: its name, how it scores a document, and a picture of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from transformers import CONFIG_MAPPING

from docparade.modeling import Aggregator
from docparade.modeling.configuration_ranker import RankerConfig

from .saved_model import SavedModel

_MATCHES = (
    " plus, times a learned weight, how well the passage matches the query's tokens (late interaction: the mean, over "
    "these, of the greatest cosine with a token of the passage)"
)

_GLOBAL_ATTENTION = " The first token and the query have global attention, the passage has attention in a window."


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
    family = cast(type[RankerConfig], CONFIG_MAPPING[model.family])
    return family.aggregators.get(model.aggregation, Aggregator)


def describe_method(model: SavedModel) -> Method:
    """The method of a model, as its aggregator describes itself."""
    kind, name = find_aggregator(model), model.aggregation
    if not kind.does:
        return Method(name, f"that of the aggregation “{name}”, which is not one of docparade's own", (name,), ())
    values = {**model.config, **kind.words(model.config)}
    steps = tuple(step.format(**values) for step in kind.drawn)
    papers = (*kind.papers, "nogueira2020") if model.is_seq2seq else kind.papers
    return Method((kind.title or name).format(**values), kind.does.format(**values), steps, papers)


def describe_encoding(model: SavedModel) -> str:
    """How the encoder reads a passage, as a sentence."""
    if model.is_seq2seq:
        return _describe_answer(model)
    if not model.is_bi_encoder:
        gives = _GIVES[model.family]
        reads = f"The encoder reads the query together with each passage and gives {gives} (a cross-encoder)."
        is_longformer = model.config.get("encoder_config", {}).get("model_type") == "longformer"
        return reads + _GLOBAL_ATTENTION if is_longformer else reads
    settings = model.reader
    matches = _MATCHES if settings["kind"] == "late_interaction" else ""
    if model.family == "maxp":
        return (
            "The encoder turns the query and each passage into a vector, separately (a bi-encoder); a passage's score "
            f"is their {settings['similarity']} similarity{matches}, "
            "times a learned scale, plus a learned bias."
        )
    return (
        "The encoder turns the query q and each passage p into a vector, separately (a bi-encoder); a learned "
        "projection of [q·p, |q−p|] is the passage's vector."
    )


def _describe_answer(model: SavedModel) -> str:
    words, prompt = model.reader, model.processor.get("prompt", "")
    kind = {
        "logit": "the difference of the two words' logits",
        "probability": f"the probability of “{words['true_token']}” against “{words['false_token']}”",
        "log_probability": f"the logarithm of the probability of “{words['true_token']}” against "
        f"“{words['false_token']}”",
    }[model.config.get("passage_score", "logit")]
    return (
        f"An encoder-decoder reads the query together with each passage in the prompt `{prompt}` (as monoT5 does); a "
        f"passage's score is {kind} as the first word of the answer."
    )


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
    return f"passage {number}" if model.is_bi_encoder else f"query + passage {number}"


def _read(model: SavedModel, number: str) -> str:
    """From a passage to its score or vector."""
    reader = "encoder-decoder" if model.is_seq2seq else "encoder"
    read = f"{_input(model, number)} ─► {reader} ─► "
    letter = "s" if model.family == "maxp" else "p"
    if model.family == "cedr":
        cls = f", c{number}" if getattr(find_aggregator(model), "reads_cls", False) else ""
        return f"{read}m{number}{cls}"
    if not model.is_bi_encoder:
        return f"{read}{letter}{number}"
    related = model.reader["similarity"] if model.family == "maxp" else "projection"
    if model.reader["kind"] == "late_interaction":
        related = f"{related} + matches"
    return f"{read}v{number} ─► {related}(q, v{number}) ─► {letter}{number}"


def _with_query(model: SavedModel, lines: Sequence[str]) -> str:
    first = ["query     ─► encoder ─► q"] if model.is_bi_encoder else []
    return "\n".join([*first, *lines])


_GIVES = {
    "maxp": "a score for it",
    "parade": "a vector for it",
    "cedr": "vectors of their tokens, whose cosines are counted",
}


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
