"""The scripts in examples/ do what they say, from any folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.project import LICENSE, PROJECT, SIZES
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerBase


def run(script: str, folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROJECT / "examples" / script), *map(str, words)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="utf-8", check=False)


@pytest.fixture
def encoder(tmp_path: Path, tokenizers: dict[str, PreTrainedTokenizerBase]) -> Path:
    """A tiny encoder with as many positions as the default passages need."""
    tokenizer = tokenizers["wordpiece"]
    torch.manual_seed(0)
    config = AutoConfig.for_model("bert", **{**SIZES, "vocab_size": len(tokenizer), "max_position_embeddings": 256})
    AutoModel.from_config(config).save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    return tmp_path / "encoder"


@pytest.fixture
def trained(tmp_path: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the training example leaves, with a tiny encoder and few pairs."""
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "cache"))
    options = ("--encoder", encoder, "--pairs", "8", "--depth", "2", "--output", "out")
    done = run("train_on_your_data.py", tmp_path, *options)
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line.split()[0] for line in done.stdout.splitlines()[-2:]] == ["BM25", "reranked"]
    return tmp_path / "out"


@pytest.mark.slow
def test_training_and_ranking(trained: Path, tmp_path: Path) -> None:
    collection = trained / "collection"
    assert {path.name for path in collection.iterdir()} == {"docs.jsonl", "queries.tsv", "qrels.txt"}
    # The queries are taken out of their documents.
    queries = dict(line.split("\t") for line in (collection / "queries.tsv").read_text(encoding="utf-8").splitlines())
    documents = (collection / "docs.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(queries) == len(documents) > 40
    assert not [text for text, document in zip(queries.values(), documents, strict=True) if text in document]

    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "license.txt").write_text(LICENSE, encoding="utf-8")
    (tmp_path / "texts" / "short.md").write_text("A short text.", encoding="utf-8")
    done = run("rerank_long_documents.py", tmp_path, "--model", trained / "model", "patent license", "texts")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("score ") == 2 and "license.txt" in done.stdout
    assert "A short text." in done.stdout


@pytest.mark.slow
def test_files_are_ranked_with_the_ranker_of_the_package(tmp_path: Path) -> None:
    done = run("rerank_long_documents.py", tmp_path, "--top", "1", "patent license", PROJECT / "LICENSE")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "13 passages read" in done.stdout and "hereby grants to You" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["."], "there are no text files in these folders"),
        (["nothing.txt"], "there is no nothing.txt"),
        (["--model", "no/such/model", str(PROJECT / "LICENSE")], "--model: no/such/model cannot be loaded"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], sentence: str, tmp_path: Path) -> None:
    done = run("rerank_long_documents.py", tmp_path, "query", *words)
    assert done.returncode == 2
    assert sentence in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr
