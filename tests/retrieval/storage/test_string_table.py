"""Strings on disk come back by number and by value."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from docparade.retrieval.errors import InputError
from docparade.retrieval.storage import arrays, string_table
from docparade.retrieval.storage.checked_files import CheckedFolder, write_checksums
from docparade.retrieval.storage.string_table import StringTable, StringTableWriter


def write(folder: Path, strings: list[str]) -> StringTable:
    with StringTableWriter(folder / "ids", of="names") as writer:
        for string in strings:
            writer.append(string)
    write_checksums(folder)
    return StringTable(CheckedFolder(folder), "ids")


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), unique=True), st.text())
def test_strings_are_found_by_number_and_by_value(strings: list[str], other: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = write(Path(folder), strings)
        assert len(table) == len(strings)
        assert [table[number] for number in range(len(table))] == strings
        assert table.take(np.arange(len(table))[::-1]) == strings[::-1]
        assert [table.find(string) for string in strings] == list(range(len(strings)))
        if other not in strings:
            assert table.find(other) is None


def test_more_strings_than_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "HELD", 3)
    strings = [f"name {number}" for number in range(10)]
    table = write(tmp_path, strings)
    assert [table[number] for number in range(10)] == strings
    assert table.find("name 7") == 7


def test_strings_that_share_a_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(string_table, "_hash", lambda raw: 7)
    table = write(tmp_path, ["a", "b", "c"])
    assert [table.find(string) for string in ("c", "b", "a", "d")] == [2, 1, 0, None]
    with pytest.raises(InputError, match="2 and 4 are both b"):
        write(tmp_path, ["a", "b", "c", "b"])


def test_a_string_that_comes_twice_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 and 3 are both x"):
        write(tmp_path, ["x", "y", "x"])


def test_many_strings_are_found_as_each_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # With one byte, many strings share a hash.
    monkeypatch.setattr(string_table, "_hash", lambda raw: sum(raw) % 7)
    table = write(tmp_path, [f"d{number}" for number in range(50)])
    asked = [f"d{number}" for number in (49, 3, 60, 0, 3)] + ["", "x"]
    expected = [-1 if (number := table.find(string)) is None else number for string in asked]
    assert table.find_many(asked).tolist() == expected == [49, 3, -1, 0, 3, -1, -1]
    assert table.find_many([]).tolist() == []
