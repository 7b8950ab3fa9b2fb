"""Commands that are killed before a chosen change of a file: a real SIGKILL, in a real process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Imports everything once, then forks a process for every command that it is sent. Of the child's changes of files under
# `folder`, the one with the number `kill_at` is not made: the child is killed there. Answers the exit status, and how
# many changes there were.
DRIVER = r"""
import builtins, io, json, os, signal, sys
import docparade.cli, docparade.reranking.rerank_run
import docparade.experiments.cross_validation, docparade.experiments.runner

def count_changes(folder, kill_at, report):
    made = 0

    def before(path):
        nonlocal made
        try:
            inside = os.path.abspath(os.fsdecode(path)).startswith(folder)
        except TypeError:
            return
        if inside:
            if made == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            made += 1
            os.pwrite(report, f"{made:10}".encode(), 0)

    def watch(module, name, changes):
        original = getattr(module, name)
        def change(path, *arguments, **options):
            if changes(*arguments, **options):
                before(path)
            return original(path, *arguments, **options)
        setattr(module, name, change)

    for name in ("rename", "replace", "mkdir", "rmdir", "unlink", "remove"):
        watch(os, name, lambda *_, **__: True)
    def writes(mode="r", *_, **__):
        return bool(set(mode) & set("wxa+"))
    watch(io, "open", writes)
    builtins.open = io.open

for line in sys.stdin:
    words, folder, kill_at, log = json.loads(line)
    report = os.open(log + ".count", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    child = os.fork()
    if child == 0:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        count_changes(folder, kill_at, report)
        sys.argv = ["docparade", *words]
        try:
            docparade.cli.main()
        except SystemExit as error:
            code = error.code
        else:
            code = 0
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))
    _, status = os.waitpid(child, 0)
    print(json.dumps([os.waitstatus_to_exitcode(status), int(os.pread(report, 10, 0) or 0)]), flush=True)
    os.close(report)
"""


class Killer:
    """Runs commands, and kills them where it is told."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process, self.log = process, log

    def run(self, words: Sequence[str], folder: Path, kill_at: int | None = None) -> tuple[int, int]:
        """The exit status of a command (-9 if it was killed), and how many changes of files under a folder it made."""
        assert self.process.stdin is not None and self.process.stdout is not None
        request: list[Any] = [list(words), str(folder.resolve()), kill_at, str(self.log)]
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        status, changes = json.loads(self.process.stdout.readline())
        return status, changes


@contextmanager
def killer(folder: Path) -> Iterator[Killer]:
    """A `Killer` whose commands run in the current folder and environment, and log into `folder`."""
    process = subprocess.Popen([sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Killer(process, folder / "log.txt")
    finally:
        process.kill()
        process.wait()
