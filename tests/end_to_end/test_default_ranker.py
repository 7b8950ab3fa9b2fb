"""The ranker that comes with docparade, on real language: it finds what is deep inside a long document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from support.project import LICENSE, PROJECT

import docparade
from docparade.default import DEFAULT_RANKER
from docparade.modeling import Document
from docparade.retrieval import read_run

QUERY = "which fish live in the deep sea without any light"
ANSWER = (
    "Anglerfish live more than a thousand meters below the surface, where no sunlight ever arrives. The fish attract "
    "their prey with a glowing lure that grows out of their heads."
)
SEA = (
    "The deep sea has always fascinated writers. This essay is about books in which ships sink, and about the "
    "publishers who printed them, their paper, their bindings and their prices. "
)


@pytest.fixture(scope="module")
def model() -> docparade.DocumentRanker:
    return docparade.load_default()


def test_it_finds_a_passage_deep_in_a_long_document(model: docparade.DocumentRanker) -> None:
    long = f"{LICENSE}\n\n{ANSWER}\n\n{LICENSE}"
    documents = [{"id": "deep", "text": long}, {"id": "misleading", "text": SEA * 8}, {"id": "other", "text": LICENSE}]
    ranked = model.rank(QUERY, documents)
    assert [document.id for document in ranked] == ["deep", "misleading", "other"]
    assert "Anglerfish" in ranked[0].best_passage.text and ranked[0].unread == 0
    assert ranked[0].best_passage.start > 0.4 * len(long)

    first_passage = docparade.MaxPForSequenceClassification.from_pretrained(DEFAULT_RANKER, aggregation="first")
    assert first_passage.rank(QUERY, documents)[0].id == "misleading"


def test_other_rankers_are_built_on_its_encoder(model: docparade.DocumentRanker) -> None:
    parade = docparade.ParadeForSequenceClassification.from_bi_encoder(DEFAULT_RANKER, aggregation="max")
    assert parade.require_processor().max_length == model.require_processor().max_length
    vectors = [ranker.encode_documents([{"id": "a", "text": ANSWER}]) for ranker in (parade, model)]
    mine, own = (kept.find(Document(ANSWER, id="a")).vectors[0] for kept in vectors)
    torch.testing.assert_close(mine, own[0], rtol=0, atol=1e-5)


def test_it_is_small_and_carries_its_card() -> None:
    sizes = {path.name: path.stat().st_size for path in DEFAULT_RANKER.iterdir() if path.is_file()}
    assert sum(sizes.values()) < 40_000_000
    assert {"README.md", "config.json", "model.safetensors", "processor_config.json", "tokenizer.json"} <= sizes.keys()
    text = "".join(path.read_text(encoding="utf-8") for path in DEFAULT_RANKER.glob("*.json"))
    assert str(PROJECT) not in text and str(Path.home()) not in text


def test_commands_use_it_where_no_model_is_named(command_line: object, tmp_path: Path) -> None:
    folder = tmp_path / "collection"
    folder.mkdir()
    texts = {"deep": f"{LICENSE[:3000]} {ANSWER}", "other": LICENSE[:3000]}
    lines = [json.dumps({"id": name, "text": text}) for name, text in texts.items()]
    (folder / "docs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "queries.tsv").write_text(f"q1\t{QUERY}\n", encoding="utf-8")
    (tmp_path / "bm25.txt").write_text("q1 Q0 other 1 2.0 bm25\nq1 Q0 deep 2 1.0 bm25\n", encoding="utf-8")
    given = ["--collection", str(folder), "--run", str(tmp_path / "bm25.txt"), "--output", str(tmp_path / "out.txt")]
    code, _, err = command_line("rerank", *given)  # type: ignore[operator]
    assert code == 0 and "using the default ranker; name another one with --model." in err
    assert list(read_run(tmp_path / "out.txt")["q1"]) == ["deep", "other"]
