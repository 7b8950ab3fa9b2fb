"""Packed inputs give what padded ones give: features, gradients, and no look across the borders."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from support.packing import flash_by_formula
from support.project import ENCODERS, LICENSE, SIZES
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoConfig, AutoModelForSequenceClassification

from docparade import (
    DocumentRanker,
    MaxPForSequenceClassification,
    ParadeConfig,
    ParadeForSequenceClassification,
)
from docparade.modeling import engine_packing as packing
from docparade.trainer import take_layers

QUERY = "grant of patent license"
DOCUMENTS = [LICENSE[:900], "", LICENSE[2000:2200], LICENSE[5000:5100]]
PACKABLE = [name for name in ENCODERS if name in packing.PACKABLE]
BOTH = [(MaxPForSequenceClassification, "sum"), (ParadeForSequenceClassification, "attn")]


@pytest.fixture
def padded(monkeypatch: pytest.MonkeyPatch) -> Callable[[DocumentRanker], None]:
    """Make a model read padded inputs."""
    return lambda model: monkeypatch.setattr(model.encoder.config, "_attn_implementation_internal", "sdpa")


def step(model: DocumentRanker) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Scores and gradients of one batch."""
    model.zero_grad()
    output = model(**model.processor([QUERY] * 4, DOCUMENTS), labels=torch.tensor([1.0, 0.0, 1.0, 0.0]))
    output.loss.backward()
    return output.logits.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("architecture", PACKABLE)
