"""The page without a browser: its answers, its files for the Hub, and the command."""

from __future__ import annotations

import runpy
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest
import yaml
from support.collections import make_small_collection
from support.project import LICENSE, PROJECT, QUERY

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.default import DEFAULT_RANKER
from docparade.retrieval.collections.catalog import load_collection

pytest.importorskip("gradio", reason="Gradio is not installed: pip install '.[space]'")

from docparade.hub_cards.space import page
from docparade.hub_cards.space.page import COLLECTION, EXAMPLES, NOTHING, READINGS_AT_ONCE, TYPED, UPLOADED, Space
from docparade.hub_cards.space.ranking import list_methods
from docparade.hub_cards.space.sources import EXAMPLE_QUERY, FirstStageSource, SourceDocument

Command = Callable[..., tuple[int, str, str]]
FILES = PROJECT / "hub_cards" / "space"


@pytest.fixture
def space(tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path) -> Space:
    small = make_small_collection(tmp_path / "small")
    models = {"tiny": tiny_ranker(MaxPForSequenceClassification, "max")}
    return Space(list_methods(models), FirstStageSource(load_collection(str(small.folder)), depth=2))


def ask(space: Space, query: str = QUERY, kind: str = TYPED, typed: str = LICENSE[:900], other: str = NOTHING) -> str:
    return space.answer(query, kind, typed, None, next(iter(space.methods)), other)


def test_answers(space: Space) -> None:
    assert ask(space).count('class="dp-card"') == 1
    assert ask(space, "wing lift", COLLECTION).count("BM25 rank") == 1
    assert ask(space, kind=EXAMPLES).count('class="dp-card"') == 4
    other = list(space.methods)[1]
    assert 'data-columns="2"' in ask(space, other=other)
    assert 'data-columns="1"' in ask(space, other=next(iter(space.methods)))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"query": " "}, "Type a query"),
        ({"typed": ""}, "Type or paste at least one document"),
        ({"kind": UPLOADED}, "Choose files to rank"),
        ({"kind": COLLECTION, "query": "unknown vocabulary"}, "BM25 finds no document"),
    ],
)
def test_bad_input_is_one_sentence(given: dict[str, str], sentence: str, space: Space) -> None:
    answer = ask(space, **given)
    assert answer.startswith('<p class="dp-error" role="alert"') and sentence in answer


def test_a_failure_is_one_sentence(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("secret detail")

    monkeypatch.setattr(page, "rank_documents", fail)
    answer = ask(space)
    assert "The ranking failed (MemoryError)" in answer and "secret" not in answer


def test_the_page_begins_with_a_query(space: Space) -> None:
    assert space.start_query == "wing lift" and space.kinds[0] == COLLECTION
    alone = Space(space.methods)
    assert alone.start_query == EXAMPLE_QUERY and alone.kinds[0] == EXAMPLES


def test_the_files_of_the_hub() -> None:
    _, header, text = (FILES / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    fields = yaml.safe_load(header)
    assert fields["sdk"] == "gradio" and (FILES / fields["app_file"]).is_file()
    assert "models" not in fields  # its ranker comes with docparade
    assert len(fields["short_description"]) <= 60
    assert "MODEL_ID" in text
    assert "docparade[space]" in (FILES / "requirements.txt").read_text(encoding="utf-8")


def test_it_ranks_with_the_default_ranker() -> None:
    assert str(DEFAULT_RANKER) == page.DEFAULT_MODEL


def test_a_slow_file_stops_nobody(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """While as many files are read as may be at a time, others get their answers."""
    begun, end = Barrier(READINGS_AT_ONCE + 1, timeout=300), Event()

    def read(_: object) -> list[SourceDocument]:
        begun.wait()
        assert end.wait(300)
        return [SourceDocument("slow", "It rains.")]

    monkeypatch.setattr(page, "read_files", read)
    with ThreadPoolExecutor(READINGS_AT_ONCE) as threads:
        slow = [threads.submit(ask, space, kind=UPLOADED) for _ in range(READINGS_AT_ONCE)]
        begun.wait()
        assert "dp-card" in ask(space)
        assert not any(one.done() for one in slow)
        end.set()
        assert all("dp-card" in one.result() for one in slow)


def test_rankings_take_turns(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    now, most, rank = 0, 0, page.rank_documents

    def count(*arguments: Any) -> Any:
        nonlocal now, most
        now += 1
        most = max(most, now)
        try:
            return rank(*arguments)
        finally:
            now -= 1

    monkeypatch.setattr(page, "rank_documents", count)
    with ThreadPoolExecutor(4) as threads:
        assert all("dp-card" in answer for answer in threads.map(lambda _: ask(space), range(8)))
    assert most == 1


def test_the_queue(space: Space) -> None:
    built = page.build_page(space)
    [answer] = [function for function in built.fns.values() if function.name == "answer"]
    assert answer.queue and answer.concurrency_limit == page.ANSWERS_AT_ONCE > READINGS_AT_ONCE
    assert built._queue.max_size == page.MAX_WAITING and not built.api_open


@pytest.mark.parametrize(
    ("given", "models", "collection"),
    [
        ({}, [page.DEFAULT_MODEL], None),
        ({"MODEL_ID": "org/a org/b", "COLLECTION": "hf:org/c"}, ["org/a", "org/b"], "hf:org/c"),
    ],
)
def test_the_app_reads_the_environment(
    given: dict[str, str], models: list[str], collection: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []
    monkeypatch.setattr(page, "launch", lambda *arguments: called.append(arguments))
    for name in ("MODEL_ID", "COLLECTION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    runpy.run_path(str(FILES / "app.py"), run_name="__main__")
    assert called == [(models, collection)]


def test_the_command_explains_mistakes(command_line: Command, tmp_path: Path) -> None:
    def error(*options: str) -> str:
        code, out, err = command_line("space", *options)
        assert code == 2 and out == "" and err.count("\n") == 1
        return err

    folder = str(tmp_path / "nowhere")
    assert "--model: " in error("--model", folder) and "no such folder" in error("--model", folder)
    assert "--depth is for the documents of a collection" in error("--model", folder, "--depth", "5")
    assert "--depth must be at most 50" in error("--model", folder, "--collection", "c", "--depth", "51")
    assert "--port must be from 1 to 65535" in error("--model", folder, "--port", "0")


def test_the_command_says_that_a_port_is_taken(
    command_line: Command, tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    tiny_ranker(MaxPForSequenceClassification, "max").save_pretrained(tmp_path / "model")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, _, err = command_line("space", "--model", str(tmp_path / "model"), "--port", str(port))
    assert code == 2 and err.endswith(f"docparade: port {port} is taken; choose another one with --port.\n")
