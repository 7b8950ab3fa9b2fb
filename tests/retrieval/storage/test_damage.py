"""Whatever happens to the files of a cache, what is computed from it stays the same."""

import gzip
import os
import pickle
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.damage import DAMAGES, change_key, damage_at_random, files_in, restore, swap, swap_pairs

from docparade.retrieval import FirstStage, load_collection, retrieve
from docparade.retrieval.storage import checked_files
from docparade.retrieval.storage.cache import build_once
from docparade.retrieval.storage.checked_files import CheckedFolder, DamagedFile

KINDS = {"index": "indexes", "documents": "documents"}


class Cached:
    """A folder of the cache, a copy of it, and what is computed with it."""

    def __init__(self, collection: Path, cache: Path, kind: str, copies: Path) -> None:
        self.collection = collection
        self.kind = kind
        self.expected = self.compute()
        [self.folder] = (cache / KINDS[kind]).iterdir()
        self.whole = copies / self.folder.name
        shutil.copytree(self.folder, self.whole)

    def compute(self) -> Any:
        collection = load_collection(self.collection)
        if self.kind == "documents":
            ids = [document.id for document in collection.documents()]
            return collection.get_many(reversed(ids)), len(collection)
        return [retrieve(collection, FirstStage(method), progress=False) for method in ("bm25+rm3", "ql+rm3")]


