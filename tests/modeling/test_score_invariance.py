"""A score belongs to its query and document alone: batch-mates, padding, order and batch size never change it."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from support.marks import others_slow
from support.project import FAMILIES, LENGTH_DEPENDENT_ENCODERS, ON_BI_ENCODERS, WORDS
from support.scores import model_scores
from transformers import AutoConfig

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification

# On cross-encoders, on bi-encoders, and on an encoder-decoder.
RANKERS = [
    pytest.param(*family, options, id=f"{family[0].config_class.model_type}-{family[1]}{'-bi' if options else ''}")
    for families, options in ((FAMILIES, {}), (ON_BI_ENCODERS, {"pooling": "mean"}))
    for family in families
] + [
    pytest.param(MaxPForSequenceClassification, "avg", {"architecture": "t5"}, id="maxp-avg-t5"),
]
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}

# Ragged documents, from none to more words than the passages that are kept can hold.
documents = st.lists(
    st.tuples(st.integers(0, 90), st.integers(0, 10_000)).map(
        lambda drawn: " ".join(random.Random(drawn[1]).choices(WORDS, k=drawn[0]))
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("family, aggregation, options", others_slow(RANKERS, fast=range(1, len(RANKERS), 6)))
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=documents, seed=st.integers(0, 99), batch_tokens=st.sampled_from([1, 30, 200, 5000]))
def test_ranking_gives_each_document_the_score_it_has_alone(
    family: type[DocumentRanker],
    aggregation: str,
    options: dict[str, str],
    tiny_ranker: Callable[..., DocumentRanker],
    texts: list[str],
    seed: int,
    batch_tokens: int,
) -> None:
    model = tiny_ranker(family, aggregation, **options)
    query = "grant of license"
    alone = torch.tensor([model.score([(query, text)])[0] for text in texts])
    order = random.Random(seed).sample(range(len(texts)), len(texts))
    mixed = model.rank(query, [texts[i] for i in order], batch_tokens=batch_tokens)
    together = torch.empty(len(texts))
    for ranked in mixed:
        together[order[ranked.index]] = ranked.score
    torch.testing.assert_close(together, alone, **TOLERANCE)
    # The plain path through the processor and `forward`, which Trainer takes.
    with torch.no_grad():
        dense = model(**model.processor([query] * len(texts), texts)).logits[:, 0]
    read = torch.tensor(model_scores(model, [(query, text) for text in texts]))
    torch.testing.assert_close(dense, read, **TOLERANCE)


@pytest.mark.parametrize("family, aggregation, options", RANKERS)
def test_more_padding_changes_nothing(
    family: type[DocumentRanker],
    aggregation: str,
    options: dict[str, str],
    tiny_ranker: Callable[..., DocumentRanker],
    random_text: Callable,
) -> None:
    model = tiny_ranker(family, aggregation, **options)
    batch = model.processor(["the work"] * 3, [random_text(n, seed=n) for n in (0, 20, 60)])
    padded = {
        name: torch.nn.functional.pad(values, (0, 9, 0, 3)) for name, values in batch.items() if values.dim() == 3
    }
    # What stands in the padding must not matter either.
    padded["input_ids"][:, -3:] = 7
    padded |= {name: torch.nn.functional.pad(values, (0, 4)) for name, values in batch.items() if "query" in name}
    padded["passage_mask"] = torch.nn.functional.pad(batch["passage_mask"], (0, 3))
    with torch.no_grad():
        plain, more = model(**batch), model(**padded)
    torch.testing.assert_close(more.logits, plain.logits, **TOLERANCE)
    kept = plain.passage_scores.size(1)
    torch.testing.assert_close(more.passage_scores[:, :kept], plain.passage_scores, **TOLERANCE)
    torch.testing.assert_close(more.passage_weights[:, :kept], plain.passage_weights, **TOLERANCE)
    assert not more.passage_scores[:, kept:].any()


@pytest.mark.parametrize("family, aggregation, options", RANKERS)
def test_passages_may_stand_anywhere_in_the_batch(
    family: type[DocumentRanker],
    aggregation: str,
    options: dict[str, str],
    tiny_ranker: Callable[..., DocumentRanker],
    random_text: Callable,
) -> None:
    """Holes between real passages are closed before the aggregator sees them."""
    model = tiny_ranker(family, aggregation, **options)
    batch = model.processor(["the work"], [random_text(30)])
    count = batch["passage_mask"].size(1)
    places = torch.arange(count) * 2 + 1
    spread = {
        name: values.new_zeros(1, 2 * count + 1, *values.shape[2:]).index_copy(1, places, values)
        for name, values in batch.items()
        if "query" not in name
    } | {name: values for name, values in batch.items() if "query" in name}
    with torch.no_grad():
        plain, holes = model(**batch), model(**spread)
    torch.testing.assert_close(holes.logits, plain.logits, **TOLERANCE)
    torch.testing.assert_close(holes.passage_weights[:, places], plain.passage_weights, **TOLERANCE)


@pytest.mark.parametrize("architecture", ["bert", "deberta-v2"])
def test_real_tokens_alone_reach_the_encoder(
    architecture: str, tiny_ranker: Callable[..., DocumentRanker], random_text: Callable
) -> None:
    """No padding passage for any encoder, and not one padding token for those that read packed inputs."""
    model = tiny_ranker(*FAMILIES[0], architecture=architecture)
    texts = [random_text(n, seed=n) for n in (0, 3, 25, 80)]
    batch = model.processor(["the work"] * 4, texts)
    assert batch["input_ids"].shape[:2] == (4, 5)
    real = int(batch["attention_mask"].sum())
    in_real_passages = int(batch["passage_mask"].sum()) * batch["input_ids"].size(2)
    assert real < in_real_passages < batch["input_ids"].numel()
    seen: list[torch.Tensor] = []
    hook = model.encoder.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(kwargs["input_ids"]), with_kwargs=True
    )
    try:
        with torch.no_grad():
            model(**batch)
        tokens = sum(ids.numel() for ids in seen)
        assert tokens == real if architecture == "bert" else real <= tokens <= in_real_passages
        seen.clear()
        model.rank("the work", texts, batch_tokens=1)
        assert sum(ids.numel() for ids in seen) == real
    finally:
        hook.remove()


def test_random_state_changes_nothing(tiny_ranker: Callable[..., DocumentRanker], random_text: Callable) -> None:
    """The sample of middle passages depends only on the document, not on global random state."""
    model = tiny_ranker(*FAMILIES[1])
    text = random_text(400)
    assert model.rank("the work", [text])[0].unread > 0
    scores = set()
    for seed in range(5):
        random.seed(seed)
        torch.manual_seed(seed)
        scores.add(model.score([("the work", text)])[0])
    assert len(scores) == 1


LONG_PASSAGES = {"window": 60, "stride": 60, "max_length": 80}


@pytest.mark.parametrize(
    "architecture, family",
    [
        (architecture, (MaxPForSequenceClassification, ParadeForSequenceClassification)[number % 2])
        for number, architecture in enumerate(LENGTH_DEPENDENT_ENCODERS)
    ],
)
def test_no_encoder_gives_a_document_another_score_after_or_beside_others(
    architecture: str,
    family: type[DocumentRanker],
    tiny_ranker: Callable[..., DocumentRanker],
    random_text: Callable,
) -> None:
    model = tiny_ranker(family, "max", architecture, **LONG_PASSAGES)
    texts = [random_text(words, seed=words) for words in (60, 2, 25, 50, 0, 57)]
    pairs = [("the work", text) for text in texts]
    alone = [model.score([pair])[0] for pair in pairs]
    assert [model.score([pair])[0] for pair in pairs] == alone
    assert model.score(pairs) == pytest.approx(alone, abs=1e-5)
    with torch.no_grad():
        dense = model(**model.processor(["the work"] * len(texts), texts)).logits[:, 0]
    assert dense.tolist() == pytest.approx(model_scores(model, pairs), abs=1e-5)


@pytest.fixture
def big_bird(encoder_folder: Callable[..., Path]) -> DocumentRanker:
    torch.manual_seed(0)
    model = MaxPForSequenceClassification.from_encoder(encoder_folder("big_bird"), "first", **LONG_PASSAGES)
    model.config.encoder_config.attention_probs_dropout_prob = 0.0
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def test_big_bird_reads_each_input_as_transformers_does(big_bird: DocumentRanker, random_text: Callable) -> None:
    """Full attention for a short input, sparse attention for a long one, as a newly loaded encoder has them."""
    for words in (2, 60):
        text = random_text(words)
        batch = big_bird.processor(["the work"], [text])
        inputs = {name: values[0, :1] for name, values in batch.items() if name != "passage_mask"}
        new = copy.deepcopy(big_bird.encoder)
        with torch.no_grad():
            expected = new(**inputs).logits.item()
        assert new.base_model.attention_type == ("original_full" if words == 2 else "block_sparse")
        assert big_bird.score([("the work", text)]) == pytest.approx([expected], abs=1e-6)
        assert big_bird.encoder.base_model.attention_type == "block_sparse"


def test_a_big_bird_that_was_switched_reads_long_inputs_sparsely(
    big_bird: DocumentRanker, random_text: Callable
) -> None:
    pairs = [("the work", random_text(words)) for words in (60, 2)]
    expected = big_bird.score(pairs)
    big_bird.encoder.base_model.set_attention_type("original_full")
    assert big_bird.score(pairs) == pytest.approx(expected, abs=1e-6)


def test_gradients_of_big_bird_are_the_same_with_checkpoints(big_bird: DocumentRanker, random_text: Callable) -> None:
    """Layers are computed again with the attention that they had, also where short and long inputs are in a batch."""
    batch = big_bird.processor(["the work"] * 2, [random_text(60), random_text(2)])
    big_bird.train()

    def gradient() -> torch.Tensor:
        big_bird.zero_grad()
        big_bird(**batch).logits.sum().backward()
        return big_bird.get_input_embeddings().weight.grad.clone()

    plain = gradient()
    big_bird.gradient_checkpointing_enable({"use_reentrant": False})
    torch.testing.assert_close(gradient(), plain)
    assert plain.any()


@pytest.mark.parametrize("model_type", ["reformer", "bigbird_pegasus"])
def test_an_encoder_whose_scores_cannot_be_repeated_is_refused(model_type: str) -> None:
    with pytest.raises(ValueError, match=f"type {model_type}, "):
        ParadeForSequenceClassification.config_class(AutoConfig.for_model(model_type))
