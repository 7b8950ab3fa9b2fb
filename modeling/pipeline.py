"""`pipeline("text-ranking", model=...)`: a query and its documents in, a ranking out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from transformers import Pipeline
from transformers.utils import logging

from .engine import check_count

logger = logging.get_logger(__name__)


class TextRankingPipeline(Pipeline):
    """Ranks documents for a query.

    Example:
        ```python
        ranker = pipeline("text-ranking", model="org/parade-electra", trust_remote_code=True)
        ranker({"query": "why is the sky blue", "documents": ["Rayleigh ..."]}, top_k=1)
        ```
    """

    _load_processor = False
    _load_image_processor = False
    _load_feature_extractor = False
    _load_tokenizer = False

    def __call__(self, inputs: Mapping[str, Any] | Sequence[Mapping[str, Any]], **kwargs: Any) -> Any:
        """Rank. `inputs` is a dict with `query` and `documents`, or a list or generator of such.

        Args:
            inputs: One request, or several.
            **kwargs: `top_k` cuts the rankings; `return_passages` adds the passages that were read, with their scores
                and weights; `return_text` adds the documents' texts; `batch_size` requests are read together.
        """
        if kwargs.get("batch_size") is not None:
            check_count("batch_size", kwargs["batch_size"])
        return super().__call__(inputs, **kwargs) if not isinstance(inputs, list) or inputs else []

    def _sanitize_parameters(
        self,
        top_k: int | None = None,
        return_passages: bool | None = None,
        return_text: bool | None = None,
        **unknown: Any,
    ) -> tuple[dict, dict, dict]:
        if unknown:
            raise TypeError(
                f"{', '.join(sorted(unknown))}: not an option of the text-ranking pipeline, which takes top_k, "
                f"return_passages, return_text and batch_size."
            )
        shown = {"return_passages": return_passages, "return_text": return_text}
        for name, value in shown.items():
            if not isinstance(value, (bool, type(None))):
                raise ValueError(f"{name} is {value!r}, and has to be true or false.")
        return (
            {},
            {} if top_k is None else {"top_k": top_k},
            {name: value for name, value in shown.items() if value is not None},
        )

    def get_iterator(
        self,
        inputs: Iterable[Any],
        num_workers: int,
        batch_size: int,
        preprocess_params: dict[str, Any],
        forward_params: dict[str, Any],
        postprocess_params: dict[str, Any],
    ) -> Iterator[list[dict[str, Any]]]:
        """Rank request after request; those of a batch go through the model together."""
        if num_workers:
            logger.warning_once("num_workers has no effect: documents are tokenized while the encoder works.")
        requests = iter(inputs)
        while batch := list(islice(requests, batch_size)):
            prepared = [request for one in batch for request in self.preprocess(one, **preprocess_params)["requests"]]
            rankings = self.forward({"requests": prepared}, **forward_params)["rankings"]
            yield from (self.postprocess({"rankings": [ranking]}, **postprocess_params) for ranking in rankings)

    def preprocess(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Check the input's form."""
        if not isinstance(inputs, Mapping) or not {"query", "documents"} <= inputs.keys():
            raise ValueError("The text-ranking pipeline takes a dict with the keys 'query' and 'documents'.")
        if unknown := sorted(map(str, inputs.keys() - {"query", "documents"})):
            raise ValueError(
                f"{', '.join(unknown)}: a request has the keys 'query' and 'documents' alone; options such as top_k "
                f"are arguments of the call."
            )
        return {"requests": [(inputs["query"], inputs["documents"])]}

    def _forward(self, inputs: dict[str, Any], top_k: int | None = None) -> dict[str, Any]:
        return {"rankings": cast(Any, self.model).rank_all(inputs["requests"], top_k)}

    def postprocess(
        self, outputs: dict[str, Any], return_passages: bool = False, return_text: bool = False
    ) -> list[dict[str, Any]]:
        """Plain values, ready for JSON."""
        (ranking,) = outputs["rankings"]
        return [document.to_dict(return_passages, return_text) for document in ranking]