@pytest.fixture(params=KINDS)
def cached(request: Any, small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cached]:
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "cache"))
    # Hundreds of folders are built again here, and waiting for the disk would take nearly all of the time.
    monkeypatch.setattr(checked_files, "sync", lambda path: None)
    # Packed, so that the cache holds an unpacked copy as well.
    docs = small.folder / "docs.jsonl"
    (small.folder / "docs.jsonl.gz").write_bytes(gzip.compress(docs.read_bytes(), mtime=0))
    docs.unlink()
    yield Cached(small.folder, tmp_path / "cache", request.param, tmp_path / "copies")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_changes_nothing(cached: Cached, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    names = [path.relative_to(cached.whole) for path in files_in(cached.whole)]
    assert len(names) > 6
    for name in names:
        if not (cached.whole / name).stat().st_size:
            continue
        caplog.clear()
        DAMAGES[damage](cached.folder / name)
        assert cached.compute() == cached.expected, name
        assert len(caplog.messages) <= 2, "one for each folder that was damaged"
        assert str(cached.folder) in caplog.messages[0]
        assert name.name == checked_files.NAME or str(name) in caplog.messages[0]
        caplog.clear()
        assert cached.compute() == cached.expected, name
        assert not caplog.messages, "built again, and whole"
        restore(cached.folder, cached.whole)


def test_files_that_are_exchanged_change_nothing(cached: Cached) -> None:
    for first, second in list(swap_pairs(cached.folder)):
        swap(first, second)
        assert cached.compute() == cached.expected, (first, second)
        restore(cached.folder, cached.whole)


def test_a_folder_with_another_key_is_not_used(cached: Cached, caplog: pytest.LogCaptureFixture) -> None:
    change_key(cached.folder)
    assert cached.compute() == cached.expected
    assert caplog.messages == [
        f"{cached.folder} is damaged and is built again: key.json does not hold the key of this folder."
    ]


def test_a_folder_of_another_version_without_checksums_is_built_again(cached: Cached) -> None:
    (cached.folder / checked_files.NAME).unlink()
    assert cached.compute() == cached.expected
    assert (cached.folder / checked_files.NAME).is_file()


@pytest.mark.parametrize("replaced_by", ["a file", "a broken link", "an empty folder"])
def test_something_else_in_the_place_of_a_folder(cached: Cached, replaced_by: str, tmp_path: Path) -> None:
    shutil.rmtree(cached.folder)
    if replaced_by == "a file":
        cached.folder.write_bytes(b"")
    elif replaced_by == "a broken link":
        cached.folder.symlink_to(tmp_path / "nowhere")
    else:
        cached.folder.mkdir()
    assert cached.compute() == cached.expected


def test_a_link_to_a_damaged_folder_is_removed_and_the_folder_is_not(cached: Cached, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    cached.folder.rename(elsewhere)
    cached.folder.symlink_to(elsewhere)
    assert cached.compute() == cached.expected
    assert cached.folder.is_symlink()
    (elsewhere / "key.json").unlink()
    assert cached.compute() == cached.expected
    assert not cached.folder.is_symlink()
    assert (elsewhere / checked_files.NAME).is_file()


@pytest.mark.parametrize(
    "times", [pytest.param(200, marks=pytest.mark.slow), pytest.param(2000, marks=pytest.mark.long)]
)
def test_any_damage_changes_nothing(cached: Cached, times: int) -> None:
    for seed in range(times):
        done = damage_at_random(cached.folder, random.Random(seed))
        assert cached.compute() == cached.expected, (seed, done)
        restore(cached.folder, cached.whole)


@pytest.mark.parametrize("place", range(0, 1200, 37))
def test_a_flipped_bit_is_found_where_it_is_read(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checked_files, "BLOCK", 256)
    expected, built = np.arange(134), []

    def build(folder: Path) -> None:
        built.append(folder)
        np.save(folder / "numbers.npy", expected)

    path = build_once("kind", "name", {}, build, tmp_path).path / "numbers.npy"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    header = len(content) - expected.nbytes
    array = build_once("kind", "name", {}, build, tmp_path).array("numbers.npy")
    # The block of the header is read when the array is opened.
    assert len(built) == (2 if place < 256 else 1)
    other = (0 if place >= 640 else 1199 - header) // 8  # in another block
    assert array[other] == other
    assert len(built) == (2 if place < 256 else 1)
    value = max(place - header, 0) // 8
    for places in (value, np.array([other, value]), slice(max(value - 3, 0), value + 1), slice(None)):
        assert np.array_equal(array[places], expected[places])
    assert len(built) == 2
    assert "numbers.npy does not have the checksum" in caplog.text


def test_damage_that_cannot_be_repaired_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "numbers.npy", np.arange(20_000))
    checked_files.write_checksums(tmp_path)
    array = CheckedFolder(tmp_path).array("numbers.npy")
    DAMAGES["last bit"](tmp_path / "numbers.npy")
    assert array[5] == 5
    for read in (array, pickle.loads(pickle.dumps(CheckedFolder(tmp_path))).array("numbers.npy")):
        with pytest.raises(DamagedFile, match=r"numbers\.npy does not have the checksum"):
            read[-1]


def test_rows_that_are_in_two_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked_files, "BLOCK", 256)
    np.save(tmp_path / "rows.npy", np.zeros(90 * 5, np.float32))
    checked_files.write_checksums(tmp_path)
    damaged = []
    content = (tmp_path / "rows.npy").read_bytes()
    DAMAGES["middle bit"](tmp_path / "rows.npy")
    for row in range(90):
        rows = CheckedFolder(tmp_path).array("rows.npy", 5)
        try:
            assert rows[np.array([row])].shape == (1, 5)
        except DamagedFile:
            damaged.append(row)
    block = len(content) // 2 // 256
    touching = [row for row in range(90) if 128 + row * 20 < (block + 1) * 256 and 128 + row * 20 + 20 > block * 256]
    assert damaged == touching


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"block": 65536}',
        '{"block": 65536, "files": []}',
        '{"block": 65536, "files": {"a": null}}',
        '{"block": 65536, "files": {"a": {"size": 1}}}',
        '{"block": 65536, "files": {"a": {"size": "x", "crc32": []}}}',
        '{"block": 65536, "files": {"a": {"size": 1, "crc32": []}}}',
        '{"block": 65536, "files": {"a": {"size": 1, "crc32": 7}}}',
        '{"block": 65536, "files": {"a": {"size": 1e999, "crc32": [7]}}}',
        '{"block": 65536, "files": {"a": {"size": 1, "crc32": ["x"]}}}',
        '{"block": 65536, "files": {"a\\u0000": {"size": 1, "crc32": [7]}}}',
        '{"block": 65536, "files": {"\\ud800": {"size": 1, "crc32": [7]}}}',
        '{"block": 1, "files": {}}',
        "[" * 100_000,
        f'{{"block": {"9" * 5000}}}',
    ],
)
def test_checksums_that_say_nothing_are_damage(tmp_path: Path, content: str) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / checked_files.NAME).write_text(content, encoding="utf-8")
    with pytest.raises(DamagedFile):
        CheckedFolder(tmp_path).array("a")


def test_damage_is_reported_on_standard_error(small: Any, tmp_path: Path) -> None:
    def run() -> tuple[str, str]:
        command = [sys.executable, "-c", "from docparade.cli import main; main()", "retrieve", "--output", "run.txt"]
        done = subprocess.run(
            [*command, "--collection", str(small.folder)],
            env={**os.environ, "DOCPARADE_CACHE": str(tmp_path / "cache")},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        return (tmp_path / "run.txt").read_text(encoding="utf-8"), done.stderr

    expected, said = run()
    assert "damaged" not in said
    [folder] = (tmp_path / "cache" / "indexes").iterdir()
    DAMAGES["emptied"](folder / "lengths.npy")
    again, said = run()
    assert again == expected
    assert f"{folder} is damaged and is built again: lengths.npy has 0 bytes and should have 152.\n" in said
