"""Layers: a cross-encoder whose states of tokens are matched, for KNRM and CEDR (see `kernel_pooling`).

The features of a passage are how many of its tokens are at each kernel for each token of the query, `(inputs, rows,
columns)`: a row for each token of the query, with a column for each layer and kernel, and a last column that is 1.
Before them, the CLS vector has as many rows as it needs. Zeros are padding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel, initialization as init

from .encoders import last_places
from .kernel_pooling import CENTERS, KERNEL_AGGREGATORS, WIDTH
from .offloading import at_hand
from .reader import Reader, ReaderSettings, drop_pooler
from .single_precision import at_least_single

if TYPE_CHECKING:
    from .configuration_cedr import CedrConfig
    from .encoder_inputs import PairTemplate
    from .processing_document import DocumentProcessor


class Places(NamedTuple):
    """Where query and passage are in a batch of inputs `(inputs, length)`."""

    start: int
    """Position of the query's first token, in every input."""
    terms: Tensor
    """How many tokens the query has, `(inputs,)`."""
    passage: Tensor
    """True for the passage's tokens, `(inputs, length)`."""


class LayersSettings(ReaderSettings):
    """Which layers are matched is a setting of the family: see `CedrConfig`."""

    kind = "layers"


class Layers(Reader):
    """Matches the tokens of query and passage in the states of the encoder's layers."""

    settings_class = LayersSettings
    features = frozenset({"matches"})
    rows_of_tokens = True
    exact = True

    config: CedrConfig
    template: PairTemplate | None = None

    def __init__(self, config: CedrConfig, encoder: PreTrainedModel) -> None:
        super().__init__(config, encoder)
        drop_pooler(encoder)
        self.widths = (config.exact_width, *[WIDTH] * (len(CENTERS) - 1))
        if config.learn_kernels:
            self.kernel_centers = nn.Parameter(torch.tensor(CENTERS))
            self.kernel_widths = nn.Parameter(torch.tensor(self.widths))

    def init_weights(self) -> None:
        """Start learned kernels at the fixed ones."""
        if self.config.learn_kernels:
            init.copy_(self.kernel_centers, torch.tensor(CENTERS))
            init.copy_(self.kernel_widths, torch.tensor(self.widths))

    def check_processor(self, processor: DocumentProcessor, encoder: PreTrainedModel) -> None:
        """Refuse a tokenizer whose inputs do not show where the query ends."""
        super().check_processor(processor, encoder)
        if not processor.template.between:
            raise ValueError("The tokenizer puts nothing between query and passage, so they cannot be matched.")

    def use_format(self, processor: DocumentProcessor | None) -> None:
        """Take over which tokens stand around query and passage."""
        self.template = None if processor is None else processor.template

    # --- Reading -----------------------------------------------------------------------------------------------------

    @property
    def all_states(self) -> bool:
        """True: every token is matched."""
        return True

    @property
    def outputs(self) -> dict[str, bool]:
        """The states of all layers, unless the last one is all that is matched."""
        needs_layers = self.config.matched_layers != [self.config.encoder_config.num_hidden_layers]
        return {"output_hidden_states": needs_layers}

    def features_of(self, output: Any, inputs: dict[str, Tensor]) -> Tensor:
        """The kernel counts of inputs, and their CLS vectors if the aggregation uses them."""
        ids = inputs["input_ids"]
        states = [state[:, : ids.size(1)] for state in self._states(output)]
        return self.match(states[:-1], states[-1], self._find_places(ids, inputs["attention_mask"]))

    def _states(self, output: Any) -> list[Tensor]:
        """The states of the matched layers, and the states of the last layer."""
        last = output.last_hidden_state
        if not self.outputs["output_hidden_states"]:
            return [last, last]
        layers = output.hidden_states
        count = self.config.encoder_config.num_hidden_layers
        if len(layers) != count + 1 or any(state.size(1) < last.size(1) for state in layers):
            raise ValueError(
                f"The encoder ({self.config.encoder_config.model_type}) does not give a state of every token for each "
                f"of its {count} layers: use match_layers=[-1], its last layer, or another encoder."
            )
        return [*(last if layer == count else layers[layer] for layer in self.config.matched_layers), last]

    def _find_places(self, input_ids: Tensor, attention_mask: Tensor) -> Places:
        """Where query and passage are: the query ends at the first separator after its start."""
        template = self.template
        if template is None:
            raise ValueError("The model has no processor, so it cannot tell query and passage: set model.processor.")
        start, between = len(template.before), torch.tensor(template.between, device=input_ids.device)
        is_separator = (input_ids.unfold(1, len(between), 1) == between).all(dim=-1)
        is_separator[:, :start] = False
        if not bool(is_separator.any(dim=1).all()):
            raise ValueError("An input has no separator after its query: build it with the model's processor.")
        query_end = is_separator.int().argmax(dim=1)
        first, end = query_end + len(between), last_places(attention_mask) - len(template.after)
        if self.config.match_separators:
            query_end, end = first, end + sum(token in template.between for token in template.after)
        places = torch.arange(input_ids.size(1), device=input_ids.device)
        passage = (places >= first[:, None]) & (places < end[:, None])
        return Places(start, query_end - start, passage)

    # --- Matching ----------------------------------------------------------------------------------------------------

    def match(self, states: Sequence[Tensor], last: Tensor, places: Places) -> Tensor:
        """The features of passages.

        Args:
            states: The states of the tokens, `(inputs, length, width)`, for each layer that is matched.
            last: The states of the last layer; the first is the CLS vector.
            places: Where query and passage are.
        """
        terms = slice(places.start, places.start + int(places.terms.max()))
        real = torch.arange(terms.stop - terms.start, device=last.device) < places.terms[:, None]
        # Half precision is too coarse for the narrow kernel.
        with torch.autocast(last.device.type, enabled=False):
            counts = [self._count(at_least_single(layer), terms, places.passage) for layer in states]
        rows = torch.cat(counts, dim=-1).masked_fill(~real[..., None], 0)
        rows = torch.cat([rows, real[..., None].to(rows)], dim=-1)
        if not self.config.reads_cls:
            return rows
        cls = F.pad(last[:, 0].to(rows), (0, -self.config.hidden_size % rows.size(-1)))
        return torch.cat([cls.unflatten(1, (-1, rows.size(-1))), rows], dim=1)

    def _count(self, states: Tensor, terms: slice, passage: Tensor) -> Tensor:
        """How many tokens of the passage are at each kernel of a query token, `(inputs, query tokens, kernels)`."""
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

    # --- On a card ---------------------------------------------------------------------------------------------------

    @classmethod
    def draw_features(cls, feature: str, config: Mapping[str, Any], number: str) -> str:
        """The matches of a passage, and its CLS vector if the aggregation takes it."""
        reads_cls = getattr(KERNEL_AGGREGATORS.get(config["aggregation"]), "reads_cls", True)
        return f"m{number}, c{number}" if reads_cls else f"m{number}"
