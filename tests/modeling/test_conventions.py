"""What users of transformers, PEFT and pickle expect of a model."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import peft
import pytest
import torch
from support.project import DOCUMENTS, QUERY
from support.scores import model_scores
from transformers import AutoModel

from docparade import (
    CedrForSequenceClassification,
    DocumentRanker,
    MaxPForSequenceClassification,
    ParadeForSequenceClassification,
)

KINDS = [
    (MaxPForSequenceClassification, "max", {}),
    (MaxPForSequenceClassification, "max", {"pooling": "mean"}),
    (MaxPForSequenceClassification, "max", {"pooling": "mean", "late_interaction": True}),
    (MaxPForSequenceClassification, "max", {"architecture": "t5"}),
    (MaxPForSequenceClassification, "max", {"architecture": "t5-v1.1"}),
    (ParadeForSequenceClassification, "transformer", {"architecture": "albert"}),
    (CedrForSequenceClassification, "max", {}),
]
WITH_STATES = [case for case in KINDS if "t5" not in case[2].get("architecture", "")]


def scores(model: DocumentRanker, query: str = QUERY) -> torch.Tensor:
    return torch.tensor(model_scores(model, [(query, document) for document in DOCUMENTS]))


@pytest.mark.parametrize("family, aggregation, options", KINDS)
def test_a_ranker_with_more_tokens_is_saved_and_loaded(
    family: type[DocumentRanker],
    aggregation: str,
    options: dict,
    tiny_ranker: Callable[..., DocumentRanker],
    tmp_path: Path,
) -> None:
    model = copy.deepcopy(tiny_ranker(family, aggregation, **options))
    before = scores(model)
    tokenizer = model.processor.tokenizer
    tokenizer.add_tokens(["zyzzyva"])
    embeddings = model.resize_token_embeddings(len(tokenizer))
    assert embeddings.num_embeddings == model.config.encoder_config.vocab_size == len(tokenizer)
    assert model.encoder.config is model.config.encoder_config
    torch.testing.assert_close(scores(model), before, rtol=1e-5, atol=1e-5)
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    torch.testing.assert_close(scores(loaded, "zyzzyva"), scores(model, "zyzzyva"), rtol=1e-5, atol=1e-5)


def test_the_words_of_an_answer_are_kept(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    model = tiny_ranker(MaxPForSequenceClassification, "max", "t5")
    with pytest.raises(ValueError, match=r"new_num_tokens is 2.*'true'"):
        model.resize_token_embeddings(2)


@pytest.mark.parametrize("family, aggregation, options", WITH_STATES)
def test_states_are_returned(
    family: type[DocumentRanker], aggregation: str, options: dict, tiny_ranker: Callable[..., DocumentRanker]
) -> None:
    model = tiny_ranker(family, aggregation, **options)
    batch = model.processor([QUERY] * 3, DOCUMENTS)
    plain, shown = model(**batch), model(**batch, output_hidden_states=True)
    torch.testing.assert_close(shown.logits, plain.logits, rtol=1e-5, atol=1e-5)
    assert plain.hidden_states is None
    assert {state.shape for state in shown.hidden_states} == {(*batch["input_ids"].shape, model.config.hidden_size)}
    assert len(shown.hidden_states) == model.config.encoder_config.num_hidden_layers + 1
    assert not shown.hidden_states[-1][~batch["passage_mask"]].any()
    with pytest.raises(ValueError, match=r"output_attentions.*eager"):
        model(**batch, output_attentions=True)


def test_attention_is_returned(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    model = tiny_ranker(MaxPForSequenceClassification, "max", attn_implementation="eager")
    batch = model.processor([QUERY] * 3, DOCUMENTS)
    attentions = model(**batch, output_attentions=True).attentions
    documents, passages, length = batch["input_ids"].shape
    assert [layer.shape for layer in attentions] == [(documents, passages, 4, length, length)] * 2


def test_other_arguments(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    model = tiny_ranker(MaxPForSequenceClassification, "max")
    batch = model.processor([QUERY] * 3, DOCUMENTS)
    expected = model(**batch).logits
    assert torch.equal(model(**batch, inputs_embeds=None, use_cache=False).logits, expected)
    assert torch.equal(model(**batch, return_dict=False)[0], expected)
    with pytest.raises(TypeError, match="inputs_embeds"):
        model(**batch, inputs_embeds=torch.zeros(1))
    with pytest.raises(ValueError, match=r"output_hidden_states is \[0\]"):
        model(**batch, output_hidden_states=[0])
    seq2seq = tiny_ranker(MaxPForSequenceClassification, "max", "t5")
    with pytest.raises(ValueError, match=r"output_hidden_states.*T5.*model.encoder"):
        seq2seq(**seq2seq.processor([QUERY] * 3, DOCUMENTS), output_hidden_states=True)


@pytest.mark.parametrize("family, aggregation, options", [case for case in KINDS if "architecture" not in case[2]])
def test_lora_for_sequence_classifiers(
    family: type[DocumentRanker],
    aggregation: str,
    options: dict,
    tiny_ranker: Callable[..., DocumentRanker],
    tmp_path: Path,
) -> None:
    ranker = tiny_ranker(family, aggregation, **options)
    config = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query", "value"])
    model = peft.get_peft_model(copy.deepcopy(ranker), config)
    batch = ranker.processor([QUERY] * 3, DOCUMENTS)
    model.train()
    optimizer = torch.optim.SGD([weights for weights in model.parameters() if weights.requires_grad], lr=0.5)
    for _ in range(2):  # in the first step, half of LoRA's weights are zero
        model(**batch, labels=torch.tensor([1.0, 0.0, 1.0])).loss.backward()
        optimizer.step()
    trained = scores(model.eval().base_model.model)
    assert (trained - scores(ranker)).abs().max() > 1e-4
    model.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(copy.deepcopy(ranker), tmp_path)
    torch.testing.assert_close(scores(loaded.base_model.model), trained, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family, aggregation, options", KINDS)
def test_a_ranker_is_pickled_after_every_call(
    family: type[DocumentRanker], aggregation: str, options: dict, tiny_ranker: Callable[..., DocumentRanker]
) -> None:
    model = copy.deepcopy(tiny_ranker(family, aggregation, **options))
    batch = model.processor([QUERY] * 3, DOCUMENTS)
    expected = scores(model)
    calls: list[Callable[[], object]] = [
        lambda: model.rank(QUERY, DOCUMENTS, keep_passages=1),
        lambda: model(**batch),
        lambda: model.encode_documents(DOCUMENTS) if model.vector_head is not None else None,
        lambda: (
            model.encoder(input_ids=torch.tensor([[5]]), decoder_input_ids=torch.tensor([[0]]))
            if "t5" in options.get("architecture", "")
            else model(**batch, output_hidden_states=True)
        ),
    ]
    for call in calls:
        call()
        twin = pickle.loads(pickle.dumps(model))
        torch.testing.assert_close(scores(twin), expected, rtol=1e-5, atol=1e-5)
