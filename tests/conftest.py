"""Fixtures for every room's tests."""

import atexit
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from support.project import PROJECT
from support.tiny_models import decoder_folder, encoder_folder, random_text, seq2seq_folder, tiny_ranker, tokenizers

from docparade import cli

__all__ = ["decoder_folder", "encoder_folder", "random_text", "seq2seq_folder", "tiny_ranker", "tokenizers"]

# The same examples in every run, and no limit on their time, which depends on what else the machine does.
settings.register_profile("docparade", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("docparade")

# Real collections that some tests use: those that the environment names, or else of a folder beside the project.
BESIDE = PROJECT.parent / "shared"
TIME = Path(os.environ.get("DOCPARADE_TIME", BESIDE / "collections" / "time"))

# ir_datasets learns its home when it is imported, and writes beside its files: it gets a copy before that.
if (BESIDE / "ir_datasets").is_dir() and "IR_DATASETS_HOME" not in os.environ:
    _scratch = tempfile.mkdtemp(prefix="ir_datasets-")
    atexit.register(shutil.rmtree, _scratch, ignore_errors=True)
    os.environ["IR_DATASETS_HOME"] = f"{_scratch}/home"
    shutil.copytree(BESIDE / "ir_datasets", os.environ["IR_DATASETS_HOME"], copy_function=shutil.copyfile)


def pytest_collection_finish() -> None:
    """Keep the collector of garbage from looking at torch's and transformers' half a million objects again and again.

    Each time takes a third of a second, and a test that trains or loads a model brings about several.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """Run the command line's real `main` in an empty folder; gives (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["docparade", *arguments])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        captured = capsys.readouterr()
        return int(exit_.value.code or 0), captured.out, captured.err

    return run


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCPARADE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def cranfield() -> str:
    if not Path(os.environ.get("IR_DATASETS_HOME", ""), "cranfield", "docs.txt").is_file():
        pytest.skip("Cranfield is not at hand: set IR_DATASETS_HOME to an ir_datasets home that has it")
    return "cranfield"


@pytest.fixture(scope="session")
def time_magazine() -> str:
    if not TIME.is_dir():
        pytest.skip("the TIME collection is not at hand: set DOCPARADE_TIME to a folder with it (docs.jsonl …)")
    return str(TIME)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts a file system in memory with the given options; skips the test where that is not permitted."""
    places: list[Path] = []

    def mount(*options: str) -> Path:
        place = tmp_path / "mounted"
        place.mkdir(exist_ok=True)
        done = subprocess.run(["mount", *options, "-t", "tmpfs", "tmpfs", place], capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"mounting is not permitted here: {done.stderr.decode(errors='replace').strip()}")
        places.append(place)
        return place

    if shutil.which("mount") is None:
        pytest.skip("there is no mount command")
    yield mount
    for place in places:
        subprocess.run(["umount", place], check=True)
