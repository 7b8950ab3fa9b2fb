"""The entry point of Hugging Face Inference Endpoints: `EndpointHandler(path)(data)`.

Endpoints import this file by itself, from the checkpoint's folder, so it imports nothing from beside it.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForSequenceClassification

# The names that reranking services use for the same two things.
QUERY_NAMES = ("query", "source_sentence")
DOCUMENTS_NAMES = ("documents", "texts", "sentences")


class EndpointHandler:
    """Ranks documents sent over HTTP.

    Example:
        >>> handler = EndpointHandler("path/to/checkpoint")  # doctest: +SKIP
        >>> handler({"inputs": {"query": "sky", "documents": ["blue", "red"]}})  # doctest: +SKIP
        [{'index': 0, 'id': None, 'score': 3.1, 'passages': [...], 'unread': 0}]
    """

    def __init__(self, path: str = "") -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = AutoModelForSequenceClassification.from_pretrained(path, trust_remote_code=True).to(device).eval()

    def __call__(self, data: dict[str, Any]) -> list[dict[str, Any]] | dict[str, str]:
        """Rank. The body may be wrapped in `inputs`; a mistake in it is answered, not raised."""
        body = data.get("inputs", data)
        try:
            query, documents = _first(body, QUERY_NAMES), _first(body, DOCUMENTS_NAMES)
            top_k = (data.get("parameters") or {}).get("top_k", body.get("top_k"))
            return [ranked.to_dict() for ranked in self.model.rank(query, documents, top_k=top_k)]
        except (TypeError, ValueError) as error:
            return {"error": str(error)}


def _first(body: Any, names: tuple[str, ...]) -> Any:
    if isinstance(body, dict):
        for name in names:
            if name in body:
                return body[name]
    raise ValueError(f"The body has none of the keys {', '.join(names)}.")
