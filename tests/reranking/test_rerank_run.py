"""Reranking: the model's scores above, the rest below, the same scores however the work was divided or interrupted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, strategies as st
from support.project import PROJECT
from support.training import World, world

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.commands.rerank import rerank as rerank_command
from docparade.reranking.caches.token_cache import TokenCache
from docparade.reranking.processes import resumable_work
from docparade.reranking.rerank_run import append_unread, as_float32, rerank, rerank_to_file
from docparade.retrieval import Run, ranking, read_passage_scores, read_run, write_run
from docparade.retrieval.errors import InputError

Command = Callable[..., tuple[int, str, str]]
DEPTH = 5


@pytest.fixture(scope="module")
def model(tiny_ranker: Callable[..., DocumentRanker]) -> DocumentRanker:
    return tiny_ranker(ParadeForSequenceClassification, "transformer")


# --- In memory --------------------------------------------------------------------------------------------------------


def test_scores_are_those_of_rank_and_the_rest_stays_below(model: DocumentRanker, small: World) -> None:
    reranked = rerank(model, small.run, small.queries, small.documents, DEPTH)
    assert list(reranked) == list(small.run)
    for query, found in small.run.items():
        before = ranking(found)
        top = model.rank(small.queries[query], [small.documents[name] for name in before[:DEPTH]])
        assert ranking(reranked[query]) == [str(document.id) for document in top] + before[DEPTH:]
        for document in top:
            assert np.float32(reranked[query][str(document.id)]) == np.float32(document.score)


def test_a_query_is_read_as_if_it_were_alone(model: DocumentRanker, small: World) -> None:
    together = rerank(model, small.run, small.queries, small.documents, DEPTH)
    for query in small.run:
        assert rerank(model, {query: small.run[query]}, small.queries, small.documents, DEPTH)[query] == together[query]


def test_tokens_from_the_cache_give_the_same_bits(model: DocumentRanker, small: World, tmp_path: Path) -> None:
    cache = TokenCache.open(tmp_path, model.require_processor(), small.documents)
    fresh = rerank(model, small.run, small.queries, small.documents)
    asked = []

    def encode(documents: Any) -> Any:
        asked.extend(documents)
        return cache.encode_documents(documents)

    assert rerank(model, small.run, small.queries, small.documents, encode_documents=encode) == fresh
    assert len(asked) == sum(map(len, small.run.values()))


scores = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**99), max_value=2.0**99)


@given(scores)
def test_a_kept_score_is_the_same_float_in_few_digits(score: float) -> None:
    assert np.float32(as_float32(score)) == np.float32(score)
    assert len(f"{as_float32(score):.17g}") <= 24 and as_float32(as_float32(score)) == as_float32(score)
    assert len(repr(as_float32(score)).strip("-").replace(".", "").split("e")[0].strip("0")) <= 9


@given(st.dictionaries(st.sampled_from("abcdef"), scores), st.dictionaries(st.sampled_from("uvwxyz"), scores))
def test_documents_that_were_not_read_keep_their_order_below(top: dict[str, float], rest: dict[str, float]) -> None:
    found = dict.fromkeys(top, 0.0) | rest
    merged = append_unread(top, found)
    assert {name: merged[name] for name in top} == top
    expected = ranking(top) + [name for name in ranking(found) if name in rest]
    # `ranking` compares 32-bit floats, as trec_eval does.
    assert ranking(merged) == expected


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_first_stage_has_its_share_of_what_was_read(model: DocumentRanker, small: World, share: float) -> None:
    """Worked out with numpy, without the documents that the ranker did not read."""
    alone = rerank(model, small.run, small.queries, small.documents, DEPTH)
    mixed = rerank(model, small.run, small.queries, small.documents, DEPTH, first_stage_share=share)
    for query, found in small.run.items():
        before = ranking(found)
        top = before[:DEPTH]
        own, first = (np.array([scores[name] for name in top]) for scores in (alone[query], found))
        expected = share * (first - first.mean()) / first.std() + (1 - share) * (own - own.mean()) / own.std()
        assert ranking(mixed[query])[DEPTH:] == before[DEPTH:]
        if share:
            np.testing.assert_allclose([mixed[query][name] for name in top], expected, atol=1e-6)
        else:
            assert mixed[query] == alone[query]


def test_what_cannot_be_reranked_is_refused_before_any_work(
    model: DocumentRanker, small: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(message: str, **changed: Any) -> None:
        given = {"run": small.run, "queries": small.queries, "documents": small.documents, "depth": 3, **changed}
        with pytest.raises(InputError, match=message):
            rerank_to_file(model, output=tmp_path / "out.txt", **given)
        assert not list(tmp_path.iterdir())

    refused("depth must be at least 1, and is 0", depth=0)
    refused("keep_passages is 0", keep_passages=0)
    refused("the first stage's share must be from 0 to 1, and is 1.5", first_stage_share=1.5)
    refused("the run has query q9, which is not among the queries", run={**small.run, "q9": {"q0-d0": 1.0}})
    refused("query q2 of the run: The query is empty", queries={**small.queries, "q2": " "})
    refused("query q3: there is no document lost", run={**small.run, "q3": {"lost": 99.0}})
    refused("missing does not exist; make it first", passage_scores=tmp_path / "missing" / "passages.jsonl")
    with pytest.raises(InputError, match="missing does not exist"):
        rerank_to_file(model, small.run, small.queries, small.documents, tmp_path / "missing" / "out.txt")
    with pytest.raises(InputError, match=r"depth .*0"):
        rerank(model, small.run, small.queries, small.documents, 0)
    monkeypatch.setattr(model, "processor", None)
    refused("the model has no processor")


# --- Into a file ------------------------------------------------------------------------------------------------------


def test_the_file_is_what_memory_has(model: DocumentRanker, small: World, tmp_path: Path) -> None:
    output, passages = tmp_path / "out.txt", tmp_path / "passages.jsonl.gz"
    rerank_to_file(
        model, small.run, small.queries, small.documents, output, DEPTH, passage_scores=passages, tag="parade"
    )
    assert read_run(output) == rerank(model, small.run, small.queries, small.documents, DEPTH)
    assert output.read_text().split("\n")[0].endswith(" parade")
    assert sorted(tmp_path.iterdir()) == [output, passages]
    by_passage = read_passage_scores(passages)
    for query, found in small.run.items():
        best = ranking(found)[:DEPTH]
        assert list(by_passage[query]) == best
        ranked = {d.id: d for d in model.rank(small.queries[query], [small.documents[name] for name in best])}
        for name, own in by_passage[query].items():
            assert own == [as_float32(passage.score) for passage in ranked[name].passages]


def test_only_promising_passages_are_read(model: DocumentRanker, small: World, tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    rerank_to_file(model, small.run, small.queries, small.documents, output, DEPTH, keep_passages=2)
    found = read_run(output)
    assert found != rerank(model, small.run, small.queries, small.documents, DEPTH)
    for query, first in small.run.items():
        documents = [small.documents[name] for name in ranking(first)[:DEPTH]]
        for document in model.rank(small.queries[query], documents, keep_passages=2):
            assert found[query][document.id] == as_float32(document.score)


class Killed(BaseException):
    """Nothing catches this: the end of the process, as far as the code can tell."""


def kill_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    write = resumable_work.Parts.write

    def write_some(self: resumable_work.Parts, number: int, made_from: Any, results: Any) -> None:
        if self.count() == count:
            raise Killed
        write(self, number, made_from, results)

    monkeypatch.setattr(resumable_work.Parts, "write", write_some)


def test_it_continues_where_it_stopped(
    model: DocumentRanker, small: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    whole, output = tmp_path / "whole.txt", tmp_path / "out.txt"
    rerank_to_file(model, small.run, small.queries, small.documents, whole, DEPTH)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_after(3, patch)
        rerank_to_file(model, small.run, small.queries, small.documents, output, DEPTH)
    assert not output.exists()
    read = []

    def encode(documents: Any) -> Any:
        read.extend(documents)
        return model.require_processor().encode_documents(documents)

    rerank_to_file(model, small.run, small.queries, small.documents, output, DEPTH, encode_documents=encode)
    assert output.read_bytes() == whole.read_bytes()
    assert len(read) == DEPTH, "one query was left"
    assert "3 of 4 parts" in caplog.text and "continuing" in caplog.text
    assert not Path(f"{output}.parts").exists()


def test_other_input_starts_again_with_a_warning(
    model: DocumentRanker,
    tiny_ranker: Callable[..., DocumentRanker],
    small: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: Any,
) -> None:
    other_model = tiny_ranker(ParadeForSequenceClassification, "max")
    other_run = {**small.run, "q0": {**small.run["q0"], "q0-d7": 50.0}}
    other_documents = {**small.documents, "q0-d0": {**small.documents["q0-d0"], "title": "New"}}
    changes: dict[str, tuple[Any, ...]] = {
        "model": (other_model, small.run, small.queries, small.documents, DEPTH),
        "run": (model, other_run, small.queries, small.documents, DEPTH),
        "queries": (model, small.run, {**small.queries, "q1": "license work"}, small.documents, DEPTH),
        "documents": (model, small.run, small.queries, other_documents, DEPTH),
        "depth": (model, small.run, small.queries, small.documents, DEPTH - 1),
    }
    for name, (chosen, run, queries, documents, depth) in changes.items():
        output = tmp_path / f"{name}.txt"
        with monkeypatch.context() as patch, pytest.raises(Killed):
            kill_after(2, patch)
            rerank_to_file(model, small.run, small.queries, small.documents, output, DEPTH)
        caplog.clear()
        rerank_to_file(chosen, run, queries, documents, output, depth)
        if name == "documents":
            # Only the part that has the document is made again.
            assert "00000.json was made from other documents" in caplog.text and "00001.json" not in caplog.text
        else:
            differs = re.search(r"other input \((.*)\): starting again", caplog.text)
            assert differs is not None and name in differs[1].split(", ")
        assert read_run(output) == rerank(chosen, run, queries, documents, depth)


def test_another_share_continues_finished_work(
    model: DocumentRanker, small: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    output = tmp_path / "out.txt"
    given = (model, small.run, small.queries, small.documents)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_after(2, patch)
        rerank_to_file(*given, output, DEPTH, first_stage_share=0.3)
    assert not output.exists()
    rerank_to_file(*given, output, DEPTH, first_stage_share=0.5)
    assert "2 of 4 parts" in caplog.text and "continuing" in caplog.text
    assert read_run(output) == rerank(*given, DEPTH, first_stage_share=0.5)


def test_many_queries_share_a_part(model: DocumentRanker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resumable_work, "MOST_PARTS", 3)
    seven = world(7)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_after(2, patch)
        rerank_to_file(model, seven.run, seven.queries, seven.documents, tmp_path / "out.txt", 2)
    files = [tmp_path / "out.txt.parts" / f"{number:05}.json" for number in range(2)]
    contents = [json.loads(file.read_text(encoding="utf-8"))["content"]["results"] for file in files]
    assert [[result["query"] for result in part] for part in contents] == [["q0", "q1", "q2"], ["q3", "q4", "q5"]]
    rerank_to_file(model, seven.run, seven.queries, seven.documents, tmp_path / "out.txt", 2)
    assert read_run(tmp_path / "out.txt") == rerank(model, seven.run, seven.queries, seven.documents, 2)


def test_a_folder_that_is_no_folder_of_parts_is_left_alone(model: DocumentRanker, small: World, tmp_path: Path) -> None:
    (tmp_path / "out.txt.parts").mkdir()
    (tmp_path / "out.txt.parts" / "00000.json").write_text("{}")
    with pytest.raises(InputError, match=r"out\.txt\.parts exists"):
        rerank_to_file(model, small.run, small.queries, small.documents, tmp_path / "out.txt")
    assert (tmp_path / "out.txt.parts" / "00000.json").exists()


# --- The command, on one process and on two ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_disk(model: DocumentRanker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint, a collection and a run in a folder."""
    folder = tmp_path_factory.mktemp("on_disk")
    many = world(40)
    model.save_pretrained(folder / "model")
    (folder / "collection").mkdir()
    lines = [json.dumps({**document, "doc_id": name}) for name, document in many.documents.items()]
    (folder / "collection" / "docs.jsonl").write_text("\n".join(lines) + "\n")
    queries = [f"{name}\t{text}\n" for name, text in many.queries.items()]
    (folder / "collection" / "queries.tsv").write_text("".join(queries))
    write_run(many.run, folder / "bm25.txt")
    return folder


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCPARADE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


