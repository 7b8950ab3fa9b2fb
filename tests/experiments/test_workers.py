"""Workers of a DataLoader that are spawned, as on macOS, Windows and Python 3.14, build the batches of no workers."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from support.training import World, arguments
from torch.utils.data import DataLoader

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.experiments.stages import encode_whole
from docparade.reranking.caches.document_lookup import CollectionDocuments
from docparade.reranking.caches.token_cache import TokenCache
from docparade.retrieval import Collection, load_collection
from docparade.retrieval.collections.union import CollectionUnion
from docparade.trainer.data.collator import PairCollator
from docparade.trainer.data.pairs import PairDataset
from docparade.trainer.data.triples import Triples
from docparade.trainer.distillation import DistillationTrainer


@pytest.fixture
def folder(small: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small world's documents as collections of all forms that are folders."""
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "cache"))
    lines = [{"doc_id": name, "text": document["text"]} for name, document in small.documents.items()]
    for name, file in (("local", "docs.jsonl"), ("beir", "corpus.jsonl")):
        (tmp_path / name).mkdir()
        content = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / name / file).write_text(content, encoding="utf-8")
    Dataset.from_list(lines).save_to_disk(tmp_path / "saved/corpus")
    return tmp_path


def assert_same_batches(pairs: PairDataset, collator: Any, workers: int) -> None:
    def batches(**options: Any) -> list[dict[str, torch.Tensor]]:
        numbers = list(range(14))
        return list(DataLoader(pairs, batch_size=4, sampler=numbers, collate_fn=collator, **options))  # type: ignore

    expected = batches()
    found = batches(num_workers=workers, multiprocessing_context="spawn")
    assert len(found) == len(expected) == 4
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.slow
def test_pairs_of_a_collection_with_a_token_cache_and_a_teacher(
    small: World, folder: Path, tiny_ranker: Callable[..., DocumentRanker]
) -> None:
    model = tiny_ranker(MaxPForSequenceClassification, "max")
    documents = CollectionDocuments(load_collection(folder / "local"))
    cache = TokenCache.open(folder / "cache", model.require_processor(), documents)
    trainer = DistillationTrainer(
        model,
        arguments(folder / "out", loss="margin_mse"),
        small.sampler(),
        small.queries,
        documents,
        encode_documents=cache.encode_documents,
        teacher=model,
    )
    trainer.teacher_scores.compute(small.sampler()[number] for number in range(14))
    assert "teacher_scores" in trainer.data_collator([small.sampler()[0]])
    # The teacher itself stays here: workers only look its scores up.
    weights = sum(parameter.numel() * 4 for parameter in model.parameters())
    assert len(pickle.dumps(trainer.data_collator.scores)) < len(pickle.dumps(trainer.data_collator.collator)) + weights
    assert_same_batches(trainer.train_dataset, trainer.data_collator, workers=2)


@pytest.mark.slow
def test_triples_of_files_as_passages(small: World, folder: Path, tiny_ranker: Callable[..., DocumentRanker]) -> None:
    texts = [document["text"] for document in small.documents.values()]
    rows = [{"query": text[:9], "positive": text, "negatives": texts[:2]} for text in texts[2:]]
    path = folder / "triples.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    processor = tiny_ranker(MaxPForSequenceClassification, "max").require_processor()
    triples = Triples.from_files(path, seed=1)
    triples[3]  # the file is open here
    assert_same_batches(triples, PairCollator(processor, encode_documents=partial(encode_whole, processor)), workers=1)


@pytest.mark.parametrize("form", ["local", "beir", "saved", "union"])
def test_a_collection_in_use_is_opened_anew_elsewhere(form: str, folder: Path, small: World) -> None:
    names = ["local", "beir"] if form == "union" else [form]
    collections: list[Collection] = [load_collection(folder / name) for name in names]
    collection = CollectionUnion(collections) if form == "union" else collections[0]
    documents = CollectionDocuments(collection)
    names = list(small.documents)[:3]
    expected = documents.get_many(names)
    sent = pickle.dumps(documents)
    assert len(sent) < 2000  # a name, and no documents
    assert pickle.loads(sent).get_many(names) == expected
    assert len(pickle.loads(sent)) == len(documents)


def test_a_collection_of_ir_datasets_is_opened_by_its_id() -> None:
    collection = pickle.loads(pickle.dumps(load_collection("vaswani")))
    assert collection.name == "vaswani"
    assert isinstance(collection, type(load_collection("vaswani")))
