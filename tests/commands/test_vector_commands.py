"""Commands that keep or search vectors load their bi-encoder in the same way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.collections import make_small_collection

from docparade.commands.bi_encoders import load_bi_encoder
from docparade.modeling import MaxPForSequenceClassification
from docparade.reranking.processes import process_group
from docparade.retrieval.errors import InputError


def test_a_bi_encoder_is_on_the_device_of_its_process(
    tiny_ranker: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_ranker(MaxPForSequenceClassification, "max", pooling="mean").save_pretrained(tmp_path / "bi")
    # A machine without a GPU has one other device.
    monkeypatch.setattr(process_group, "join_process_group", lambda: SimpleNamespace(device=torch.device("meta")))
    ranker = load_bi_encoder(str(tmp_path / "bi"), "--model")
    assert {one.device.type for one in ranker.parameters()} == {"meta"}


def test_a_cross_encoder_is_refused(command_line: Any, tiny_ranker: Callable[..., Any], tmp_path: Path) -> None:
    tiny_ranker(MaxPForSequenceClassification, "max").save_pretrained("cross")
    make_small_collection(tmp_path / "collection")
    Path("pairs.jsonl").write_text(json.dumps({"query": "a", "positive": "b"}) + "\n", encoding="utf-8")
    for command in (
        ["encode", "--collection", "collection"],
        ["retrieve", "--collection", "collection", "--method", "dense", "--output", "out.txt"],
        ["mine", "pairs.jsonl", "--methods", "dense", "--output", "out.jsonl"],
    ):
        code, _, err = command_line(*command, "--model", "cross")
        assert code == 2 and "--model cross is a cross-encoder, which has no vectors; name a bi-encoder." in err


def test_dense_retrieval_reads_in_the_precision_that_is_named(
    command_line: Any, tiny_ranker: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "cache"))
    tiny_ranker(MaxPForSequenceClassification, "max", pooling="mean").save_pretrained("bi")
    make_small_collection(tmp_path / "collection")
    used = []
    monkeypatch.setattr(
        "docparade.reranking.caches.vector_cache.VectorCache.open",
        lambda folder, ranker, *rest, **options: used.append(ranker.dtype) or _raise(InputError("stop here")),
    )
    for option in ([], ["--dtype", "bfloat16"]):
        command = ["retrieve", "--collection", "collection", "--method", "dense", "--model", "bi", "--output", "o.txt"]
        assert command_line(*command, *option)[0] == 2
    assert used == [torch.float32, torch.bfloat16]
    code, _, err = command_line("retrieve", "--collection", "collection", "--dtype", "bfloat16", "--output", "o.txt")
    assert code == 2 and "--dtype has no effect on --method bm25" in err


def _raise(error: Exception) -> None:
    raise error
