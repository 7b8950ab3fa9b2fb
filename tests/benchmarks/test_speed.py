"""The benchmark's systems read the same and give the same scores; what it counts is right."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.marks import others_slow
from support.project import FAMILIES, LICENSE, PROJECT

from docparade import (
    CedrForSequenceClassification,
    DocumentRanker,
    MaxPForSequenceClassification,
    ParadeForSequenceClassification,
    to_int8,
)
from docparade.benchmarks.growth import Growth
from docparade.benchmarks.speed import measure_speed
from docparade.benchmarks.systems import SYSTEMS
from docparade.benchmarks.timing import find_device, read_clock
from docparade.benchmarks.workload import Workload
from docparade.retrieval import InputError

QUERY = "grant of patent license"
TEXTS = [" ".join(LICENSE.split()[start : start + size]) for start, size in ((0, 90), (200, 5), (300, 40))]
DOCUMENTS = [{"id": str(number), "text": text} for number, text in enumerate(TEXTS)]
DOCUMENTS[2]["title"] = "Redistribution of the work"
WORDS = {"unit": "word", "window": 10, "stride": 8, "max_length": 60}


def test_all_systems_give_the_same_scores(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    pytest.importorskip("sentence_transformers", reason="the extra is not installed")
    model = tiny_ranker(MaxPForSequenceClassification, "max", **WORDS)
    work = Workload.of(model, QUERY, DOCUMENTS)
    timings = measure_speed(model, work, [name for name in SYSTEMS if name != "kept"], turns=1)
    ours = timings["docparade"].scores
    assert timings["dense"].scores == pytest.approx(ours, abs=1e-5)
    assert timings["sentence-transformers"].scores == pytest.approx(ours, abs=1e-5)
    assert timings["cached"].scores == ours
    assert ours == pytest.approx(model.score([(QUERY, document) for document in DOCUMENTS]), abs=1e-6)
    assert all(0 < timing.seconds < 1000 for timing in timings.values())
    assert timings["docparade"].parts.keys() == {"tokenizing", "encoding", "rest"}


@pytest.mark.parametrize("late_interaction", [False, True])
def test_kept_vectors_give_the_same_scores(late_interaction: bool, encoder_folder: Callable[..., Path]) -> None:
    model = MaxPForSequenceClassification.from_bi_encoder(
        encoder_folder("bert"), pooling="mean", late_interaction=late_interaction, **WORDS
    )
    timings = measure_speed(model, Workload.of(model, QUERY, DOCUMENTS), ["docparade", "kept"], turns=1)
    assert timings["kept"].scores == pytest.approx(timings["docparade"].scores, abs=1e-5)


def test_what_there_is_to_read(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    model = tiny_ranker(ParadeForSequenceClassification, "attn", **WORDS)
    work = Workload.of(model, QUERY, DOCUMENTS)
    batch = model.processor([QUERY] * 3, DOCUMENTS)
    assert work.real_tokens == int(batch["attention_mask"].sum())
    assert work.dense_tokens == 3 * 5 * 60
    dense = measure_speed(model, work, ["docparade", "dense"], turns=1)
    assert dense["dense"].scores == pytest.approx(dense["docparade"].scores, abs=1e-5)


@pytest.mark.parametrize("labels", [1, 2])
def test_sentence_transformers_scores_with_the_rankers_own_head(
    labels: int,
    encoder_folder: Callable[..., Path],
) -> None:
    pytest.importorskip("sentence_transformers", reason="the extra is not installed")
    options = {**WORDS, "max_query_tokens": 8}
    model = MaxPForSequenceClassification.from_cross_encoder(encoder_folder("bert", labels), "avg", **options)
    timings = measure_speed(
        model, Workload.of(model, QUERY, DOCUMENTS), ["docparade", "sentence-transformers"], turns=1
    )
    assert timings["sentence-transformers"].scores == pytest.approx(timings["docparade"].scores, abs=1e-5)


@pytest.fixture
def collection(tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path) -> Path:
    """A folder with a ranker, `model`, and a collection, `c`, of one query."""
    tiny_ranker(MaxPForSequenceClassification, "max", **WORDS).save_pretrained(tmp_path / "model")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "docs.jsonl").write_text("".join(json.dumps(document) + "\n" for document in DOCUMENTS))
    (tmp_path / "c" / "queries.tsv").write_text(f"q1\t{QUERY}\n")
    return tmp_path


def test_the_command(command_line: Callable[..., tuple[int, str, str]], collection: Path) -> None:
    options = ("--model", "model", "--collection", "c", "--turns", "1")
    code, out, _ = command_line("benchmark", *options, "--systems", "docparade dense limit", "--json")
    assert code == 0
    report = json.loads(out)
    assert report["documents"] == 3
    assert report["parameters"] == sum(tensor.numel() for tensor in load_file("model/model.safetensors").values())
    assert report["docparade"]["ms_per_document"] == pytest.approx(1000 * report["docparade"]["seconds"] / 3, rel=1e-3)
    assert report["dense"]["largest_score_difference"] < 1e-5
    assert {"share_of_the_limit", "docparade_is_faster_by", "memory_mib"} <= report["docparade"].keys()
    code, out, _ = command_line("benchmark", *options, "--systems", "docparade limit")
    assert code == 0
    assert "of the limit" in out and "ms/doc" in out
    assert "a ranker of 0.0M parameters" in out
    code, out, _ = command_line("benchmark", *options, "--growth", "--chart", "growth.svg")
    assert code == 0
    assert "R²" in out and "max_passages" in out
    assert "<svg" in (collection / "growth.svg").read_text()
    code, _, err = command_line("benchmark", *options, "--systems", "docparade capreolus")
    assert code == 2
    assert "no 'capreolus'" in err


@pytest.mark.parametrize(
    ("family", "aggregation", "limited"),
    others_slow([(*family, number % 2 == 0) for number, family in enumerate(FAMILIES)]),
)
def test_every_saved_ranker_is_timed(
    family: type[DocumentRanker],
    aggregation: str,
    limited: bool,
    tiny_ranker: Callable[..., DocumentRanker],
    command_line: Callable[..., tuple[int, str, str]],
    collection: Path,
) -> None:
    pytest.importorskip("sentence_transformers", reason="the extra is not installed")
    ranker = tiny_ranker(family, aggregation, **WORDS, **({} if limited else {"max_passages": None}))
    ranker.save_pretrained(collection / "saved")
    code, out, err = command_line("benchmark", "--model", "saved", "--collection", "c", "--turns", "1", "--json")
    assert code == 0, err
    report = json.loads(out)
    scored_by_passage = family is MaxPForSequenceClassification
    assert ("sentence-transformers" in report) == scored_by_passage
    assert ("sentence-transformers is left out: its CrossEncoder scores passages" in err) != scored_by_passage
    # Without a limit, the longest document has 11 passages of 10 words, 8 apart.
    assert report["dense_tokens"] == 3 * (ranker.processor.max_passages or 11) * 60
    # Dense padding has no query to match.
    assert ("dense" in report) == (family is not CedrForSequenceClassification)
    for system in {"dense", "sentence-transformers"} & report.keys():
        assert report[system]["largest_score_difference"] < 1e-4, system


def test_the_device_is_named_or_found() -> None:
    there_is_one = torch.accelerator.is_available()
    assert find_device() == (torch.accelerator.current_accelerator() if there_is_one else torch.device("cpu"))
    assert find_device("cpu") == torch.device("cpu")
    for name in ("xpu:99", "gpu", "meta", ""):
        with pytest.raises(InputError, match=rf"'{name}' .*cpu"):
            find_device(name)


def test_the_clock_is_read_when_an_accelerator_has_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[torch.device] = []
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    read_clock(torch.device("cpu"))
    assert not waited
    before = read_clock(torch.device("cuda"))
    assert waited == [torch.device("cuda")]
    assert read_clock(torch.device("cpu")) >= before


def test_mistakes_are_reported_before_anything_is_timed(
    command_line: Callable[..., tuple[int, str, str]], collection: Path
) -> None:
    def fail(*words: str) -> str:
        code, _, err = command_line("benchmark", "--collection", "c", "--turns", "1", *words)
        assert code == 2
        assert "Traceback" not in err and "turns each" not in err
        return err

    model = ("--model", "model")
    assert "--device: there is no 'gpu' on this machine; choose from cpu" in fail(*model, "--device", "gpu")
    assert "--systems: names none" in fail(*model, "--systems", " ")
    assert "--chart no/speed.svg cannot be written" in fail(*model, "--chart", "no/speed.svg")
    assert "speed.xyz: the name of a picture must end in one of" in fail(*model, "--chart", "speed.xyz")
    assert "The query is empty" in fail(*model, "--query", " ")
    assert not list(collection.glob("*speed*"))
    to_int8(MaxPForSequenceClassification.from_pretrained(collection / "model")).save_pretrained(collection / "int8")
    code, _, err = command_line(
        "benchmark", "--collection", "c", "--model", "int8", "--systems", "docparade int8", "--turns", "1"
    )
    assert code == 2
    assert "--systems: leave out int8: the ranker is in int8 already." in err
    (collection / "c/docs.jsonl").write_text("")
    assert "c has no documents to read" in fail(*model)


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
