"""`pipeline("text-ranking", model=...)`: a query and its documents in, a ranking out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from transformers import Pipeline


class TextRankingPipeline(Pipeline):
    """Ranks documents for a query.

    Example:
        >>> ranker = pipeline("text-ranking", model="org/parade-electra", trust_remote_code=True)  # doctest: +SKIP
        >>> ranker({"query": "why is the sky blue", "documents": ["Rayleigh ..."]}, top_k=1)  # doctest: +SKIP
        [{'index': 0, 'id': None, 'score': 3.1, 'passages': [...], 'unread': 0}]
    """

    _load_processor = False
    _load_image_processor = False
    _load_feature_extractor = False
    _load_tokenizer = False

    def __call__(self, inputs: Mapping[str, Any] | Sequence[Mapping[str, Any]], **kwargs: Any) -> Any:
        """Rank. `inputs` is a dict with `query` and `documents`, or a list of such; `top_k` cuts the rankings."""
        return super().__call__(inputs, **kwargs)

    def _sanitize_parameters(self, top_k: int | None = None, **_: Any) -> tuple[dict, dict, dict]:
        return {}, {} if top_k is None else {"top_k": top_k}, {}

    def preprocess(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Check the input's form."""
        if not isinstance(inputs, Mapping) or not {"query", "documents"} <= inputs.keys():
            raise ValueError("The text-ranking pipeline takes a dict with the keys 'query' and 'documents'.")
        return {"query": inputs["query"], "documents": inputs["documents"]}

    def _forward(self, inputs: dict[str, Any], top_k: int | None = None) -> dict[str, Any]:
        return {"ranking": cast(Any, self.model).rank(inputs["query"], inputs["documents"], top_k=top_k)}

    def postprocess(self, outputs: dict[str, Any]) -> list[dict[str, Any]]:
        """Plain values, ready for JSON."""
        return [document.to_dict() for document in outputs["ranking"]]
