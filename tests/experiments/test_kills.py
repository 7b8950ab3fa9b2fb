"""Killed before any change of a file, the same command goes on, and ends with the same bytes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.kills import Killer, killer
from support.recipes import RESULTS, read_files, recipe_folder, tiny_recipe

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forked")]

SMALLER = {
    "model": {"max_passages": 2},
    "data": {"fold": 1},
    "training": {"num_train_epochs": 2, "pairs_per_epoch": 4, "rerank_depth": 2},
    "rerank": {"depth": 2},
    "measures": "nDCG@5",
}


@pytest.fixture(scope="module")
def world(encoder_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with recipe_folder(tmp_path_factory.mktemp("kills"), tiny_recipe(encoder_folder("bert"), SMALLER)) as folder:
        yield folder


@pytest.fixture(scope="module")
def processes(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killer]:
    with killer(tmp_path_factory.mktemp("log")) as found:
        yield found


def train(output: str) -> list[str]:
    return ["train", "tiny.yaml", "--output", output]


def kill_and_resume(processes: Killer, world: Path, kill_at: int) -> None:
    """Kill a training at a change, run it again, and compare."""
    folder = world / f"killed-{kill_at}"
    status, _ = processes.run(train(folder.name), folder, kill_at)
    assert status == -9
    status, _ = processes.run(train(folder.name), folder)
    assert status == 0, f"change {kill_at}: {processes.log.read_text()[-2000:]}"
    assert read_files(folder, *RESULTS) == read_files(world / "whole", *RESULTS), f"change {kill_at}"
    assert not [*folder.rglob(".docparade-*"), *folder.rglob("*.parts")], f"change {kill_at}"
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def changes(processes: Killer, world: Path) -> int:
    """How many changes of files an uninterrupted training makes."""
    status, _ = processes.run(train("first"), world / "first")  # fills the caches
    assert status == 0, processes.log.read_text()
    status, count = processes.run(train("whole"), world / "whole")
    assert status == 0, processes.log.read_text()
    assert read_files(world / "first", *RESULTS) == read_files(world / "whole", *RESULTS)
    assert count > 30
    return count


def test_killed_at_some_changes(processes: Killer, world: Path, changes: int) -> None:
    """At the first ones, which make the folder, and at some of the others; `-m long` kills at every one."""
    for kill_at in sorted({0, 2, 4, changes - 2, *range(7, changes, changes // 4)}):
        kill_and_resume(processes, world, kill_at)


# --- Reranking -------------------------------------------------------------------------------------------------------


def rerank(world: Path, output: Path) -> list[str]:
    [first] = (world / "whole/first-stage").glob("*.txt")
    scores = output.with_name("passages.jsonl")
    where = ["--model", "whole/model", "--collection", "small", "--run", str(first), "--output", str(output)]
    return ["rerank", *where, "--depth", "3", "--passage-scores", str(scores)]


def rerank_whole(processes: Killer, world: Path) -> tuple[dict[str, bytes], int]:
    """What an uninterrupted reranking writes, and how many changes of files it makes."""
    folder = world / "reranked"
    folder.mkdir(exist_ok=True)
    status, count = processes.run(rerank(world, folder / "run.txt"), folder)
    assert status == 0, processes.log.read_text()
    return {path.name: path.read_bytes() for path in folder.iterdir()}, count


def kill_and_resume_reranking(processes: Killer, world: Path, whole: dict[str, bytes], kill_at: int) -> None:
    folder = world / f"reranking-{kill_at}"
    folder.mkdir()
    status, _ = processes.run(rerank(world, folder / "run.txt"), folder, kill_at)
    assert status == -9
    status, _ = processes.run(rerank(world, folder / "run.txt"), folder)
    assert status == 0, f"change {kill_at}: {processes.log.read_text()[-2000:]}"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole, f"change {kill_at}"


def test_reranking_killed_at_some_changes(processes: Killer, world: Path, changes: int) -> None:
    whole, count = rerank_whole(processes, world)
    assert set(whole) == {"run.txt", "passages.jsonl"} and count > 30
    for kill_at in sorted({0, 2, *range(4, count, count // 4), *range(count - 3, count)}):
        kill_and_resume_reranking(processes, world, whole, kill_at)


# --- Two at once -----------------------------------------------------------------------------------------------------


def run_twice_at_once(both: tuple[Killer, Killer], words: list[str], folder: Path) -> None:
    """Two identical commands, started together: both end well."""
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda one: one.run(words, folder), both))
    assert [status for status, _ in found] == [0, 0], "".join(one.log.read_text() for one in both)


@pytest.mark.parametrize("attempts", [1, pytest.param(20, marks=pytest.mark.long)])
def test_two_identical_commands_at_once(
    attempts: int, processes: Killer, world: Path, changes: int, tmp_path: Path
) -> None:
    whole, _ = rerank_whole(processes, world)
    with killer(tmp_path) as others:
        for attempt in range(attempts):
            folder = tmp_path / f"rerank-{attempt}"
            folder.mkdir()
            run_twice_at_once((processes, others), rerank(world, folder / "run.txt"), folder)
            assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole
            trained = tmp_path / f"train-{attempt}"
            run_twice_at_once((processes, others), train(str(trained)), trained)
            assert read_files(trained, *RESULTS) == read_files(world / "whole", *RESULTS)


@pytest.mark.long
def test_reranking_killed_at_every_change(processes: Killer, world: Path, changes: int) -> None:
    whole, count = rerank_whole(processes, world)
    for kill_at in range(count):
        kill_and_resume_reranking(processes, world, whole, kill_at)


@pytest.mark.long
def test_killed_at_every_change(processes: Killer, world: Path, changes: int) -> None:
    for kill_at in range(changes):
        kill_and_resume(processes, world, kill_at)
