"""Kernel pooling: how well the tokens of a document match the query's tokens, as features for a score.

The cosines of a query token with all tokens of a document are counted softly around eleven values (kernels); the
logarithms of these counts, summed over the query's tokens, are the features (KNRM: Xiong et al., 2017). CEDR-KNRM
(MacAvaney et al., 2019) has them for every layer of the encoder, and adds the passages' CLS vectors.

A document is all of its passages together: the passages' counts, which `reader_layers` makes, are summed before the
logarithm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN

from .aggregators import Aggregation, Aggregator, pool_by_maximum, pool_by_mean

if TYPE_CHECKING:
    from .configuration_cedr import CedrConfig

# The kernels' centers; the first, around equal vectors, has a width of its own.
CENTERS = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9)
WIDTH = 0.1


# The parts of a model card's description that all kernel methods share.
_COUNTS = (
    "computed by {head} from how many of its tokens have which cosine with each token of the query (logarithms of 11 "
    "kernels, summed over the query's tokens)"
)
_SUMS = "sum of m; its logarithms, summed over the query's tokens"


class KernelAggregator(Aggregator):
    """Scores a document by its kernel features, and in subclasses also by its passages' CLS vectors."""

    reads_cls: ClassVar[bool] = True
    """Whether the score is also computed from the passages' CLS vectors."""

    def __init__(self, config: CedrConfig) -> None:
        super().__init__(config)
        self.counts = len(CENTERS) * len(config.matched_layers)
        self.cls_width = config.hidden_size if self.reads_cls else 0
        self.scaled = config.kernel_log == "scaled"
        inputs, hidden = self.counts + self.cls_width, config.head_size
        self.hidden = nn.Linear(inputs, hidden) if hidden else None
        self.activation = ACT2FN[config.head_activation]
        self.score = nn.Linear(hidden or inputs, 1)

    def forward(self, passages: Tensor, mask: Tensor) -> Aggregation:
        passages = passages.masked_fill(~mask[..., None, None], 0)
        cls_rows = -(-self.cls_width // passages.size(-1))
        rows = passages[:, :, cls_rows:].sum(dim=1)
        counts, real = rows[..., :-1], rows[..., -1:] > 0
        logs = 0.01 * counts.clamp(min=1e-10).log() if self.scaled else (counts + 1e-6).log()
        features = logs.masked_fill(~real, 0).sum(dim=1)
        cls = passages[:, :, :cls_rows].flatten(2)[..., : self.cls_width]
        pooled, weights = self.pool_cls(cls, mask)
        state = torch.cat([features, pooled], dim=-1)
        hidden = state if self.hidden is None else self.activation(self.hidden(state))
        return Aggregation(self.score(hidden).squeeze(-1), weights, state)

    @classmethod
    def words(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {"head": "two layers" if settings["head_size"] else "a linear layer"}

    def pool_cls(self, cls: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The document's CLS vector `(documents, width)`, and the weights of its passages."""
        raise NotImplementedError


class KernelsAlone(KernelAggregator):
    """KNRM (Xiong et al., 2017, on an encoder's vectors): the kernel features alone."""

    title = "KNRM"
    does = _COUNTS
    drawn = (_SUMS, "{head}")
    papers = ("xiong2017", "li2023")
    weight_means = "1 for every passage"
    reads_cls = False

    def pool_cls(self, cls: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return cls.sum(dim=1), mask.to(cls)


class KernelsAndMaximum(KernelAggregator):
    """CEDR-KNRM-Max (Li et al., 2023): kernel features, and the elementwise maximum of the passages' CLS vectors."""

    title = "CEDR-KNRM-Max"
    does = f"{_COUNTS}, and from the elementwise maximum of its passages' CLS vectors"
    drawn = (f"{_SUMS}; maximum of c", "{head}")
    papers = ("macavaney2019", "li2023")
    weight_means = "share of the elements of the document's CLS vector that come from the passage"

    def pool_cls(self, cls: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return pool_by_maximum(cls, mask)


class KernelsAndMean(KernelAggregator):
    """CEDR-KNRM-Avg (MacAvaney et al., 2019): kernel features, and the mean of the passages' CLS vectors."""

    title = "CEDR-KNRM-Avg"
    does = f"{_COUNTS}, and from the mean of its passages' CLS vectors"
    drawn = (f"{_SUMS}; mean of c", "{head}")
    papers = ("macavaney2019", "li2023")
    weight_means = "1 / number of passages of the document"

    def pool_cls(self, cls: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return pool_by_mean(cls, mask)


KERNEL_AGGREGATORS: dict[str, type[Aggregator]] = {
    "knrm": KernelsAlone,
    "max": KernelsAndMaximum,
    "avg": KernelsAndMean,
}
"""The methods that score kernel features, by the name that `config.aggregation` has."""
