"""In-batch negatives: which documents count, the loss that comes out, and its gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from support.project import ON_BI_ENCODERS
from support.training import Job, arguments, run_job, without_dropout, world
from torch.nn import functional as F

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.retrieval import InputError
from docparade.trainer.data.collator import PairCollator
from docparade.trainer.data.in_batch import list_candidates, number_documents
from docparade.trainer.data.pairs import PairSampler, TrainingPair
from docparade.trainer.data.triples import Triple, Triples
from docparade.trainer.gradient_cache import CachedBackward
from docparade.trainer.trainer import RankingTrainer

WORLD = world()
Rankers = Callable[..., DocumentRanker]
LOSSES = ("listwise_softmax", "hinge", "pairwise_softmax", "cross_entropy")
BOTH = [(MaxPForSequenceClassification, "max"), (ParadeForSequenceClassification, "transformer")]


@pytest.fixture
def bi_ranker(tiny_ranker: Rankers) -> Rankers:
    """A new tiny ranker on a bi-encoder, without dropout."""

    def ranker(family: type[DocumentRanker], aggregation: str, **options: Any) -> DocumentRanker:
        return without_dropout(copy.deepcopy(tiny_ranker(family, aggregation, pooling="mean", **options)))

    return ranker


def trainer_of(model: DocumentRanker, folder: Path, rows: list[Triple] | None = None, **options: Any) -> RankingTrainer:
    args = arguments(folder, in_batch_negatives=True, **options)
    negatives = options.get("negatives", 1)
    if rows is None:
        return RankingTrainer(model, args, WORLD.sampler(negatives=negatives), WORLD.queries, WORLD.documents)
    return RankingTrainer(model, args, Triples(lambda: iter(rows), len(rows), seed=0, negatives=negatives))


# --- Which documents count -------------------------------------------------------------------------------------------


def candidates_of(*pairs: TrainingPair, **contents: str) -> list[list[int]]:
    names = dict.fromkeys(name for pair in pairs for name in pair.documents)
    numbers = number_documents({name: contents.get(name, name) for name in names})
    return [[number for number in row if number >= 0] for row in list_candidates(pairs, numbers).tolist()]


def test_documents_of_other_queries_are_negatives() -> None:
    rows = candidates_of(TrainingPair("q1", "a", "b"), TrainingPair("q2", "c", "d"), TrainingPair("q3", "e", "f"))
    assert rows == [[0, 1, 2, 3, 4, 5], [2, 3, 0, 1, 4, 5], [4, 5, 0, 1, 2, 3]]


def test_relevant_documents_are_no_negatives() -> None:
    # The positive of another pair of the same query, and what was judged relevant.
    first, second = TrainingPair("q1", "a", "b"), TrainingPair("q1", "c", "d")
    assert candidates_of(first, second) == [[0, 1, 3], [2, 3, 1]]
    judged = TrainingPair("q1", "a", "b", relevant=frozenset({"a", "d", "elsewhere"}))
    assert candidates_of(judged, TrainingPair("q2", "c", "d")) == [[0, 1, 2], [2, 3, 0, 1]]


def test_documents_with_the_text_of_a_relevant_one_are_no_negatives() -> None:
    pairs = TrainingPair("q1", "a", "b"), TrainingPair("q2", "copy", "d")
    assert candidates_of(*pairs, a="rain", copy="rain") == [[0, 1, 2], [0, 2, 1]]
    # A negative that two queries share counts once.
    assert candidates_of(TrainingPair("q1", "a", "b"), TrainingPair("q2", "c", "b")) == [[0, 1, 2], [2, 1, 0]]


def test_pairs_know_all_that_was_judged_relevant() -> None:
    run = {"q": {"a": 3.0, "b": 2.0}}
    sampler = PairSampler(run, {"q": {"a": 1, "b": 0, "never found": 2}}, ["q"], pairs_per_epoch=1, seed=0)
    assert sampler[0].relevant == {"a", "never found"}


def test_a_document_is_in_the_batch_once(bi_ranker: Rankers) -> None:
    documents = {**WORLD.documents, "copy": {**WORLD.documents["q0-d2"], "id": "copy"}}
    collator = PairCollator(bi_ranker(*BOTH[0]).require_processor(), WORLD.queries, documents, in_batch_negatives=True)
    batch = collator([TrainingPair("q0", "q0-d2", "q0-d1"), TrainingPair("q1", "copy", "q0-d1")])
    assert batch["candidates"].tolist() == [[0, 1], [0, 1]]
    assert len(batch["input_ids"]) == len(batch["query_input_ids"]) == 2


# --- The loss --------------------------------------------------------------------------------------------------------


def one_passage_rows() -> list[Triple]:
    words = [text.split() for text in (fields["text"] for fields in WORLD.documents.values())]
    texts = [" ".join(found[:6]) for found in words]
    return [Triple(query, texts[8 * n], (texts[8 * n + 1],)) for n, query in enumerate(WORLD.queries.values())][:4]


def test_the_loss_is_a_softmax_over_the_matrix_of_similarities(bi_ranker: Rankers, tmp_path: Path) -> None:
    """Documents of one passage: the vectors come from the encoder itself, text by text."""
    model = bi_ranker(*BOTH[0], window=70, stride=70, max_length=80, max_query_tokens=40)
    rows = one_passage_rows()
    trainer = trainer_of(model, tmp_path, rows, loss="listwise_softmax")
    pairs = [trainer.train_dataset[number] for number in range(4)]
    batch = trainer.data_collator(pairs)
    assert batch["passage_mask"].shape == (8, 1)
    tokenizer = model.require_processor().tokenizer

    def vector(text: str) -> torch.Tensor:
        inputs = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            states = model.encoder(**inputs).last_hidden_state
        return F.normalize(states[0].mean(dim=0), dim=0)

    queries = torch.stack([vector(pair.query) for pair in pairs])
    documents = torch.stack([vector(text) for pair in pairs for text in pair.documents])
    expected = F.cross_entropy(queries @ documents.T, torch.arange(0, 8, 2))
    torch.testing.assert_close(trainer.compute_loss(model, batch), expected, rtol=1e-5, atol=1e-6)


# A loss sees scores alone, whatever gave them: each meets three methods, and each method one loss.
@pytest.mark.parametrize(
    ("family", "aggregation", "loss"),
    [(*family, loss) for family, loss in zip(ON_BI_ENCODERS, LOSSES * 3, strict=True)],
)
def test_the_loss_of_documents_with_several_passages(
    family: type, aggregation: str, loss: str, bi_ranker: Rankers, tmp_path: Path
) -> None:
    """Each query is scored with each document by the model's own `score`, one pair after the other."""
    model = bi_ranker(family, aggregation)
    trainer = trainer_of(model, tmp_path, loss=loss, negatives=2)
    pairs = [trainer.train_dataset[number] for number in range(4)]
    batch = trainer.data_collator(pairs)
    assert int(batch["passage_mask"].sum(dim=1).max()) > 2
    names = list(dict.fromkeys(name for pair in pairs for name in pair.documents))
    values = []
    for pair in pairs:
        others = [name for name in names if name not in pair.documents and not WORLD.qrels[pair.query].get(name)]
        assert others
        documents = [WORLD.documents[name] for name in (*pair.documents, *others)]
        positive, *negatives = model.score([(WORLD.queries[pair.query], document) for document in documents])
        values.append(LOSSES_BY_HAND[loss](torch.tensor(positive), torch.tensor(negatives)))
    found = trainer.compute_loss(model.eval(), batch)
    torch.testing.assert_close(found, torch.stack(values).mean(), rtol=1e-4, atol=1e-5)


