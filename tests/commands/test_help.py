"""What the command line says of itself: it fits a terminal, and its examples can be copied."""

from __future__ import annotations

import inspect
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from support.project import PROJECT

import docparade
from docparade import cli

Command = Callable[..., tuple[int, str, str]]


def all_commands(app: typer.Typer, before: str = "") -> Iterator[tuple[str, Callable[..., None]]]:
    """Every command with its function, those of groups by their full name: `fuse linear`."""
    for command in app.registered_commands:
        assert command.callback is not None
        yield f"{before}{command.name}", command.callback
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from all_commands(group.typer_instance, f"{before}{group.name} ")


HELP: dict[str, Callable[..., None]] = {"": cli._root, **dict(all_commands(cli.app))}


def examples(function: Callable[..., None]) -> list[str]:
    """The lines that a docstring sets off as code."""
    text = inspect.getdoc(function) or ""
    return [line for line in text.splitlines() if line.startswith("    ")]


@pytest.mark.parametrize("name", HELP)
def test_examples_survive_a_narrow_terminal(name: str, command_line: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = command_line(*name.split(), "--help")
    assert code == 0, err
    lines = {line.strip() for line in out.splitlines()}
    shown = examples(HELP[name])
    assert shown
    assert [line for line in shown if line.strip() not in lines] == []


def commands(function: Callable[..., None]) -> list[list[str]]:
    """The examples as a shell reads them, without comments and what only hints at more."""
    text = "\n".join(line.strip() for line in examples(function)).replace("\\\n", " ")
    return [shlex.split(line, comments=True) for line in text.splitlines() if "…" not in line]


@pytest.mark.parametrize("name", HELP)
def test_options_of_examples_exist(name: str, command_line: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for words in commands(HELP[name]):
        words = words[words.index("docparade") + 1 :]
        named = " ".join(words[:2]) if " ".join(words[:2]) in HELP else words[0]
        _, out, _ = command_line(*named.split(), "--help")
        for word in words:
            # With a dot, it is a key of a recipe; so are these two.
            if word.startswith("--") and "." not in word and word not in ("--lora", "--seed"):
                assert f"{word} " in out, words


def test_the_version(command_line: Command) -> None:
    assert command_line("--version") == (0, f"docparade {docparade.__version__}\n", "")


def run(folder: Path, *words: str) -> str:
    command = [sys.executable, *words, "--help"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_runs_as_a_module(tmp_path: Path) -> None:
    assert "Usage: docparade [OPTIONS] COMMAND" in run(tmp_path, "-m", "docparade")
    assert "Usage: docparade train [OPTIONS]" in run(tmp_path, "-m", "docparade", "train")


@pytest.mark.parametrize("script", ["train", "rerank"])
def test_the_scripts_are_the_commands(script: str, tmp_path: Path) -> None:
    assert f"Usage: docparade {script} " in run(tmp_path, str(PROJECT / "scripts" / f"{script}.py"))
