"""Processes find each other, whoever made their group, and share what they have."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

# A process of a group that torch made, and not accelerate.
MEMBER = """
import sys
import torch
from docparade.reranking.processes import process_group

rank, method = int(sys.argv[1]), sys.argv[2]
assert process_group.get_rank_and_size() == (0, 1) and process_group.gather_shares([rank]) == [rank]
process_group.wait_for_all()
torch.distributed.init_process_group("gloo", init_method=method, rank=rank, world_size=2)
share = [(rank, item) for item in process_group.take_share("abc")]
print(process_group.get_rank_and_size(), process_group.gather_shares(share))
process_group.wait_for_all()
torch.distributed.destroy_process_group()
"""


# Functions for the end of a process are called in reverse order: this one after that of docparade.
LEAVER = """
import atexit
import torch
from docparade.reranking.processes import process_group

atexit.register(lambda: print("still there:", torch.distributed.is_initialized()))
process_group.join_process_group()
assert torch.distributed.is_initialized()
"""


# The second of two processes fails, and the first would work on for hours.
QUITTER = """
import sys, time
from docparade.reranking.processes import process_group

process_group.join_process_group()
process_group.wait_for_all()
if not process_group.is_main_process():
    sys.exit("docparade: recipe.yaml is wrong.")
time.sleep(10_000)
"""


def run_members(method: str, script: str = MEMBER, **environment: str) -> list[tuple[int, str]]:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(rank), method],
            env={**os.environ, **{name: value.format(rank=rank) for name, value in environment.items()}},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        return [(process.wait(), out) for process in started for out in [process.communicate(timeout=600)[0]]]
    finally:
        for process in started:
            process.kill()


def launched() -> dict[str, str]:
    """The variables that torchrun sets, for a group at a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {
        "RANK": "{rank}",
        "LOCAL_RANK": "{rank}",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "ACCELERATE_USE_CPU": "true",
    }


def test_a_group_that_torch_made_is_found() -> None:
    found = run_members("env://", **launched())
    assert [code for code, _ in found] == [0, 0], found
    for rank, (_, out) in enumerate(found):
        assert out.splitlines()[-1] == f"({rank}, 2) [(0, 'a'), (1, 'b'), (0, 'c')]"


def test_a_process_leaves_its_group_before_it_ends() -> None:
    found = run_members("env://", LEAVER, **launched())
    assert [code for code, _ in found] == [0, 0], found
    assert [out.splitlines()[-1] for _, out in found] == ["still there: False"] * 2


def test_a_group_that_accelerate_cannot_find_is_not_taken_for_single_processes(tmp_path: Path) -> None:
    for code, out in run_members(f"file://{tmp_path / 'meeting'}", ACCELERATE_USE_CPU="true"):
        assert code == 1
        assert "2 processes were started, and accelerate found 1: start them with accelerate launch" in out


def test_a_process_that_fails_ends_the_others(tmp_path: Path) -> None:
    (tmp_path / "quitter.py").write_text(QUITTER, encoding="utf-8")
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(tmp_path / "quitter.py")]
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "docparade: recipe.yaml is wrong." in done.stderr
