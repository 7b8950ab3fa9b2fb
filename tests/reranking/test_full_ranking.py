"""Full ranking: every document gets the score it gets in a reranked run, however the work is divided or interrupted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.project import PROJECT
from support.training import World, world

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.reranking import TokenCache, VectorCache, full_ranking, rank_all_documents, rerank
from docparade.reranking.processes import resumable_work
from docparade.retrieval import Run, ranking, read_run
from docparade.retrieval.errors import InputError

Command = Callable[..., tuple[int, str, str]]
HITS = 6
BI_ENCODER: dict[str, Any] = {"pooling": "mean", "window": 12, "stride": 8, "max_length": 24, "max_query_tokens": 12}


@pytest.fixture(scope="module")
def model(tiny_ranker: Callable[..., DocumentRanker]) -> DocumentRanker:
    return tiny_ranker(ParadeForSequenceClassification, "transformer")


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(full_ranking, "SHARD_DOCUMENTS", 7)
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "cache"))


def rerank_everything(model: DocumentRanker, given: World) -> Run:
    everything = dict.fromkeys(given.documents, 0.0)
    run = {query: dict(everything) for query in given.queries}
    return rerank(model, run, given.queries, given.documents, len(everything))


def check_best(found: Run, expected: Run, hits: int) -> None:
    assert found.keys() == expected.keys()
    for query, scores in found.items():
        assert list(scores) == ranking(expected[query])[:hits]
        assert scores == pytest.approx({name: expected[query][name] for name in scores}, abs=1e-5)


# --- Scores -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["parade", "cross-encoder"])
@pytest.mark.parametrize("hits", [HITS, 1000])
def test_scores_are_those_of_reranking_all_documents(
    family: str, hits: int, tiny_ranker: Callable[..., DocumentRanker], small: World, tmp_path: Path
) -> None:
    parade = family == "parade"
    model = tiny_ranker(
        *((ParadeForSequenceClassification, "attn") if parade else (MaxPForSequenceClassification, "max"))
    )
    rank_all_documents(model, small.queries, small.documents, tmp_path / "out.txt", hits)
    check_best(read_run(tmp_path / "out.txt"), rerank_everything(model, small), hits)


def test_a_bi_encoder_finds_what_dense_retrieval_finds(
    encoder_folder: Callable[..., Path], small: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_ranking, "QUERIES_TOGETHER", 3)
    model = MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), **BI_ENCODER)
    with pytest.raises(InputError, match=r"VectorCache\.open"):
        rank_all_documents(model, small.queries, small.documents, tmp_path / "out.txt")
    vectors = VectorCache.open(None, model, small.documents, vector_type="float32")
    rank_all_documents(model, small.queries, small.documents, tmp_path / "out.txt", HITS, vectors=vectors)
    found = read_run(tmp_path / "out.txt")
    dense = dict(zip(small.queries, vectors.search(list(small.queries.values()), HITS), strict=True))
    check_best(found, dense, HITS)
    check_best(found, rerank_everything(model, small), HITS)


@pytest.mark.parametrize("hits", [HITS, 1000])
@pytest.mark.parametrize("kept", [True, False], ids=["kept vectors", "texts"])
def test_late_interaction_compares_tokens(
    kept: bool,
    hits: int,
    encoder_folder: Callable[..., Path],
    small: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(full_ranking, "QUERIES_TOGETHER", 3)
    model = MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), late_interaction=True, **BI_ENCODER)
    vectors = VectorCache.open(None, model, small.documents, vector_type="float32") if kept else None
    processor, tokenized = model.require_processor(), []
    tokenize = processor.encode_documents
    monkeypatch.setattr(processor, "encode_documents", lambda texts: tokenized.extend(texts) or tokenize(texts))
    rank_all_documents(model, small.queries, small.documents, tmp_path / "out.txt", hits, vectors=vectors)
    # Once for each block of queries, and not at all where vectors are kept.
    assert len(tokenized) == (0 if kept else len(small.documents) * -(-len(small.queries) // 3))
    check_best(read_run(tmp_path / "out.txt"), rerank_everything(model, small), hits)


def test_documents_are_tokenized_once(
    model: DocumentRanker, small: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank_all_documents(model, small.queries, small.documents, tmp_path / "fresh.txt", HITS)
    processor = model.require_processor()
    tokenize, tokenized = processor.encode_documents, []

    def encode(documents: Any) -> Any:
        tokenized.extend(documents)
        return tokenize(documents)

    monkeypatch.setattr(processor, "encode_documents", encode)
    tokens = TokenCache.open(None, processor, small.documents)
    output = tmp_path / "kept.txt"
    rank_all_documents(model, small.queries, small.documents, output, HITS, encode_documents=tokens.encode_documents)
    assert len(tokenized) == len(small.documents)
    assert output.read_bytes() == (tmp_path / "fresh.txt").read_bytes()


def test_what_cannot_be_ranked_is_refused_before_any_work(model: DocumentRanker, small: World, tmp_path: Path) -> None:
    def refused(message: str, **changed: Any) -> None:
        given = {"queries": small.queries, "documents": small.documents, **changed}
        with pytest.raises(InputError, match=message):
            rank_all_documents(model, output=tmp_path / "out.txt", **given)
        assert not list(tmp_path.iterdir())

    refused("hits must be at least 1, and is 0", hits=0)
    refused("keep_passages is 0", keep_passages=0)
    refused("there are no queries", queries={})
    refused("there are no documents", documents={})
    refused("query q2: The query is empty", queries={**small.queries, "q2": " "})


# --- Interruptions ----------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Nothing catches this: the end of the process, as far as the code can tell."""


