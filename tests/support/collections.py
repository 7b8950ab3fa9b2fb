"""A small collection on disk."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Small:
    """A small local collection, and what is in it."""

    folder: Path
    texts: dict[str, str]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]


@pytest.fixture
def small(tmp_path: Path) -> Small:
    """A small collection in a folder."""
    return make_small_collection(tmp_path / "small")


def make_small_collection(folder: Path) -> Small:
    """With an empty document, one of stop words only, and queries that find nothing."""
    texts = {
        "d1": "The wing of a plane. Wings lift planes, and a wing's lift depends on speed.",
        "d2": "Boundary layer flow over a flat plate at high speed.",
        "d3": "",
        "d4": "Plates and layers: heat flows through composite plates.",
        "d5": "the of and",
        "d6": "Speed, speed, speed. The speed of heat. Technology of possibly supersonic flow.",
    }
    queries = {"q1": "wing lift", "q2": "speed of heated plates, speed", "q3": "unknown vocabulary", "q4": "the"}
    qrels = {"q1": {"d1": 2, "d2": 0}, "q2": {"d4": 1, "d6": 1}}
    folder.mkdir()
    lines = [json.dumps({"doc_id": name, "title": "", "text": text}) for name, text in texts.items()]
    (folder / "docs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "queries.tsv").write_text(
        "".join(f"{name}\t{text}\n" for name, text in queries.items()), encoding="utf-8"
    )
    judgments = [f"{query} 0 {name} {grade}" for query, grades in qrels.items() for name, grade in grades.items()]
    (folder / "qrels.txt").write_text("\n".join(judgments) + "\n", encoding="utf-8")
    return Small(folder, texts, queries, qrels)