@pytest.mark.parametrize("family, aggregation", BOTH)
def test_packed_equals_padded(
    architecture: str,
    family: type[DocumentRanker],
    aggregation: str,
    tiny_ranker: Callable[..., DocumentRanker],
    padded: Callable,
) -> None:
    model = copy.deepcopy(tiny_ranker(family, aggregation, architecture))
    # Fresh biases are zero, and would hide one that is left out.
    for name, parameter in model.encoder.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)
    assert packing.can_pack(model.encoder)
    pairs = [(QUERY, document) for document in DOCUMENTS]
    scores, gradients = step(model)
    read = torch.tensor(model.score(pairs))
    padded(model)
    plain_scores, plain_gradients = step(model)
    torch.testing.assert_close(scores, plain_scores, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(read, torch.tensor(model.score(pairs)), rtol=1e-5, atol=1e-5)
    assert gradients.keys() == plain_gradients.keys()
    for name, gradient in plain_gradients.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("architecture", [name for name in PACKABLE if name != "albert"])
def test_packed_inputs_are_computed_again_for_gradients(
    architecture: str, tiny_ranker: Callable[..., DocumentRanker]
) -> None:
    """Gradient checkpointing runs each layer a second time, the last one first."""
    model = copy.deepcopy(tiny_ranker(ParadeForSequenceClassification, "attn", architecture)).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    scores, gradients = step(model)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    assert packing.can_pack(model.encoder)
    again, gradients_again = step(model)
    torch.testing.assert_close(again, scores)
    torch.testing.assert_close(gradients_again, gradients)


def test_the_pooler_reads_packed_inputs(tiny_ranker: Callable[..., DocumentRanker], padded: Callable) -> None:
    for architecture in ("bert", "albert"):
        model = tiny_ranker(ParadeForSequenceClassification, "avg", architecture, passage_vector="pooler")
        scores, _ = step(model)
        padded(model)
        torch.testing.assert_close(step(model)[0], scores, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"local_attention": 8, "global_attn_every_n_layers": 3, "num_hidden_layers": 4},
        {"local_attention": 8, "global_attn_every_n_layers": 2, "num_hidden_layers": 4},  # the last layer has a window
        {"local_attention": 16, "num_hidden_layers": 3, "classifier_pooling": "mean"},
        {"local_attention": 64, "attention_bias": True, "norm_bias": True, "classifier_bias": True},
    ],
    ids=["window", "window at the end", "mean", "bias"],
)
def test_modernbert_reads_each_input_of_a_row_as_it_reads_it_alone(options: dict[str, Any], training: bool) -> None:
    torch.manual_seed(0)
    sizes = {**SIZES, "vocab_size": 60, "pad_token_id": 0, "num_labels": 1, "initializer_range": 0.3}
    config = AutoConfig.for_model("modernbert", **{**sizes, **options})
    encoder = AutoModelForSequenceClassification.from_config(config).eval()
    for name, parameter in encoder.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)
    plain = copy.deepcopy(encoder)
    model = MaxPForSequenceClassification(MaxPForSequenceClassification.config_class(config), encoder=encoder).eval()
    assert packing.can_pack(model.encoder)
    lengths = (10, 30, 50, 3, 30, 40)
    ids = torch.randint(1, 60, (len(lengths), 50))
    mask = (torch.arange(50) < torch.tensor(lengths)[:, None]).long()
    with torch.set_grad_enabled(training):
        together = model.encode(ids, mask)
        alone = [plain(input_ids=row[None, :length]).logits[0, 0] for row, length in zip(ids, lengths, strict=True)]
    torch.testing.assert_close(together, torch.stack(alone), rtol=1e-5, atol=1e-5)
    if training:
        together.sum().backward()
        torch.stack(alone).sum().backward()
        for (name, own), expected in zip(model.encoder.named_parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(own.grad, expected.grad, rtol=1e-4, atol=1e-5, msg=name)


def test_attention_stays_inside_an_input(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    encoder = tiny_ranker(MaxPForSequenceClassification, "max").encoder
    generator = torch.Generator().manual_seed(0)
    lengths = [3, 3, 5, 1]
    query, key, value = (torch.randn(1, 2, sum(lengths), 4, generator=generator) for _ in range(3))
    row = packing.describe_row(lengths, encoder)
    found, _ = packing.packed_attention(torch.nn.Identity(), query, key, value, None, scaling=0.5, row=row)
    start = 0
    for length in lengths:
        part = slice(start, start + length)
        weights = torch.softmax(query[0, :, part] @ key[0, :, part].transpose(1, 2) * 0.5, dim=-1)
        torch.testing.assert_close(found[0, part].transpose(0, 1), weights @ value[0, :, part])
        start += length


@pytest.mark.parametrize("architecture", [name for name in PACKABLE if name != "albert"])
def test_the_last_layer_computes_first_vectors_alone(
    architecture: str, tiny_ranker: Callable[..., DocumentRanker]
) -> None:
    model = tiny_ranker(MaxPForSequenceClassification, "max", architecture)
    batch = model.processor([QUERY] * 4, DOCUMENTS)
    layers = packing._layers(model.encoder)
    seen: list[int] = []
    hooks = [layer.register_forward_hook(lambda _, __, output: seen.append(output.size(1))) for layer in layers]
    model(**batch)
    for hook in hooks:
        hook.remove()
    inputs, tokens = int(batch["passage_mask"].sum()), int(batch["attention_mask"].sum())
    assert seen == [*[tokens] * (len(layers) - 1), inputs]


def test_a_student_knows_its_own_last_layer(tiny_ranker: Callable[..., DocumentRanker], padded: Callable) -> None:
    """Layers of the teacher in another order: the last one now is another than it was."""
    student = take_layers(tiny_ranker(ParadeForSequenceClassification, "attn"), [1, 0])
    scores, _ = step(student)
    padded(student)
    torch.testing.assert_close(step(student)[0], scores, rtol=1e-5, atol=1e-5)


def test_dropout_reaches_packed_attention(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    model = copy.deepcopy(tiny_ranker(MaxPForSequenceClassification, "max")).train()
    batch = model.processor([QUERY] * 4, DOCUMENTS)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Dropout) and not name.endswith("attention.self.dropout"):
            module.p = 0.0
    torch.manual_seed(0)
    first = model(**batch).logits
    again = model(**batch).logits
    torch.manual_seed(0)
    same = model(**batch).logits
    assert not torch.equal(first, again)
    assert torch.equal(first, same)


def test_a_ranker_of_the_same_configuration_reads_packed_inputs(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    model = tiny_ranker(MaxPForSequenceClassification, "max")
    twin = type(model)(copy.deepcopy(model.config)).eval()
    twin.load_state_dict(model.state_dict())
    twin.processor = model.processor
    pairs = [(QUERY, document) for document in DOCUMENTS]
    assert twin.score(pairs) == model.score(pairs)


def test_a_ranker_on_another_rankers_encoder_reads_packed_inputs(
    tiny_ranker: Callable[..., DocumentRanker], padded: Callable
) -> None:
    first = copy.deepcopy(tiny_ranker(MaxPForSequenceClassification, "max"))
    encoder = first.encoder.base_model
    second = ParadeForSequenceClassification(ParadeConfig(encoder.config, aggregation="sum"), encoder=encoder).eval()
    second.processor = first.processor
    assert packing.can_pack(second.encoder)
    pairs = [(QUERY, document) for document in DOCUMENTS]
    scores = second.score(pairs)
    padded(second)
    assert scores == pytest.approx(second.score(pairs), abs=1e-5)


def test_encoders_with_other_attention_are_padded(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    for architecture in ("mpnet", "deberta-v2"):
        assert not packing.can_pack(tiny_ranker(MaxPForSequenceClassification, "max", architecture).encoder)
    asked = tiny_ranker(MaxPForSequenceClassification, "max", attn_implementation="eager")
    assert not packing.can_pack(asked.encoder)
    plain = tiny_ranker(MaxPForSequenceClassification, "max")
    pairs = [(QUERY, document) for document in DOCUMENTS]
    torch.testing.assert_close(torch.tensor(asked.score(pairs)), torch.tensor(plain.score(pairs)), rtol=1e-5, atol=1e-5)


def test_threads_may_share_a_model(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    """As the threads of a server do: packed rows in some, padded batches in others, at the same time."""
    model = tiny_ranker(ParadeForSequenceClassification, "transformer")
    pairs = [(QUERY, document) for document in DOCUMENTS]
    expected = torch.tensor(model.score(pairs))
    batch = model.processor([QUERY] * 4, DOCUMENTS)
    flat = {name: values[batch["passage_mask"]] for name, values in batch.items() if values.dim() == 3}
    with torch.no_grad():
        vectors = model.encoder(**flat).last_hidden_state

    def read(turn: int) -> bool:
        if turn % 2:
            with torch.no_grad():
                return torch.allclose(model.encoder(**flat).last_hidden_state, vectors, atol=1e-5)
        return torch.allclose(torch.tensor(model.score(pairs)), expected, atol=1e-5)

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read, range(60)))


@pytest.mark.parametrize("architecture", PACKABLE)
def test_flash_attention_is_told_where_inputs_begin(
    architecture: str, tiny_ranker: Callable[..., DocumentRanker], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_ranker(ParadeForSequenceClassification, "attn", architecture)
    pairs = [(QUERY, document) for document in DOCUMENTS]
    expected = model.score(pairs)
    calls = []
    monkeypatch.setattr(packing, "has_flash_attention", lambda encoder: True)
    monkeypatch.setattr(
        packing, "varlen_attn", lambda *given, **named: calls.append(1) or flash_by_formula(*given, **named)
    )
    torch.testing.assert_close(torch.tensor(model.score(pairs)), torch.tensor(expected), rtol=1e-5, atol=1e-5)
    assert len(calls) >= model.encoder.config.num_hidden_layers


@pytest.mark.skipif(packing.varlen_attn is None, reason="this torch has no flash attention over packed inputs")
def test_torch_takes_what_flash_attention_is_given(
    tiny_ranker: Callable[..., DocumentRanker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU's tensors without a GPU: torch checks and infers, and computes nothing."""
    encoder = tiny_ranker(MaxPForSequenceClassification, "max").encoder
    monkeypatch.setattr(packing, "has_flash_attention", lambda encoder: True)
    with FakeTensorMode():
        row = packing.describe_row([3, 5], encoder)
        states = torch.empty(1, 2, 8, 16, device="cuda", dtype=torch.bfloat16)
        attended, _ = packing.packed_attention(torch.nn.Identity(), states, states, states, None, scaling=0.25, row=row)
    assert (attended.shape, attended.dtype, attended.device.type) == ((1, 8, 2, 16), torch.bfloat16, "cuda")


def test_flash_attention_is_for_gpus(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    assert not packing.has_flash_attention(
        copy.deepcopy(tiny_ranker(MaxPForSequenceClassification, "max")).bfloat16().encoder
    )
