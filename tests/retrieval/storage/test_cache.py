"""What is in the cache is whole, and is built once."""

import errno
import json
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docparade.retrieval import load_collection, retrieve
from docparade.retrieval.errors import InputError
from docparade.retrieval.storage import cache as cache_module, checked_files
from docparade.retrieval.storage.arrays import ArrayWriter, map_array
from docparade.retrieval.storage.cache import build_once, cache_folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_folder_is_built_once_for_a_key() -> None:
    built = []

    def build(folder: Path) -> None:
        built.append(folder)
        (folder / "file").write_text(str(len(built)), encoding="utf-8")

    first = build_once("kind", "name/with space", {"size": 1}, build).path
    assert build_once("kind", "name/with space", {"size": 1}, build).path == first
    second = build_once("kind", "name/with space", {"size": 2}, build).path
    assert len(built) == 2
    assert ((first / "file").read_text(encoding="utf-8"), (second / "file").read_text(encoding="utf-8")) == ("1", "2")


def test_the_name_of_a_folder_does_not_count(cache: Path) -> None:
    first = build_once("kind", "collection/train", {"size": 1}, lambda folder: (folder / "file").touch()).path
    assert first.name.startswith("collection-train-")
    assert build_once("kind", "collection/test", {"size": 1}, pytest.fail).path == first
    assert build_once("kind", "collection/test", {"size": 2}, lambda folder: None).path != first
    assert build_once("other", "collection/train", {"size": 1}, lambda folder: None).path != first


def test_an_interrupted_build_leaves_nothing(cache: Path) -> None:
    def interrupted(folder: Path) -> None:
        (folder / "half").write_text("", encoding="utf-8")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_once("kind", "name", {}, interrupted)
    assert list((cache / "kind").iterdir()) == []


