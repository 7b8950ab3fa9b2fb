"""The benchmark's systems with a bi-encoder read the ranker's passages and give the same scores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.project import LICENSE

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.benchmarks.bi_encoder_systems import BI_ENCODER_SYSTEMS, BiEncoder
from docparade.benchmarks.speed import encoding_figures, measure_encoding, measure_speed, speed_figures
from docparade.benchmarks.timing import Timing
from docparade.benchmarks.workload import Workload
from docparade.retrieval import InputError

pytest.importorskip("sentence_transformers", reason="the extra is not installed")
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st_modules

QUERY = "grant of patent license"
TEXTS = [" ".join(LICENSE.split()[start : start + size]) for start, size in ((0, 90), (200, 5), (300, 40))]
DOCUMENTS = [{"id": str(number), "text": text} for number, text in enumerate(TEXTS)]
DOCUMENTS[2]["title"] = "Redistribution of the work"
WORDS = {"unit": "word", "window": 10, "stride": 8, "max_length": 60}
OPTIONS = ("--model", "model", "--collection", "c", "--turns", "1")


@pytest.fixture
def bi_encoder(encoder_folder: Callable[..., Path], tmp_path: Path) -> Path:
    """The folder of a sentence-transformers model with a prompt for queries."""
    encoder = st_modules.Transformer(str(encoder_folder("bert")))
    encoder.max_seq_length = 60
    modules = [encoder, st_modules.Pooling(encoder.get_embedding_dimension(), pooling_mode="mean")]
    model = SentenceTransformer(modules=modules, device="cpu", prompts={"query": "the terms: "})
    model.save(str(tmp_path / "bi"))
    return tmp_path / "bi"


@pytest.fixture
def ranker(tiny_ranker: Callable[..., DocumentRanker]) -> DocumentRanker:
    return tiny_ranker(MaxPForSequenceClassification, "max", **WORDS)


@pytest.fixture
def folder(ranker: DocumentRanker, bi_encoder: Path, tmp_path: Path) -> Path:
    """A folder with a ranker, `model`, a bi-encoder, `bi`, and a collection, `c`, of one query."""
    ranker.save_pretrained(tmp_path / "model")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "docs.jsonl").write_text("".join(json.dumps(document) + "\n" for document in DOCUMENTS))
    (tmp_path / "c" / "queries.tsv").write_text(f"q1\t{QUERY}\n")
    return tmp_path


def test_all_systems_of_a_bi_encoder_give_the_same_scores(ranker: DocumentRanker, bi_encoder: Path) -> None:
    work = Workload.of(ranker, QUERY, DOCUMENTS)
    bi = BiEncoder.load(str(bi_encoder), ranker, work)
    assert bi.work.spans == work.spans
    assert bi.work.passages == sum(map(len, work.spans)) > len(DOCUMENTS)
    timings = measure_speed(ranker, work, ["docparade", *BI_ENCODER_SYSTEMS], turns=1, bi=bi)
    expected = bi.ranker.score([(QUERY, document) for document in DOCUMENTS])
    assert torch.tensor(expected).std() > 1e-4
    for name in BI_ENCODER_SYSTEMS:
        assert timings[name].scores == pytest.approx(expected, abs=1e-5), name
    assert timings["docparade"].scores == pytest.approx(ranker.score([(QUERY, document) for document in DOCUMENTS]))


def test_passages_are_those_of_the_ranker(tiny_ranker: Callable[..., DocumentRanker], bi_encoder: Path) -> None:
    settings = {**WORDS, "max_passages": 3, "repeat_title": True, "title_words": 2}
    ranker = tiny_ranker(MaxPForSequenceClassification, "max", **settings)
    work = Workload.of(ranker, QUERY, DOCUMENTS)
    bi = BiEncoder.load(str(bi_encoder), ranker, work)
    assert bi.work.spans == work.spans
    assert max(map(len, work.spans)) == 3
    assert bi.passage_texts[-1].startswith("Redistribution of ")
    timings = measure_speed(ranker, work, list(BI_ENCODER_SYSTEMS), turns=1, bi=bi)
    for name in BI_ENCODER_SYSTEMS:
        assert timings[name].scores == pytest.approx(timings["semantic-search"].scores, abs=1e-5), name


def test_each_system_is_compared_with_the_one_of_docparade_that_does_the_same(
    ranker: DocumentRanker, bi_encoder: Path
) -> None:
    work = Workload.of(ranker, QUERY, DOCUMENTS)
    bi = BiEncoder.load(str(bi_encoder), ranker, work)
    seconds = {"docparade": 8.0, "limit": 4.0, "bi-encoder": 4.0, "vectors": 0.01}
    seconds |= {"semantic-search": 6.0, "semantic-search-kept": 0.02}
    scores = {"docparade": [3.0, 2.0, 1.0], "limit": [], "vectors": [0.5, 0.5, 0.25]}
    timings = {name: Timing(time, 1.0, scores.get(name, [0.5, 0.5, 0.5])) for name, time in seconds.items()}
    report = speed_figures(timings, work, bi)
    assert report["semantic-search"]["docparade_is_faster_by"] == 1.5
    assert report["semantic-search-kept"]["docparade_is_faster_by"] == 2.0
    assert report["vectors"]["times_as_fast_as_the_ranker"] == 800
    assert report["vectors"]["largest_score_difference"] == 0.25
    assert report["bi-encoder"]["largest_score_difference"] == 0
    assert report["docparade"]["share_of_the_limit"] == 0.5
    assert report["vectors"]["documents_per_second"] == 300
    assert report["vectors"]["ms_per_document"] == 3.333
    assert report["bi-encoder"]["real_tokens_per_second"] == round(bi.work.real_tokens / 4)
    assert not {"real_tokens_per_second", "share_of_the_limit"} & report["vectors"].keys()
    figures = encoding_figures({"docparade": Timing(2.0), "sentence-transformers": Timing(3.0)}, bi.work)
    assert figures["docparade"]["passages_per_second"] == bi.work.passages / 2
    assert figures["sentence-transformers"]["docparade_is_faster_by"] == 1.5
    assert measure_encoding(bi, turns=1).keys() == figures.keys()


def test_the_command(command_line: Callable[..., tuple[int, str, str]], folder: Path) -> None:
    code, out, err = command_line("benchmark", *OPTIONS, "--bi-encoder", "bi", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert {"docparade", "dense", "sentence-transformers", "limit", *BI_ENCODER_SYSTEMS} < report.keys()
    for name in BI_ENCODER_SYSTEMS:
        assert report[name]["largest_score_difference"] < 1e-5
    assert report["encoding"].keys() == {"docparade", "sentence-transformers"}
    chosen = ("--systems", "docparade vectors", "--bi-encoder", "bi", "--chart", "speed.svg")
    code, out, err = command_line("benchmark", *OPTIONS, *chosen)
    assert code == 0, err
    assert "vectors" in out and "x the ranker" in out and "passages/s" in out
    assert "of the limit" not in out
    assert "vectors" not in (folder / "speed.svg").read_text()
    code, out, err = command_line("benchmark", *OPTIONS, "--systems", "bi-encoder", "--bi-encoder", "bi")
    assert code == 0, err
    assert "passages/s" not in out


def test_passages_that_are_cut_differently_are_reported(
    command_line: Callable[..., tuple[int, str, str]], folder: Path
) -> None:
    query = " ".join(LICENSE.split()[:25])
    options = ("--query", query, "--systems", "bi-encoder", "--bi-encoder", "bi")
    ranker = MaxPForSequenceClassification.from_pretrained(folder / "model")
    ranker.processor = ranker.processor.with_options(max_query_tokens=None)
    ranker.save_pretrained(folder / "model")
    code, _, err = command_line("benchmark", *OPTIONS, *options)
    assert code == 0, err
    assert "some are cut differently" in err


def test_mistakes_are_reported_before_anything_is_timed(
    command_line: Callable[..., tuple[int, str, str]], folder: Path, ranker: DocumentRanker
) -> None:
    def fail(*words: str) -> str:
        code, _, err = command_line("benchmark", *OPTIONS, *words)
        assert code == 2
        assert "Traceback" not in err and "turn each" not in err
        return err

    assert "--systems: vectors reads with a bi-encoder; name one with --bi-encoder." in fail("--systems", "vectors")
    assert "--bi-encoder: no system uses it" in fail("--systems", "docparade", "--bi-encoder", "bi")
    assert "--bi-encoder: --growth times the ranker only" in fail("--growth", "--bi-encoder", "bi")
    assert "docparade: --bi-encoder: model is not a bi-encoder" in fail("--bi-encoder", "model")
    assert "--bi-encoder: ./nowhere cannot be loaded: there is no such folder" in fail("--bi-encoder", "./nowhere")
    with pytest.raises(InputError, match="semantic-search"):
        measure_speed(ranker, Workload.of(ranker, QUERY, DOCUMENTS), ["semantic-search"])


def test_a_ranker_that_is_a_bi_encoder(command_line: Callable[..., tuple[int, str, str]], folder: Path) -> None:
    """Systems that read query and passage together are left out."""
    options = ("--model", "bi", "--collection", "c", "--turns", "1")
    code, out, err = command_line("benchmark", *options, "--json")
    assert code == 0, err
    assert "dense is left out: it reads query and passage together" in err
    assert not {"dense", "sentence-transformers"} & json.loads(out).keys()
    code, _, err = command_line("benchmark", *options, "--systems", "dense")
    assert code == 2
    assert "--systems: leave out dense: it reads query and passage together" in err