LOSSES_BY_HAND: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "listwise_softmax": lambda p, n: torch.cat([p[None], n]).logsumexp(dim=0) - p,
    "hinge": lambda p, n: torch.stack([max(torch.tensor(0.0), 1 - p + each) for each in n]).mean(),
    "pairwise_softmax": lambda p, n: torch.stack([torch.log(1 + (each - p).exp()) for each in n]).mean(),
    "cross_entropy": lambda p, n: -torch.cat([F.logsigmoid(p)[None], F.logsigmoid(-n)]).mean(),
}


# --- Gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "aggregation"), ON_BI_ENCODERS)
def test_cached_gradients_are_the_plain_ones(family: type, aggregation: str, bi_ranker: Rankers) -> None:
    plain, chunked = (bi_ranker(family, aggregation).train().double() for _ in range(2))
    collator = PairCollator(plain.require_processor(), WORLD.queries, WORLD.documents, in_batch_negatives=True)
    batch = collator([WORLD.sampler()[number] for number in range(4)])
    candidates = batch.pop("candidates")

    def loss_of(scores: torch.Tensor) -> torch.Tensor:
        assert scores.dtype == torch.float64
        rows = zip(scores, candidates, strict=True)
        return torch.stack([-row[chosen[chosen >= 0]].log_softmax(dim=0)[0] for row, chosen in rows]).mean()

    loss = loss_of(plain.score_all(**batch))
    loss.backward()
    found = CachedBackward(chunked, 3, torch.Tensor.backward, nullcontext, compare_all=True)(batch, loss_of)
    torch.testing.assert_close(found, loss.detach())
    # The bias of similarities adds the same to all scores.
    expected = {name: p.grad for name, p in plain.named_parameters() if p.grad is not None}
    difference = torch.cat([(p.grad - expected[n]).flatten() for n, p in chunked.named_parameters() if n in expected])
    length = torch.cat([gradient.flatten() for gradient in expected.values()]).norm()
    assert length > 1e-6
    assert difference.norm() <= 1e-12 * length


