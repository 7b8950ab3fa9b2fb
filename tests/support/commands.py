"""Commands in processes of their own, which need not import torch and transformers again."""

from __future__ import annotations

import multiprocessing
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from docparade import cli
from support import training  # noqa: F401 (names what the server of processes imports)


@dataclass(frozen=True)
class CommandOutput:
    """What a command printed."""

    stdout: str
    stderr: str


def run_command(folder: Path, *words: str) -> CommandOutput:
    """Run a command that succeeds in a folder, with files in the place of a terminal; its cache is in the folder."""
    with TemporaryDirectory() as place:
        printed = Path(place, "stdout"), Path(place, "stderr")
        process = multiprocessing.get_context("forkserver").Process(target=_run, args=(folder, words, *printed))
        process.start()
        process.join()
        output = CommandOutput(*(path.read_text(encoding="utf-8") for path in printed))
    assert process.exitcode == 0, output.stderr
    return output


def _run(folder: Path, words: tuple[str, ...], stdout: Path, stderr: Path) -> None:
    for number, path in ((1, stdout), (2, stderr)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.environ["DOCPARADE_CACHE"] = str(folder / "cache")
    os.chdir(folder)
    sys.argv = ["docparade", *words]
    cli.main()
