"""Decoders score passages by their next word: equal to sentence-transformers on its files, and to transformers."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from support.project import DECODERS, DOCUMENTS, LICENSE, QUERY, run_elsewhere
from support.tiny_models import CHAT_TEMPLATE
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerBase,
)

from docparade import (
    DocumentProcessor,
    DocumentRanker,
    MaxPConfig,
    MaxPForSequenceClassification,
    ParadeForSequenceClassification,
    to_int8,
)
from docparade.modeling.decoder_prompts import known_prompt
from docparade.reranking.loading import load_ranker

build = MaxPForSequenceClassification.from_cross_encoder
Folders = Callable[..., Path]

WHOLE = {"window": None, "max_length": 900, "max_query_tokens": None}
PROMPT = (
    "<|im_start|>user\n<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}\n"
    "Is it what is asked for?<|im_end|>\n<|im_start|>assistant\nRelevance: "
)
INSTRUCTION = "Find the terms."
TEXT = " ".join(LICENSE.split()[:60])
# Ends and beginnings that are part of a token with what stands around them.
QUERIES = ["grant of license", "what is the work?", "(terms)"]
PASSAGES = ["the work", "a patent license.", "(the terms of the work)", TEXT, "one\ntwo.\n", "yes"]
PAIRS = [(query, passage) for query in QUERIES for passage in PASSAGES]


@pytest.fixture(scope="module")
def saved_by_sentence_transformers(decoder_folder: Folders, tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """The folder of a CrossEncoder on a tiny decoder, with a chat template."""

    def folder(
        architecture: str = "qwen3", labels: int | None = None, false: str | None = "no", **options: object
    ) -> Path:
        path = tmp_path_factory.mktemp("cross-encoder")
        task = "sequence-classification" if labels else "text-generation"
        plain = tmp_path_factory.mktemp("plain")
        shutil.copytree(decoder_folder(architecture, labels), plain, dirs_exist_ok=True)
        tokenizer = AutoTokenizer.from_pretrained(plain)
        tokenizer.chat_template = CHAT_TEMPLATE
        tokenizer.save_pretrained(plain)
        modules = [Transformer(str(plain), transformer_task=task)]
        if not labels:
            ids = [None if word is None else tokenizer.convert_tokens_to_ids(word) for word in ("yes", false)]
            modules.append(LogitScore(*ids))
        CrossEncoder(modules=modules, device="cpu", **options).save(str(path))
        return path

    return folder


@pytest.fixture(scope="module")
def ranker(decoder_folder: Folders) -> DocumentRanker:
    options = {**WHOLE, "unit": "word", "window": 12, "stride": 8, "max_query_tokens": 20}
    words = {"true_token": "yes", "false_token": "no"}
    return build(decoder_folder(), prompt=PROMPT, instruction=INSTRUCTION, **words, **options)


def predict(folder: Path, **options: object) -> list[float]:
    model = CrossEncoder(str(folder), device="cpu", **options)
    return model.predict(PAIRS, activation_fn=torch.nn.Identity()).tolist()


def render(query: str, passage: str, prompt: str = PROMPT, instruction: str = INSTRUCTION) -> str:
    before, after = prompt.replace("{instruction}", instruction).split("{query}")
    return before + query + after.replace("{document}", passage)


def next_logits(folder: Path, text: str, words: tuple[str, ...]) -> torch.Tensor:
    """With transformers alone: the logits of words after a text."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        logits = model(**tokenizer(text, return_tensors="pt")).logits[0, -1]
    return logits[[tokenizer.convert_tokens_to_ids(word) for word in words]]


# --- As sentence-transformers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", DECODERS)
def test_scores_are_those_of_a_cross_encoder_with_logit_score(
    architecture: str, saved_by_sentence_transformers: Folders, tmp_path: Path
) -> None:
    """Also when saved, loaded, and loaded by CrossEncoder again."""
    folder = saved_by_sentence_transformers(architecture)
    model = build(folder, **WHOLE)
    expected = predict(folder)
    assert max(expected) - min(expected) > 1e-2  # the test can tell passages apart
    assert model.score(PAIRS) == pytest.approx(expected, abs=1e-5)
    model.save_pretrained(tmp_path)
    assert AutoModel.from_pretrained(tmp_path).score(PAIRS) == pytest.approx(expected, abs=1e-5)
    assert predict(tmp_path, trust_remote_code=True) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("architecture", DECODERS)
