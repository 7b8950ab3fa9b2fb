"""Each aggregation against its formula, written again here, one document at a time, with plain torch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertLayer

from docparade import MaxPConfig, ParadeConfig
from docparade.modeling import SCORE_AGGREGATORS, VECTOR_AGGREGATORS, Aggregator
from docparade.modeling.aggregators import TransformerVector

WIDTH = 16
MAX_PASSAGES = 16
COUNTS = [1, 2, 3, 4, 5, 7, 8, 11, 16]


def encoder_config(labels: int = 1) -> BertConfig:
    return BertConfig(
        hidden_size=WIDTH, num_attention_heads=2, intermediate_size=24, num_hidden_layers=1, num_labels=labels
    )


def make(family: str, aggregation: str, **options: object) -> Aggregator:
    torch.manual_seed(1)
    if family == "score":
        config = MaxPConfig(encoder_config(), aggregation=aggregation, **options)
        aggregator = SCORE_AGGREGATORS[aggregation](config)
    else:
        config = ParadeConfig(encoder_config(), aggregation=aggregation, max_passages=MAX_PASSAGES, **options)
        aggregator = VECTOR_AGGREGATORS[aggregation](config)
    for parameter in aggregator.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return aggregator.eval()


def ragged(width: int | None, counts: list[int]) -> tuple[list[Tensor], Tensor, Tensor]:
    """Documents of different length, and the same ones padded with what must not matter."""
    generator = torch.Generator().manual_seed(2)
    shape = () if width is None else (width,)
    documents = [torch.randn(count, *shape, generator=generator) for count in counts]
    padded = torch.full((len(counts), max(counts), *shape), math.inf)
    mask = torch.zeros(len(counts), max(counts), dtype=torch.bool)
    for row, document in enumerate(documents):
        padded[row, : len(document)] = document
        mask[row, : len(document)] = True
    return documents, padded, mask


def score_by_formula(name: str, scores: Tensor, aggregator: Aggregator) -> Tensor:
    n = len(scores)
    best = sorted(scores.tolist(), reverse=True)
    if name == "first":
        return scores[0]
    if name == "max":
        return torch.tensor(best[0])
    if name == "sum":
        return torch.tensor(math.fsum(best))
    if name == "avg":
        return torch.tensor(math.fsum(best) / n)
    if name == "kmax_avg":
        kept = best[:4]
        return torch.tensor(math.fsum(kept) / len(kept))
    three = (best + [best[-1]] * 3)[:3]
    return torch.tensor(sum(s * w for s, w in zip(three, aggregator.rank_weights.tolist(), strict=True)))


@pytest.mark.parametrize("name", SCORE_AGGREGATORS)
def test_scores_equal_their_formula(name: str) -> None:
    aggregator = make("score", name)
    documents, padded, mask = ragged(None, [*COUNTS, 23])
    got = aggregator(padded, mask)
    for row, document in enumerate(documents):
        torch.testing.assert_close(got.score[row], score_by_formula(name, document, aggregator))
    # What a weight is, is stated; for the methods that are weighted sums, it gives the score back.
    weighted = (got.weights * padded.masked_fill(~mask, 0)).sum(dim=1)
    torch.testing.assert_close(weighted, got.score)
    assert not got.weights[~mask].any()


def head(aggregator: Aggregator, state: Tensor) -> Tensor:
    return state @ aggregator.score.weight[0] + aggregator.score.bias[0]


def cnn_by_formula(aggregator: Aggregator, document: Tensor) -> Tensor:
    rows = list(document)
    total = torch.zeros(())
    for layer in aggregator.layers:
        if len(rows) % 2:
            rows.append(torch.zeros(WIDTH))
        left, right = layer.weight[:, :, 0], layer.weight[:, :, 1]
        pairs = zip(rows[::2], rows[1::2], strict=True)
        rows = [torch.relu(left @ a + right @ b + layer.bias) for a, b in pairs]
        for row in rows:
            hidden = torch.relu(aggregator.hidden.weight @ row + aggregator.hidden.bias)
            total = total + aggregator.score.weight[0] @ hidden + aggregator.score.bias[0]
    return total


def transformer_by_formula(aggregator: Aggregator, document: Tensor) -> Tensor:
    """Equations 5 and 6 of the paper: self-attention and feed-forward, each followed by LayerNorm of the sum."""
    x = torch.cat([aggregator.cls_embedding[None], document]) + aggregator.positions.weight[: len(document) + 1]
    for layer in aggregator.layers:
        own = layer.attention.self
        q, k, v = (F.linear(x, part.weight, part.bias) for part in (own.query, own.key, own.value))
        heads = []
        for h in range(2):
            columns = slice(h * WIDTH // 2, (h + 1) * WIDTH // 2)
            attention = torch.softmax(q[:, columns] @ k[:, columns].T / math.sqrt(WIDTH // 2), dim=-1)
            heads.append(attention @ v[:, columns])
        out = layer.attention.output
        x = norm(x + F.linear(torch.cat(heads, dim=1), out.dense.weight, out.dense.bias), out.LayerNorm)
        inner = F.gelu(F.linear(x, layer.intermediate.dense.weight, layer.intermediate.dense.bias))
        x = norm(x + F.linear(inner, layer.output.dense.weight, layer.output.dense.bias), layer.output.LayerNorm)
    return x[0]


def norm(x: Tensor, layer: torch.nn.LayerNorm) -> Tensor:
    centered = x - x.mean(dim=-1, keepdim=True)
    return centered / torch.sqrt(centered.square().mean(dim=-1, keepdim=True) + layer.eps) * layer.weight + layer.bias


def vector_by_formula(name: str, document: Tensor, aggregator: Aggregator) -> Tensor:
    if name == "max":
        return head(aggregator, torch.stack([column.max() for column in document.T]))
    if name == "sum":
        return head(aggregator, sum(document))
    if name == "avg":
        return head(aggregator, sum(document) / len(document))
    if name == "attn":
        logits = document @ aggregator.attention.weight[0]
        weights = torch.exp(logits) / torch.exp(logits).sum()
        return head(aggregator, weights @ document)
    if name == "cnn":
        return cnn_by_formula(aggregator, document)
    return head(aggregator, transformer_by_formula(aggregator, document))


@pytest.mark.parametrize("name", VECTOR_AGGREGATORS)
def test_vectors_equal_their_formula(name: str) -> None:
    aggregator = make("vector", name)
    # The transformer has positions for MAX_PASSAGES and no more; the others take any number.
    counts = COUNTS if name == "transformer" else [*COUNTS, 23]
    documents, padded, mask = ragged(WIDTH, counts)
    with torch.no_grad():
        got = aggregator(padded, mask)
        expected = torch.stack([vector_by_formula(name, document, aggregator) for document in documents])
    torch.testing.assert_close(got.score, expected, rtol=1e-5, atol=1e-5)
    assert not got.weights[~mask].any()


def test_transformer_equals_two_bert_layers() -> None:
    aggregator = make("vector", "transformer")
    assert isinstance(aggregator, TransformerVector)
    passages = torch.randn(3, 7, WIDTH)
    config = BertConfig(hidden_size=WIDTH, num_attention_heads=2, intermediate_size=24)
    config._attn_implementation = "sdpa"
    layers = [BertLayer(config).eval() for _ in range(2)]
    hidden = torch.cat([aggregator.cls_embedding.expand(3, 1, WIDTH), passages], dim=1)
    hidden = hidden + aggregator.positions.weight[:8]
    with torch.no_grad():
        for layer, ours in zip(layers, aggregator.layers, strict=True):
            layer.load_state_dict(ours.state_dict())
            hidden = layer(hidden)
        state = aggregator(passages, torch.ones(3, 7, dtype=torch.bool)).state
    torch.testing.assert_close(state, hidden[:, 0], rtol=1e-5, atol=1e-5)


def test_transformer_without_positions_does_not_see_the_order() -> None:
    passages, mask = torch.randn(1, 6, WIDTH), torch.ones(1, 6, dtype=torch.bool)
    mixed = passages[:, torch.tensor([3, 1, 5, 0, 4, 2])]
    with torch.no_grad():
        blind = make("vector", "transformer", passage_positions=False)
        torch.testing.assert_close(blind(passages, mask).score, blind(mixed, mask).score)
        seeing = make("vector", "transformer")
        assert (seeing(passages, mask).score - seeing(mixed, mask).score).abs() > 1e-3


def test_transformer_activation_is_the_encoders_or_the_one_asked_for() -> None:
    assert (
        make("vector", "transformer").layers[0].intermediate.intermediate_act_fn.__class__.__name__ == "GELUActivation"
    )
    relu = make("vector", "transformer", aggregator_activation="relu").layers[0].intermediate.intermediate_act_fn
    assert isinstance(relu, torch.nn.ReLU)


def test_more_passages_than_positions_is_an_error() -> None:
    aggregator = make("vector", "transformer")
    with pytest.raises(ValueError, match=r"17 passages.*16"):
        aggregator(torch.randn(1, 17, WIDTH), torch.ones(1, 17, dtype=torch.bool))


@pytest.mark.parametrize("limit, depth", [(1, 1), (2, 1), (3, 2), (4, 2), (16, 4), (17, 5), (64, 6)])
def test_cnn_has_layers_down_to_one(limit: int, depth: int) -> None:
    config = ParadeConfig(encoder_config(), aggregation="cnn", max_passages=limit)
    assert len(VECTOR_AGGREGATORS["cnn"](config).layers) == depth


def test_cnn_weights_sum_to_the_score() -> None:
    _, padded, mask = ragged(WIDTH, COUNTS)
    with torch.no_grad():
        got = make("vector", "cnn")(padded, mask)
    torch.testing.assert_close(got.weights.sum(dim=1), got.score)


def test_weights_of_max_and_attention_are_shares() -> None:
    _, padded, mask = ragged(WIDTH, COUNTS)
    with torch.no_grad():
        for name in ("max", "attn"):
            weights = make("vector", name)(padded, mask).weights
            torch.testing.assert_close(weights.sum(dim=1), torch.ones(len(COUNTS)))


def test_birch_starts_as_the_mean_of_the_best() -> None:
    aggregator = SCORE_AGGREGATORS["birch"](MaxPConfig(encoder_config(), aggregation="birch"))
    scores = torch.tensor([[1.0, 5.0, 3.0, -9.0]])
    torch.testing.assert_close(aggregator(scores, torch.ones_like(scores).bool()).score, torch.tensor([3.0]))


@pytest.mark.parametrize(
    "family, name", [("score", n) for n in SCORE_AGGREGATORS] + [("vector", n) for n in VECTOR_AGGREGATORS]
)
def test_every_method_says_what_its_weight_is(family: str, name: str) -> None:
    assert make(family, name).weight_means != Aggregator.weight_means
