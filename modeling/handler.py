"""The entry point of Hugging Face Inference Endpoints: `EndpointHandler(path)(data)`.

Endpoints imports this file alone from the checkpoint's folder, so it imports no other file of the folder.
"""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForSequenceClassification

# The names that the Hub's text-ranking task and reranking services use for query and documents.
RANKING_NAMES = ("query", ("documents", "texts"))
# The names of the sentence-similarity task, whose answer is a list of scores in the order of the sentences.
SIMILARITY_NAMES = ("source_sentence", ("sentences",))
OPTIONS = ("top_k", "return_passages", "return_text")
# The Hub's text-ranking task has its own name for return_text.
OTHER_NAMES = {"return_documents": "return_text"}

NOT_AN_OBJECT = "The body is not a JSON object: send one with the keys query and documents."
MAX_NESTING = 10
"""Objects and lists in each other: a list of inputs, each with a list of documents with lists of headings, has six."""
MAX_VALUES = 1_000_000
"""Values of a request, wherever they stand: each is checked."""


class RequestLimits(NamedTuple):
    """How much a request may hold. The environment variables of an endpoint set it: see `from_environment`."""

    documents: int = 1_000
    """Documents of a request, in all of its inputs, and inputs."""
    characters: int = 20_000_000
    """Characters of all strings of a request, wherever they stand, keys among them."""
    passages: int | None = None
    """Passages of a document that are read; `None` is the model's own limit."""

    @classmethod
    def from_environment(cls) -> RequestLimits:
        """Read `DOCPARADE_MAX_DOCUMENTS`, `DOCPARADE_MAX_CHARACTERS` and `DOCPARADE_MAX_PASSAGES`."""
        names = {name: f"DOCPARADE_MAX_{name.upper()}" for name in cls._fields}
        given = {name: os.environ[variable] for name, variable in names.items() if os.environ.get(variable)}
        for name, value in given.items():
            if not value.isdecimal() or int(value) < 1:
                raise ValueError(f"{names[name]} is {value!r}, and has to be a whole number from 1.")
        return cls(**{name: int(value) for name, value in given.items()})

    def check(self, requests: list[Request]) -> None:
        """Refuse too many documents."""
        documents = sum(len(request.documents) for request in requests)
        for count, what in ((len(requests), "inputs"), (documents, "documents")):
            if count > self.documents:
                raise ValueError(f"The request has {count} {what}, and at most {self.documents} are allowed.")

    def check_body(self, body: dict[str, Any]) -> None:
        """Refuse too many characters, values or levels, and values that no answer in JSON could have."""
        characters = values = 0
        level: list[tuple[str, dict[str, Any] | list[Any]]] = [("", body)]
        for _ in range(MAX_NESTING):
            values += sum(len(container) for _, container in level)
            if values > MAX_VALUES:
                raise ValueError(f"The request has more than {MAX_VALUES} values, which is the limit.")
            inner: list[tuple[str, dict[str, Any] | list[Any]]] = []
            for place, container in level:
                for name, value in _items_of(container):
                    characters += _count_characters(name, value, place)
                    if characters > self.characters:
                        raise ValueError(f"The request has more than {self.characters} characters, which is the limit.")
                    if isinstance(value, (dict, list)):
                        inner.append((_join(place, name), value))
            level = inner
        if level:
            raise ValueError(f"{_cut(level[0][0])} is nested too deeply: at most {MAX_NESTING} levels are allowed.")


def _items_of(container: dict[str, Any] | list[Any]) -> Iterable[tuple[Any, Any]]:
    return container.items() if isinstance(container, dict) else enumerate(container)