def test_a_classifier_reads_the_template_of_its_files(
    architecture: str, saved_by_sentence_transformers: Folders, tmp_path: Path
) -> None:
    folder = saved_by_sentence_transformers(architecture, labels=1)
    model = build(folder, **WHOLE)
    # CrossEncoder pads on the right here, and transformers takes the last position that is no padding.
    expected = predict(folder)
    assert model.score(PAIRS) == pytest.approx(expected, abs=1e-5)
    model.save_pretrained(tmp_path)
    assert AutoModel.from_pretrained(tmp_path).score(PAIRS) == pytest.approx(expected, abs=1e-5)


def test_one_word(saved_by_sentence_transformers: Folders) -> None:
    folder = saved_by_sentence_transformers(false=None)
    model = build(folder, **WHOLE)
    assert model.config.reader.words == {model.config.reader.true_id: "yes"}
    assert model.score(PAIRS) == pytest.approx(predict(folder), abs=1e-5)
    with pytest.raises(ValueError, match="passage_score='probability'"):
        build(folder, passage_score="probability")


def test_the_instruction_is_the_system_message(saved_by_sentence_transformers: Folders) -> None:
    """The template's own, the default prompt of the files, or the user's."""
    plain = saved_by_sentence_transformers()
    prompted = saved_by_sentence_transformers(prompts={"web": "Find pages."}, default_prompt_name="web")
    assert build(plain).processor.instruction == "Find what is asked for."
    model = build(prompted, **WHOLE)
    assert model.processor.instruction == "Find pages."
    assert model.score(PAIRS) == pytest.approx(predict(prompted), abs=1e-5)
    own = build(plain, instruction="Find pages.", **WHOLE)
    assert own.score(PAIRS) == pytest.approx(model.score(PAIRS), abs=1e-6)


def test_a_chat_template_without_the_roles_is_not_the_prompt(saved_by_sentence_transformers: Folders) -> None:
    folder = saved_by_sentence_transformers()
    (folder / "chat_template.jinja").write_text("{% for one in messages if one.role == 'user' %}{{ one }}{% endfor %}")
    with pytest.raises(ValueError, match=r"give prompt=.*true_token="):
        build(folder)


def test_a_chat_template_without_bos_is_refused_where_the_tokenizer_adds_it(
    saved_by_sentence_transformers: Folders,
) -> None:
    folder = saved_by_sentence_transformers("llama")
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text().replace('{{ bos_token or "" }}', ""))
    with pytest.raises(ValueError, match="does not begin with the special tokens"):
        build(folder)


# --- By formula ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", DECODERS)
def test_a_score_is_the_difference_of_two_logits(architecture: str, decoder_folder: Folders) -> None:
    """Of the whole prompt, with the special tokens that the tokenizer adds."""
    folder = decoder_folder(architecture)
    words = {"true_token": "yes", "false_token": "no"}
    model = build(folder, prompt=PROMPT, instruction=INSTRUCTION, **words, **WHOLE)
    for query, passage in PAIRS[::2]:
        true, false = next_logits(folder, render(query, passage), ("yes", "no")).tolist()
        assert model.score([(query, passage)]) == pytest.approx([true - false], abs=1e-5)


def test_two_logits_become_one_number(ranker: DocumentRanker, decoder_folder: Folders) -> None:
    logits = next_logits(decoder_folder(), render(QUERY, "the work"), ("no", "yes")).double()
    log = logits.log_softmax(dim=0)[1]
    expected = {"log_probability": log, "probability": log.exp(), "logit": logits[1] - logits[0]}
    model = copy.deepcopy(ranker)
    for kind, value in expected.items():
        model.config.passage_score = kind
        assert model.score([(QUERY, "the work")]) == pytest.approx([value.item()], abs=1e-5)


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("Qwen3-Reranker-0.6B", "qwen3"),
        ("mxbai-rerank-base-v2", "qwen2"),
        ("bge-reranker-v2-gemma", "gemma"),
    ],
)
def test_a_known_model_needs_no_arguments(
    name: str, architecture: str, decoder_folder: Folders, tmp_path: Path
) -> None:
    folder = tmp_path / name
    shutil.copytree(decoder_folder(architecture), folder)
    known = known_prompt(folder)
    words = tuple(word for word in (known.true_token, known.false_token) if word is not None)
    model = build(folder, **WHOLE)
    assert (model.processor.prompt, model.processor.instruction) == (known.prompt, known.instruction)
    for query, passage in PAIRS[:8]:
        text = render(query, passage, known.prompt, known.instruction)
        logits = next_logits(folder, text, words)
        expected = (logits[0] - logits[1] if len(words) == 2 else logits[0]).item()
        assert model.score([(query, passage)]) == pytest.approx([expected], abs=1e-5)


