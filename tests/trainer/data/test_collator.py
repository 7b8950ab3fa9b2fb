"""What a batch is made of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from support.training import world

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.modeling import DocumentProcessor
from docparade.retrieval import InputError
from docparade.trainer.data.collator import PairCollator
from docparade.trainer.data.pairs import TrainingPair

WORLD = world()
PAIRS = [WORLD.sampler(negatives=2)[number] for number in range(3)]


@pytest.fixture(scope="module")
def processor(tiny_ranker: Callable[..., DocumentRanker]) -> DocumentProcessor:
    return tiny_ranker(MaxPForSequenceClassification, "max").require_processor()


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_batch_is_what_the_processor_builds(processor: DocumentProcessor) -> None:
    batch = PairCollator(processor, WORLD.queries, WORLD.documents)(PAIRS)
    queries = [WORLD.queries[pair.query] for pair in PAIRS for _ in pair.documents]
    documents = [WORLD.documents[name] for pair in PAIRS for name in pair.documents]
    assert equal(batch, dict(processor(queries, documents)))
    assert len(batch["passage_mask"]) == 9


def test_pairs_of_texts(processor: DocumentProcessor) -> None:
    named = PairCollator(processor, WORLD.queries, WORLD.documents)(PAIRS[:1])
    pair = PAIRS[0]
    texts = [WORLD.documents[name]["text"] for name in pair.documents]
    plain = TrainingPair(WORLD.queries[pair.query], texts[0], texts[1], tuple(texts[2:]))
    assert equal(PairCollator(processor)([plain]), named)


def test_a_document_is_tokenized_once_a_batch(processor: DocumentProcessor) -> None:
    asked = []

    def encode(documents: list) -> list:
        asked.append([document["id"] for document in documents])
        return processor.encode_documents(documents)

    collator = PairCollator(processor, WORLD.queries, WORLD.documents, encode_documents=encode)
    collator([TrainingPair("q0", "q0-d2", "q0-d1"), TrainingPair("q0", "q0-d5", "q0-d1")])
    assert asked == [["q0-d2", "q0-d1", "q0-d5"]]


def test_passages_are_sampled_anew(processor: DocumentProcessor) -> None:
    long = next(name for name, fields in WORLD.documents.items() if len(fields["text"].split()) > 55)
    pair = TrainingPair("q0", long, long, number=1)
    other = TrainingPair("q0", long, long, number=2)
    fixed = PairCollator(processor, WORLD.queries, WORLD.documents)
    fresh = PairCollator(processor, WORLD.queries, WORLD.documents, resample_passages=True)
    assert equal(fixed([pair]), fixed([other]))
    assert equal(fresh([pair]), fresh([pair]))
    drawn = [fresh([TrainingPair("q0", long, long, number=n)])["input_ids"] for n in range(20)]
    different = {tuple(ids.flatten().tolist()) for ids in drawn}
    assert len(different) > 1
    # The first passage and the last are always there.
    assert all(torch.equal(ids[0, 0], drawn[0][0, 0]) and torch.equal(ids[0, -1], drawn[0][0, -1]) for ids in drawn)
    assert processor.seed == 42


def test_single_passages(processor: DocumentProcessor) -> None:
    whole = PairCollator(processor, WORLD.queries, WORLD.documents)
    pair = max((WORLD.sampler()[n] for n in range(40)), key=lambda pair: len(set(passage_counts(whole, pair))))
    counts = passage_counts(whole, pair)
    assert counts[0] != counts[1]
    passages = [row[row.any(dim=1)] for row in whole([pair])["input_ids"]]
    all_of_them = PairCollator(processor, WORLD.queries, WORLD.documents, passage_probability=1.0)([pair])
    assert all_of_them["passage_mask"].shape == (2 * max(counts), 1)
    for position in range(max(counts)):
        for document in (0, 1):
            expected = passages[document][position % counts[document]]
            assert torch.equal(all_of_them["input_ids"][2 * position + document, 0], expected)
    first_alone = PairCollator(processor, WORLD.queries, WORLD.documents, passage_probability=0.0)([pair])
    assert torch.equal(first_alone["input_ids"][:, 0, :5], all_of_them["input_ids"][:2, 0, :5])
    assert len(first_alone["input_ids"]) == 2


def passage_counts(collator: PairCollator, pair: TrainingPair) -> list[int]:
    return collator([pair])["passage_mask"].sum(dim=1).tolist()


def test_single_passages_are_drawn_with_their_probability(processor: DocumentProcessor) -> None:
    sampler = WORLD.sampler()
    numbers = range(400)
    all_of_them = PairCollator(processor, WORLD.queries, WORLD.documents, passage_probability=1.0)
    tenth = PairCollator(processor, WORLD.queries, WORLD.documents, passage_probability=0.1)
    later = sum(len(all_of_them([sampler[n]])["passage_mask"]) // 2 - 1 for n in numbers)
    drawn = sum(len(tenth([sampler[n]])["passage_mask"]) // 2 - 1 for n in numbers)
    assert 0.07 < drawn / later < 0.13
    assert equal(tenth([sampler[5]]), tenth([sampler[5]]))


def test_unknown_names(processor: DocumentProcessor) -> None:
    collator = PairCollator(processor, WORLD.queries, WORLD.documents)
    with pytest.raises(InputError, match="query nobody"):
        collator([TrainingPair("nobody", "q0-d1", "q0-d2")])
    with pytest.raises(InputError, match="no document nothing"):
        collator([TrainingPair("q0", "nothing", "q0-d2")])
