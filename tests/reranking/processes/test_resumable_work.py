"""Work in parts: whatever happens to its files, it ends with the same bytes, and nobody else's files are lost."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.parts import KEY, WHOLE, compute, compute_repeatedly, hold_lock

from docparade.reranking.processes.resumable_work import KEY_FILE, Parts
from docparade.retrieval.errors import InputError
from docparade.retrieval.storage.files import TEMPORARY

ATTEMPTS = 20


class KilledError(BaseException):
    """The end of the process, as far as the code can tell: nothing that would undo something is run after it."""


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an output whose work was killed when three of four parts were there."""
    write = Parts.write

    def write_three(self: Parts, number: int, made_from: Any, results: Any) -> None:
        if number == 3:
            raise KilledError
        write(self, number, made_from, results)

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(Parts, "write", write_three)
        compute(tmp_path / "out.txt")
    return tmp_path / "out.txt.parts"


# --- Killed before every change of a file ----------------------------------------------------------------------------

CHANGES = ("open", "rename", "replace", "mkdir", "rmdir", "unlink", "remove", "fsync")


def count_changes(monkeypatch: pytest.MonkeyPatch, kill_at: int | None) -> list[str]:
    """The changes of files from now on; the one with the number `kill_at` is not made, nor any after it."""
    made: list[str] = []

    def watch(name: str) -> None:
        original = getattr(os, name)

        def change(*arguments: Any, **options: Any) -> Any:
            writes = name != "open" or arguments[1] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if writes and "docparade-locks" not in str(arguments[0]):
                if kill_at is not None and len(made) >= kill_at:
                    raise KilledError  # also of what would clean up
                made.append(f"{name} {arguments[0]}")
            return original(*arguments, **options)

        monkeypatch.setattr(os, name, change)

    for name in CHANGES:
        watch(name)
    return made