@pytest.mark.parametrize("architecture", DECODERS)
def test_a_known_classifier_reads_the_prompt_of_its_model(
    architecture: str, decoder_folder: Folders, tmp_path: Path
) -> None:
    """Whatever its labels: with two, the score is their difference."""
    for labels in (1, 2):
        folder = tmp_path / f"Qwen3-Reranker-0.6B-seq-cls-{labels}"
        shutil.copytree(decoder_folder(architecture, labels), folder)
        known = known_prompt(folder)
        model = build(folder, **WHOLE)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        plain = AutoModelForSequenceClassification.from_pretrained(folder)
        inputs = tokenizer(render(QUERY, TEXT, known.prompt, known.instruction), return_tensors="pt")
        with torch.no_grad():
            logits = plain(**inputs).logits[0]
        expected = logits[0] if labels == 1 else logits[1] - logits[0]
        assert model.score([(QUERY, TEXT)]) == pytest.approx([expected.item()], abs=1e-5)


def test_names_of_known_models() -> None:
    assert known_prompt("Qwen/Qwen3-Reranker-8B") == known_prompt("tomaarsen/Qwen3-Reranker-0.6B-seq-cls")
    assert known_prompt("mixedbread-ai/mxbai-rerank-large-v2").true_token == "1"
    assert known_prompt("BAAI/bge-reranker-v2-gemma").false_token is None
    for other in ("Qwen/Qwen3-VL-Reranker-2B", "BAAI/bge-reranker-v2-m3", "mixedbread-ai/mxbai-rerank-base-v1"):
        assert known_prompt(other) is None


# --- Reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", DECODERS)
def test_batch_mates_change_nothing(architecture: str, decoder_folder: Folders) -> None:
    """Inputs are padded on the right, and each is read at its own last position."""
    words = {"true_token": "yes", "false_token": "no"}
    model = build(decoder_folder(architecture), prompt=PROMPT, instruction=INSTRUCTION, **words, **WHOLE)
    alone = [model.score([pair])[0] for pair in PAIRS]
    assert model.score(PAIRS) == pytest.approx(alone, abs=1e-5)
    batch = model.processor(*zip(*PAIRS, strict=True))
    with torch.no_grad():
        assert model(**batch).logits[:, 0].tolist() == pytest.approx(alone, abs=1e-5)


def test_only_the_last_position_and_two_words_go_through_the_head(ranker: DocumentRanker) -> None:
    model = copy.deepcopy(ranker)
    shapes: list[tuple[torch.Size, torch.Size]] = []
    head = model.encoder.lm_head
    head.register_forward_hook(lambda _, inputs, output: shapes.append((inputs[0].shape, output.shape)))
    model.score([(QUERY, "the work")])
    assert shapes == [((1, 32), (1, 2))]
    assert head.weight is model.encoder.get_input_embeddings().weight


def test_passages_of_a_document(ranker: DocumentRanker, decoder_folder: Folders) -> None:
    (ranked,) = ranker.rank(QUERY, [TEXT])
    assert len(ranked.passages) == 7
    for one in ranked.passages:
        logits = next_logits(decoder_folder(), render(QUERY, TEXT[one.start : one.end].strip()), ("yes", "no"))
        assert one.score == pytest.approx((logits[0] - logits[1]).item(), abs=1e-5)
    assert ranked.score == max(one.score for one in ranked.passages)


def test_hidden_states(ranker: DocumentRanker) -> None:
    batch = ranker.processor([QUERY], ["the work"])
    with torch.no_grad():
        output = ranker(**batch, output_hidden_states=True)
    assert len(output.hidden_states) == 3
    assert output.logits[0].tolist() == pytest.approx(ranker.score([(QUERY, "the work")]), abs=1e-5)


def test_other_tokens(ranker: DocumentRanker) -> None:
    model = copy.deepcopy(ranker)
    expected = model.score(PAIRS)
    model.resize_token_embeddings(len(model.processor.tokenizer) + 5)
    assert model.score(PAIRS) == pytest.approx(expected, abs=1e-6)
    with pytest.raises(ValueError, match="'no' or 'yes'"):
        model.resize_token_embeddings(10)


