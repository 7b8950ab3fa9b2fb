"""The benchmark of the first stage runs whole, on a collection of a few documents."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "scripts" / "benchmark_retrieval.py"


def test_the_benchmark_measures_every_step_and_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "50", "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)
    assert figures["documents"] == 50
    for step in ("write", "index", "search", "fetch"):
        assert figures[f"{step} s"] > 0
        assert figures[f"{step} peak MB"] > 10
    assert all(figures[f"search {method} ms"] > 0 for method in ("bm25", "bm25+rm3", "ql", "ql+rm3"))
    assert list(tmp_path.iterdir()) == []