@pytest.mark.parametrize("before", ["nothing", "parts", "parts of another key", "an output"])
def test_killed_before_every_change_of_a_file(
    before: str, stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = tmp_path / "start"
    start.mkdir()
    if before == "an output":
        (start / "out.txt").write_text("old\n")
    elif before != "nothing":
        shutil.copytree(stopped, start / "out.txt.parts")
    key = {**KEY, "depth": 3} if before == "parts of another key" else KEY

    def run_once(folder: Path, kill_at: int | None) -> int:
        shutil.copytree(start, folder)
        with monkeypatch.context() as patch:
            made = count_changes(patch, kill_at)
            try:
                compute(folder / "out.txt", key=key)
            except KilledError:
                assert kill_at is not None
            return len(made)

    total = run_once(tmp_path / "uninterrupted", None)
    assert total > 10
    for kill_at in range(total):
        folder = tmp_path / f"killed-{kill_at}"
        run_once(folder, kill_at)
        left = (folder / "out.txt").read_text() if (folder / "out.txt").exists() else None
        assert left in (None, WHOLE, "old\n" if before == "an output" else None), "an output is whole or not there"
        compute(folder / "out.txt", key=key)
        assert (folder / "out.txt").read_text() == WHOLE
        assert [path.name for path in folder.iterdir()] == ["out.txt"], "nothing is left behind"


# --- Damage ----------------------------------------------------------------------------------------------------------


def change(path: Path, edit: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(edit(json.loads(path.read_text()))))


def flip(path: Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(place * (len(content) - 1))] ^= 1
    path.write_bytes(bytes(content))


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "empty": lambda folder: (folder / "00001.json").write_text(""),
    "truncated": lambda folder: (folder / "00001.json").write_bytes((folder / "00001.json").read_bytes()[:-9]),
    "of another query": lambda folder: shutil.copy(folder / "00000.json", folder / "00001.json"),
    "another number": lambda folder: change(
        folder / "00001.json", lambda part: {**part, "content": {**part["content"], "results": [7]}}
    ),
    "other JSON": lambda folder: (folder / "00001.json").write_text('["not", "a", "part"]'),
    "not UTF-8": lambda folder: (folder / "00001.json").write_bytes(b"\xff\xfe"),
    "a folder": lambda folder: ((folder / "00001.json").unlink(), (folder / "00001.json").mkdir()),
    **{
        f"a bit at {place}": lambda folder, place=place: flip(folder / "00001.json", place)
        for place in (0, 0.3, 0.6, 1)
    },
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_part_is_made_again(damage: str, stopped: Path, caplog: pytest.LogCaptureFixture) -> None:
    DAMAGE[damage](stopped)
    done: list[str] = []
    target = stopped.with_suffix("")
    if damage == "a folder":
        with pytest.raises(InputError, match=r"00001\.json"):
            compute(target, done)
        return
    compute(target, done)
    assert target.read_text() == WHOLE
    assert done == ["q1", "q3"]
    assert "00001.json is damaged: it is made again" in caplog.text
    assert not stopped.exists()


def test_parts_of_documents_that_changed_are_made_again(stopped: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As when a file got other contents of the same size at the same time: its collection's version stays the same."""
    done: list[str] = []
    target = stopped.with_suffix("")
    compute(target, done, documents={"q2": "changed"})
    assert done == ["q2", "q3"]
    assert "00002.json was made from other documents" in caplog.text
    assert target.read_text() == WHOLE.replace("q2 Q2", "q2 CHANGED")


# --- Other people's files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "files",
    [
        {"00000.json": "{}"},
        {KEY_FILE: "{}", "00000.json": "{}"},
        {KEY_FILE: "not JSON"},
        {KEY_FILE: '["a"]'},
        {KEY_FILE: '{"model": "m", "depth": 2}', "thesis.docx": "years of work"},
    ],
    ids="-".join,
)
def test_a_folder_that_is_not_ours_is_left_alone(files: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "out.txt.parts"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content)
    with pytest.raises(InputError, match=r"out\.txt\.parts exists"):
        compute(tmp_path / "out.txt")
    assert {path.name: path.read_text() for path in folder.iterdir()} == files
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize("key", [KEY, {**KEY, "depth": 3}], ids=["same key", "other key"])
def test_files_of_others_among_ours_are_left_alone(
    key: dict[str, Any], stopped: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (stopped / "notes.txt").write_text("mine")
    (stopped / "results.json").write_text("mine, too")
    (stopped.parent / f"{TEMPORARY}x.other.txt").write_text("in the making")
    compute(stopped.with_suffix(""), key=key)
    assert stopped.with_suffix("").read_text() == WHOLE
    assert sorted(path.name for path in stopped.iterdir()) == ["notes.txt", "results.json"]
    assert "holds files that docparade did not make" in caplog.text
    assert (stopped.parent / f"{TEMPORARY}x.other.txt").exists()


def test_other_files_in_the_folder_of_parts_do_not_matter(tmp_path: Path) -> None:
    folder = tmp_path / "out.txt.parts"
    folder.mkdir()
    (folder / "mine.json").write_text("{}")
    for _ in range(2):
        compute(tmp_path / "out.txt")
        assert (tmp_path / "out.txt").read_text() == WHOLE
        assert [path.name for path in folder.iterdir()] == ["mine.json"]


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "out.txt.parts").write_text("mine")
    with pytest.raises(InputError, match=r"out\.txt\.parts"):
        compute(tmp_path / "out.txt")
    assert (tmp_path / "out.txt.parts").read_text() == "mine"


# --- Two at once -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_identical_work_at_once(tmp_path: Path) -> None:
    """Two processes that do the same work both succeed, and write the same bytes, every time."""
    spawn = multiprocessing.get_context("spawn")
    start = spawn.Barrier(2)
    both = [spawn.Process(target=compute_repeatedly, args=(tmp_path, ATTEMPTS, start)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(120)
    assert [process.exitcode for process in both] == [0, 0]
    assert {path.name for path in tmp_path.iterdir()} == {f"{attempt}.txt" for attempt in range(ATTEMPTS)}
    assert {path.read_text() for path in tmp_path.iterdir()} == {WHOLE}


@pytest.mark.slow
def test_the_second_process_logs_which_one_holds_the_output(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spawn = multiprocessing.get_context("spawn")
    held, release = spawn.Event(), spawn.Event()
    holder = spawn.Process(target=hold_lock, args=(tmp_path / "out.txt", held, release))
    holder.start()
    assert held.wait(60)

    class Release:
        """Lets the other process go on once the warning is there."""

        def filter(self, record: Any) -> bool:
            release.set()
            return True

    caplog.handler.addFilter(Release())
    # Another spelling of the same file.
    compute(tmp_path / "." / "out.txt")
    holder.join(60)
    assert f"is being written by process {holder.pid}" in caplog.text
    assert (tmp_path / "out.txt").read_text() == WHOLE