def test_half_precision(ranker: DocumentRanker, tmp_path: Path) -> None:
    ranker.save_pretrained(tmp_path)
    for model in (AutoModel.from_pretrained(tmp_path, dtype=torch.bfloat16), copy.deepcopy(ranker).bfloat16()):
        assert {weights.dtype for weights in model.encoder.parameters()} == {torch.bfloat16}
        scores = model.score(PAIRS)
        assert scores == pytest.approx(ranker.score(PAIRS), abs=0.3)
        # Scores are computed in 32 bits.
        assert any(torch.tensor(score).bfloat16().item() != score for score in scores)


def test_int8(ranker: DocumentRanker, tmp_path: Path) -> None:
    to_int8(ranker).save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert loaded.score([(QUERY, TEXT)]) == pytest.approx(to_int8(ranker).score([(QUERY, TEXT)]), abs=1e-6)


WITHOUT_DOCPARADE = """
import json, sys
sys.modules["docparade"] = None
from transformers import AutoModel
query, documents, folder = json.load(sys.stdin)
model = AutoModel.from_pretrained(folder, trust_remote_code=True)
print(json.dumps(model.score([(query, document) for document in documents])))
"""


@pytest.mark.slow
def test_remote_code_equals_the_package(ranker: DocumentRanker, tmp_path: Path) -> None:
    ranker.save_pretrained(tmp_path / "model")
    cache = tmp_path / "cache"
    cache.mkdir()
    found = json.loads(run_elsewhere(WITHOUT_DOCPARADE, [QUERY, DOCUMENTS, str(tmp_path / "model")], cache))
    assert found == pytest.approx(ranker.score([(QUERY, document) for document in DOCUMENTS]), abs=1e-5)


def test_a_plain_decoder_is_loaded_by_its_name(decoder_folder: Folders, tmp_path: Path) -> None:
    folder = tmp_path / "Qwen3-Reranker-0.6B"
    shutil.copytree(decoder_folder(), folder)
    assert load_ranker(str(folder)).score(PAIRS[:3]) == pytest.approx(build(folder).score(PAIRS[:3]), abs=1e-6)


def test_a_ranker_on_a_ranker_keeps_prompt_and_words_or_takes_others(ranker: DocumentRanker, tmp_path: Path) -> None:
    ranker.save_pretrained(tmp_path)
    again = build(tmp_path, "sum")
    assert again.config.reader == ranker.config.reader
    assert again.processor.settings == ranker.processor.settings
    other = build(tmp_path, true_token="no", false_token="yes")
    assert other.score(PAIRS[:2]) == pytest.approx([-score for score in ranker.score(PAIRS[:2])], abs=1e-6)
    assert build(tmp_path, instruction="Find.").processor.instruction == "Find."


# --- The prompt ------------------------------------------------------------------------------------------------------

PROMPTS = (
    PROMPT,
    "<|im_start|>{query}<|im_end|>\n<|im_start|>{document}<|im_end|>Yes or No: ",
    "A: {query}\nB: {document}\n\n Is it?",
    "Query: {query} Document: {document} Relevant:",
)
texts = st.text(alphabet=st.sampled_from("abde WORK the.,:!?()-'\"\n\t  é漢ش😀\u0301"), max_size=120)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    query=texts.filter(str.strip),
    passage=texts,
    prompt=st.sampled_from(PROMPTS),
    architecture=st.sampled_from(list(DECODERS)),
)
def test_parts_that_are_tokenized_apart_are_the_whole_prompt(
    query: str, passage: str, prompt: str, architecture: str, decoder_folder: Folders
) -> None:
    tokenizer = _tokenizer(decoder_folder(architecture))
    instruction = INSTRUCTION if "{instruction}" in prompt else ""
    processor = DocumentProcessor(tokenizer, prompt=prompt, instruction=instruction, **WHOLE)
    found = processor([query], [passage])["input_ids"][0, 0].tolist()
    assert found == tokenizer(render(query, passage, prompt))["input_ids"]


_TOKENIZERS: dict[Path, PreTrainedTokenizerBase] = {}


def _tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    return _TOKENIZERS.setdefault(folder, AutoTokenizer.from_pretrained(folder))


