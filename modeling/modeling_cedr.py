"""The kernel family (KNRM, CEDR-KNRM): how well the tokens of query and document match is counted, and scored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from .configuration_cedr import CedrConfig, KernelAggregation
from .encoders import last_places
from .engine_packing import describe_row
from .kernel_pooling import KERNEL_AGGREGATORS, KernelAggregator, Places
from .modeling_ranker import DocumentRanker
from .processing_document import DocumentProcessor
from .processing_settings import Preset
from .ranker_options import CedrOptions, PathLike

if TYPE_CHECKING:
    from typing_extensions import Unpack

Cedr = TypeVar("Cedr", bound="CedrForSequenceClassification")


class CedrForSequenceClassification(DocumentRanker):
    """KNRM and CEDR-KNRM (Xiong et al., 2017; MacAvaney et al., 2019) over any encoder's states of tokens.

    The encoder reads the query together with each passage. A document's score is computed from how many of its tokens
    have which cosine with those of the query (see `kernel_pooling`), and with `max` and `avg` from its passages' CLS
    vectors.

    Example:
        ```python
        model = CedrForSequenceClassification.from_encoder("google/electra-base-discriminator", aggregation="max")
        ```
    """

    config_class = CedrConfig
    aggregators = KERNEL_AGGREGATORS
    config: CedrConfig
    aggregator: KernelAggregator

    def __init__(self, config: CedrConfig, encoder: PreTrainedModel | None = None) -> None:
        super().__init__(config, encoder)
        self._drop_pooler()

    @property
    def keeps_tokens(self) -> bool:
        """True: the features of a passage have a row for each token of the query."""
        return True

    @classmethod
    def from_encoder(  # type: ignore[override]
        cls: type[Cedr],
        source: PathLike,
        aggregation: KernelAggregation | None = None,
        preset: Preset | None = None,
        **options: Unpack[CedrOptions],
    ) -> Cedr:
        """Build a ranker on a pretrained encoder, with a new head; see `DocumentRanker.from_encoder`."""
        return super().from_encoder(source, aggregation, preset, **options)

    def _check_fit(self, processor: DocumentProcessor) -> None:
        super()._check_fit(processor)
        if not processor.template.between:
            raise ValueError("The tokenizer puts nothing between query and passage, so they cannot be matched.")

    def _read_padded(self, inputs: dict[str, Tensor], **wanted: bool) -> Any:
        return super()._read_padded(inputs, **{"output_hidden_states": self._needs_layers, **wanted})

    def _features_of(self, encoded: Any, inputs: dict[str, Tensor]) -> Tensor:
        ids = inputs["input_ids"]
        states = [state[:, : ids.size(1)] for state in self._states(encoded)]
        return self._match(states, ids, inputs["attention_mask"])

    def _encode_packed(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None) -> Tensor:
        inputs, lengths = self._pack(input_ids, attention_mask, token_type_ids)
        row = describe_row(lengths, self.encoder, all_states=True)
        encoded = self.encoder(**inputs, row=row, output_hidden_states=self._needs_layers)
        states = [pad_sequence(state[0].split(lengths), batch_first=True) for state in self._states(encoded)]
        longest = max(lengths)
        return self._match(states, input_ids[:, :longest], attention_mask[:, :longest])

    @property
    def _needs_layers(self) -> bool:
        return self.config.matched_layers != [self.config.encoder_config.num_hidden_layers]

    def _states(self, encoded: Any) -> list[Tensor]:
        """The states of the layers that are matched, and then those of the last layer."""
        last = encoded.last_hidden_state
        if not self._needs_layers:
            return [last, last]
        layers = encoded.hidden_states
        count = self.config.encoder_config.num_hidden_layers
        if len(layers) != count + 1 or any(state.size(1) < last.size(1) for state in layers):
            raise ValueError(
                f"{type(self.encoder).__name__} does not give a state of every token for each of its {count} layers: "
                "use match_layers=[-1], its last layer, or another encoder."
            )
        return [*(last if layer == count else layers[layer] for layer in self.config.matched_layers), last]

    def _match(self, states: list[Tensor], input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.aggregator.match(states[:-1], states[-1], self._find_places(input_ids, attention_mask))

    def _find_places(self, input_ids: Tensor, attention_mask: Tensor) -> Places:
        """Where query and passage are: the query ends at the first separator after its start."""
        template = self.require_processor().template
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


CedrConfig.register_for_auto_class()
CedrForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
