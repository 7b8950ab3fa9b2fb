"""The documentation site: it builds without a warning, holds every public name, and loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from support.project import PROJECT

import docparade

pytestmark = pytest.mark.slow

# What a browser loads by itself, from another site; links are for readers to follow.
LOADED = re.compile(r"<(?:script|img|iframe)[^>]*\bsrc=[\"']?(?:https?:|//)|<link[^>]*stylesheet[^>]*https?:")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    return folder


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_every_guide_has_its_page(site: Path) -> None:
    guides = {page.stem for page in (PROJECT / "docs").glob("*.md")}
    assert guides <= {page.stem for page in site.glob("*.html")}
    front = read(site / "index.html")
    assert all(f'href="{name}.html' in front for name in guides)


def test_every_public_name_is_explained(site: Path) -> None:
    rooms = sorted(page.stem for page in (site / "reference").glob("*.html"))
    assert {
        "commands",
        "docparade",
        "modeling",
        "retrieval",
        "reranking",
        "trainer",
        "experiments",
        "hub_cards",
    } <= set(rooms)
    front = read(site / "reference" / "docparade.html")
    assert [name for name in docparade.__all__ if f"<code>{name}</code></a>" not in front] == []
    for room in set(rooms) - {"commands", "docparade"}:
        page, names = read(site / "reference" / f"{room}.html"), import_module(f"docparade.{room}").__all__
        assert [name for name in names if f'id="docparade.{room}.{name}"' not in page] == []


def test_every_command_is_explained(site: Path) -> None:
    page = read(site / "reference" / "commands.html")
    commands = {path.stem for path in (PROJECT / "docparade" / "commands").glob("*.py")}
    explained = {name for name in commands if f'id="docparade-{name}"' in page}
    assert {"rerank", "retrieve", "train", "evaluate", "analyze"} <= explained


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    assert [str(page) for page in site.rglob("*.html") if LOADED.search(read(page))] == []


def test_links_out_of_docs_lead_to_the_repository(site: Path) -> None:
    front = read(site / "index.html")
    assert 'href="https://github.com/docparade/docparade/blob/main/examples/' in front
    assert "docs/" not in "".join(re.findall(r'href="([^"]*)"', front))