@pytest.mark.parametrize("most_parts", [1000, 5])
def test_it_continues_to_the_same_bytes(
    most_parts: int, model: DocumentRanker, small: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resumable_work, "MOST_PARTS", most_parts)
    whole, output = tmp_path / "whole.txt", tmp_path / "out.txt"
    rank_all_documents(model, small.queries, small.documents, whole, HITS)
    read = full_ranking.read_pairs
    units = len(small.queries) * -(-len(small.documents) // 7)
    calls = 0

    def interrupted(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == units - 2:
            raise Killed
        return read(*arguments, **options)

    monkeypatch.setattr(full_ranking, "read_pairs", interrupted)
    with pytest.raises(Killed):
        rank_all_documents(model, small.queries, small.documents, output, HITS)
    assert not output.exists()
    parts = [json.loads(path.read_text()) for path in Path(f"{output}.parts").glob("0*.json")]
    kept = [len(scores) for part in parts for unit in part["content"]["results"] for scores in unit.values()]
    assert max(kept) == HITS and sum(kept) < HITS * len(kept), "only documents that can be among the best"
    rank_all_documents(model, small.queries, small.documents, output, HITS)
    lost = 1 if most_parts == 1000 else 2 * -(-units // 5)
    assert calls <= units + 2 + lost
    assert output.read_bytes() == whole.read_bytes()
    assert not Path(f"{output}.parts").exists()


def test_a_changed_document_is_read_again(
    model: DocumentRanker, small: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    output = tmp_path / "out.txt"

    def fail(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(full_ranking, "write_run", fail)
        rank_all_documents(model, small.queries, small.documents, output, HITS)
    first = next(iter(small.documents))
    changed = {**small.documents, first: {**small.documents[first], "title": "New"}}
    rank_all_documents(model, small.queries, changed, output, HITS)
    assert caplog.text.count("was made from other documents") == len(small.queries)
    rank_all_documents(model, small.queries, changed, tmp_path / "fresh.txt", HITS)
    assert output.read_bytes() == (tmp_path / "fresh.txt").read_bytes()


# --- The command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(model: DocumentRanker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ranker and a collection in the folder in which commands are run."""
    monkeypatch.chdir(tmp_path)
    model.save_pretrained("model")
    small = world(3)
    Path("collection").mkdir()
    lines = [json.dumps({**document, "doc_id": name}) for name, document in small.documents.items()]
    Path("collection/docs.jsonl").write_text("\n".join(lines) + "\n")
    Path("collection/queries.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in small.queries.items()))
    return tmp_path


WHERE = ("--model", "model", "--collection", "collection")


def test_the_command(folder: Path, model: DocumentRanker, command_line: Command) -> None:
    given = ("rerank", *WHERE, "--all-documents", "--hits", str(HITS), "--output", "out.txt")
    code, out, err = command_line(*given)
    assert (code, out) == (0, ""), err
    small = world(3)
    pairs = len(small.queries) * len(small.documents)
    assert f"scoring {pairs} pairs of 3 queries and {len(small.documents)} documents." in err
    assert f"out.txt: the best {HITS} documents for 3 queries." in err
    check_best(read_run("out.txt"), rerank_everything(model, small), HITS)


def test_the_command_with_a_bi_encoder(
    folder: Path, encoder_folder: Callable[..., Path], command_line: Command
) -> None:
    MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), **BI_ENCODER).save_pretrained("model")
    code, _, err = command_line("rerank", *WHERE, "--all-documents", "--output", "full.txt")
    assert code == 0, err
    dense = ("--method", "dense", "--vectors", "float32", "--output", "dense.txt")
    code, _, err = command_line("retrieve", *WHERE, *dense)
    assert code == 0, err
    check_best(read_run("full.txt"), read_run("dense.txt"), 1000)
    refused = ("rerank", *WHERE, "--all-documents", "--keep-passages", "2", "--output", "no.txt")
    code, _, err = command_line(*refused)
    assert code == 2 and "--keep-passages is for reading texts" in err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "name the run to rerank with --run, or score every document with --all-documents."),
        (("--all-documents", "--run", "bm25.txt"), "--all-documents is in place of --run; leave one of them out."),
        (("--run", "bm25.txt", "--hits", "5"), "--hits is for --all-documents; use --depth with --run."),
        (("--all-documents", "--depth", "5"), "--depth is for --run; use --hits with --all-documents."),
        (("--all-documents", "--hits", "0"), "--hits must be at least 1"),
        (("--all-documents", "--passage-scores", "p.jsonl"), "--passage-scores is for --run"),
    ],
)
def test_options_that_contradict_each_other(options: tuple[str, ...], sentence: str, command_line: Command) -> None:
    code, out, err = command_line("rerank", *WHERE, "--output", "out.txt", *options)
    assert (code, out) == (2, "") and sentence in err and len(err.splitlines()) == 1


@pytest.mark.slow
def test_two_processes_give_the_same_scores(folder: Path, command_line: Command) -> None:
    given = [*WHERE, "--all-documents", "--hits", str(HITS), "--output"]
    # The other processes have shards of the usual size.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(full_ranking, "SHARD_DOCUMENTS", 1024)
        assert command_line("rerank", *given, "one.txt")[0] == 0
    # On a CPU, `--cpu --num_processes 2` would start a single process.
    launch = [
        *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"),
        *("--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads()), "ACCELERATE_USE_CPU": "true"}
    command = [*launch, str(PROJECT / "scripts" / "rerank.py"), *given, "two.txt"]
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0 and "(2 processes)" in done.stderr, done.stderr
    one, two = read_run("one.txt"), read_run("two.txt")
    assert one.keys() == two.keys()
    assert all(found == pytest.approx(one[query], abs=1e-5) for query, found in two.items())
