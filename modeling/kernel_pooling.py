"""Kernel pooling: how well the tokens of a document match those of the query, as features for a score.

The cosines of a query token with all tokens of a document are counted softly around eleven values (kernels); the
logarithms of these counts, summed over the query's tokens, are the features (KNRM: Xiong et al., 2017). CEDR-KNRM
(MacAvaney et al., 2019) has them for every layer of the encoder, and adds the passages' CLS vectors.

A document is all of its passages together: counts are summed over its passages before the logarithm. So the features of
a passage are its counts, `(inputs, rows, columns)`: a row for each token of the query, with a column for each layer and
kernel, and a last column that is 1. Before them, the CLS vector has as many rows as it needs. Zeros are padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.activations import ACT2FN

from .aggregators import Aggregation, Aggregator, pool_by_maximum, pool_by_mean
from .bi_encoder import at_least_single
from .offloading import at_hand

if TYPE_CHECKING:
    from .configuration_cedr import CedrConfig

# The kernels' centers; the first, around equal vectors, has a width of its own.
CENTERS = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9)
WIDTH = 0.1


class Places(NamedTuple):
    """Where query and passage are in a batch of inputs `(inputs, length)`."""

    start: int
    """Position of the query's first token, in every input."""
    terms: Tensor
    """How many tokens the query has, `(inputs,)`."""
    passage: Tensor
    """True for the passage's tokens, `(inputs, length)`."""


class KernelAggregator(Aggregator):
    """Scores a document by its kernel features, and in subclasses also by its passages' CLS vectors."""

    reads_cls: ClassVar[bool] = True

    def __init__(self, config: CedrConfig) -> None:
        super().__init__(config)
        self.counts = len(CENTERS) * len(config.matched_layers)
        self.cls_width = config.hidden_size if self.reads_cls else 0
        self.scaled = config.kernel_log == "scaled"
        self.widths = (config.exact_width, *[WIDTH] * (len(CENTERS) - 1))
        if config.learn_kernels:
            self.kernel_centers = nn.Parameter(torch.tensor(CENTERS))
            self.kernel_widths = nn.Parameter(torch.tensor(self.widths))
        inputs, hidden = self.counts + self.cls_width, config.head_size
        self.hidden = nn.Linear(inputs, hidden) if hidden else None
        self.activation = ACT2FN[config.head_activation]
        self.score = nn.Linear(hidden or inputs, 1)

    def init_weights(self, std: float) -> None:
        if hasattr(self, "kernel_centers"):
            init.copy_(self.kernel_centers, torch.tensor(CENTERS))
            init.copy_(self.kernel_widths, torch.tensor(self.widths))

    # --- A passage ---------------------------------------------------------------------------------------------------

    def match(self, states: Sequence[Tensor], last: Tensor, places: Places) -> Tensor:
        """The features of passages.

        Args:
            states: The states of the tokens, `(inputs, length, width)`, for each layer that is matched.
            last: Those of the last layer, whose first is the CLS vector.
            places: Where query and passage are.
        """
        terms = slice(places.start, places.start + int(places.terms.max()))
        real = torch.arange(terms.stop - terms.start, device=last.device) < places.terms[:, None]
        # Half precision is too coarse for the narrow kernel.
        with torch.autocast(last.device.type, enabled=False):
            counts = [self._count(at_least_single(layer), terms, places.passage) for layer in states]
        rows = torch.cat(counts, dim=-1).masked_fill(~real[..., None], 0)
        rows = torch.cat([rows, real[..., None].to(rows)], dim=-1)
        if not self.reads_cls:
            return rows
        cls = F.pad(last[:, 0].to(rows), (0, -self.cls_width % rows.size(-1)))
        return torch.cat([cls.unflatten(1, (-1, rows.size(-1))), rows], dim=1)

    def _count(self, states: Tensor, terms: slice, passage: Tensor) -> Tensor:
        """For each query token, how many of the passage's are at each kernel, `(inputs, query tokens, kernels)`."""
        vectors = F.normalize(states, dim=-1)
        cosines = torch.bmm(vectors[:, terms], vectors.transpose(1, 2))
        others = ~passage[:, None]
        kernels = zip(*self._kernels(cosines), strict=True)
        counts = [
            (-0.5 * ((cosines - center) / width) ** 2).exp().masked_fill(others, 0).sum(dim=-1)
            for center, width in kernels
        ]
        return torch.stack(counts, dim=-1)

    def _kernels(self, like: Tensor) -> tuple[Tensor, Tensor]:
        if hasattr(self, "kernel_centers"):
            with at_hand(self):
                return self.kernel_centers.to(like), self.kernel_widths.to(like)
        return like.new_tensor(CENTERS), like.new_tensor(self.widths)

    # --- A document --------------------------------------------------------------------------------------------------

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

    def pool_cls(self, cls: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The document's CLS vector `(documents, width)`, and the weights of its passages."""
        raise NotImplementedError


class KernelsAlone(KernelAggregator):
    """KNRM (Xiong et al., 2017, on an encoder's vectors): the kernel features alone."""

    weight_means = "1 for every passage"
    reads_cls = False

    def pool_cls(self, cls: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return cls.sum(dim=1), mask.to(cls)


class KernelsAndMaximum(KernelAggregator):
    """CEDR-KNRM-Max (Li et al., 2023): kernel features, and the elementwise maximum of the passages' CLS vectors."""

    weight_means = "share of the elements of the document's CLS vector that come from the passage"

    def pool_cls(self, cls: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return pool_by_maximum(cls, mask)


class KernelsAndMean(KernelAggregator):
    """CEDR-KNRM-Avg (MacAvaney et al., 2019): kernel features, and the mean of the passages' CLS vectors."""

    weight_means = "1 / number of passages of the document"

    def pool_cls(self, cls: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return pool_by_mean(cls, mask)


KERNEL_AGGREGATORS: dict[str, type[Aggregator]] = {
    "knrm": KernelsAlone,
    "max": KernelsAndMaximum,
    "avg": KernelsAndMean,
}
"""The methods that score kernel features, by the name that `config.aggregation` has."""
