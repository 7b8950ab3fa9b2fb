"""The vector family (PARADE): the encoder gives a vector for every passage, and the vectors are aggregated."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

import torch
from torch import Tensor, nn

from .aggregators import VECTOR_AGGREGATORS
from .configuration_ranker import ParadeConfig
from .loading_options import PathLike
from .modeling_ranker import DocumentRanker
from .processing_settings import Preset
from .ranker_options import ParadeOptions
from .reader_bi_encoder import BiEncoder, Pooling, Similarity
from .single_precision import at_least_single

if TYPE_CHECKING:
    from typing_extensions import Unpack

Parade = TypeVar("Parade", bound="ParadeForSequenceClassification")


class ParadeForSequenceClassification(DocumentRanker):
    """PARADE-Max, -Sum, -Avg, -Attn, -CNN and -Transformer (Li et al., 2023) over any encoder's passage vectors.

    Example:
        ```python
        model = ParadeForSequenceClassification.from_encoder(
            "google/electra-base-discriminator", aggregation="transformer"
        )
        ```
    """

    config_class = ParadeConfig
    aggregators = VECTOR_AGGREGATORS
    config: ParadeConfig

    def _add_relation(self) -> None:
        self.projection = nn.Linear(2 * cast(BiEncoder, self.reader).width, self.config.hidden_size)

    def relate(self, queries: Tensor, passages: Tensor) -> Tensor:
        """A learned projection of the elementwise product and the absolute difference of query and passage."""
        queries, passages = at_least_single(queries), at_least_single(passages)
        with torch.autocast(queries.device.type, enabled=False):
            return self.projection(torch.cat([queries * passages, (queries - passages).abs()], dim=-1))

    @classmethod
    def from_encoder(  # type: ignore[override]
        cls: type[Parade],
        source: PathLike,
        aggregation: str | None = None,
        preset: Preset | None = None,
        **options: Unpack[ParadeOptions],
    ) -> Parade:
        """Build a ranker on a pretrained encoder, with a new aggregator; see `DocumentRanker.from_encoder`."""
        return super().from_encoder(source, aggregation, preset, **options)

    @classmethod
    def from_bi_encoder(  # type: ignore[override]
        cls: type[Parade],
        source: PathLike,
        aggregation: str | None = None,
        preset: Preset | None = None,
        *,
        pooling: Pooling | None = None,
        similarity: Similarity | None = None,
        **options: Unpack[ParadeOptions],
    ) -> Parade:
        """Build a ranker on a bi-encoder, with a new aggregator; see `DocumentRanker.from_bi_encoder`."""
        return super().from_bi_encoder(source, aggregation, preset, pooling=pooling, similarity=similarity, **options)


ParadeConfig.register_for_auto_class()
ParadeForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
