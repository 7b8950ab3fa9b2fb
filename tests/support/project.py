"""Names that several tests share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from docparade import (
    CedrForSequenceClassification,
    MaxPForSequenceClassification,
    ParadeForSequenceClassification,
)
from docparade.modeling import KERNEL_AGGREGATORS, SCORE_AGGREGATORS, VECTOR_AGGREGATORS

PROJECT = Path(__file__).parents[2]
LICENSE = (PROJECT / "LICENSE").read_text(encoding="utf-8")
WORDS = sorted(set(LICENSE.lower().split()))
QUERY = "grant of patent license"
DOCUMENTS = [LICENSE[:900], "", {"id": "d2", "title": "Apache", "text": LICENSE[2000:2400]}]

# The methods that can be built on a bi-encoder, and all of them.
ON_BI_ENCODERS = [(MaxPForSequenceClassification, name) for name in SCORE_AGGREGATORS] + [
    (ParadeForSequenceClassification, name) for name in VECTOR_AGGREGATORS
]
FAMILIES = [*ON_BI_ENCODERS, *((CedrForSequenceClassification, name) for name in KERNEL_AGGREGATORS)]

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
# Encoders whose attention depends on the length of an input, or that compute with padding.
LENGTH_DEPENDENT_ENCODERS: dict[str, tuple[str, dict]] = {
    "big_bird": ("wordpiece", {**SIZES, "block_size": 4, "num_random_blocks": 1}),  # sparse from 29 tokens
    "longformer": ("byte_bpe", {**SIZES, "attention_window": [8, 8]}),
    "canine": ("wordpiece", {**SIZES, "downsampling_rate": 4, "local_transformer_stride": 8, "num_hash_buckets": 96}),
    "convbert": ("wordpiece", {**SIZES, "embedding_size": 16}),
    "fnet": ("wordpiece", SIZES),
    "funnel": (
        "wordpiece",
        {
            "block_sizes": [1, 1],
            "d_model": 32,
            "n_head": 4,
            "d_head": 8,
            "d_inner": 48,
            "architectures": ["FunnelModel"],
        },
    ),
    "nystromformer": ("wordpiece", {**SIZES, "num_landmarks": 8, "segment_means_seq_len": 8}),
    "xlnet": ("wordpiece", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48}),
    "yoso": ("wordpiece", {**SIZES, "type_vocab_size": 2}),
}

_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 1, "num_heads": 4}
# Encoder-decoders that score passages: model type and configuration. T5 v1.1 says in this way that its head is apart.
SEQ2SEQ_MODELS: dict[str, tuple[str, dict]] = {
    "t5": ("t5", _T5),
    "t5-v1.1": ("t5", {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "mt5": ("mt5", _T5),
    "umt5": ("umt5", _T5),
}

_DECODER = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 1024,
    # Large weights, so that scores differ by more than rounding.
    "initializer_range": 0.3,
}
# Decoders that score passages: configuration, and whether the tokenizer is SentencePiece-like and adds <bos>.
DECODERS: dict[str, tuple[dict, bool]] = {
    "qwen3": ({**_DECODER, "tie_word_embeddings": True}, False),
    "qwen2": ({**_DECODER, "tie_word_embeddings": False}, False),
    "gemma": ({**_DECODER, "initializer_range": 0.15}, True),
    "llama": (_DECODER, True),
}


def run_elsewhere(code: str, given: object, cache: Path) -> str:
    """The last line that a script prints in a process of its own, which is `given` something on standard input."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(cache), "PYTHONPATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(given),
        env=environment,
        cwd=cache,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "custom code" not in done.stdout, "loading must not ask for more trust than it was given"
    return done.stdout.splitlines()[-1]