def _count_characters(name: str | int, value: Any, place: str) -> int:
    """The number of characters of a value and of its key; infinite numbers and broken characters are refused."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{_join(place, name)} is {value}, which is no number: send null where there is none.")
    texts = [text for text in (name, value) if isinstance(text, str)]
    if any(_has_surrogate(text) for text in texts):
        raise ValueError(f"{_join(place, name)} has half of a surrogate pair, which is no character: leave it out.")
    return sum(map(len, texts))


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _join(place: str, name: str | int) -> str:
    """The place of a value in a body, such as `inputs.documents[0].title`, for an error."""
    if not isinstance(name, str):
        return f"{place}[{name}]"
    name = _cut(name.encode("ascii", "backslashreplace").decode())
    return f"{place}.{name}" if place else name


def _cut(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:100]}…"


class Request(NamedTuple):
    """A query and the documents to rank for it."""

    query: Any
    documents: Any
    wants_scores: bool
    """Whether the answer is a list of scores, in the order of the documents, instead of a ranking."""

    @classmethod
    def of(cls, inputs: Any) -> Request:
        """Read a query and its documents under any of their names; other keys are ignored.

        Example:
            >>> Request.of({"source_sentence": "sky", "sentences": ["blue", "red"]}).query
            'sky'
        """
        if not isinstance(inputs, Mapping):
            raise ValueError("A request is a JSON object with the keys query and documents.")
        wants_scores = SIMILARITY_NAMES[0] in inputs
        query, names = SIMILARITY_NAMES if wants_scores else RANKING_NAMES
        found = [name for name in names if name in inputs]
        if query not in inputs:
            raise ValueError(f"The request has no key {query}.")
        if len(found) != 1:
            count = "more than one" if found else "none"
            raise ValueError(f"The request has {count} of the keys {', '.join(names)}.")
        return cls(inputs[query], inputs[found[0]], wants_scores)

    def answer(self, ranking: list[Any], top_k: int | None, **shown: bool) -> list[Any]:
        """The answer as plain values, ready for JSON."""
        if self.wants_scores:
            return [document.score for document in sorted(ranking, key=lambda document: document.index)]
        return [document.to_dict(**shown) for document in ranking[:top_k]]


class EndpointHandler:
    """Ranks the documents of HTTP requests.

    Example:
        ```python
        handler = EndpointHandler("path/to/checkpoint")
        handler({"inputs": {"query": "sky", "documents": ["blue", "red"]}})
        ```
    """

    def __init__(self, path: str = "") -> None:
        self.limits = RequestLimits.from_environment()
        device = "cuda" if torch.cuda.is_available() else "cpu"
        limit = {} if self.limits.passages is None else {"max_passages": self.limits.passages}
        model = AutoModelForSequenceClassification.from_pretrained(path, trust_remote_code=True, **limit)
        self.model = model.to(device).eval()

    def __call__(self, data: dict[str, Any]) -> list[Any]:
        """Rank.

        Args:
            data: The body: a query and documents, at the top or in `inputs`, which can also be a list of such objects;
                the response is then the list of their answers. Options, beside them or in `parameters`: `top_k`,
                `return_passages` (the passages that were read, with scores and weights), `return_text` (or
                `return_documents`).

        Raises:
            ValueError: The request is wrong (or `TypeError`). An endpoint answers with status 400 and `{"error": ...}`.
        """
        if not isinstance(data, dict):
            raise ValueError(NOT_AN_OBJECT)
        self.limits.check_body(data)
        try:
            return self._answer(data)
        except torch.OutOfMemoryError:
            raise ValueError("The request needs more memory than there is: send fewer or shorter documents.") from None

    def _answer(self, data: dict[str, Any]) -> list[Any]:
        inputs, parameters = data.get("inputs", data), data.get("parameters") or {}
        if not isinstance(inputs, (dict, list)) or not isinstance(parameters, dict):
            raise ValueError(
                "'inputs' and 'parameters' must be JSON objects: send a query and documents in 'inputs', or a list of "
                "such objects."
            )
        is_batch = isinstance(inputs, list)
        requests = [_read(each, f"inputs[{i}]: ") for i, each in enumerate(inputs)] if is_batch else [_read(inputs)]
        beside = {} if inputs is data else {name: value for name, value in data.items() if name != "inputs"}
        own = inputs if isinstance(inputs, dict) else {}
        options = _read_options({**beside, **own, **parameters})
        if options and any(request.wants_scores for request in requests):
            raise ValueError(f"{', '.join(options)}: has no effect on source_sentence and sentences; leave it out.")
        self.limits.check(requests)
        top_k = options.pop("top_k", None)
        rankings = self.model.rank_all([(request.query, request.documents) for request in requests])
        answers = [each.answer(ranking, top_k, **options) for each, ranking in zip(requests, rankings, strict=True)]
        return answers if is_batch else answers[0]


def _read(inputs: Any, place: str = "") -> Request:
    """One of the requests of a body, with its place in the errors about it."""
    try:
        request = Request.of(inputs)
        if not isinstance(request.documents, list):
            raise ValueError("documents is not a list: send a list of texts.")
        if not isinstance(request.query, str):
            raise ValueError(f"query is {_describe(request.query)}: send a text.")
    except ValueError as error:
        raise ValueError(f"{place}{error}") from None
    for i, document in enumerate(request.documents):
        text = document.get("text") if isinstance(document, dict) else document
        if not isinstance(text, str):
            what = f"{place}documents[{i}] is {_describe(document)}"
            raise ValueError(f"{what}: send a text, or an object with the key text.")
    return request


def _describe(value: Any) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def _read_options(given: dict[str, Any]) -> dict[str, Any]:
    """The options of a body, checked, under their own names."""
    keys = {"parameters", RANKING_NAMES[0], *RANKING_NAMES[1], SIMILARITY_NAMES[0], *SIMILARITY_NAMES[1]}
    options = {OTHER_NAMES.get(name, name): value for name, value in given.items() if name not in keys}
    if unknown := sorted(options.keys() - set(OPTIONS)):
        raise ValueError(f"Unknown option {_cut(', '.join(unknown))}: the options are {', '.join(OPTIONS)}.")
    for name in ("return_passages", "return_text"):
        if not isinstance(options.get(name, False), bool):
            raise ValueError(f"{name} is {reprlib.repr(options[name])}, and has to be true or false.")
    top_k = options.get("top_k")
    if top_k is not None and (not isinstance(top_k, int) or isinstance(top_k, bool) or top_k < 1):
        raise ValueError(f"top_k is {reprlib.repr(top_k)}, and has to be a whole number from 1.")
    return options
