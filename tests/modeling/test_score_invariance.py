"""A score belongs to its query and document alone: batch-mates, padding, order and batch size never change it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from support.project import FAMILIES, WORDS

from docparade import DocumentRanker

# On cross-encoders, and on bi-encoders.
RANKERS = [
    pytest.param(*family, options, id=f"{family[0].config_class.model_type}-{family[1]}{'-bi' if options else ''}")
    for options in ({}, {"pooling": "mean"})
    for family in FAMILIES
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


@pytest.mark.parametrize("family, aggregation, options", RANKERS)
@settings(max_examples=8, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    torch.testing.assert_close(dense, alone, **TOLERANCE)


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
