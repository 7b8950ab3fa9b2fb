"""`pipeline("text-ranking", model=...)`: a query and its documents in, a ranking out."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, TypedDict, cast, overload

from transformers import Pipeline
from transformers.utils import logging

from .checks import check_flag, check_limit

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .documents import DocumentLike

logger = logging.get_logger(__name__)


class RankingRequest(TypedDict):
    """A query and the documents to rank for it."""

    query: str
    documents: Iterable[DocumentLike]


class RankingOptions(TypedDict, total=False):
    """Options of a call of the pipeline."""

    top_k: int | None
    """How many documents of a ranking are returned."""
    return_passages: bool | None
    """Whether to add the passages that were read, with their scores and weights."""
    return_text: bool | None
    """Whether to add the documents' texts."""
    batch_size: int | None
    """How many requests are read together."""
    num_workers: int | None
    """An option of every pipeline, without effect in this one."""


Ranking = list[dict[str, Any]]
"""Documents as `RankedDocument.to_dict` gives them, the best first."""


class TextRankingPipeline(Pipeline):
    """Ranks the documents of a request for its query.

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

    @overload
    def __call__(self, inputs: RankingRequest, **options: Unpack[RankingOptions]) -> Ranking: ...

    @overload
    def __call__(self, inputs: list[RankingRequest], **options: Unpack[RankingOptions]) -> list[Ranking]: ...

    @overload
    def __call__(
        self, inputs: Generator[RankingRequest, None, None], **options: Unpack[RankingOptions]
    ) -> Iterable[Ranking]: ...

    def __call__(self, inputs: Any, **options: Any) -> Any:
        """Rank.

        Args:
            inputs: A request: a dict with `query` and `documents`; or a list or generator of requests.
            **options: See `RankingOptions`.
        """
        check_limit("batch_size", options.get("batch_size"))
        return super().__call__(inputs, **options) if not isinstance(inputs, list) or inputs else []

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
            if value is not None:
                check_flag(name, value)
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
        """Rank the requests; those of a batch are read together."""
        if num_workers:
            logger.warning_once("num_workers has no effect: documents are tokenized in a thread of their own.")
        requests = iter(inputs)
        while batch := list(islice(requests, batch_size)):
            prepared = [request for one in batch for request in self.preprocess(one, **preprocess_params)["requests"]]
            rankings = self.forward({"requests": prepared}, **forward_params)["rankings"]
            yield from (self.postprocess({"rankings": [ranking]}, **postprocess_params) for ranking in rankings)

    def preprocess(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Check a request."""
        if not isinstance(inputs, Mapping) or not {"query", "documents"} <= inputs.keys():
            raise ValueError("The text-ranking pipeline takes a dict with the keys 'query' and 'documents'.")
        if unknown := sorted(map(str, inputs.keys() - {"query", "documents"})):
            raise ValueError(
                f"{', '.join(unknown)}: a request has only the keys 'query' and 'documents'; options such as top_k "
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
