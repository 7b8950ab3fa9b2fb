"""Rankers as transformers tests its own models: `ModelTesterMixin` and `ConfigTester` on each family."""

from __future__ import annotations

import re
from typing import Any, ClassVar
from unittest import TestCase, mock

import torch
from support.project import ENCODERS
from transformers import AutoConfig
from transformers_tests.test_configuration_common import ConfigTester
from transformers_tests.test_modeling_common import ModelTesterMixin

from docparade import (
    CedrForSequenceClassification,
    DocumentRanker,
    MaxPForSequenceClassification,
    ParadeForSequenceClassification,
)
from docparade.modeling.encoder_inputs import PairTemplate
from docparade.modeling.reader_layers import Layers

CLS, SEP, VOCABULARY = 2, 3, 100

BI_ENCODER = {"kind": "bi_encoder", "pooling": ["mean"], "dense": [], "normalize": True, "similarity": "cosine"}

# Name of the tests -> family, encoder and configuration.
VARIANTS: dict[str, tuple[type[DocumentRanker], str, dict[str, Any]]] = {
    "MaxPBert": (MaxPForSequenceClassification, "bert", {}),
    "FirstPElectra": (MaxPForSequenceClassification, "electra", {"aggregation": "first"}),
    "SumPRoberta": (MaxPForSequenceClassification, "roberta", {"aggregation": "sum"}),
    "AvgPAlbert": (MaxPForSequenceClassification, "albert", {"aggregation": "avg"}),
    "KMaxDistilbert": (MaxPForSequenceClassification, "distilbert", {"aggregation": "kmax_avg"}),
    "BirchModernbert": (MaxPForSequenceClassification, "modernbert", {"aggregation": "birch"}),
    "MaxPBiEncoder": (MaxPForSequenceClassification, "bert", {"reader": BI_ENCODER}),
    "ParadeTransformerBert": (ParadeForSequenceClassification, "bert", {}),
    "ParadeTransformerElectra": (ParadeForSequenceClassification, "electra", {}),
    "ParadeAttnRoberta": (ParadeForSequenceClassification, "roberta", {"aggregation": "attn"}),
    "ParadeCnnBert": (ParadeForSequenceClassification, "bert", {"aggregation": "cnn"}),
    "ParadeMaxAlbert": (ParadeForSequenceClassification, "albert", {"aggregation": "max"}),
    "ParadeAvgDistilbert": (ParadeForSequenceClassification, "distilbert", {"aggregation": "avg"}),
    "ParadeSumPooler": (ParadeForSequenceClassification, "bert", {"aggregation": "sum", "passage_vector": "pooler"}),
    "ParadeBiEncoder": (ParadeForSequenceClassification, "bert", {"aggregation": "attn", "reader": BI_ENCODER}),
    "CedrMaxBert": (CedrForSequenceClassification, "bert", {}),
    "CedrAvgElectra": (CedrForSequenceClassification, "electra", {"aggregation": "avg"}),
    "CedrCapreolusBert": (CedrForSequenceClassification, "bert", {"formula": "capreolus"}),
    "KnrmBert": (CedrForSequenceClassification, "bert", {"aggregation": "knrm"}),
}

# Tests that do not apply to a ranker, the variants (a pattern), and why.
DOES_NOT_APPLY: list[tuple[str, str, str]] = [
    (
        "test_model_weights_reload_no_missing_tied_weights",
        "",
        "the test loads a checkpoint without weights, and a ranker refuses one that lacks any",
    ),
    (
        "test_retain_grad_hidden_states_attentions",
        "",
        "the states are put at the places of their passages, and the score is computed from the encoder's own",
    ),
    (
        "test_(capture_outputs_decorator|model_outputs_equivalence|eager_matches_sdpa_inference_24.*)",
        "",
        "sdpa gives no attention: transformers returns an empty tuple for it, and a ranker says so in an error",
    ),
    (
        "test_eager_matches_sdpa_inference_.*",
        "BiEncoder",
        "the test makes inputs of its own, without a query",
    ),
    (
        "test_.*gradient_checkpointing.*",
        "Albert",
        "transformers' ALBERT has no gradient checkpointing, and a ranker on it says so in an error",
    ),
    (
        "test_can_capture_specific_layers_hidden_states",
        "",
        "a ranker returns the states of all layers, or none",
    ),
    (
        "test_correct_missing_keys",
        "^(Parade|Cedr|Knrm|Birch)|BiEncoder",
        "the test loads an encoder's own checkpoint as a ranker: from_encoder does, and from_pretrained refuses",
    ),
    (
        "test_resize_tokens_embeddings",
        "^(Cedr|Knrm)",
        "the test overwrites all tokens of a passage, also the separators after which these look for the query's end",
    ),
]