@pytest.mark.parametrize(("family", "aggregation"), BOTH)
def test_training_in_chunks(family: type, aggregation: str, bi_ranker: Rankers, tmp_path: Path) -> None:
    def losses(**options: Any) -> list[float]:
        trainer = trainer_of(bi_ranker(family, aggregation), tmp_path, max_steps=4, negatives=2, **options)
        trainer.train()
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

    plain = losses()
    assert len(plain) == 4
    assert losses(chunk_passages=3) == pytest.approx(plain, rel=1e-3)


@pytest.mark.slow
def test_negatives_stay_within_a_process(bi_ranker: Rankers, tmp_path: Path) -> None:
    """Two processes with two pairs each are trained like one that accumulates two batches of two pairs."""
    model = bi_ranker(*BOTH[0])
    model.config.encoder_config.hidden_dropout_prob = 0.0
    model.config.encoder_config.attention_probs_dropout_prob = 0.0
    model.save_pretrained(tmp_path / "model")
    options = {"in_batch_negatives": True, "loss": "listwise_softmax", "max_steps": 3}

    def losses(processes: int, **more: Any) -> list[float]:
        folder = tmp_path / str(processes)
        job = Job(str(tmp_path / "model"), str(folder), {**options, "per_device_train_batch_size": 2, **more})
        return list(run_job(job, processes)[0]["losses"].values())

    assert losses(2) == pytest.approx(losses(1, gradient_accumulation_steps=2), rel=1e-4)


# --- What is refused -------------------------------------------------------------------------------------------------


def test_refused(bi_ranker: Rankers, tiny_ranker: Rankers, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^in_batch_negatives .*bi-encoders"):
        trainer_of(copy.deepcopy(tiny_ranker(*BOTH[0])), tmp_path)
    for options, message in (
        ({"loss": "margin_mse"}, "loss='margin_mse'"),
        ({"passage_level": True}, "whole documents"),
        ({"per_device_train_batch_size": 1}, "at least 2 pairs"),
    ):
        with pytest.raises(InputError, match=message):
            arguments(tmp_path, in_batch_negatives=True, **options)
    with pytest.raises(ValueError, match="score_all"):
        tiny_ranker(*BOTH[0]).score_all(torch.ones(1, 1, 3, dtype=torch.long))
