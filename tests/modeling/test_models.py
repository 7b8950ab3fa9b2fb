"""Rankers on every kind of encoder: built, trained a step, saved, loaded, adapted."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path

import peft
import pytest
import torch
from support.marks import others_slow
from support.project import ENCODERS, FAMILIES, LICENSE
from support.scores import model_scores
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, BertConfig

from docparade import (
    DocumentRanker,
    MaxPConfig,
    MaxPForSequenceClassification,
    ParadeConfig,
    ParadeForSequenceClassification,
)
from docparade.modeling.encoders import position_limit
from docparade.modeling.engine_packing import PACKED_SDPA

QUERY = "grant of patent license"
DOCUMENTS = [LICENSE[:900], "", {"id": "d2", "title": "Apache", "text": LICENSE[2000:2400]}, LICENSE[5000:5100]]
SETTINGS = {"window": 12, "stride": 8, "max_passages": 5, "max_length": 24, "max_query_tokens": 8}
BOTH = [(MaxPForSequenceClassification, "max"), (ParadeForSequenceClassification, "transformer")]


def scores(model: DocumentRanker) -> torch.Tensor:
    return torch.tensor(model_scores(model, [(QUERY, document) for document in DOCUMENTS]))


@pytest.mark.parametrize("architecture", ENCODERS)
@pytest.mark.parametrize("family, aggregation", BOTH)
def test_any_encoder(
    architecture: str,
    family: type[DocumentRanker],
    aggregation: str,
    encoder_folder: Callable[..., Path],
    tmp_path: Path,
) -> None:
    """Built, saved, loaded through AutoModel: the same scores; one step of training changes them."""
    model = family.from_encoder(encoder_folder(architecture), aggregation=aggregation, **SETTINGS)
    before = scores(model)
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert type(loaded) is family
    torch.testing.assert_close(scores(loaded), before, rtol=1e-5, atol=1e-5)
    batch = loaded.processor([QUERY] * 4, DOCUMENTS)
    loaded.train()
    if architecture in ("mpnet", "albert"):
        with pytest.raises(ValueError, match="does not support gradient checkpointing"):
            loaded.gradient_checkpointing_enable()
    else:
        loaded.gradient_checkpointing_enable()
    loss = loaded(**batch, labels=torch.tensor([1.0, 0.0, 1.0, 0.0])).loss
    loss.backward()
    unused = [name for name, parameter in loaded.named_parameters() if parameter.grad is None]
    # All weights take part, or distributed training stops. (MPNet's and RoBERTa's heads do not use the pooler either.)
    assert not [name for name in unused if "pooler" not in name]
    torch.optim.SGD(loaded.parameters(), lr=0.5).step()
    assert (scores(loaded) - before).abs().max() > 1e-3


@pytest.mark.parametrize("architecture", ["bert", "electra", "albert", "distilbert", "roberta", "modernbert"])
def test_from_encoder_keeps_the_encoders_weights(architecture: str, encoder_folder: Callable[..., Path]) -> None:
    folder = encoder_folder(architecture)
    original = AutoModel.from_pretrained(folder).state_dict()
    parade = ParadeForSequenceClassification.from_encoder(folder, aggregation="transformer", **SETTINGS)
    kept = parade.encoder.state_dict()
    assert kept.keys() == {name for name in original if not name.startswith("pooler")}
    assert all(torch.equal(kept[name], original[name]) for name in kept)


@pytest.mark.parametrize("architecture", ["bert", "electra", "albert", "roberta"])
def test_the_document_position_starts_as_the_encoders_cls(
    architecture: str, encoder_folder: Callable[..., Path]
) -> None:
    folder = encoder_folder(architecture)
    encoder, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    row = encoder.get_input_embeddings().weight[tokenizer.cls_token_id]
    if architecture == "electra":
        row = encoder.embeddings_project(row)
    if architecture == "albert":
        row = encoder.encoder.embedding_hidden_mapping_in(row)
    model = ParadeForSequenceClassification.from_encoder(folder, aggregation="transformer", **SETTINGS)
    torch.testing.assert_close(model.aggregator.cls_embedding, row)


def test_new_layers_start_small(encoder_folder: Callable[..., Path]) -> None:
    torch.manual_seed(0)
    model = ParadeForSequenceClassification.from_encoder(encoder_folder("bert"), aggregation="transformer", **SETTINGS)
    new = dict(model.aggregator.named_parameters())
    matrices = {name: weights for name, weights in new.items() if weights.dim() == 2}
    norms = {name: weights for name, weights in new.items() if name.endswith("LayerNorm.weight")}
    assert (len(matrices), len(norms)) == (2 * 6 + 2, 2 * 2)  # of two layers; the positions, and the score
    assert [name for name, weights in matrices.items() if not 0.01 < weights.std() < 0.03] == []
    assert all((weights == 1).all() for weights in norms.values())
    birch = MaxPForSequenceClassification.from_encoder(encoder_folder("bert"), aggregation="birch", **SETTINGS)
    assert birch.aggregator.rank_weights.tolist() == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("family, aggregation", others_slow(FAMILIES, fast=(1, 11, 13)))
def test_saved_is_loaded(
    family: type[DocumentRanker], aggregation: str, tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    model = tiny_ranker(family, aggregation)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    weights = loaded.state_dict()
    assert all(torch.equal(weights[name], values) for name, values in model.state_dict().items())
    torch.testing.assert_close(scores(loaded), scores(model), rtol=1e-6, atol=1e-6)
    assert str(tmp_path.parent) not in (tmp_path / "config.json").read_text()


# --- Passage scores and vectors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [1, 2])
@pytest.mark.parametrize("architecture", ["bert", "electra", "roberta", "modernbert", "distilbert", "deberta-v2"])
def test_a_cross_encoder_keeps_its_head(architecture: str, labels: int, encoder_folder: Callable[..., Path]) -> None:
    folder = encoder_folder(architecture, labels=labels)
    model = MaxPForSequenceClassification.from_cross_encoder(
        folder, aggregation="first", max_length=64, window=40, stride=30, max_query_tokens=20
    )
    plain = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = LICENSE.split("\n\n")[3].strip()[:100]
    with torch.no_grad():
        expected = plain(**tokenizer(QUERY, text, return_tensors="pt", truncation=True, max_length=64)).logits[0, -1]
    assert model.score([(QUERY, text)])[0] == pytest.approx(expected.item(), abs=1e-5)


def test_two_labels_give_logit_probability_or_log_probability(encoder_folder: Callable[..., Path]) -> None:
    folder = encoder_folder("bert", labels=2)
    document = LICENSE[300:360]

    def score(kind: str) -> float:
        model = MaxPForSequenceClassification.from_cross_encoder(folder, passage_score=kind, **SETTINGS)
        return model.score([(QUERY, document)])[0]

    model = MaxPForSequenceClassification.from_cross_encoder(folder, **SETTINGS)
    batch = model.processor([QUERY], [document])
    with torch.no_grad():
        logits = model.encoder(**{k: v[0] for k, v in batch.items() if k != "passage_mask"}).logits
    assert score("logit") == pytest.approx(logits[:, 1].max().item(), abs=1e-5)
    assert score("probability") == pytest.approx(logits.softmax(-1)[:, 1].max().item(), abs=1e-5)
    assert score("log_probability") == pytest.approx(logits.log_softmax(-1)[:, 1].max().item(), abs=1e-5)


@pytest.mark.parametrize("kind", ["logit", "probability", "log_probability"])
@pytest.mark.parametrize("labels", [None, 2])
def test_a_new_head_of_two_labels(
    labels: int | None, kind: str, encoder_folder: Callable[..., Path], tmp_path: Path
) -> None:
    """Zhang et al. (2021): two outputs and a softmax. A probability has two labels without asking for them."""
    outputs = 1 if labels is None and kind == "logit" else 2
    given = {} if labels is None else {"num_labels": labels}
    torch.manual_seed(0)
    model = MaxPForSequenceClassification.from_encoder(encoder_folder(), passage_score=kind, **given, **SETTINGS)
    assert model.encoder.classifier.weight.shape == (outputs, 32)
    assert (model.config.encoder_config.num_labels, model.config.num_labels) == (outputs, 1)
    batch = model.processor([QUERY], [LICENSE[300:360]])
    with torch.no_grad():
        logits = model.encoder(**{k: v[0] for k, v in batch.items() if k != "passage_mask"}).logits
    expected = {
        "logit": logits[:, -1],
        "probability": logits.softmax(-1)[:, -1],
        "log_probability": logits.log_softmax(-1)[:, -1],
    }[kind]
    score = model.score([(QUERY, LICENSE[300:360])])
    assert score == pytest.approx([expected.max().item()], abs=1e-5)
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert (loaded.config.passage_score, loaded.config.encoder_config.num_labels) == (kind, outputs)
    assert loaded.score([(QUERY, LICENSE[300:360])]) == pytest.approx(score, abs=1e-6)


def test_a_new_head_of_one_label_has_no_probability(encoder_folder: Callable[..., Path]) -> None:
    build = partial(MaxPForSequenceClassification.from_encoder, encoder_folder())
    with pytest.raises(ValueError, match=r"2 labels, .* 1"):
        build(num_labels=1, passage_score="probability")
    with pytest.raises(ValueError, match=r"3 labels; .*1 or 2"):
        build(num_labels=3)


def test_a_plain_encoder_is_no_cross_encoder(encoder_folder: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match=r"not a cross-encoder.*from_encoder"):
        MaxPForSequenceClassification.from_cross_encoder(encoder_folder("bert"))


def test_a_classifier_of_three_classes_is_refused(encoder_folder: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match="3 labels"):
        MaxPForSequenceClassification.from_cross_encoder(encoder_folder("bert", labels=3), **SETTINGS)


def test_the_pooler_is_an_option(encoder_folder: Callable[..., Path], tmp_path: Path) -> None:
    folder = encoder_folder("bert")
    model = ParadeForSequenceClassification.from_encoder(folder, aggregation="avg", passage_vector="pooler", **SETTINGS)
    batch = model.processor([QUERY], [""])
    with torch.no_grad():
        pooled = AutoModel.from_pretrained(folder)(**{k: v[0] for k, v in batch.items() if k != "passage_mask"})
        state = model(**batch).document_state
    torch.testing.assert_close(state, pooled.pooler_output)
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(scores(AutoModel.from_pretrained(tmp_path)), scores(model), rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="has no pooler"):
        ParadeForSequenceClassification.from_encoder(encoder_folder("electra"), passage_vector="pooler", **SETTINGS)


def test_parade_starts_from_a_ranker_of_passages(encoder_folder: Callable[..., Path], tmp_path: Path) -> None:
    """As in the paper: first a ranker of passages, then PARADE on its encoder."""
    first = MaxPForSequenceClassification.from_encoder(encoder_folder("electra"), aggregation="max", **SETTINGS)
    first.save_pretrained(tmp_path)
    second = ParadeForSequenceClassification.from_encoder(tmp_path, aggregation="attn", **SETTINGS)
    kept, given = second.encoder.state_dict(), first.encoder.base_model.state_dict()
    assert kept.keys() == given.keys()
    assert all(torch.equal(kept[name], given[name]) for name in kept)


@pytest.mark.parametrize("family, aggregation", [(MaxPForSequenceClassification, "sum"), BOTH[1]])
def test_a_passages_own_score_is_that_of_a_document_made_of_it(
    family: type[DocumentRanker], aggregation: str, tiny_ranker: Callable[..., DocumentRanker]
) -> None:
    # Whole words, and room for all of them: a passage alone has the tokens that it has in its document.
    model = tiny_ranker(family, aggregation, unit="word", window=5, stride=5, max_length=90)
    [ranked] = model.rank(QUERY, [LICENSE[:700]])
    assert len(ranked.passages) == 5
    alone = model.score([(QUERY, passage.text) for passage in ranked.passages])
    assert [passage.score for passage in ranked.passages] == pytest.approx(alone, abs=1e-5)
    assert len({round(score, 4) for score in alone}) == 5


def test_weights_say_which_passage_is_best(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    model = tiny_ranker(ParadeForSequenceClassification, "attn")
    [ranked] = model.rank(QUERY, [LICENSE[:700]])
    assert all(LICENSE[passage.start : passage.end] == passage.text for passage in ranked.passages)
    weights = [passage.weight for passage in ranked.passages]
    assert sum(weights) == pytest.approx(1, abs=1e-5)
    assert ranked.best_passage is ranked.passages[weights.index(max(weights))]
    assert "attention weight" in model.config.weight_means


# --- Attention, precision, adapters ----------------------------------------------------------------------------------


@pytest.mark.parametrize("family, aggregation", BOTH)
def test_attention_implementations_agree(
    family: type[DocumentRanker], aggregation: str, tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    tiny_ranker(family, aggregation).save_pretrained(tmp_path)
    found = {}
    for implementation in ("sdpa", "eager"):
        model = AutoModel.from_pretrained(tmp_path, attn_implementation=implementation)
        # On a CPU, sdpa is our own function, which is transformers' wherever nothing is packed.
        expected = PACKED_SDPA if implementation == "sdpa" else implementation
        assert model.encoder.config._attn_implementation == expected
        found[implementation] = scores(model)
    torch.testing.assert_close(found["sdpa"], found["eager"], rtol=1e-5, atol=1e-5)


def test_flash_attention_is_passed_on(tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path) -> None:
    """Without the package, transformers says what is missing: the request reached it."""
    tiny_ranker(*BOTH[0]).save_pretrained(tmp_path)
    with pytest.raises(ImportError, match=r"(?i)flash.?attn|flash.?attention|kernels"):
        AutoModel.from_pretrained(tmp_path, attn_implementation="flash_attention_2")


@pytest.mark.parametrize("family, aggregation", others_slow(FAMILIES, fast=(1, 11, 13)))
def test_half_precision(
    family: type[DocumentRanker], aggregation: str, tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    model = tiny_ranker(family, aggregation)
    model.save_pretrained(tmp_path)
    half = AutoModel.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in half.encoder.base_model.parameters()} == {torch.bfloat16}
    whole = scores(model)
    torch.testing.assert_close(scores(half), whole, rtol=0.1, atol=0.15 * whole.abs().max().item())


def test_from_encoder_takes_a_dtype(encoder_folder: Callable[..., Path]) -> None:
    model = ParadeForSequenceClassification.from_encoder(
        encoder_folder("bert"), aggregation="transformer", dtype=torch.bfloat16, **SETTINGS
    )
    assert {parameter.dtype for parameter in model.encoder.parameters()} == {torch.bfloat16}
    assert torch.isfinite(scores(model)).all()


@pytest.mark.parametrize("family, aggregation", [*BOTH, FAMILIES[13]])
def test_lora_is_saved_loaded_and_merged(
    family: type[DocumentRanker], aggregation: str, tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    tiny_ranker(family, aggregation).save_pretrained(tmp_path / "base")
    base = AutoModel.from_pretrained(tmp_path / "base")
    plain = scores(base)
    heads = ["classifier"] if family is MaxPForSequenceClassification else ["aggregator"]
    config = peft.LoraConfig(r=2, target_modules=r"encoder\..*\.(query|value)", modules_to_save=heads)
    model = peft.get_peft_model(base, config)
    batch = base.processor([QUERY] * 4, DOCUMENTS)
    # Kernel features are sums of logarithms, of a size that large steps are too large for.
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4 if (family, aggregation) == FAMILIES[13] else 1.0)
    for _ in range(3):
        optimizer.zero_grad()
        model(**batch, labels=torch.tensor([1.0, 0.0, 0.0, 1.0])).loss.backward()
        optimizer.step()
    trained = scores(model)
    assert (trained - plain).abs().max() > 1e-3
    model.save_pretrained(tmp_path / "adapter")
    again = peft.PeftModel.from_pretrained(AutoModel.from_pretrained(tmp_path / "base"), tmp_path / "adapter")
    torch.testing.assert_close(scores(again), trained, rtol=1e-5, atol=1e-5)
    # The adapter's folder alone: transformers finds the base model by the name in it.
    torch.testing.assert_close(scores(AutoModel.from_pretrained(tmp_path / "adapter")), trained, rtol=1e-5, atol=1e-5)
    merged = again.merge_and_unload()
    assert type(merged) is family
    merged.save_pretrained(tmp_path / "merged")
    torch.testing.assert_close(scores(AutoModel.from_pretrained(tmp_path / "merged")), trained, rtol=1e-4, atol=1e-5)


# --- Forward ---------------------------------------------------------------------------------------------------------


def test_forward_returns_what_it_says(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    model = tiny_ranker(ParadeForSequenceClassification, "attn")
    batch = model.processor([QUERY] * 4, DOCUMENTS)
    with torch.no_grad():
        output = model(**batch, labels=torch.tensor([1.0, 0.0, 1.0, 0.0]))
    documents, passages = batch["passage_mask"].shape
    assert output.logits.shape == (documents, 1)
    assert output.passage_scores.shape == output.passage_weights.shape == (documents, passages)
    assert output.document_state.shape == (documents, 32)
    probability = torch.sigmoid(output.logits[:, 0].double())
    by_hand = -(probability[[0, 2]].log().sum() + (1 - probability[[1, 3]]).log().sum()) / 4
    assert output.loss.item() == pytest.approx(by_hand.item(), abs=1e-5)
    with torch.no_grad():
        loss, logits, *_ = model(**batch, labels=torch.tensor([1.0, 0.0, 1.0, 0.0]), return_dict=False)
    assert torch.equal(loss, output.loss)
    assert torch.equal(logits, output.logits)


def test_plain_input_of_two_dimensions_is_refused(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    """Or a document would be cut at the first passage, in silence."""
    with pytest.raises(ValueError, match=r"shape \(2, 9\).*model\.rank"):
        tiny_ranker(*BOTH[0])(torch.ones(2, 9, dtype=torch.long))


def test_a_document_without_passages_is_refused(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    model = tiny_ranker(*BOTH[0])
    batch = model.processor([QUERY] * 2, ["a", "b"])
    batch["passage_mask"][1] = False
    with pytest.raises(ValueError, match="no passage"):
        model(**batch)


def test_ranking_leaves_the_model_as_it_was(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    model = copy.deepcopy(tiny_ranker(*BOTH[1])).train()
    first, second = scores(model), scores(model)
    assert torch.equal(first, second)
    assert model.training
    assert model.aggregator.training


# --- Building and settings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ENCODERS)
def test_position_limit(architecture: str, encoder_folder: Callable[..., Path]) -> None:
    """The longest input that the encoder takes is allowed, and one token more is not."""
    folder = encoder_folder(architecture)
    limit = position_limit(AutoModel.from_pretrained(folder))
    options = {"window": 60, "stride": 60, "max_query_tokens": 10}
    model = MaxPForSequenceClassification.from_encoder(
        folder, max_length=limit, **{**options, "window": 90, "stride": 90}
    )
    assert model.processor([QUERY], [LICENSE])["input_ids"].shape[2] == limit
    assert torch.isfinite(torch.tensor(model.score([(QUERY, LICENSE)]))).all()
    with pytest.raises(ValueError, match=f"{limit} positions"):
        MaxPForSequenceClassification.from_encoder(folder, max_length=limit + 1, **options)


def test_options_go_where_they_belong(encoder_folder: Callable[..., Path]) -> None:
    model = ParadeForSequenceClassification.from_encoder(
        encoder_folder("bert"), "cnn", preset="cip2021", max_length=90, cnn_hidden_size=8, attn_implementation="eager"
    )
    assert (model.config.aggregation, model.config.max_passages, model.config.cnn_hidden_size) == ("cnn", 32, 8)
    assert len(model.aggregator.layers) == 5
    assert (model.processor.max_passages, model.processor.repeat_title, model.processor.max_length) == (32, True, 90)
    assert model.encoder.config._attn_implementation == "eager"


def test_an_unknown_option_is_named(encoder_folder: Callable[..., Path]) -> None:
    with pytest.raises(TypeError, match=r"^passages_max: "):
        ParadeForSequenceClassification.from_encoder(encoder_folder("bert"), passages_max=3)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: MaxPConfig(aggregation="attn"), "aggregation is 'attn'.*kmax_avg"),
        (lambda: ParadeConfig(aggregation="birch"), "aggregation is 'birch'.*transformer"),
        (lambda: ParadeConfig(passage_vector="mean"), "passage_vector is 'mean'"),
        (lambda: MaxPConfig(k=0), "k is 0"),
        (lambda: MaxPConfig(passage_score="probability"), "2 labels"),
        (lambda: MaxPConfig({"model_type": "nonsense"}), "model_type 'nonsense'"),
    ],
)
def test_wrong_configurations_are_named(make: Callable, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


TABLE_9 = {  # layers, width: millions of parameters in Table 9 of Li et al. (2023)
    (24, 1024): 360,
    (12, 768): 123,
    (10, 768): 109,
    (8, 768): 95,
    (8, 512): 48,
    (4, 512): 35,
    (4, 256): 13,
    (2, 512): 28,
    (2, 128): 5,
}


@pytest.mark.parametrize(("layers", "width"), TABLE_9)
def test_parameters_are_those_of_the_paper(layers: int, width: int) -> None:
    encoder = BertConfig(
        num_hidden_layers=layers, hidden_size=width, num_attention_heads=width // 64, intermediate_size=4 * width
    )
    with torch.device("meta"):
        model = ParadeForSequenceClassification(ParadeConfig(encoder_config=encoder, aggregation="transformer"))
    embeddings = (30522 + 512 + 2) * width + 2 * width
    layer = 4 * (width * width + width) + 2 * 4 * width * width + 5 * width + 4 * width
    # The aggregator's CLS, a vector for its position and for that of each passage, and a linear head.
    head = (model.config.max_passages + 2) * width + width + 1
    assert model.num_parameters() == embeddings + (layers + 2) * layer + head
    assert model.num_parameters() / 1e6 == pytest.approx(TABLE_9[layers, width], abs=0.75)
