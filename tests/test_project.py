"""What the project says of itself in several places is the same everywhere."""

from __future__ import annotations

import re

import yaml
from support.project import PROJECT

import docparade


def text(name: str) -> str:
    return (PROJECT / name).read_text(encoding="utf-8")


def test_the_version() -> None:
    assert f'version = "{docparade.__version__}"' in text("pyproject.toml")
    assert yaml.safe_load(text("CITATION.cff"))["version"] == docparade.__version__
    [newest, *_] = re.findall(r"^## \[(.+?)\]", text("CHANGELOG.md"), flags=re.MULTILINE)
    assert newest == docparade.__version__


def test_every_paper_is_cited() -> None:
    titles = {reference["title"] for reference in yaml.safe_load(text("CITATION.cff"))["references"]}
    papers = " ".join(text("docs/methods.md").partition("## Papers")[2].split())
    assert len(titles) == 8
    assert [title for title in titles if title not in papers] == []


def test_contributors_find_the_files_that_are_named() -> None:
    named = re.findall(r"`((?:[\w.]+/)+[\w.]*|[\w]+\.(?:toml|md|cff|lock|txt))`", text("CONTRIBUTING.md"))
    assert len(named) > 20
    assert [name for name in named if not (PROJECT / name).exists() and name != "site/" and "NAME" not in name] == []


def test_commits_are_checked_as_tests_are() -> None:
    [repository] = yaml.safe_load(text(".pre-commit-config.yaml"))["repos"]
    [hook] = repository["hooks"]
    assert repository["repo"] == "local" and hook["entry"] == "bash scripts/check.sh"
    assert "scripts/check.sh" in text("scripts/test.sh")


def test_the_workflow_runs_what_is_there() -> None:
    named = set(re.findall(r"\b(?:examples|scripts|tests)/[\w./]+", text(".github/workflows/tests.yml")))
    assert {"scripts/test.sh", "scripts/docs.sh"} <= named
    assert [name for name in named if not (PROJECT / name).exists()] == []
