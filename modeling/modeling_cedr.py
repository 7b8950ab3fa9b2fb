"""The kernel family (KNRM, CEDR-KNRM): how well the tokens of query and document match is counted, and scored."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from .configuration_cedr import CedrConfig
from .kernel_pooling import KERNEL_AGGREGATORS, KernelAggregator
from .loading_options import PathLike
from .modeling_ranker import DocumentRanker
from .processing_settings import Preset
from .ranker_options import CedrOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

Cedr = TypeVar("Cedr", bound="CedrForSequenceClassification")


class CedrForSequenceClassification(DocumentRanker):
    """KNRM and CEDR-KNRM (Xiong et al., 2017; MacAvaney et al., 2019) over any encoder's states of tokens.

    The encoder reads the query together with each passage. A document's score is computed from the cosines of its
    tokens with the query's tokens, which are counted (see `kernel_pooling`), and with `max` and `avg` also from its
    passages' CLS vectors.

    Example:
        ```python
        model = CedrForSequenceClassification.from_encoder("google/electra-base-discriminator", aggregation="max")
        ```
    """

    config_class = CedrConfig
    aggregators = KERNEL_AGGREGATORS
    config: CedrConfig
    aggregator: KernelAggregator

    @classmethod
    def from_encoder(  # type: ignore[override]
        cls: type[Cedr],
        source: PathLike,
        aggregation: str | None = None,
        preset: Preset | None = None,
        **options: Unpack[CedrOptions],
    ) -> Cedr:
        """Build a ranker on a pretrained encoder, with a new head; see `DocumentRanker.from_encoder`."""
        return super().from_encoder(source, aggregation, preset, **options)


CedrConfig.register_for_auto_class()
CedrForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
