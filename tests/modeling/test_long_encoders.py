"""Encoders of long texts: a long passage at once, Longformer's global attention, positions that depend on length."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from support.project import SIZES, run_elsewhere
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    LongformerForSequenceClassification,
    LongformerModel,
    PreTrainedTokenizerBase,
)

from docparade import (
    CedrForSequenceClassification,
    DocumentProcessor,
    DocumentRanker,
    MaxPForSequenceClassification,
    ParadeForSequenceClassification,
)
from docparade.benchmarks.systems import padded_scores
from docparade.modeling.encoders import position_limit
from docparade.trainer.gradient_cache import CachedBackward

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
ONE_PASSAGE: dict[str, Any] = {"preset": "ghasemi2021", "max_length": None}
QUERIES = ["grant", "the grant of license to the work", "patent claims against contributors"]


@pytest.fixture
def pairs(random_text: Callable) -> list[tuple[str, str]]:
    """Queries and documents of different lengths: up to all positions, and beyond."""
    return [(query, random_text(words, seed=words)) for query in QUERIES for words in (1, 3, 12, 90)]


def read_alone(
    classifier: LongformerForSequenceClassification | LongformerModel,
    tokenizer: PreTrainedTokenizerBase,
    pair: tuple[str, str],
    length: int,
    query_is_global: bool = True,
) -> Any:
    """transformers' own model on the tokenizer's own encoding of the pair, with an explicit mask."""
    inputs = tokenizer(*pair, truncation="only_second", max_length=length, return_tensors="pt")
    attends = torch.zeros_like(inputs["input_ids"])
    query = len(tokenizer(pair[0], add_special_tokens=False)["input_ids"]) if query_is_global else 0
    attends[:, : 1 + query] = 1
    with torch.no_grad():
        return classifier.eval()(**inputs, global_attention_mask=attends)


def through_forward(model: DocumentRanker, pairs: list[tuple[str, str]]) -> torch.Tensor:
    with torch.no_grad():
        return model(**model.require_processor()(*zip(*pairs, strict=True))).logits[:, 0]


def test_longformer_attends_to_the_query_everywhere(
    encoder_folder: Callable[..., Path], tokenizers: dict[str, PreTrainedTokenizerBase], pairs: list[tuple[str, str]]
) -> None:
    """In MaxP with a cross-encoder's head or a new one: the scores of transformers' classifier with our mask."""
    tokenizer = tokenizers["byte_bpe"]
    torch.manual_seed(0)
    models = [
        MaxPForSequenceClassification.from_cross_encoder(encoder_folder("longformer", 2), "first", **ONE_PASSAGE),
        MaxPForSequenceClassification.from_encoder(encoder_folder("longformer"), "first", **ONE_PASSAGE),
    ]
    for model in models:
        classifier = copy.deepcopy(model.encoder)
        length = model.require_processor().input_length
        expected = torch.stack([read_alone(classifier, tokenizer, pair, length).logits[0, -1] for pair in pairs])
        torch.testing.assert_close(torch.tensor(model.score(pairs)), expected, **CLOSE)
        torch.testing.assert_close(torch.tensor([model.score([pair])[0] for pair in pairs]), expected, **CLOSE)
        torch.testing.assert_close(through_forward(model, pairs), expected, **CLOSE)
        dense = padded_scores(model, QUERIES[0], [text for query, text in pairs if query == QUERIES[0]])
        torch.testing.assert_close(torch.tensor(dense), expected[: len(dense)], **CLOSE)
        first_only = [read_alone(classifier, tokenizer, pair, length, False).logits[0, -1] for pair in pairs]
        assert (torch.stack(first_only) - expected).abs().max() > 1e-3


def test_parade_reads_longformer_passages_with_the_same_attention(
    encoder_folder: Callable[..., Path], tokenizers: dict[str, PreTrainedTokenizerBase], pairs: list[tuple[str, str]]
) -> None:
    torch.manual_seed(0)
    model = ParadeForSequenceClassification.from_encoder(encoder_folder("longformer"), "max", **ONE_PASSAGE)
    encoder = LongformerModel.from_pretrained(encoder_folder("longformer"))
    vectors = [read_alone(encoder, tokenizers["byte_bpe"], pair, 94).last_hidden_state[0, 0] for pair in pairs]
    head = model.aggregator.score
    expected = torch.stack(vectors) @ head.weight[0] + head.bias
    torch.testing.assert_close(torch.tensor(model.score(pairs)), expected.detach(), **CLOSE)
    torch.testing.assert_close(through_forward(model, pairs), expected.detach(), **CLOSE)


@pytest.mark.parametrize("aggregation", ["knrm", "max"])
def test_kernels_read_longformer_passages_with_the_same_attention(
    aggregation: str,
    encoder_folder: Callable[..., Path],
    tokenizers: dict[str, PreTrainedTokenizerBase],
    pairs: list[tuple[str, str]],
) -> None:
    torch.manual_seed(0)
    model = CedrForSequenceClassification.from_encoder(encoder_folder("longformer"), aggregation, **ONE_PASSAGE)
    given: list[torch.Tensor] = []
    model.encoder.register_forward_pre_hook(
        lambda _, arguments, named: given.append(named["global_attention_mask"]), with_kwargs=True
    )
    for query, text in pairs:
        model.score([(query, text)])
        tokens = 1 + len(tokenizers["byte_bpe"](query, add_special_tokens=False)["input_ids"])
        assert given.pop()[0].nonzero()[:, 0].tolist() == list(range(tokens))
    together = through_forward(model, pairs)
    assert together.tolist() == pytest.approx([model.score([pair])[0] for pair in pairs], abs=1e-5)


def test_kernels_read_batch_after_batch_with_bigbird(
    encoder_folder: Callable[..., Path], pairs: list[tuple[str, str]]
) -> None:
    """A copy of the encoder for short inputs must not leave its hooks in the encoder, which would give more states."""
    torch.manual_seed(0)
    model = CedrForSequenceClassification.from_encoder(encoder_folder("big_bird"), "max", **ONE_PASSAGE)
    first = model.score(pairs)
    assert model.score(pairs) == first
    assert [model.score([pair])[0] for pair in pairs] == pytest.approx(first, abs=1e-5)


def test_more_padding_does_not_change_longformer(
    encoder_folder: Callable[..., Path], pairs: list[tuple[str, str]]
) -> None:
    """Neither to the attention window (8 here) nor beyond it."""
    model = MaxPForSequenceClassification.from_cross_encoder(encoder_folder("longformer", 1), "first", **ONE_PASSAGE)
    short = [pair for pair in pairs if len(pair[1].split()) < 90]
    batch = model.require_processor()(*zip(*short, strict=True))
    inputs = {name: values[:, 0] for name, values in batch.items() if name != "passage_mask"}
    with torch.no_grad():
        plain = model.encode(**inputs)
        for more in (1, 5, 8, 13):
            longer = {name: torch.nn.functional.pad(values, (0, more)) for name, values in inputs.items()}
            longer["input_ids"][:, -more:] = 1  # the tokenizer's padding, as Longformer's positions need it
            torch.testing.assert_close(model.encode(**longer), plain, **CLOSE)


def test_cached_gradients_of_longformer_are_the_plain_ones(
    encoder_folder: Callable[..., Path], pairs: list[tuple[str, str]]
) -> None:
    folder = encoder_folder("longformer", 1)
    model = MaxPForSequenceClassification.from_cross_encoder(folder, "max", window=20, stride=20, max_length=90)
    batch = model.require_processor()(*zip(*pairs, strict=True))
    model(**batch).logits.square().mean().backward()
    plain = {name: weights.grad for name, weights in model.named_parameters() if weights.grad is not None}
    assert all(weights.any() for name, weights in plain.items() if "value_global" in name)
    model.zero_grad(set_to_none=True)
    CachedBackward(model, 5, torch.Tensor.backward, nullcontext)(batch, lambda scores: scores.square().mean())
    for name, weights in model.named_parameters():
        torch.testing.assert_close(weights.grad, plain.get(name), rtol=1e-4, atol=1e-4)


REMOTE = """
import json, sys
from transformers import AutoModel
pairs, folder = json.load(sys.stdin)
model = AutoModel.from_pretrained(folder, trust_remote_code=True)
assert "docparade" not in sys.modules
print(json.dumps(model.score(pairs)))
"""


@pytest.mark.slow
def test_a_saved_longformer_scores_alike_where_docparade_is_not_installed(
    encoder_folder: Callable[..., Path], pairs: list[tuple[str, str]], tmp_path: Path
) -> None:
    model = MaxPForSequenceClassification.from_cross_encoder(encoder_folder("longformer", 1), "first", **ONE_PASSAGE)
    model.save_pretrained(tmp_path / "saved")
    loaded = AutoModel.from_pretrained(tmp_path / "saved")
    assert loaded.processor.max_length == 94
    expected = model.score(pairs)
    assert loaded.score(pairs) == pytest.approx(expected, abs=1e-5)
    (tmp_path / "cache").mkdir()
    remote = json.loads(run_elsewhere(REMOTE, [pairs, str(tmp_path / "saved")], tmp_path / "cache"))
    assert remote == pytest.approx(expected, abs=1e-5)


def test_a_separator_that_longformer_does_not_know_is_refused(
    encoder_folder: Callable[..., Path], tokenizers: dict[str, PreTrainedTokenizerBase]
) -> None:
    model = MaxPForSequenceClassification.from_cross_encoder(encoder_folder("longformer", 1), "first", **ONE_PASSAGE)
    with pytest.raises(ValueError, match=r"\[3\], .*sep_token_id is 2"):
        model.processor = DocumentProcessor(tokenizers["wordpiece"], max_length=90)


@pytest.mark.parametrize(("architecture", "positions"), [("longformer", 94), ("big_bird", 96), ("modernbert", 96)])
def test_a_passage_can_be_as_long_as_the_encoder_allows(
    architecture: str, positions: int, encoder_folder: Callable[..., Path], random_text: Callable, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = MaxPForSequenceClassification.from_encoder(encoder_folder(architecture), "first", **ONE_PASSAGE)
    assert position_limit(model.encoder) == model.require_processor().max_length == positions
    (result,) = model.rank("grant", [random_text(200)])
    assert result.unread > 0
    batch = model.require_processor()(["grant"], [random_text(200)])
    assert batch["input_ids"].shape == (1, 1, positions)
    model.save_pretrained(tmp_path)
    assert DocumentProcessor.from_pretrained(tmp_path).max_length == positions


def test_without_an_encoder_no_length_is_known(
    tokenizers: dict[str, PreTrainedTokenizerBase], encoder_folder: Callable[..., Path]
) -> None:
    processor = DocumentProcessor(tokenizers["wordpiece"], max_length=None)
    with pytest.raises(ValueError, match=r"max_length is None.*set model\.processor"):
        processor(["grant"], ["the work"])
    with pytest.raises(ValueError, match=r"XLNetModel .*max_length"):
        ParadeForSequenceClassification.from_encoder(encoder_folder("xlnet"), "max", max_length=None)


def test_big_bird_reads_a_long_document_alike_after_a_short_one(
    encoder_folder: Callable[..., Path], random_text: Callable
) -> None:
    """With sparse attention: full attention gives another score."""
    short, long = ("grant", random_text(2)), ("grant", random_text(60))
    model = MaxPForSequenceClassification.from_cross_encoder(encoder_folder("big_bird", 1), "first", **ONE_PASSAGE)
    after = [model.score([pair])[0] for pair in (short, long)]
    new = MaxPForSequenceClassification.from_cross_encoder(encoder_folder("big_bird", 1), "first", **ONE_PASSAGE)
    alone = new.score([long])[0]
    assert after[1] == pytest.approx(alone, abs=1e-6)
    assert model.score([short, long]) == pytest.approx(after, abs=1e-6)
    full = AutoModelForSequenceClassification.from_pretrained(
        encoder_folder("big_bird", 1), attention_type="original_full"
    )
    fully = MaxPForSequenceClassification(copy.deepcopy(model.config), encoder=full.eval())
    fully.processor = model.processor
    assert fully.score([short])[0] == pytest.approx(after[0], abs=1e-6)
    assert abs(fully.score([long])[0] - alone) > 1e-3


LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "original_max_position_embeddings": 24,
    "short_factor": [1.0] * 4,
    "long_factor": [3.0] * 4,
}
DYNAMIC_ROPE = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0}
BY_LAYER = ("full_attention", "sliding_attention")


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("modernbert", {"local_attention": 8, "global_attn_every_n_layers": 2}),
        ("modernbert", {"rope_parameters": dict.fromkeys(BY_LAYER, LONG_ROPE)}),
        ("modernbert", {"rope_parameters": dict.fromkeys(BY_LAYER, DYNAMIC_ROPE), "max_position_embeddings": 24}),
        ("eurobert", {"rope_parameters": LONG_ROPE}),
        ("eurobert", {"rope_parameters": DYNAMIC_ROPE, "max_position_embeddings": 24}),
    ],
    ids=["sliding window", "longrope by layer", "dynamic by layer", "longrope", "dynamic"],
)
def test_rotary_positions_depend_on_the_input_alone(architecture: str, options: dict[str, Any]) -> None:
    """Each input is read as by a new encoder that reads nothing else."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        architecture, vocab_size=60, pad_token_id=0, num_labels=1, initializer_range=0.3, **{**SIZES, **options}
    )
    encoder = AutoModelForSequenceClassification.from_config(config).eval()
    new = copy.deepcopy(encoder)
    model = MaxPForSequenceClassification(MaxPForSequenceClassification.config_class(config), encoder=encoder).eval()
    lengths = (10, 30, 50, 24, 20, 40)
    ids = torch.randint(1, 60, (len(lengths), 50))
    mask = (torch.arange(50) < torch.tensor(lengths)[:, None]).long()
    with torch.no_grad():
        alone = [
            copy.deepcopy(new)(input_ids=row[None, :length], attention_mask=torch.ones(1, length).long()).logits[0, 0]
            for row, length in zip(ids, lengths, strict=True)
        ]
        together = model.encode(ids, mask)
        one_by_one = [
            model.encode(row[None, :length], real[None, :length])[0]
            for row, real, length in zip(ids, mask, lengths, strict=True)
        ]
    torch.testing.assert_close(together, torch.stack(alone), **CLOSE)
    torch.testing.assert_close(torch.stack(one_by_one), torch.stack(alone), **CLOSE)
