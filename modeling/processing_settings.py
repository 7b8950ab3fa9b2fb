"""The settings of a `DocumentProcessor`: their types, the presets, and how they are checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypedDict, cast, get_args

from .checks import check_choice, check_flag, check_limit, check_whole
from .passages import Selection, Unit

Preset = Literal["whole", "zhang2021", "li2023", "li2023-small", "cip2021", "ghasemi2021", "yang2019"]
"""The name of input settings; see `PRESETS`."""


StripTags = bool | Literal["html"]
"""Which markup is left out; see `DocumentProcessor`."""


class ProcessorOptions(TypedDict, total=False):
    """The arguments of `DocumentProcessor` except its tokenizer; its docstring explains each."""

    unit: Unit
    window: int | None
    stride: int | None
    max_passages: int | None
    selection: Selection
    max_query_tokens: int | None
    max_length: int | None
    repeat_title: bool
    title_words: int
    heading_words: int
    strip_tags: StripTags
    seed: int
    separate: bool
    query_prompt: str
    passage_prompt: str
    prompt: str
    instruction: str


PRESETS: dict[str, ProcessorOptions] = {
    "whole": {"unit": "token", "window": 225, "stride": 200, "max_passages": None, "max_query_tokens": 62},
    "zhang2021": {"unit": "word", "window": 150, "stride": 75, "max_passages": 30, "max_query_tokens": None},
    "li2023": {"unit": "token", "window": 225, "stride": 200, "max_passages": 16, "max_query_tokens": 62},
    "li2023-small": {"unit": "token", "window": 150, "stride": 100, "max_passages": 16, "max_query_tokens": None},
    "cip2021": {
        "unit": "word",
        "window": 100,
        "stride": 50,
        "max_passages": 32,
        "selection": "first",
        "max_query_tokens": 32,
        "repeat_title": True,
    },
    "ghasemi2021": {
        "unit": "token",
        "window": None,
        "max_passages": 1,
        "selection": "first",
        "max_query_tokens": None,
    },
    "yang2019": {
        "unit": "sentence",
        "window": 1,
        "stride": 1,
        "max_passages": None,
        "max_query_tokens": None,
        "max_length": 512,
        "strip_tags": True,
    },
}
"""Settings by name: `whole` reads everything; the others are settings of papers, by first author and year (see
docs/passages.md)."""


MONOT5_PROMPT = "Query: {query} Document: {document} Relevant:"
"""The `prompt` of monoT5 (Nogueira et al., 2020)."""

INSTRUCTION = "{instruction}"
"""Where the `instruction` stands in a prompt."""

_PLACES = re.compile(r"(.*\S.*)\{query\}(.*\S.*|\s+)\{document\}(.*\S.*)", re.DOTALL)
_SPACES = re.compile(r" *\Z")
_LINE_BREAK = re.compile(r"\s*[\r\n]|")


class PromptParts(NamedTuple):
    """The texts of a prompt, and what is between them and the query or the document.

    Line breaks belong to the text before them, and spaces to the text after them, as in the tokens of most tokenizers.
    """

    before: str
    query_space: str
    query_break: str
    between: str
    document_space: str
    document_break: str
    after: str


def prompt_parts(prompt: str, instruction: str = "") -> PromptParts:
    """Divide a prompt at its query and its document.

    Example:
        >>> prompt_parts("Query: {query}\\nDocument: {document}\\nRelevant:")[:5]
        ('Query:', ' ', '\\n', 'Document:', ' ')
    """
    found = _PLACES.fullmatch(prompt)
    if found is None or any(prompt.count(place) > 1 for place in ("{query}", "{document}", INSTRUCTION)):
        raise ValueError(
            f"prompt is {prompt!r}, and has to have words, {{query}}, words, {{document}} and words, such as "
            f"{MONOT5_PROMPT!r}."
        )
    before, between, after = (text.replace(INSTRUCTION, instruction) for text in found.groups())
    query_break, document_break = (cast(re.Match[str], _LINE_BREAK.match(text))[0] for text in (between, after))
    between = between.removeprefix(query_break)
    query_space, document_space = (cast(re.Match[str], _SPACES.search(text))[0] for text in (before, between))
    return PromptParts(
        before.removesuffix(query_space),
        query_space,
        query_break,
        between.removesuffix(document_space),
        document_space,
        document_break,
        after.removeprefix(document_break),
    )


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings that are of the wrong kind, or that contradict each other."""
    check_choice("unit", settings["unit"], get_args(Unit))
    check_choice("selection", settings["selection"], get_args(Selection))
    for name in ("window", "stride", "max_passages", "max_query_tokens", "max_length"):
        check_limit(name, settings[name])
    for name in ("title_words", "heading_words"):
        check_whole(name, settings[name], least=0)
    check_whole("seed", settings["seed"], least=-(2**63))
    for name in ("repeat_title", "separate"):
        check_flag(name, settings[name])
    if settings["strip_tags"] != "html" and not isinstance(settings["strip_tags"], bool):
        raise ValueError(f"strip_tags is {settings['strip_tags']!r}, and has to be 'html', True or False.")
    for name in ("query_prompt", "passage_prompt"):
        if not isinstance(settings[name], str):
            raise ValueError(f"{name} is {settings[name]!r}, and has to be a text.")
        if settings[name] and not settings["separate"]:
            raise ValueError(f"{name} is for bi-encoders, which read query and passage separately (separate=True).")
    _check_prompt(settings["prompt"], settings["instruction"], settings["separate"])
    unit, window, stride = settings["unit"], settings["window"], settings["stride"]
    if window is None and unit != "token":
        raise ValueError(f"window is None, which needs unit='token': set how many {unit}s a passage has.")
    if window and stride and stride > window:
        raise ValueError(
            f"stride={stride} is longer than window={window}: the text between two passages would not be read. "
            f"Set both."
        )


def _check_prompt(prompt: Any, instruction: Any, separate: bool) -> None:
    for name, value in (("prompt", prompt), ("instruction", instruction)):
        if not isinstance(value, str):
            raise ValueError(f"{name} is {value!r}, and has to be a text.")
    if instruction and INSTRUCTION not in prompt:
        raise ValueError(f"instruction is {instruction!r}, and has no place {INSTRUCTION} in the prompt {prompt!r}.")
    if not prompt:
        return
    prompt_parts(prompt)
    if separate:
        raise ValueError(
            "prompt is for encoder-decoders and decoders, which read query and passage together (separate=False)."
        )
