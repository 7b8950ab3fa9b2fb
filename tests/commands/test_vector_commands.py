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
from docparade.reranking import processes


def test_a_bi_encoder_is_on_the_device_of_its_process(
    tiny_ranker: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_ranker(MaxPForSequenceClassification, "max", pooling="mean").save_pretrained(tmp_path / "bi")
    # A machine without a GPU has one other device.
    monkeypatch.setattr(processes, "join_process_group", lambda: SimpleNamespace(device=torch.device("meta")))
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
