"""Work in parts on four queries, in a module of its own: spawned processes have to be able to import it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docparade.reranking.processes.resumable_work import work_in_parts
from docparade.retrieval.storage.files import atomic_write
from docparade.retrieval.storage.locks import lock_output

QUERIES = ["q0", "q1", "q2", "q3"]
KEY = {"model": "m", "depth": 2}
WHOLE = "".join(f"{query} {query.upper()}\n" for query in QUERIES)


def compute(
    target: Path,
    done: list[str] | None = None,
    key: dict[str, Any] = KEY,
    documents: dict[str, str] | None = None,
) -> None:
    """Write the text of every query's document in capitals; `done` gets the queries that were worked on."""
    texts = {query: query for query in QUERIES} | (documents or {})

    def work(query: str) -> dict[str, str]:
        if done is not None:
            done.append(query)
        return {"query": query, "text": texts[query].upper()}

    def finish(results: Iterator[dict[str, str]]) -> None:
        with atomic_write(target) as file:
            file.writelines(f"{result['query']} {result['text']}\n" for result in results)

    work_in_parts(target, key, QUERIES, texts.__getitem__, work, finish, progress=False)


def compute_repeatedly(folder: Path, times: int, together: Any) -> None:
    """Compute `times` outputs, each begun when all processes of a barrier have arrived."""
    for attempt in range(times):
        together.wait(120)
        compute(folder / f"{attempt}.txt")


def hold_lock(target: Path, held: Any, release: Any) -> None:
    """Lock an output, set the event `held`, and wait for the event `release`."""
    with lock_output(target):
        held.set()
        release.wait(60)