def test_of_several_processes_one_builds_and_the_others_wait(cache: Path, tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    ready = fork.Barrier(4)

    def build(folder: Path) -> None:
        (tmp_path / f"built by {os.getpid()}").touch()
        time.sleep(0.3)
        (folder / "file").write_text("whole", encoding="utf-8")

    def work() -> None:
        ready.wait()
        folder = build_once("kind", "name", {}, build).path
        assert (folder / "file").read_text(encoding="utf-8") == "whole"

    processes = [fork.Process(target=work) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=600)
    assert [process.exitcode for process in processes] == [0] * 4
    assert len(list(tmp_path.glob("built by *"))) == 1
    assert len(list((cache / "kind").iterdir())) == 1


def test_a_long_wait_is_said(cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(cache_module, "SILENCE", 0.01)
    started, finish = threading.Event(), threading.Event()

    def slow(folder: Path) -> None:
        started.set()
        finish.wait(timeout=600)

    class Waiting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            finish.set()

    monkeypatch.setattr(cache_module.logger, "handlers", [Waiting()])
    builder = threading.Thread(target=build_once, args=("kind", "name", {}, slow))
    builder.start()
    started.wait(timeout=600)
    build_once("kind", "other name", {}, pytest.fail)
    builder.join()
    assert caplog.messages == [f"waiting for another process that is building the same folder in {cache / 'kind'}."]


def test_what_a_killed_process_left_is_removed(cache: Path) -> None:
    fork = multiprocessing.get_context("fork")
    started = fork.Event()

    def killed(folder: Path) -> None:
        (folder / "inner").mkdir()
        (folder / "inner" / "half").write_text("half", encoding="utf-8")
        started.set()
        time.sleep(600)

    process = fork.Process(target=build_once, args=("kind", "name", {}, killed))
    process.start()
    assert started.wait(timeout=600)
    [unfinished] = (cache / "kind").iterdir()
    other = build_once("kind", "name", {"other": 1}, lambda folder: None).path
    assert (unfinished / "inner" / "half").exists(), "it is being built"
    process.kill()
    process.join()
    assert build_once("kind", "name", {"other": 1}, pytest.fail).path == other
    assert list((cache / "kind").iterdir()) == [other]


def test_what_was_left_half_removed_is_removed(cache: Path) -> None:
    folder = build_once("kind", "name", {}, lambda folder: None).path
    for name in (".building-x1y2", ".damaged-0123456789abcdef.1"):
        (cache / "kind" / name / "inner").mkdir(parents=True)
    (cache / "kind" / ".building-file").touch()
    (cache / "kind" / ".hidden").touch()
    assert build_once("kind", "name", {}, pytest.fail).path == folder
    assert sorted((cache / "kind").iterdir()) == [cache / "kind" / ".hidden", folder]


def test_files_are_on_the_disk_before_the_folder_has_its_name(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []

    def sync(path: Path) -> None:
        assert path == cache / "kind" or path.is_relative_to(next((cache / "kind").glob(".building-*")))
        synced.append(path.name)

    monkeypatch.setattr(checked_files, "sync", sync)
    monkeypatch.setattr(cache_module, "sync", sync)

    def build(folder: Path) -> None:
        (folder / "inner").mkdir()
        (folder / "inner" / "file").touch()

    build_once("kind", "name", {}, build)
    assert synced[:4] == ["file", "key.json", "checksums.json", "inner"]
    assert synced[4].startswith(".building-")
    assert synced[5:] == ["kind"]


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"cannot be written .*DOCPARADE_CACHE"):
        build_once("kind", "name", {}, lambda folder: None)


@pytest.fixture
def larger(tmp_path: Path) -> Path:
    """A collection whose index takes some megabytes."""
    folder = tmp_path / "larger"
    folder.mkdir()
    with (folder / "docs.jsonl").open("w", encoding="utf-8") as file:
        for number in range(700):
            words = " ".join(f"word{number * 31 % 997}x{position % 89}" for position in range(300))
            file.write(json.dumps({"doc_id": f"d{number}", "text": words}) + "\n")
    (folder / "queries.tsv").write_text("q\tword31x1\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("size", ["8k", "64k", "256k", "700k", "1m", "1500k", "2m"])
def test_a_full_disk_is_one_sentence(
    larger: Path, size: str, mount: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = mount("-o", f"size={size}")
    monkeypatch.setenv("DOCPARADE_CACHE", str(disk / "cache"))
    with pytest.raises(InputError, match=r"cache folder .*free some space .*DOCPARADE_CACHE"):
        retrieve(load_collection(larger), progress=False)
    assert not [path for path in disk.glob("cache/indexes/*") if not path.name.startswith(".locks")]


@pytest.mark.parametrize("limit", [100, 5_000, 100_000, 500_000])
def test_a_limit_on_file_sizes_is_one_sentence(larger: Path, limit: int, tmp_path: Path) -> None:
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
from docparade.cli import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, "retrieve", "--collection", larger, "--output", "run.txt"],
        env={**os.environ, "DOCPARADE_CACHE": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    [sentence] = [line for line in done.stderr.splitlines() if "indexing" not in line]
    assert sentence.startswith(f"docparade: the cache folder {tmp_path / 'cache' / 'indexes'} cannot be written (")
    assert list((tmp_path / "cache" / "indexes").iterdir()) == []


def test_a_disk_that_cannot_be_written_is_one_sentence_and_what_it_holds_is_used(
    small: Any, mount: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = mount()
    monkeypatch.setenv("DOCPARADE_CACHE", str(disk / "cache"))
    collection = load_collection(small.folder)
    expected = retrieve(collection, progress=False)
    [folder] = (disk / "cache" / "indexes").iterdir()
    (disk / "cache" / "indexes" / ".building-left").mkdir()
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    assert retrieve(collection, progress=False) == expected
    with pytest.raises(InputError, match=r"\(Read-only file system\).*DOCPARADE_CACHE"):
        collection.document("d1")
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    (folder / "key.json").unlink()
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with pytest.raises(InputError, match=r"\(Read-only file system\)"):
        retrieve(collection, progress=False)


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.ENOSPC, "free some space there, or "), (errno.EDQUOT, "free some space there, or "), (errno.EROFS, "")],
)
def test_an_error_of_writing_is_one_sentence_and_leaves_nothing(cache: Path, number: int, advice: str) -> None:
    def build(folder: Path) -> None:
        (folder / "half").write_text("half", encoding="utf-8")
        raise OSError(number, os.strerror(number))

    with pytest.raises(InputError) as caught:
        build_once("kind", "name", {}, build)
    assert str(caught.value) == (
        f"the cache folder {cache / 'kind'} cannot be written ({os.strerror(number)}); "
        f"{advice}set DOCPARADE_CACHE to another folder."
    )
    assert list((cache / "kind").iterdir()) == []


def test_an_error_about_another_file_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="source"):
        build_once("kind", "name", {}, lambda folder: (tmp_path / "source").read_text() and None)
    with pytest.raises(ConnectionError):
        build_once("kind", "name", {}, lambda folder: (_ for _ in ()).throw(ConnectionError("the server closed")))


def test_the_default_is_below_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCPARADE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/docparade")


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DOCPARADE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    with pytest.raises(InputError, match="DOCPARADE_CACHE"):
        cache_folder()


@pytest.mark.parametrize("pieces", [[], [[]], [[1, 2], [], [3]]])
def test_an_array_written_in_pieces(tmp_path: Path, pieces: list[list[int]]) -> None:
    with ArrayWriter(tmp_path / "array.npy", np.int32) as writer:
        for piece in pieces:
            writer.extend(np.array(piece))
        writer.append(7)
        assert len(writer) == sum(map(len, pieces)) + 1
    array = map_array(tmp_path / "array.npy")
    assert array.dtype == np.int32
    assert array.tolist() == [number for piece in pieces for number in piece] + [7]
