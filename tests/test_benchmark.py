"""The benchmark's systems read the same and give the same scores; what it counts is right."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from tests_support import LICENSE, PROJECT
from tiny_models import encoder_folder, tiny_ranker, tokenizers  # noqa: F401 (fixtures)

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.benchmark import SYSTEMS, Workload, measure
from docparade.growth import Growth

QUERY = "grant of patent license"
TEXTS = [" ".join(LICENSE.split()[start : start + size]) for start, size in ((0, 90), (200, 5), (300, 40))]
DOCUMENTS = [{"id": str(number), "text": text} for number, text in enumerate(TEXTS)]
WORDS = {"unit": "word", "window": 10, "stride": 8, "max_length": 60}


def test_all_systems_give_the_same_scores(tiny_ranker: Callable[..., DocumentRanker]) -> None:  # noqa: F811
    pytest.importorskip("sentence_transformers", reason="the extra is not installed")
    model = tiny_ranker(MaxPForSequenceClassification, "max", **WORDS)
    work = Workload.of(model, QUERY, DOCUMENTS)
    timings = measure(model, work, list(SYSTEMS), turns=1)
    ours = timings["docparade"].scores
    assert timings["dense"].scores == pytest.approx(ours, abs=1e-5)
    assert timings["sentence-transformers"].scores == pytest.approx(ours, abs=1e-5)
    assert timings["cached"].scores == ours
    assert ours == pytest.approx(model.score([(QUERY, document) for document in DOCUMENTS]), abs=1e-6)
    assert all(0 < timing.seconds < 1000 for timing in timings.values())
    assert timings["docparade"].parts.keys() == {"tokenising", "encoding", "rest"}


def test_what_there_is_to_read(tiny_ranker: Callable[..., DocumentRanker]) -> None:  # noqa: F811
    model = tiny_ranker(ParadeForSequenceClassification, "attn", **WORDS)
    work = Workload.of(model, QUERY, DOCUMENTS)
    batch = model.processor([QUERY] * 3, DOCUMENTS)
    assert work.real_tokens == int(batch["attention_mask"].sum())
    assert work.dense_tokens == 3 * 5 * 60
    dense = measure(model, work, ["docparade", "dense"], turns=1)
    assert dense["dense"].scores == pytest.approx(dense["docparade"].scores, abs=1e-5)


@pytest.fixture
def collection(tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path) -> Path:  # noqa: F811
    """A folder with a ranker, `model`, and a collection, `c`, of one query."""
    tiny_ranker(MaxPForSequenceClassification, "max", **WORDS).save_pretrained(tmp_path / "model")
    (tmp_path / "c").mkdir()
    lines = [json.dumps({"doc_id": document["id"], "text": document["text"]}) for document in DOCUMENTS]
    (tmp_path / "c" / "docs.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "c" / "queries.tsv").write_text(f"q1\t{QUERY}\n")
    return tmp_path


def test_the_command(command_line: Callable[..., tuple[int, str, str]], collection: Path) -> None:
    options = ("--model", "model", "--collection", "c", "--turns", "1")
    code, out, _ = command_line("benchmark", *options, "--systems", "docparade dense limit", "--json")
    assert code == 0
    report = json.loads(out)
    assert report["documents"] == 3
    assert report["dense"]["largest_score_difference"] < 1e-5
    assert {"share_of_the_limit", "docparade_is_faster_by", "memory_mib"} <= report["docparade"].keys()
    code, out, _ = command_line("benchmark", *options, "--systems", "docparade limit")
    assert code == 0
    assert "of the limit" in out
    code, out, _ = command_line("benchmark", *options, "--growth", "--chart", "growth.svg")
    assert code == 0
    assert "R²" in out and "max_passages" in out
    assert "<svg" in (collection / "growth.svg").read_text()
    code, _, err = command_line("benchmark", *options, "--systems", "docparade capreolus")
    assert code == 2
    assert "no 'capreolus'" in err


def test_growth_fits_a_line() -> None:
    start, slope, explained = Growth("documents", [1, 2, 3], [1000, 2000, 4000], [1.5, 2.5, 4.5]).fit
    assert (start, slope, explained) == pytest.approx((0.5, 1.0, 1.0))
    assert Growth("documents", [1, 2, 3], [1000, 2000, 3000], [1.0, 3.0, 1.0]).fit[2] == pytest.approx(0.0)


def test_exactness_is_compared_query_by_query(
    collection: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = runpy.run_path(str(PROJECT / "scripts" / "benchmark_exactness.py"))
    monkeypatch.chdir(collection)
    Path("bm25.txt").write_text("".join(f"q1 Q0 {number} {number + 1} {9 - number} bm25\n" for number in range(3)))
    script["main"](["--model", "model", "--collection", "c", "--run", "bm25.txt", "--depth", "2"])
    found = re.fullmatch(
        "1 queries, 2 documents: largest difference of scores (.*), the same ranking for 1 queries\n",
        capsys.readouterr().out,
    )
    assert found and 0 <= float(found[1]) < 1e-5
