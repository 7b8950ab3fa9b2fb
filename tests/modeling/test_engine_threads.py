"""Several threads give the same results as one, in order, and torch's own threads stay as they were."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from support.project import LICENSE, run_elsewhere

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.modeling import engine_batching, engine_threads
from docparade.modeling.engine_threads import map_in_threads, thread_count

QUERY = "grant of patent license"
PAIRS = [(QUERY, LICENSE[start : start + 60 * (1 + start % 7)]) for start in range(0, 3000, 111)]


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_results_come_in_order_from_several_threads(three_threads: None) -> None:
    meeting = threading.Barrier(3, timeout=600)

    def work(number: int) -> tuple[int, str, int]:
        if number < 3:
            meeting.wait()  # goes on only if three are at work at once
        return number, threading.current_thread().name, torch.get_num_threads()

    results = map_in_threads(work, range(20), threads=3)
    assert [number for number, _, _ in results] == list(range(20))
    assert len({name for _, name, _ in results}) == 3
    assert {threads for _, _, threads in results} == {1}
    assert torch.get_num_threads() == 3
    elsewhere: list[int] = []
    thread = threading.Thread(target=lambda: elsewhere.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert elsewhere == [3], "a new thread computes with fewer threads than before"


def test_scores_are_those_of_one_thread(
    three_threads: None, tiny_ranker: Callable[..., DocumentRanker], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_ranker(MaxPForSequenceClassification, "sum")
    alone = model.score(PAIRS)
    monkeypatch.setattr(engine_batching, "LEAST_WORK_OF_A_THREAD", 1)
    threads = set()
    encode = model.encode

    def watched(**inputs: torch.Tensor) -> torch.Tensor:
        threads.add(threading.current_thread().name)
        assert torch.is_inference_mode_enabled()
        return encode(**inputs)

    monkeypatch.setattr(model, "encode", watched)
    assert model.score(PAIRS, batch_tokens=100) == pytest.approx(alone, abs=1e-5)
    assert threads and all(name.startswith("docparade") for name in threads)


@given(
    architecture=st.sampled_from(["bert", "mpnet"]),
    lengths=st.lists(st.integers(1, 512), min_size=1, max_size=80),
    budget=st.integers(1, 4096),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_input_is_in_one_batch_of_the_plan(
    three_threads: None,
    tiny_ranker: Callable[..., DocumentRanker],
    architecture: str,
    lengths: list[int],
    budget: int,
) -> None:
    model = tiny_ranker(MaxPForSequenceClassification, "sum", architecture)
    with torch.no_grad():
        batches, count = engine_batching.plan_batches(model, np.array(lengths), budget)
    assert sorted(row for rows, _ in batches for row in rows) == list(range(len(lengths)))
    longest = [length for _, length in batches]
    assert longest == sorted(longest, reverse=True)
    assert all(length == max(lengths[row] for row in rows) for rows, length in batches)
    assert count == (3 if sum(lengths) >= 3 * engine_batching.LEAST_WORK_OF_A_THREAD else 1)
    if count == 3 and architecture == "bert":  # packed: real tokens count
        assert all(sum(lengths[row] for row in rows) <= budget + max(lengths) for rows, _ in batches)
    else:
        assert all(len(rows) * length <= max(budget, length) for rows, length in batches)


def test_threads_have_equally_many_batches(three_threads: None, tiny_ranker: Callable[..., DocumentRanker]) -> None:
    lengths = np.array([*range(180, 250), 20])
    with torch.no_grad():
        batches, count = engine_batching.plan_batches(tiny_ranker(MaxPForSequenceClassification, "sum"), lengths, 2048)
    # 15,035 tokens, in batches of at most about 1536: four rounds of three.
    assert (count, len(batches)) == (3, 12)
    assert all(abs(lengths[rows].sum() - 15_035 / 12) < 250 for rows, _ in batches)


def test_threads_compute_no_gradients(three_threads: None) -> None:
    """A new thread would, whatever the caller has said."""
    weight = torch.ones(2, requires_grad=True)
    for without in (torch.no_grad, torch.inference_mode):
        with without():
            results = map_in_threads(lambda number: weight * number, [1, 2, 3], threads=3)
        assert not any(result.requires_grad for result in results)


def test_one_thread_has_all_threads(three_threads: None) -> None:
    seen = map_in_threads(lambda _: (threading.current_thread(), torch.get_num_threads()), [0, 1], threads=1)
    assert seen == [(threading.current_thread(), 3)] * 2


def test_callers_may_come_at_once(three_threads: None) -> None:
    engine_threads._start_pool.cache_clear()
    with ThreadPoolExecutor(4) as callers:
        assert list(callers.map(lambda _: map_in_threads(abs, [1, -2], threads=2), range(8))) == [[1, 2]] * 8
    assert torch.get_num_threads() == 3


def test_one_thread_where_torch_keeps_something_for_the_thread(three_threads: None) -> None:
    cpu = torch.device("cpu")
    assert thread_count(cpu) == 1, "gradients are wanted"
    with torch.no_grad():
        assert thread_count(cpu) == 3
        assert thread_count(torch.device("cuda")) == 1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert thread_count(cpu) == 1


def test_an_error_in_a_thread_is_raised(three_threads: None) -> None:
    with pytest.raises(ZeroDivisionError):
        map_in_threads(lambda number: 1 // number, [1, 0, 1], threads=3)


# Loads a model, forks, and ranks in both processes with several threads. (After a ranking, a fork would hang: torch's
# threads do not survive it.)
FORK = """
import json, os, sys, threading
import torch
torch.set_num_threads(3)
from docparade.modeling import engine_batching
assert engine_batching.LEAST_WORK_OF_A_THREAD > 1  # checked before the fork: with too little work, the child would hang
engine_batching.LEAST_WORK_OF_A_THREAD = 1
from transformers import AutoModel
folder, pairs = json.load(sys.stdin)
model = AutoModel.from_pretrained(folder)
reader, writer = os.pipe()
child = os.fork()
scores = model.score([tuple(pair) for pair in pairs])
assert any(thread.name.startswith("docparade") for thread in threading.enumerate()), "one thread did it all"
if child == 0:
    os.write(writer, json.dumps(scores).encode())
    os._exit(0)
os.close(writer)
of_child = json.loads(os.fdopen(reader).read())
assert os.waitpid(child, 0)[1] == 0
print(json.dumps([scores, of_child]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_ranks_as_its_parent(tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path) -> None:
    model = tiny_ranker(MaxPForSequenceClassification, "sum")
    model.save_pretrained(tmp_path / "model")
    found = json.loads(run_elsewhere("import docparade" + FORK, [str(tmp_path / "model"), PAIRS], tmp_path))
    expected = pytest.approx(model.score(PAIRS), abs=1e-5)
    assert found == [expected, expected]
