"""How the code reads and writes text: UTF-8 by name everywhere, and whole files or none where training leaves them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from support.project import PROJECT

FOLDERS = ("trainer", "docparade", "scripts")
TEXT = ("open", "read_text", "write_text")


def calls(folder: str) -> Iterator[tuple[str, ast.Call]]:
    """Every call of something that opens a file, with its place and its name."""
    for path in sorted((PROJECT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and called(node) in (*TEXT, "write_bytes"):
                yield f"{path.relative_to(PROJECT)}, line {node.lineno}", node


def called(node: ast.Call) -> str:
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def modes(node: ast.Call) -> list[str]:
    """The modes that a file is opened with: short texts among the arguments, such as `rt`."""
    values = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
    return [
        value for value in values if isinstance(value, str) and 0 < len(value) <= 3 and set(value) <= set("rwxabt+")
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_text_is_utf_8_on_every_machine(folder: str) -> None:
    found = 0
    for place, node in calls(folder):
        opens_text = called(node) in ("read_text", "write_text") or any("b" not in mode for mode in modes(node))
        if opens_text:
            found += 1
            assert any(keyword.arg == "encoding" for keyword in node.keywords), f"{place}: says no encoding"
    assert found


def test_what_training_writes_appears_whole() -> None:
    for place, node in calls("trainer"):
        written = called(node) in ("write_text", "write_bytes") or any(set(mode) & set("wxa+") for mode in modes(node))
        assert not written, f"{place}: use atomic_write, so that a kill leaves no half of a file"
