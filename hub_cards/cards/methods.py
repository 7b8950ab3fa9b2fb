"""What a card says about a model's method: its name, how it scores a document, and a picture of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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


def describe_method(model: SavedModel) -> Method:
    """The method of a model; `{k}` and the like are replaced by the model's own settings."""
    method = _METHODS[model.family].get(model.aggregation) or _custom(model)
    values = {
        "k": model.config.get("k"),
        "weights": " + ".join(f"w{rank}·s({rank})" for rank in range(1, (model.config.get("k") or 3) + 1)),
        "layers": model.config.get("num_aggregator_layers"),
        "head": "two layers" if model.config.get("head_size") else "a linear layer",
        "cnn_layers": max(1, (model.config.get("max_passages") or 16) - 1).bit_length(),
    }
    steps = tuple(step.format(**values) for step in method.drawn)
    papers = (*method.papers, *model.reader.papers)
    return Method(method.name.format(**values), method.does.format(**values), steps, papers)


def draw_method(model: SavedModel) -> str:
    """A picture, in plain text, of how passages become a score.

    ```text
    query + passage 1 ─► encoder ─► s1 ─┐
    query + passage 2 ─► encoder ─► s2 ─┼─► max ─► score
    query + passage n ─► encoder ─► sn ─┘
    ```
    """
    if model.family == "maxp" and model.aggregation == "first":
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


def _custom(model: SavedModel) -> Method:
    name = model.aggregation
    return Method(name, f"that of the aggregation “{name}”, which is not one of docparade's own", (name,), ())


_LINEAR = "linear layer"
_SCORES: dict[str, Method] = {
    "first": Method("FirstP", "the score of its first passage", (), ("zhang2021",)),
    "max": Method("MaxP", "the score of its best passage", ("maximum",), ("zhang2021",)),
    "sum": Method("SumP", "the sum of the scores of its passages", ("sum",), ("zhang2021",)),
    "avg": Method("AvgP", "the mean score of its passages", ("mean",), ("zhang2021",)),
    "kmax_avg": Method(
        "{k}-Max-AvgP", "the mean score of its {k} best passages", ("mean of the {k} best",), ("cip2021",)
    ),
    "birch": Method(
        "Birch-Passage",
        "a sum of the scores of its {k} best passages with learned weights",
        ("{weights}, best first",),
        ("yang2019", "li2023"),
    ),
}
_VECTORS: dict[str, Method] = {
    "max": Method(
        "PARADE-Max",
        "computed by a linear layer from the elementwise maximum of its passages' vectors",
        ("elementwise maximum", _LINEAR),
        ("li2023",),
    ),
    "sum": Method(
        "PARADE-Sum",
        "computed by a linear layer from the sum of its passages' vectors",
        ("sum", _LINEAR),
        ("li2023",),
    ),
    "avg": Method(
        "PARADE-Avg",
        "computed by a linear layer from the mean of its passages' vectors",
        ("mean", _LINEAR),
        ("li2023",),
    ),
    "attn": Method(
        "PARADE-Attn",
        "computed by a linear layer from a sum of its passages' vectors with attention weights",
        ("sum weighted by softmax(p·w)", _LINEAR),
        ("li2023",),
    ),
    "cnn": Method(
        "PARADE-CNN",
        "the sum of the scores of all outputs of {cnn_layers} layers of convolutions over pairs of passage vectors",
        ("{cnn_layers} layers of pairwise convolutions", "score of every output", "sum"),
        ("li2023",),
    ),
    "transformer": Method(
        "PARADE-Transformer",
        "computed by a linear layer from the first output of {layers} transformer layers over its passages' vectors",
        ("{layers} transformer layers over [cls, p1 … pn]", "output at cls", _LINEAR),
        ("li2023",),
    ),
}
_COUNTS = (
    "computed by {head} from how many of its tokens have which cosine with each token of the query (logarithms of 11 "
    "kernels, summed over the query's tokens)"
)
_SUMS = "sum of m; its logarithms, summed over the query's tokens"
_KERNELS: dict[str, Method] = {
    "knrm": Method("KNRM", _COUNTS, (_SUMS, "{head}"), ("xiong2017", "li2023")),
    "max": Method(
        "CEDR-KNRM-Max",
        f"{_COUNTS}, and from the elementwise maximum of its passages' CLS vectors",
        (f"{_SUMS}; maximum of c", "{head}"),
        ("macavaney2019", "li2023"),
    ),
    "avg": Method(
        "CEDR-KNRM-Avg",
        f"{_COUNTS}, and from the mean of its passages' CLS vectors",
        (f"{_SUMS}; mean of c", "{head}"),
        ("macavaney2019", "li2023"),
    ),
}
_METHODS = {"maxp": _SCORES, "parade": _VECTORS, "cedr": _KERNELS}


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
