"""The entry point of Hugging Face Inference Endpoints: `EndpointHandler(path)(data)`.

Endpoints imports this file alone from the checkpoint's folder, so it imports no other file of the folder.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForSequenceClassification

# The names that reranking services use for query and documents.
QUERY_NAMES = ("query", "source_sentence")
DOCUMENTS_NAMES = ("documents", "texts", "sentences")
OPTIONS = ("top_k", "return_passages", "return_text")


class EndpointHandler:
    """Ranks the documents of HTTP requests.

    Example:
        ```python
        handler = EndpointHandler("path/to/checkpoint")
        handler({"inputs": {"query": "sky", "documents": ["blue", "red"]}})
        ```
    """

    def __init__(self, path: str = "") -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = AutoModelForSequenceClassification.from_pretrained(path, trust_remote_code=True).to(device).eval()

    def __call__(self, data: dict[str, Any]) -> list[dict[str, Any]] | dict[str, str]:
        """Rank. The response to a wrong request is `{"error": ...}`.

        Args:
            data: The body: a query and documents, at the top or in `inputs`. Options, beside them or in `parameters`:
                `top_k`, `return_passages` (the passages that were read, with scores and weights), `return_text`.
        """
        try:
            query, documents, options = _read(data)
            ranking = self.model.rank(query, documents, top_k=options.pop("top_k", None))
            return [document.to_dict(**options) for document in ranking]
        except (TypeError, ValueError) as error:
            return {"error": str(error)}


def _read(data: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Query, documents and options of a request."""
    if not isinstance(data, dict):
        raise ValueError("The body is not a JSON object: send one with the keys query and documents.")
    body = data.get("inputs", data)
    parameters = data.get("parameters") or {}
    if not isinstance(body, dict) or not isinstance(parameters, dict):
        raise ValueError("'inputs' and 'parameters' must be JSON objects: send a query and documents in 'inputs'.")
    query, documents = _first(body, QUERY_NAMES), _first(body, DOCUMENTS_NAMES)
    beside = {name: value for name, value in data.items() if body is not data and name != "inputs"}
    options = {**beside, **body, **parameters}
    for name in (*QUERY_NAMES, *DOCUMENTS_NAMES, "parameters"):
        options.pop(name, None)
    if unknown := sorted(options.keys() - set(OPTIONS)):
        raise ValueError(f"Unknown option {', '.join(unknown)}: the options are {', '.join(OPTIONS)}.")
    for name in ("return_passages", "return_text"):
        if not isinstance(options.get(name, False), bool):
            raise ValueError(f"{name} is {options[name]!r}, and has to be true or false.")
    return query, documents, options


def _first(body: dict[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        if name in body:
            return body[name]
    raise ValueError(f"The body has none of the keys {', '.join(names)}.")
