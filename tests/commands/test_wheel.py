"""An installed package is whole: what a wheel brings works where the repository is not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.project import PROJECT

ROOMS = sorted(path.parent.name for path in PROJECT.glob("*/__init__.py"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this project, built from a copy and without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    left_out = shutil.ignore_patterns(".*", "build", "dist", "outputs", "*.egg-info", "__pycache__")
    shutil.copytree(PROJECT, folder / "project", ignore=left_out)
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", str(folder)]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(folder / "project")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder)
    return folder


def run(installed: Path, folder: Path, *words: str) -> str:
    """What `docparade` prints, where nothing but the wheel is found of it."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "docparade", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_file_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    assert {"configs", "docparade", "modeling"} <= set(ROOMS)
    for folder in ROOMS:
        inside = "docparade" if folder == "docparade" else f"docparade/{folder}"
        files = [path for kind in ("*.py", "*.pyi", "*.yaml") for path in (PROJECT / folder).rglob(kind)]
        assert files
        lacking = [path for path in files if f"{inside}/{path.relative_to(PROJECT / folder).as_posix()}" not in names]
        assert not lacking
    assert {"docparade/py.typed", "docparade/retrieval/evaluation/ranking_metric/ranking_metric.py"} <= names


def test_the_installed_commands_run_in_another_folder(installed: Path, tmp_path: Path) -> None:
    assert run(installed, tmp_path, "--version").startswith("docparade ")
    listed = json.loads(run(installed, tmp_path, "recipes", "--json"))
    assert len(listed) == len(list((PROJECT / "configs" / "recipes").glob("*.yaml")))
    assert all(Path(one["file"]).is_relative_to(installed) for one in listed)
    assert "name: quickstart" in run(installed, tmp_path, "recipes", "quickstart")
    assert "Usage: docparade train" in run(installed, tmp_path, "train", "quickstart", "--help")
