"""Whatever happens to the files of a cache, what is computed from it stays the same."""

import gzip
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.damage import DAMAGES, change_key, damage_at_random, files_in, restore, swap, swap_pairs

from docparade.retrieval import FirstStage, load_collection, retrieve
from docparade.retrieval.storage import manifest
from docparade.retrieval.storage.cache import full_verification

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
    monkeypatch.setattr(manifest, "sync", lambda path: None)
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
        assert name.name == manifest.NAME or str(name) in caplog.messages[0]
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


def test_a_folder_of_another_version_without_a_manifest_is_built_again(cached: Cached) -> None:
    (cached.folder / manifest.NAME).unlink()
    assert cached.compute() == cached.expected
    assert (cached.folder / manifest.NAME).is_file()


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
    assert (elsewhere / manifest.NAME).is_file()


@pytest.mark.parametrize(
    "times", [pytest.param(200, marks=pytest.mark.slow), pytest.param(2000, marks=pytest.mark.long)]
)
def test_any_damage_changes_nothing(cached: Cached, times: int) -> None:
    for seed in range(times):
        done = damage_at_random(cached.folder, random.Random(seed))
        assert cached.compute() == cached.expected, (seed, done)
        restore(cached.folder, cached.whole)


def test_of_large_folders_the_middle_is_verified_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "BLOCK", 100)
    monkeypatch.setattr(manifest, "SMALL", 1000)
    content = bytes(range(250)) * 2
    for name in ("a", "b", "c.json"):
        (tmp_path / name).write_bytes(content)
    manifest.write_manifest(tmp_path)

    def damage_at(place: int, name: str = "b") -> tuple[str | None, str | None]:
        changed = bytearray(content)
        changed[place] ^= 1
        (tmp_path / name).write_bytes(changed)
        return manifest.find_damage(tmp_path), manifest.find_damage(tmp_path, everything=True)

    assert manifest.find_damage(tmp_path, everything=True) is None
    found = "b does not have the checksum that it was written with"
    assert [damage_at(place) for place in (0, 99, 400, 499)] == [(found, found)] * 4
    assert [damage_at(place) for place in (100, 399)] == [(None, found)] * 2
    (tmp_path / "b").write_bytes(content)
    assert damage_at(250, "c.json")[0] == "c.json does not have the checksum that it was written with"
    (tmp_path / "c.json").write_bytes(content)
    monkeypatch.setattr(manifest, "SMALL", 1500)
    assert damage_at(250) == (found, found)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"block": 8388608}',
        '{"block": 8388608, "files": []}',
        '{"block": 8388608, "files": {"a": null}}',
        '{"block": 8388608, "files": {"a": {"size": 1}}}',
        '{"block": 8388608, "files": {"a": {"size": "x", "crc32": []}}}',
        '{"block": 8388608, "files": {"a": {"size": 1, "crc32": []}}}',
        '{"block": 8388608, "files": {"a": {"size": 1, "crc32": 7}}}',
        '{"block": 8388608, "files": {"a": {"size": 1e999, "crc32": [7]}}}',
        '{"block": 8388608, "files": {"a": {"size": 1, "crc32": ["x"]}}}',
        '{"block": 8388608, "files": {"a\\u0000": {"size": 1, "crc32": [7]}}}',
        '{"block": 8388608, "files": {"\\ud800": {"size": 1, "crc32": [7]}}}',
        '{"block": 1, "files": {}}',
        "[" * 100_000,
        f'{{"block": {"9" * 5000}}}',
    ],
)
def test_a_manifest_that_says_nothing_is_damage(tmp_path: Path, content: str) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / manifest.NAME).write_text(content, encoding="utf-8")
    assert manifest.find_damage(tmp_path)


def test_retrieve_verifies_all_on_request(
    command_line: Callable[..., tuple[int, str, str]],
    small: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(manifest, "BLOCK", 50)
    monkeypatch.setattr(manifest, "SMALL", 0)

    def run(*options: str) -> str:
        caplog.clear()
        code, _, said = command_line("retrieve", "--collection", str(small.folder), "--output", "run.txt", *options)
        assert code == 0, said
        return Path("run.txt").read_text(encoding="utf-8")

    expected = run()
    assert run("--verify") == expected
    [folder] = (tmp_path / "cache" / "indexes").iterdir()
    terms = bytearray((folder / "document_terms.npy").read_bytes())
    terms[180] ^= 1  # behind the header, and in neither the first nor the last block
    (folder / "document_terms.npy").write_bytes(terms)
    run()
    assert not caplog.messages
    assert run("--verify") == expected
    [message] = caplog.messages
    assert message.startswith(f"{folder} is damaged and is built again: document_terms.npy does not have the checksum")
    assert run("--verify") == expected
    assert not caplog.messages


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


def test_full_verification_ends_with_its_block() -> None:
    from docparade.retrieval.storage import cache

    with full_verification():
        assert cache._verify_everything.get()
    assert not cache._verify_everything.get()
