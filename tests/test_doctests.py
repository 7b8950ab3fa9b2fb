"""The examples in docstrings run, and show what comes out."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest
from support.project import PROJECT

ROOMS = sorted(path.parent for path in PROJECT.glob("*/__init__.py"))


def module_name(file: Path, room: Path) -> str:
    parts = (*(() if room.name == "docparade" else ("docparade",)), *file.relative_to(PROJECT).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


MODULES = [
    module_name(file, room)
    for room in ROOMS
    for file in sorted(room.rglob("*.py"))
    if (file.parent / "__init__.py").exists() and ">>> " in file.read_text(encoding="utf-8")
]


def test_there_are_examples() -> None:
    assert len(MODULES) > 20


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = import_module(name)
    assert "+SKIP" not in Path(str(module.__file__)).read_text(encoding="utf-8"), "write what cannot run without >>>"
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.attempted and not result.failed
