"""Two real processes, started without torchrun: when one is gone or gives up, the other ends with a sentence."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from docparade.reranking import process_watch

# What each process does: `leave` is one of the ways below, taken by the process `who`.
SCRIPT = """
import os, signal, sys, time
from datetime import timedelta

from docparade.retrieval.errors import InputError
from docparade.reranking import process_watch, processes

process_watch.BEAT_SECONDS = 0.1
processes.START_TIMEOUT = timedelta(seconds=float(os.environ.get("MEETING", "60")))
leave, who = sys.argv[1], int(sys.argv[2])
rank = int(os.environ["RANK"])


@processes.fail_together()
def work() -> None:
    processes.wait_for_all()
    if rank == who and leave.startswith("killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == who and leave == "input error":
        raise InputError("recipe.yaml, data: is wrong.")
    if leave == "killed in silence":
        time.sleep(60)  # as in a collective that does not notice
    if rank == who and leave == "slow":
        time.sleep(20 * process_watch.BEAT_SECONDS)
    processes.wait_for_all()


try:
    processes.join_process_group()
    work()
    if rank != who and leave == "slow":
        time.sleep(20 * process_watch.BEAT_SECONDS)  # the other has left by now
    print(f"process {rank} is done")
except InputError as error:
    sys.exit(f"docparade: {error}")
"""


def start(folder: Path, leave: str, who: int, ranks: tuple[int, ...] = (0, 1), **more: str) -> list[tuple[int, str]]:
    """Exit codes of the processes, and what they printed."""
    (folder / "work.py").write_text(SCRIPT, encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "ACCELERATE_USE_CPU": "true"}
    started = [
        subprocess.Popen(
            [sys.executable, str(folder / "work.py"), leave, str(who)],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank), **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in ranks
    ]
    try:
        return [(process.wait(), out) for process in started for out in [process.communicate(timeout=600)[0]]]
    finally:
        for process in started:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(("leave", "who"), [("killed", 1), ("killed in silence", 1), ("killed in silence", 0)])
def test_a_killed_process_ends_the_other_with_a_sentence(leave: str, who: int, tmp_path: Path) -> None:
    found = start(tmp_path, leave, who)
    (killed, _), (survivor, out) = found[who], found[1 - who]
    assert killed == -signal.SIGKILL
    assert survivor == 1
    assert f"docparade: process {who} of 2 (counted from 0) is gone: it was killed" in out
    assert "Traceback" not in out


@pytest.mark.parametrize("who", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_process_that_gives_up_tells_the_other_why(who: int, tmp_path: Path) -> None:
    found = start(tmp_path, "input error", who)
    (given_up, own), (survivor, out) = found[who], found[1 - who]
    assert (given_up, own.strip().splitlines()[-1]) == (1, "docparade: recipe.yaml, data: is wrong.")
    assert survivor == 1
    assert f"docparade: process {who} of 2 (counted from 0) failed, so all processes stop: recipe.yaml, data" in out
    assert "Traceback" not in out


@pytest.mark.slow
def test_a_process_that_works_or_is_done_is_not_given_up(tmp_path: Path) -> None:
    assert [(code, out.strip().splitlines()[-1]) for code, out in start(tmp_path, "slow", who=1)] == [
        (0, "process 0 is done"),
        (0, "process 1 is done"),
    ]


@pytest.mark.slow
def test_a_process_that_never_starts_is_not_waited_for(tmp_path: Path) -> None:
    [(code, out)] = start(tmp_path, "killed", who=1, ranks=(0,), MEETING="1")
    assert code == 1
    assert "docparade: the 2 processes did not find each other at 127.0.0.1:" in out
    assert "within 1 seconds" in out
    assert "Traceback" not in out


def test_a_remote_process_is_judged_by_its_silence_and_a_local_one_by_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_watch, "BEAT_SECONDS", 0.0)
    here, me = socket.gethostname(), psutil.Process()
    alive = process_watch.Status(here, me.pid, me.create_time())
    elsewhere = replace(alive, host="elsewhere")

    def verdict(status: process_watch.Status, silence: float) -> str:
        monkeypatch.setattr(process_watch, "SILENCE_SECONDS", silence)
        return process_watch.Peer(status).describe_end(3, 4)

    assert not verdict(elsewhere, silence=1000)
    assert verdict(elsewhere, silence=0).startswith("process 3 of 4 (counted from 0) is gone")
    # A process that is here may be silent for as long as it likes; another with its id is not the same.
    assert not verdict(alive, silence=0)
    assert "is gone" in verdict(replace(alive, started=1.0), silence=1000)
    assert not verdict(replace(elsewhere, state="done"), silence=0)