@pytest.mark.parametrize("architecture", DECODERS)
def test_a_passage_that_is_cut_keeps_the_words_around_it(architecture: str, decoder_folder: Folders) -> None:
    tokenizer = _tokenizer(decoder_folder(architecture))
    options = {"window": None, "max_length": 150, "max_passages": 1, "selection": "first"}
    processor = DocumentProcessor(tokenizer, prompt=PROMPT, instruction=INSTRUCTION, **options)
    ids = processor([QUERIES[1]], [LICENSE])["input_ids"][0, 0].tolist()
    assert 145 <= len(ids) <= 150
    text = tokenizer.decode(ids)
    before, after = render(QUERIES[1], "{document}").split("{document}")
    assert text.removeprefix("<bos>").startswith(before)
    assert text.endswith(after)
    end = tokenizer(after.lstrip(), add_special_tokens=False)["input_ids"]
    assert ids[-len(end) :] == end


def test_a_query_that_is_cut_keeps_the_words_around_it(ranker: DocumentRanker) -> None:
    processor = ranker.processor.with_options(max_query_tokens=3)
    assert "<Query>: the work of\n<Document>: the work\n" in processor.tokenizer.decode(
        processor(["the work of the license"], ["the work"])["input_ids"][0, 0]
    )


@pytest.mark.parametrize(
    "wrong", ["Q: ({query}) D: {document} R:", "Q: {query}, D: {document} R:", "Q:{query} D: {document} R:"]
)
def test_query_and_document_stand_apart(wrong: str, ranker: DocumentRanker) -> None:
    with pytest.raises(ValueError, match=r"a space, a line break or a special token before and after \{query\}"):
        ranker.processor.with_options(prompt=wrong, instruction="").template  # noqa: B018


# --- What does not fit -----------------------------------------------------------------------------------------------


def test_nothing_known_and_nothing_given(decoder_folder: Folders) -> None:
    with pytest.raises(ValueError, match=r"give prompt=.*\{query\} and \{document\}.*true_token=.*false_token="):
        build(decoder_folder())
    with pytest.raises(ValueError, match=r"give true_token="):
        build(decoder_folder(), prompt=PROMPT, instruction=INSTRUCTION)
    with pytest.raises(ValueError, match=r"instruction is missing"):
        build(decoder_folder(), prompt=PROMPT, true_token="yes")
    with pytest.raises(ValueError, match=r"true_token is 'relevant'"):
        build(decoder_folder(), prompt=PROMPTS[2], true_token="relevant")


def test_a_classifier_without_a_prompt_is_refused(decoder_folder: Folders) -> None:
    """The tokenizer's pair format would give plausible scores, and wrong ones."""
    with pytest.raises(ValueError, match=r"give prompt=(?!.*true_token)"):
        build(decoder_folder("qwen3", 1))
    with pytest.raises(ValueError, match=r"true_token is not for"):
        build(decoder_folder("qwen3", 1), prompt=PROMPTS[2], true_token="yes")
    assert build(decoder_folder("qwen3", 1), prompt=PROMPTS[2]).reader.settings.words == {}


def test_a_model_with_code_of_its_own_is_refused(tmp_path: Path) -> None:
    code = {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForSequenceClassification": "modeling_own.Own"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": code}))
    (tmp_path / "configuration_own.py").write_text("raise SystemExit('run')")
    with pytest.raises(ValueError, match=r"custom code of the model type 'own'.*does not run"):
        build(tmp_path)


def test_an_instruction_needs_a_place(ranker: DocumentRanker) -> None:
    with pytest.raises(ValueError, match=r"no place \{instruction\}"):
        ranker.processor.with_options(prompt=PROMPTS[2])


def test_a_processor_without_a_prompt_does_not_fit(ranker: DocumentRanker) -> None:
    with pytest.raises(ValueError, match="prompt=''"):
        copy.deepcopy(ranker).processor = ranker.processor.with_options(prompt="", instruction="")


def test_families_of_vectors_refuse_the_settings(ranker: DocumentRanker) -> None:
    config = ranker.config.to_dict()
    del config["reader"]["true_id"]
    with pytest.raises(ValueError, match=r"false_id needs true_id"):
        MaxPConfig(**config)
    with pytest.raises(ValueError, match="decoder_only"):
        ParadeForSequenceClassification.config_class(ranker.encoder.config, reader=ranker.config.reader)
