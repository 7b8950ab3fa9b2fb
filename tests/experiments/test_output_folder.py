"""The folder of an experiment: who may tidy it up."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from docparade.experiments import load_recipe, output_folder
from docparade.experiments.output_folder import OutputFolder, open_folder
from docparade.retrieval.storage.files import TEMPORARY


@pytest.mark.parametrize("is_main", [True, False])
def test_only_the_first_process_removes_temporary_files(
    is_main: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the other processes come here, the first one may already be writing the first stage's run."""
    output = OutputFolder(tmp_path / "outputs")
    recipe = load_recipe("quickstart")
    open_folder(recipe, output)
    output.first_stage.mkdir()
    being_written = output.first_stage / f"{TEMPORARY}0.run.txt"
    being_written.touch()
    state = SimpleNamespace(is_main_process=is_main, main_process_first=nullcontext)
    monkeypatch.setattr(output_folder, "join_process_group", lambda: state)
    open_folder(recipe, output)
    assert being_written.exists() != is_main
    assert output.resolved.is_file()
