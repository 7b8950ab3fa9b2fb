"""scripts/benchmark_vectors.py: it runs, and prints a line for each size and type."""

import importlib.util

import pytest
from support.project import PROJECT


@pytest.mark.slow
def test_a_line_for_each_type(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("benchmark_vectors", PROJECT / "scripts" / "benchmark_vectors.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.main(["--documents", "50", "--turns", "1"])
    header, *lines = capsys.readouterr().out.splitlines()
    assert "search 100" in header
    assert [line.split()[:2] for line in lines] == [["50", "float32"], ["50", "float16"], ["50", "int8"]]
