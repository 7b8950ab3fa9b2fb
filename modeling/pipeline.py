"""`pipeline("text-ranking", model=...)`: a query and its documents in, a ranking out."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, TypedDict, cast, overload

from transformers import Pipeline
from transformers.utils import logging

from .checks import check_flag, check_limit
from .handler import RANKING_NAMES, SIMILARITY_NAMES, Request

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .documents import DocumentLike

logger = logging.get_logger(__name__)


class RankingRequest(TypedDict):
    """A query and the documents to rank for it, which can also be named `texts`.

    A dict with `source_sentence` and `sentences` instead gives a list of scores, in the order of the sentences.
    """

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
    return_documents: bool | None
    """The Hub's other name for `return_text`."""
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
            inputs: A request: a dict with `query` and `documents` (or `texts`), or with `source_sentence` and
                `sentences`; or a list or generator of requests.
            **options: See `RankingOptions`.
        """
        check_limit("batch_size", options.get("batch_size"))
        return super().__call__(inputs, **options) if not isinstance(inputs, list) or inputs else []

    def _sanitize_parameters(
        self,
        top_k: int | None = None,
        return_passages: bool | None = None,
        return_text: bool | None = None,
        return_documents: bool | None = None,
        **unknown: Any,
    ) -> tuple[dict, dict, dict]:
        if unknown:
            raise TypeError(
                f"{', '.join(sorted(unknown))}: not an option of the text-ranking pipeline, which takes top_k, "
                f"return_passages, return_text and batch_size."
            )
        return_text = return_documents if return_text is None else return_text
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
    ) -> Iterator[list[Any]]:
        """Rank the requests; the requests of a batch are read together."""
        if num_workers:
            logger.warning_once("num_workers has no effect: documents are tokenized in a thread of their own.")
        requests = iter(inputs)
        while batch := list(islice(requests, batch_size)):
            prepared = [request for one in batch for request in self.preprocess(one, **preprocess_params)["requests"]]
            rankings = self.forward({"requests": prepared}, **forward_params)["rankings"]
            for request, ranking in zip(prepared, rankings, strict=True):
                yield self.postprocess({"requests": [request], "rankings": [ranking]}, **postprocess_params)

    def preprocess(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Check a request."""
        names = {RANKING_NAMES[0], *RANKING_NAMES[1], SIMILARITY_NAMES[0], *SIMILARITY_NAMES[1]}
        try:
            request = Request.of(inputs)
        except ValueError as error:
            raise ValueError(
                f"The text-ranking pipeline takes a dict with the keys 'query' and 'documents': {error}"
            ) from None
        if unknown := sorted(map(str, inputs.keys() - names)):
            raise ValueError(
                f"{', '.join(unknown)}: a request has only the keys 'query' and 'documents'; options such as top_k "
                f"are arguments of the call."
            )
        return {"requests": [request]}

    def _forward(self, inputs: dict[str, Any], top_k: int | None = None) -> dict[str, Any]:
        # On their way through transformers, named tuples become plain ones.
        requests = [Request(*each) for each in inputs["requests"]]
        if top_k is not None and any(request.wants_scores for request in requests):
            raise ValueError("top_k: has no effect on source_sentence and sentences; leave it out.")
        rankings = cast(Any, self.model).rank_all([(each.query, each.documents) for each in requests], top_k)
        return {"requests": requests, "rankings": rankings}

    def postprocess(
        self, outputs: dict[str, Any], return_passages: bool = False, return_text: bool = False
    ) -> list[Any]:
        """Plain values, ready for JSON."""
        (request,), (ranking,) = outputs["requests"], outputs["rankings"]
        return Request(*request).answer(ranking, None, return_passages=return_passages, return_text=return_text)
