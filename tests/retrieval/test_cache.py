"""What is in the cache is whole, and is built once."""

from pathlib import Path

import numpy as np
import pytest

from docparade.retrieval.arrays import ArrayWriter, map_array
from docparade.retrieval.cache import build_once, cache_folder
from docparade.retrieval.errors import InputError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_folder_is_built_once_for_a_key() -> None:
    built = []

    def build(folder: Path) -> None:
        built.append(folder)
        (folder / "file").write_text(str(len(built)), encoding="utf-8")

    first = build_once("kind", "name/with space", {"size": 1}, build)
    assert build_once("kind", "name/with space", {"size": 1}, build) == first
    second = build_once("kind", "name/with space", {"size": 2}, build)
    assert len(built) == 2
    assert ((first / "file").read_text(encoding="utf-8"), (second / "file").read_text(encoding="utf-8")) == ("1", "2")


def test_the_name_of_a_folder_does_not_count(cache: Path) -> None:
    first = build_once("kind", "collection/train", {"size": 1}, lambda folder: (folder / "file").touch())
    assert first.name.startswith("collection-train-")
    assert build_once("kind", "collection/test", {"size": 1}, pytest.fail) == first
    assert build_once("kind", "collection/test", {"size": 2}, lambda folder: None) != first
    assert build_once("other", "collection/train", {"size": 1}, lambda folder: None) != first


def test_an_interrupted_build_leaves_nothing(cache: Path) -> None:
    def interrupted(folder: Path) -> None:
        (folder / "half").write_text("", encoding="utf-8")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_once("kind", "name", {}, interrupted)
    assert list((cache / "kind").iterdir()) == []


def test_two_builders_at_once_end_with_one_whole_folder(cache: Path) -> None:
    def slower(folder: Path) -> None:
        build_once("kind", "name", {}, lambda inner: (inner / "file").write_text("first", encoding="utf-8") and None)
        (folder / "file").write_text("second", encoding="utf-8")

    folder = build_once("kind", "name", {}, slower)
    assert (folder / "file").read_text(encoding="utf-8") == "first"
    assert list((cache / "kind").iterdir()) == [folder]


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"cannot be written .* set DOCPARADE_CACHE"):
        build_once("kind", "name", {}, lambda folder: None)


def test_the_default_is_below_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCPARADE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/docparade")


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
