"""Encoder-decoders score passages as monoT5 does: equal to transformers' own T5 on the whole prompt."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from support.project import DOCUMENTS, LICENSE, QUERY, SEQ2SEQ_MODELS, run_elsewhere
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from docparade import (
    CedrForSequenceClassification,
    DocumentProcessor,
    DocumentRanker,
    MaxPConfig,
    MaxPForSequenceClassification,
    ParadeForSequenceClassification,
    to_int8,
)
from docparade.modeling import SCORE_AGGREGATORS
from docparade.modeling.processing_settings import MONOT5_PROMPT

build = MaxPForSequenceClassification.from_cross_encoder
WORD_WINDOWS = {"unit": "word", "window": 12, "stride": 8, "max_length": 200}
TEXT = " ".join(LICENSE.split()[:40])


@pytest.fixture(scope="module")
def ranker(seq2seq_folder: Callable[..., Path]) -> DocumentRanker:
    return build(seq2seq_folder(), **WORD_WINDOWS)


def prompt(query: str, passage: str) -> str:
    return f"Query: {query} Document: {passage} Relevant:"


@cache
def load(folder: Path) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    return AutoTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder)


def log_probability(folder: Path, query: str, passage: str, answers: tuple[str, str] = ("true", "false")) -> float:
    """The formula, with transformers alone: the whole prompt through the whole model, two of all its logits."""
    tokenizer, model = load(folder)
    inputs = tokenizer(prompt(query, passage), return_tensors="pt")
    start = torch.tensor([[tokenizer.pad_token_id]])
    with torch.no_grad():
        logits = model(**inputs, decoder_input_ids=start).logits[0, 0]
    ids = [tokenizer(answer, add_special_tokens=False)["input_ids"] for answer in answers]
    assert all(len(one) == 1 for one in ids)
    return logits[[one[0] for one in ids]].log_softmax(dim=0)[0].item()


def aggregate(name: str, scores: list[float]) -> float:
    best = sorted(scores, reverse=True)
    formulas: dict[str, float] = {
        "first": scores[0],
        "max": best[0],
        "sum": sum(scores),
        "avg": sum(scores) / len(scores),
        "kmax_avg": sum(best[:4]) / 4,
        "birch": sum(best[:3]) / 3,
    }
    return formulas[name]


# --- Scores ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SEQ2SEQ_MODELS)
def test_a_score_is_the_log_probability_of_true(name: str, seq2seq_folder: Callable[..., Path], tmp_path: Path) -> None:
    """Also for heads that are apart from the word embeddings, and after saving and loading."""
    folder = seq2seq_folder(name)
    model = build(folder, **WORD_WINDOWS)
    (ranked,) = model.rank(QUERY, [TEXT])
    passages = [TEXT[one.start : one.end] for one in ranked.passages]
    assert len(passages) == 5
    expected = [log_probability(folder, QUERY, passage) for passage in passages]
    assert max(expected) - min(expected) > 1e-3  # the test can tell passages apart
    assert [one.score for one in ranked.passages] == pytest.approx(expected, abs=1e-5)
    assert ranked.score == pytest.approx(max(expected), abs=1e-5)
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert loaded.score([(QUERY, TEXT)]) == pytest.approx([ranked.score], abs=1e-6)


@pytest.mark.parametrize("aggregation", SCORE_AGGREGATORS)
def test_every_aggregation(aggregation: str, ranker: DocumentRanker, seq2seq_folder: Callable[..., Path]) -> None:
    config = MaxPConfig(**{**ranker.config.to_dict(), "aggregation": aggregation, "k": None})
    model = MaxPForSequenceClassification(config, encoder=ranker.encoder).eval()
    model.processor = ranker.processor
    (ranked,) = model.rank(QUERY, [TEXT])
    scores = [log_probability(seq2seq_folder(), QUERY, TEXT[one.start : one.end]) for one in ranked.passages]
    assert ranked.score == pytest.approx(aggregate(aggregation, scores), abs=1e-5)


def test_two_numbers_become_one(ranker: DocumentRanker, seq2seq_folder: Callable[..., Path]) -> None:
    """The probability, its logarithm, and the logit whose sigmoid it is."""
    log = torch.tensor(log_probability(seq2seq_folder(), QUERY, "the work")).double()
    expected = {"log_probability": log, "probability": log.exp(), "logit": log.exp().logit()}
    model = copy.deepcopy(ranker)
    for kind, value in expected.items():
        model.config.passage_score = kind
        assert model.score([(QUERY, "the work")]) == pytest.approx([value.item()], abs=1e-5)
        assert model.config.scores_are_logits == (kind == "logit")


def test_other_words(seq2seq_folder: Callable[..., Path], tmp_path: Path) -> None:
    model = build(seq2seq_folder(), true_token="yes", false_token="no", **WORD_WINDOWS)
    expected = log_probability(seq2seq_folder(), QUERY, "the work", ("yes", "no"))
    assert model.score([(QUERY, "the work")]) == pytest.approx([expected], abs=1e-5)
    # A ranker on it keeps words, prompt and score, or takes others.
    model.save_pretrained(tmp_path)
    again = build(tmp_path, "sum")
    assert (again.config.reader, again.config.passage_score) == (model.config.reader, "log_probability")
    assert again.processor.settings == model.processor.settings
    assert build(tmp_path, true_token="true").score([(QUERY, "the work")]) == pytest.approx(
        [log_probability(seq2seq_folder(), QUERY, "the work", ("true", "no"))], abs=1e-5
    )


def test_one_pass_one_step_two_logits(ranker: DocumentRanker, monkeypatch: pytest.MonkeyPatch) -> None:
    model = copy.deepcopy(ranker)
    read: list[tuple[str, torch.Size]] = []
    for name in ("encoder", "decoder"):
        part = getattr(model.encoder, name)
        monkeypatch.setattr(
            part,
            "forward",
            lambda *args, _name=name, _forward=part.forward, **inputs: (
                read.append((_name, inputs["input_ids"].shape)) or _forward(*args, **inputs)
            ),
        )
    head = model.encoder.lm_head
    head.register_forward_hook(lambda _, __, output: read.append(("head", output.shape)))
    model.score([(QUERY, "the work")])
    [(first, shape), (second, step), (third, logits)] = read
    assert (first, second, third) == ("encoder", "decoder", "head")
    assert shape[1] > 10 and step == (1, 1) and logits == (1, 1, 2)
    # All words stay in the checkpoint.
    assert head.weight.shape[0] == model.config.encoder_config.vocab_size


def test_int8(ranker: DocumentRanker, tmp_path: Path) -> None:
    to_int8(ranker).save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert loaded.score([(QUERY, TEXT)]) == pytest.approx(to_int8(ranker).score([(QUERY, TEXT)]), abs=1e-6)
    assert loaded.score([(QUERY, TEXT)]) == pytest.approx(ranker.score([(QUERY, TEXT)]), abs=0.1)


WITHOUT_DOCPARADE = """
import json, sys
sys.modules["docparade"] = None
from transformers import AutoModel
query, documents, folder = json.load(sys.stdin)
model = AutoModel.from_pretrained(folder, trust_remote_code=True)
print(json.dumps(model.score([(query, document) for document in documents])))
"""


@pytest.mark.slow
def test_remote_code_equals_the_package(seq2seq_folder: Callable[..., Path], tmp_path: Path) -> None:
    model = build(seq2seq_folder("t5-v1.1"), **WORD_WINDOWS)
    model.save_pretrained(tmp_path / "model")
    cache = tmp_path / "cache"
    cache.mkdir()
    found = json.loads(run_elsewhere(WITHOUT_DOCPARADE, [QUERY, DOCUMENTS, str(tmp_path / "model")], cache))
    assert found == pytest.approx(model.score([(QUERY, document) for document in DOCUMENTS]), abs=1e-5)


# --- The prompt ------------------------------------------------------------------------------------------------------

messy_text = st.text(
    alphabet=st.sampled_from("abcde WORK license the.,:!?()-'\"\n\t  éß漢字ش😀\u200b\u0301"), min_size=0, max_size=200
)


@pytest.fixture(scope="module")
def processor(seq2seq_folder: Callable[..., Path]) -> DocumentProcessor:
    tokenizer = AutoTokenizer.from_pretrained(seq2seq_folder())
    return DocumentProcessor(tokenizer, prompt=MONOT5_PROMPT, window=None, max_length=400, max_query_tokens=None)


def only_input(processor: DocumentProcessor, query: str, document: object) -> list[int]:
    batch = processor([query], [document])
    assert batch["input_ids"].shape[:2] == (1, 1)
    return batch["input_ids"][0, 0].tolist()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=messy_text.filter(str.strip).map(lambda text: text[:60]), text=messy_text)
def test_parts_that_are_tokenized_apart_are_the_whole_prompt(
    query: str, text: str, processor: DocumentProcessor, tokenizers: dict[str, PreTrainedTokenizerBase]
) -> None:
    """Also with a byte-level BPE, as CodeT5 has it, for which the space before a word is part of its token."""
    for tokenizer in (processor.tokenizer, tokenizers["byte_bpe"]):
        ours = DocumentProcessor(tokenizer, **{**processor.settings, "max_length": 2000})
        assert only_input(ours, query, text) == tokenizer(prompt(query, text))["input_ids"]


def test_title_and_headings_are_part_of_the_document(processor: DocumentProcessor) -> None:
    document = {"title": "Apache License", "headings": ["Terms"], "text": "the work"}
    expected = processor.tokenizer(prompt(QUERY, "Apache License Terms the work"))["input_ids"]
    assert only_input(processor, QUERY, document) == expected
    repeated = processor.with_options(repeat_title=True, unit="word", window=1, stride=1)
    batch = repeated([QUERY], [document])
    for place, word in enumerate(("the", "work")):
        expected = processor.tokenizer(prompt(QUERY, f"Apache License Terms {word}"))["input_ids"]
        assert batch["input_ids"][0, place][batch["attention_mask"][0, place].bool()].tolist() == expected


def test_a_passage_that_is_cut_keeps_the_end_of_the_prompt(processor: DocumentProcessor) -> None:
    tokenizer = processor.tokenizer
    cut = processor.with_options(max_length=60, selection="first", max_passages=1)
    ids = only_input(cut, QUERY, LICENSE)
    whole = tokenizer(prompt(QUERY, " ".join(LICENSE.split())))["input_ids"]
    end = tokenizer("Relevant:")["input_ids"]
    assert end[-1] == tokenizer.eos_token_id
    assert len(ids) == 60
    assert ids == whole[: 60 - len(end)] + end


def test_a_query_that_fills_the_input_is_an_error(processor: DocumentProcessor) -> None:
    short = processor.with_options(max_length=40)
    with pytest.raises(ValueError, match=r"max_length=40"):
        short.encode_query("the work " * 20)
    with pytest.raises(ValueError, match=r"\d+ special tokens and tokens of the"):
        processor.with_options(max_length=20, max_query_tokens=8)


@pytest.mark.parametrize(
    "wrong",
    [
        "Query: {query} Relevant:",
        "Document: {document} Query: {query} Relevant:",
        "Query:{query} Document: {document} Relevant:",
        "Query: {query} Document: {document}",
        "{query} Document: {document} Relevant:",
        "Query: {query} Document: {document} Relevant: {query} ?",
        7,
    ],
)
def test_a_wrong_prompt_is_named(wrong: object, processor: DocumentProcessor) -> None:
    with pytest.raises(ValueError, match=r"prompt is .* has to"):
        processor.with_options(prompt=wrong)


def test_a_prompt_is_not_for_bi_encoders(processor: DocumentProcessor) -> None:
    with pytest.raises(ValueError, match=r"prompt .*encoder-decoders"):
        processor.with_options(separate=True)


# --- What does not fit -----------------------------------------------------------------------------------------------


def test_words_have_to_be_one_known_token(seq2seq_folder: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match=r"true_token is 'relevant'"):
        build(seq2seq_folder(), true_token="relevant")
    with pytest.raises(ValueError, match="false_token is '漢'"):
        build(seq2seq_folder(), false_token="漢")
    with pytest.raises(ValueError, match="true_token 'no' and false_token 'no'"):
        build(seq2seq_folder(), true_token="no", false_token="no")


def test_words_are_for_encoder_decoders(encoder_folder: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match=r"true_token .*cross-encoder"):
        build(encoder_folder("bert", labels=1), true_token="yes")


def test_a_processor_without_a_prompt_does_not_fit(
    ranker: DocumentRanker, tiny_ranker: Callable[..., DocumentRanker]
) -> None:
    with pytest.raises(ValueError, match="prompt=''"):
        ranker.processor = ranker.processor.with_options(prompt="")
    other = tiny_ranker(MaxPForSequenceClassification, "max")
    with pytest.raises(ValueError, match="prompt='Query"):
        other.processor = other.processor.with_options(prompt=MONOT5_PROMPT, max_length=64)


@pytest.mark.parametrize("family", [ParadeForSequenceClassification, CedrForSequenceClassification])
def test_families_of_vectors_refuse_it(family: type[DocumentRanker], seq2seq_folder: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match=r"t5, .*from_cross_encoder"):
        family.from_encoder(seq2seq_folder())


def test_from_encoder_puts_a_classifier_on_it(ranker: DocumentRanker, tmp_path: Path) -> None:
    """On its body, without words and prompt."""
    ranker.save_pretrained(tmp_path)
    model = MaxPForSequenceClassification.from_encoder(tmp_path)
    assert (model.config.reader.kind, model.processor.prompt, model.config.passage_score) == (
        "cross_encoder",
        "",
        "logit",
    )
    assert torch.equal(model.encoder.get_input_embeddings().weight, ranker.encoder.get_input_embeddings().weight)
    both = [(QUERY, TEXT), (QUERY, "the work")]
    alone = [model.score([pair])[0] for pair in both]
    assert model.score(both) == pytest.approx(alone, abs=1e-5)


def test_pickled_weights_are_refused(seq2seq_folder: Callable[..., Path], tmp_path: Path) -> None:
    model = AutoModelForSeq2SeqLM.from_pretrained(seq2seq_folder())
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    AutoTokenizer.from_pretrained(seq2seq_folder()).save_pretrained(tmp_path)
    with pytest.raises(OSError, match=r"model\.safetensors"):
        build(tmp_path)


def test_settings_of_a_configuration_are_checked(ranker: DocumentRanker) -> None:
    config = ranker.config.to_dict()
    del config["reader"]["true_id"]
    with pytest.raises(ValueError, match=r"encoder_decoder.*true_id"):
        MaxPConfig(**config)


def test_a_classifier_reads_documents_with_end_tokens_beside_others(seq2seq_folder: Callable[..., Path]) -> None:
    """transformers' T5 classifier refuses a batch whose inputs have different numbers of end tokens."""
    torch.manual_seed(0)
    model = MaxPForSequenceClassification.from_encoder(seq2seq_folder(), "max", window=12, stride=8)
    pairs = [("grant of license", text) for text in ("the terms</s> of the work", "a patent", "the</s> work</s>")]
    assert model.score(pairs) == pytest.approx([model.score([pair])[0] for pair in pairs], abs=1e-5)