class RankerTester:
    """What `ModelTesterMixin` asks for configuration and inputs: seven documents of three passages of seven tokens."""

    is_training = True
    batch_size, passages, seq_length = 7, 3, 7
    hidden_size, num_hidden_layers, num_attention_heads = 32, 2, 4

    def __init__(self, family: type[DocumentRanker], architecture: str, options: dict[str, Any]) -> None:
        self.family, self.architecture, self.options = family, architecture, options

    def get_config(self) -> Any:
        special = {"pad_token_id": 0, "bos_token_id": CLS, "eos_token_id": SEP}
        sizes = {**ENCODERS[self.architecture][1], "vocab_size": VOCABULARY, "num_labels": 1, **special}
        return self.family.config_class(AutoConfig.for_model(self.architecture, **sizes), **self.options)

    def prepare_config_and_inputs_for_common(self) -> tuple[Any, dict[str, torch.Tensor]]:
        generator = torch.Generator().manual_seed(0)
        shape = (self.batch_size, self.passages, self.seq_length)
        ids = torch.randint(5, 80, shape, generator=generator)
        # A query of one token, and a passage.
        ids[..., 0], ids[..., 2], ids[..., -1] = CLS, SEP, SEP
        inputs = {"input_ids": ids, "attention_mask": torch.ones(shape, dtype=torch.long)}
        if "reader" in self.options:
            inputs["query_input_ids"] = ids[:, 0, :3].clone()
        return self.get_config(), inputs


class RankerTests(ModelTesterMixin):
    """The tests of one variant."""

    variant: ClassVar[str]
    _is_composite = True

    @classmethod
    def why_not(cls, test: str) -> str | None:
        """Why a test does not apply to this variant; `None` if it does."""
        lines = (line for line in DOES_NOT_APPLY if re.fullmatch(line[0], test) and re.search(line[1], cls.variant))
        return next((why for _, _, why in lines), None)

    @property
    def all_model_classes(self) -> tuple[type[DocumentRanker], ...]:
        return (VARIANTS[self.variant][0],)

    def setUp(self) -> None:
        family, architecture, options = VARIANTS[self.variant]
        self.model_tester = RankerTester(family, architecture, options)
        self.config_tester = ConfigTester(
            self, config_class=family.config_class, has_text_modality=False, aggregation="max"
        )
        if family is CedrForSequenceClassification:
            # Its reader looks for the separators of the processor, which the tests do not have.
            patch = mock.patch.object(Layers, "template", PairTemplate([CLS], [SEP], [SEP], [0] * 5))
            patch.start()
            self.addCleanup(patch.stop)

    def _prepare_for_class(
        self, inputs_dict: dict[str, torch.Tensor], model_class: type, return_labels: bool = False
    ) -> dict[str, torch.Tensor]:
        inputs = super()._prepare_for_class(inputs_dict, model_class)
        return {**inputs, "labels": torch.zeros(len(inputs["input_ids"]))} if return_labels else inputs

    def test_config(self) -> None:
        self.config_tester.run_common_tests()


for variant in VARIANTS:
    globals()[f"Test{variant}"] = type(f"Test{variant}", (RankerTests, TestCase), {"variant": variant})
