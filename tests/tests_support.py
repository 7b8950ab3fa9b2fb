"""Names that several tests share."""

from __future__ import annotations

from pathlib import Path

from docparade import MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.modeling import SCORE_AGGREGATORS, VECTOR_AGGREGATORS

PROJECT = Path(__file__).parents[1]
LICENSE = (PROJECT / "LICENSE").read_text(encoding="utf-8")
WORDS = sorted(set(LICENSE.lower().split()))

FAMILIES = [(MaxPForSequenceClassification, name) for name in SCORE_AGGREGATORS] + [
    (ParadeForSequenceClassification, name) for name in VECTOR_AGGREGATORS
]

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 96,
}
# Tokenizer and configuration of one tiny encoder of each architecture.
ENCODERS: dict[str, tuple[str, dict]] = {
    "bert": ("wordpiece", SIZES),
    "electra": ("wordpiece", {**SIZES, "embedding_size": 16}),
    "distilbert": (
        "wordpiece",
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 96},
    ),
    "mpnet": ("wordpiece", SIZES),
    "roberta": ("byte_bpe", SIZES),
    "modernbert": ("byte_bpe", SIZES),
    "albert": ("sentencepiece", {**SIZES, "embedding_size": 16}),
    "xlm-roberta": ("sentencepiece", SIZES),
    "deberta-v2": ("sentencepiece", {**SIZES, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
}
