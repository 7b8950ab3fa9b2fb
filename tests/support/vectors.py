"""Caches of vectors, and processes that share their encoding."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import torch

from support.training import world

# A tiny bi-encoder's settings, with which documents have several passages.
OPTIONS: dict[str, Any] = {"pooling": "mean", "window": 12, "stride": 8, "max_length": 24, "max_query_tokens": 12}
TWO_PROCESSES = [
    *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"),
    *("--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0", "-m", "docparade", "encode"),
]


def contents_of(folder: Path) -> dict[str, bytes]:
    """The files of a store with one segment, without checksums."""
    (segment,) = folder.glob("segment-*")
    return {path.name: path.read_bytes() for path in sorted(segment.iterdir()) if path.name != "checksums.json"}


def write_collection(folder: Path) -> None:
    """Write a collection of 960 documents, which are four parts."""
    folder.mkdir()
    lines = [json.dumps({**document, "doc_id": name}) for name, document in world(120).documents.items()]
    (folder / "docs.jsonl").write_text("\n".join(lines) + "\n")


def start_two_processes(cache: Path, arguments: list[str]) -> subprocess.Popen[str]:
    """Start `docparade encode` in two processes, each with as many threads as these tests have."""
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads()), "ACCELERATE_USE_CPU": "true"}
    environment = {**os.environ, **threads, "DOCPARADE_CACHE": str(cache)}
    return subprocess.Popen([*TWO_PROCESSES, *arguments], env=environment, stderr=subprocess.PIPE, text=True)


def kill_family(launcher: int) -> None:
    """Kill -9, the launcher and all that it started."""
    family = [psutil.Process(launcher), *psutil.Process(launcher).children(recursive=True)]
    for process in family:
        process.kill()
    psutil.wait_procs(family)