def options(folder: Path, output: Path) -> list[str]:
    where = {"--model": "model", "--collection": "collection", "--run": "bm25.txt"}
    chosen = [text for option, name in where.items() for text in (option, str(folder / name))]
    return [*chosen, "--depth", "5", "--output", str(output), "--passage-scores", f"{output}.passages"]


def both_files(output: Path) -> list[dict[tuple[str, str], list[float]]]:
    """The scores of documents and of their passages."""
    run, passages = read_run(output), read_passage_scores(Path(f"{output}.passages"))
    documents = {(query, name): [score] for query, found in run.items() for name, score in found.items()}
    return [documents, {(query, name): own for query, found in passages.items() for name, own in found.items()}]


def assert_same_scores(output: Path, expected: list[dict[tuple[str, str], list[float]]]) -> None:
    """The scores of a pair do not depend on the number of processes, or on an interruption."""
    for found, other in zip(both_files(output), expected, strict=True):
        assert found.keys() == other.keys()
        assert all(scores == pytest.approx(other[pair], abs=1e-5) for pair, scores in found.items())


@pytest.fixture(scope="module")
def expected(on_disk: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What one process writes, in one go."""
    output = tmp_path_factory.mktemp("expected") / "out.txt"
    rerank_command(
        str(on_disk / "collection"),
        output,
        on_disk / "bm25.txt",
        str(on_disk / "model"),
        depth=5,
        passage_scores=Path(f"{output}.passages"),
    )
    return both_files(output)


def start_two_processes(arguments: list[str]) -> subprocess.Popen[str]:
    """Start scripts/rerank.py twice, each process with as many threads as these tests have."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads()), "ACCELERATE_USE_CPU": "true"}
    command = [*TWO_PROCESSES, str(PROJECT / "scripts" / "rerank.py"), *arguments]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


# On a CPU, `--cpu --num_processes 2` would start a single process.
TWO_PROCESSES = [
    *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"),
    *("--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"),
]


def kill(launcher: int) -> None:
    """Kill -9, the launcher and all that it started."""
    family = psutil.Process(launcher).children(recursive=True)
    for process in [psutil.Process(launcher), *family]:
        process.kill()
    psutil.wait_procs(family)


def test_the_command_in_one_process(on_disk: Path, expected: list[Any], command_line: Command, tmp_path: Path) -> None:
    code, out, err = command_line("rerank", *options(on_disk, tmp_path / "out.txt"), "--cache-tokens")
    assert (code, out) == (0, ""), err
    assert "out.txt: 40 queries, up to 5 documents of each reranked." in err
    assert_same_scores(tmp_path / "out.txt", expected)


@pytest.mark.slow
def test_two_processes_give_the_same_scores(on_disk: Path, expected: list[Any], tmp_path: Path) -> None:
    process = start_two_processes(options(on_disk, tmp_path / "out.txt"))
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert "(2 processes)" in err
    assert_same_scores(tmp_path / "out.txt", expected)


@pytest.mark.slow
def test_killed_and_resumed_the_scores_are_the_same(
    on_disk: Path, expected: list[Any], command_line: Command, tmp_path: Path, caplog: Any
) -> None:
    output = tmp_path / "out.txt"
    process = start_two_processes(options(on_disk, output))
    parts = Path(f"{output}.parts")
    while process.poll() is None and len(list(parts.glob("0*.json"))) < 2:
        time.sleep(0.001)
    kill(process.pid)
    process.communicate()
    done = len(list(parts.glob("0*.json")))
    assert 2 <= done < 40 and not output.exists()
    code, _, err = command_line("rerank", *options(on_disk, output))
    assert code == 0, err
    assert f"{done} of 40 parts" in caplog.text
    assert_same_scores(output, expected)
    assert not parts.exists()


@pytest.mark.parametrize(
    "option, value, message",
    [
        ("--model", str(PROJECT), "cannot be loaded"),
        ("--run", "missing.txt", "missing.txt does not exist"),
        ("--collection", "nowhere", "nowhere is neither a folder here nor an id"),
        ("--depth", "0", "depth must be at least 1"),
        ("--keep-passages", "0", "--keep-passages must be at least 1"),
        ("--field", "title", "queries.tsv, line 1: query q0 has no field title; it has query_id, text."),
    ],
)
def test_a_mistake_is_one_sentence(
    option: str, value: str, message: str, on_disk: Path, command_line: Command, tmp_path: Path
) -> None:
    code, out, err = command_line("rerank", *options(on_disk, tmp_path / "out.txt"), option, value)
    assert (code, out) == (2, "")
    assert message in err and len(err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_that_does_not_rank_is_named(
    on_disk: Path, encoder_folder: Callable[..., Path], tiny_ranker: Any, command_line: Command, tmp_path: Path
) -> None:
    given = options(on_disk, tmp_path / "out.txt")
    code, _, err = command_line("rerank", *given, "--model", str(encoder_folder("bert")))
    assert code == 2 and "is a bert model, not a ranker of long documents" in err
    tiny_ranker(MaxPForSequenceClassification, "max").save_pretrained(tmp_path / "mute")
    (tmp_path / "mute" / "processor_config.json").unlink()
    code, _, err = command_line("rerank", *given, "--model", str(tmp_path / "mute"))
    assert code == 2 and "mute has no processor_config.json" in err.splitlines()[-1]


def test_a_run_that_names_unknown_documents(on_disk: Path, command_line: Command, tmp_path: Path) -> None:
    run: Run = {"q0": {"q0-d0": 2.0, "lost": 1.0}}
    write_run(run, tmp_path / "run.txt")
    code, _, err = command_line("rerank", *options(on_disk, tmp_path / "out.txt"), "--run", str(tmp_path / "run.txt"))
    assert code == 2 and "query q0: " in err and "has no document lost" in err
