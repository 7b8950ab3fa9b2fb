"""The command `docparade` before its imports have ended."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from docparade.start import main


def test_an_interruption_of_the_imports_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    imports = builtins.__import__

    def interrupted(name: str, *arguments: Any) -> Any:
        if name == "docparade.cli":
            raise KeyboardInterrupt
        return imports(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", interrupted)
    with pytest.raises(SystemExit) as end:
        main()
    monkeypatch.undo()
    assert end.value.code == 130
    assert "interrupted while it was starting" in capsys.readouterr().err
