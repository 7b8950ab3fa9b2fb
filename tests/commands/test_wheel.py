"""An installed package is whole: the wheel and the sdist, each installed alone, work where the repository is not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support.project import PROJECT

from docparade import DocumentRanker, ParadeForSequenceClassification

pytestmark = pytest.mark.slow

ROOMS = sorted(path.parent.name for path in PROJECT.glob("*/__init__.py"))
RANK = """
import sys, docparade
from transformers import AutoModel
ranking = AutoModel.from_pretrained(sys.argv[1]).rank("patent license", ["You may grant a license.", "It rains."])
print(docparade.__file__, len(ranking))
"""


def call(*command: str | Path, folder: Path) -> str:
    """What a command prints, where the repository is not found."""
    hidden = ("PYTHONPATH", "PYTHONSAFEPATH")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist, built from a copy of the project, and the wheel, built from the sdist."""
    folder = tmp_path_factory.mktemp("packages")
    left_out = shutil.ignore_patterns(".*", "build", "dist", "outputs", "site", "*.egg-info", "__pycache__")
    shutil.copytree(PROJECT, folder / "project", ignore=left_out)
    build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    call(sys.executable, "-c", build, folder, folder=folder / "project")
    [sdist] = folder.glob("*.tar.gz")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", str(folder)]
    call(sys.executable, "-m", "pip", "wheel", *options, sdist, folder=folder)
    [wheel] = folder.glob("*.whl")
    return {"sdist": sdist, "wheel": wheel}


@pytest.fixture(scope="module", params=["sdist", "wheel"])
def programs(
    request: pytest.FixtureRequest, packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The programs of an environment in which only the package was installed, and its dependencies are found."""
    folder = tmp_path_factory.mktemp(request.param)
    venv.create(folder, symlinks=os.name != "nt")
    places = folder / ("Scripts" if os.name == "nt" else "bin")
    paths = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site_packages = Path(call(places / "python", "-c", paths, folder=folder).strip())
    # A path alone: the editable install of the repository, which is there too, would need its .pth file to be read.
    dependencies = subprocess.run([sys.executable, "-c", paths], capture_output=True, text=True, check=True).stdout
    (site_packages / "dependencies.pth").write_text(dependencies, encoding="utf-8")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--ignore-installed", "--quiet"]
    call(places / "python", "-m", "pip", "install", *options, packages[request.param], folder=folder)
    return places


def test_every_file_is_in_the_wheel(packages: dict[str, Path]) -> None:
    with zipfile.ZipFile(packages["wheel"]) as packed:
        names = set(packed.namelist())
    assert {"configs", "docparade", "modeling"} <= set(ROOMS)
    for folder in ROOMS:
        inside = "docparade" if folder == "docparade" else f"docparade/{folder}"
        kinds = ("*.py", "*.pyi", "*.yaml", "*.css", "*.js", "*.md")
        files = [path for kind in kinds for path in (PROJECT / folder).rglob(kind)]
        assert files
        lacking = [path for path in files if f"{inside}/{path.relative_to(PROJECT / folder).as_posix()}" not in names]
        assert not lacking
    # What only a clone needs stays there.
    assert {name.split("/")[0] for name in names} == {
        "docparade",
        *{n.split("/")[0] for n in names if ".dist-info/" in n},
    }
    assert not [name for name in names if {"tests", "scripts", "examples", "docs"} & set(name.split("/")[:2])]
    assert {"docparade/py.typed", "docparade/retrieval/evaluation/ranking_metric/ranking_metric.py"} <= names


def test_the_installed_commands_run_in_another_folder(programs: Path, tmp_path: Path) -> None:
    command = programs / "docparade"
    assert call(command, "--version", folder=tmp_path).startswith("docparade ")
    assert "Usage: docparade" in call(command, "--help", folder=tmp_path)
    listed = json.loads(call(command, "recipes", "--json", folder=tmp_path))
    assert len(listed) == len(list((PROJECT / "configs" / "recipes").rglob("*.yaml")))
    assert all(Path(one["file"]).is_relative_to(programs.parent) for one in listed)
    assert "name: quickstart" in call(command, "recipes", "quickstart", folder=tmp_path)
    assert "Usage: docparade train" in call(command, "train", "quickstart", "--help", folder=tmp_path)


def test_the_installed_package_ranks(
    programs: Path, tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    tiny_ranker(ParadeForSequenceClassification, "attn").save_pretrained(tmp_path / "ranker")
    place, count = call(programs / "python", "-c", RANK, tmp_path / "ranker", folder=tmp_path).split()
    assert Path(place).is_relative_to(programs.parent) and count == "2"
