"""`docparade rank`: which files are read, what is skipped, and what is shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.commands.rank import cut_excerpt
from docparade.reranking.loading import load_ranker

Command = Callable[..., tuple[int, str, str]]
PAGE = "<html><title>Work</title><body><p>You may grant a <b>lic</b>ense.</p></body></html>"


@pytest.fixture
def folder(tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    tiny_ranker(MaxPForSequenceClassification, "max").save_pretrained("model")
    files = {
        "notes/a.txt": "The work is yours. " * 40,
        "notes/deep/b.md": "# License\n\nYou may grant it.",
        "notes/page.html": PAGE,
        "notes/lines.jsonl": '{"text": "One license.", "id": "d1"}\n{"text": " "}\n{"text": "Two works."}\n',
        "notes/.hidden.txt": "hidden",
        "notes/empty.txt": " \n",
        "notes/binary.txt": "\0",
        "notes/image.png": "x",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_folder_is_ranked(folder: Path, command_line: Command) -> None:
    code, out, err = command_line("rank", "a license", "notes", "--model", "model", "--json", "--top-k", "9")
    assert code == 0, err
    ranked = json.loads(out)
    names = {"a.txt", "deep/b.md", "page.html", "lines.jsonl, line 1", "lines.jsonl, line 3"}
    assert {one["file"] for one in ranked} == {str(Path("notes") / name) for name in names}
    assert [one["score"] for one in ranked] == sorted((one["score"] for one in ranked), reverse=True)
    for skipped in ("1 file of other kinds: .png", "empty.txt has no text", "binary.txt is not a text file"):
        assert skipped in err
    assert "1 document without text in notes/lines.jsonl" in err.replace("\\", "/")


def test_scores_are_those_of_python(folder: Path, command_line: Command) -> None:
    """HTML included: there, the ranker strips the markup, here the reader of files."""
    _, out, _ = command_line("rank", "a license", "notes/page.html", "notes/a.txt", "--model", "model", "--json")
    found = {Path(one["file"]).name: one["score"] for one in json.loads(out)}
    ranker = load_ranker("model")
    texts = {"page.html": PAGE, "a.txt": "The work is yours. " * 40}
    ranked = ranker.rank("a license", [{"id": name, "text": text} for name, text in texts.items()])
    assert {one.id: one.score for one in ranked} == pytest.approx(found, abs=1e-5)


def test_the_best_passage_is_shown(folder: Path, command_line: Command) -> None:
    code, out, err = command_line(
        "rank", "license", "notes/deep", "notes/page.html", "--model", "model", "--top-k", "1"
    )
    assert code == 0, err
    assert "the best 1 of 2 documents; show more with --top-k." in err
    first, second, *_ = out.splitlines()
    assert ("b.md  License" in first and "You may grant it." in second) or ("Work You may grant a license." in second)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["", "notes"], "the query is empty"),
        (["a", "notes", "--top-k", "0"], "--top-k must be at least 1"),
        (["a", "gone"], "there is no file or folder gone."),
        (["a", "notes/image.png"], "there is nothing to rank"),
        (["a", "notes", "--model", "./gone"], "--model: ./gone cannot be loaded"),
    ],
)
def test_mistakes(words: list[str], sentence: str, folder: Path, command_line: Command) -> None:
    code, out, err = command_line("rank", *words)
    assert (code, out) == (2, "")
    assert sentence in err.splitlines()[-1]


def test_pdf_needs_pypdf(folder: Path, command_line: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    (folder / "a.pdf").write_bytes(b"%PDF-1.7")
    code, _, err = command_line("rank", "a", "a.pdf", "--model", "model")
    assert code == 2 and "pip install pypdf" in err


def test_an_excerpt_has_the_words_of_the_query() -> None:
    passage = "one two three four five six seven eight bread nine stale ten eleven twelve thirteen"
    assert "bread nine stale" in cut_excerpt(passage, "why does bread go stale", 5)
    assert cut_excerpt("It rains.", "snow") == "It rains."
    assert cut_excerpt("", "snow") == ""
