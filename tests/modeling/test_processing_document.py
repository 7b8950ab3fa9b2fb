"""What the processor builds is what the tokenizer would build, cut where the settings say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from support.project import LICENSE
from transformers import AutoProcessor, PreTrainedTokenizerBase

from docparade import PRESETS, DocumentProcessor, MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.modeling import tokenization

KINDS = ["wordpiece", "byte_bpe", "sentencepiece"]
QUERY = "grant of patent license"
Tokenizers = dict[str, PreTrainedTokenizerBase]

messy_text = st.text(
    alphabet=st.sampled_from("abcde WORK license the.,!?()-'\"\n\t  éß漢字ش😀\u200b"), min_size=0, max_size=400
)


def inputs_of(processor: DocumentProcessor, query: str, document: object) -> list[np.ndarray]:
    query_ids = processor.encode_query(query)
    passages, _ = processor.split(processor.encode_documents([document])[0], len(query_ids))
    return [processor.join(query_ids, passage) for passage in passages]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
# Not of nothing at all, which transformers takes for no pair.
@given(text=messy_text.filter(bool) | st.just(LICENSE[:4000]))
def test_token_windows_equal_the_tokenizers_own(kind: str, text: str, tokenizers: Tokenizers) -> None:
    """The tokenizer itself cuts a pair's second text into windows: same ids, segments and places."""
    tokenizer = tokenizers[kind]
    processor = DocumentProcessor(
        tokenizer, window=20, stride=15, max_passages=None, max_length=64, max_query_tokens=20
    )
    ours = inputs_of(processor, QUERY, text)
    specials = tokenizer.num_special_tokens_to_add(pair=True)
    theirs = tokenizer(
        QUERY,
        text,
        truncation="only_second",
        max_length=len(processor.encode_query(QUERY)) + 20 + specials,
        stride=5,
        return_overflowing_tokens=True,
        return_token_type_ids=True,
    )
    assert [joined[0].tolist() for joined in ours] == theirs["input_ids"]
    # Of the first window alone: in those that overflow, tokenizers give segments even to models that have none.
    assert ours[0][1].tolist() == theirs["token_type_ids"][0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "unit, window, stride", [("word", 12, 6), ("word", 9, 9), ("sentence", 1, 1), ("sentence", 3, 2)]
)
def test_word_and_sentence_windows_equal_the_pair_encoding(
    kind: str, unit: str, window: int, stride: int, tokenizers: Tokenizers
) -> None:
    tokenizer = tokenizers[kind]
    text = " ".join(LICENSE.split()[:400])
    processor = DocumentProcessor(
        tokenizer, unit=unit, window=window, stride=stride, max_passages=None, max_length=512, max_query_tokens=None
    )
    encoded = processor.encode_documents([text])[0]
    query_ids = processor.encode_query(QUERY)
    passages, unread = processor.split(encoded, len(query_ids))
    assert unread == 0
    for passage in passages:
        # A byte-level BPE writes the space before a word into the word's token: that is how it stands in the document.
        start = passage.start - 1 if kind == "byte_bpe" and passage.start > 0 else passage.start
        expected = tokenizer(QUERY, text[start : passage.end], return_token_type_ids=True)
        assert processor.join(query_ids, passage).tolist() == [expected["input_ids"], expected["token_type_ids"]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unit, window, stride", [("token", 30, 20), ("word", 12, 6), ("sentence", 2, 1)])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=messy_text)
def test_passages_cover_all_tokens_and_their_spans_are_true(
    kind: str, unit: str, window: int, stride: int, text: str, tokenizers: Tokenizers
) -> None:
    processor = DocumentProcessor(
        tokenizers[kind], unit=unit, window=window, stride=stride, max_passages=None, max_length=40, max_query_tokens=8
    )
    encoded = processor.encode_documents([text])[0]
    passages, unread = processor.split(encoded, query_length=8)
    assert unread == 0
    assert all(len(passage.token_ids) <= processor.room(8) for passage in passages)
    assert all(0 <= passage.start <= passage.end <= len(text) for passage in passages)
    covered = {position for passage in passages for position in range(passage.start, passage.end)}
    of_tokens = {position for start, end in encoded.spans for position in range(start, end)}
    assert of_tokens <= covered


@pytest.mark.parametrize("kind", KINDS)
def test_title_and_headings_before_every_passage(kind: str, tokenizers: Tokenizers) -> None:
    tokenizer = tokenizers[kind]
    text = " ".join(LICENSE.split()[:120])
    document = {"title": "Apache License of the year 2004", "headings": ["Terms", "Grant of Rights"], "text": text}
    processor = DocumentProcessor.from_preset("cip2021", tokenizer, title_words=3, heading_words=2, max_length=512)
    encoded = processor.encode_documents([document])[0]
    query_ids = processor.encode_query(QUERY)
    passages, _ = processor.split(encoded, len(query_ids))
    assert len(passages) == 2
    for passage in passages:
        expected = tokenizer(QUERY, "Apache License of Terms Grant " + text[passage.start : passage.end])["input_ids"]
        assert processor.join(query_ids, passage)[0].tolist() == expected
    assert text[passages[0].start : passages[0].end].split() == text.split()[:100]
    assert text[passages[1].start : passages[1].end].split() == text.split()[50:]


@pytest.mark.parametrize("kind", KINDS)
def test_a_title_that_is_not_repeated_is_read_once(kind: str, tokenizers: Tokenizers) -> None:
    tokenizer = tokenizers[kind]
    text = " ".join(LICENSE.split()[:60])
    processor = DocumentProcessor(tokenizer, window=40, max_passages=None)
    encoded = processor.encode_documents([{"title": "The Title", "headings": "A Heading", "text": text}])[0]
    passages, _ = processor.split(encoded, 4)
    read = [token for passage in passages for token in passage.token_ids.tolist()]
    assert read == tokenizer(f"The Title A Heading {text}", add_special_tokens=False)["input_ids"]
    # Spans point into the text alone.
    assert passages[0].start == 0
    assert passages[-1].end == len(text)


def test_a_title_that_the_text_begins_with_is_not_read_twice(tokenizers: Tokenizers) -> None:
    processor = DocumentProcessor(tokenizers["wordpiece"])
    plain, titled = processor.encode_documents(["The Work of You", {"title": "The Work", "text": "The Work of You"}])
    assert plain.token_ids.tolist() == titled.token_ids.tolist()


def test_a_long_title_leaves_half_of_the_room(tokenizers: Tokenizers) -> None:
    processor = DocumentProcessor(tokenizers["wordpiece"], repeat_title=True, max_length=40, max_query_tokens=8)
    encoded = processor.encode_documents([{"title": "pneumono " * 16, "text": "work " * 90}])[0]
    passages, _ = processor.split(encoded, 5)
    assert processor.room(5) == 32 and len(encoded.prefix) > 32
    assert all(np.array_equal(passage.token_ids[:16], encoded.prefix[:16]) for passage in passages)
    # One token for each of the 90 words: five passages with 16 of them, and the rest.
    assert [len(passage.token_ids) - 16 for passage in passages] == [16, 16, 16, 16, 16, 10]
    assert passages[-1].end == len("work " * 90) - 1


@pytest.mark.parametrize("preset", PRESETS)
def test_the_inputs_of_a_preset_have_its_length(preset: str, tokenizers: Tokenizers) -> None:
    processor = DocumentProcessor.from_preset(preset, tokenizers["wordpiece"])
    batch = processor([QUERY], [LICENSE])
    assert batch["input_ids"].shape[2] <= processor.max_length


def test_a_preset_cuts_the_license_as_the_paper_says(tokenizers: Tokenizers) -> None:
    words = LICENSE.split()
    processor = DocumentProcessor.from_preset("zhang2021", tokenizers["wordpiece"], max_length=2000)
    passages, unread = processor.split(processor.encode_documents([LICENSE])[0], 4)
    assert [LICENSE[p.start : p.end].split() for p in passages] == [
        words[start : start + 150] for start in range(0, len(words) - 75, 75)
    ]
    assert unread == 0
    first = DocumentProcessor.from_preset("ghasemi2021", tokenizers["wordpiece"])
    passages, unread = first.split(first.encode_documents([LICENSE])[0], 4)
    assert (len(passages), len(passages[0].token_ids)) == (1, 256 - 3 - 4)
    assert passages[0].start == len(LICENSE) - len(LICENSE.lstrip())
    assert unread > 0


def test_options_win_over_the_preset(tokenizers: Tokenizers) -> None:
    processor = DocumentProcessor.from_preset("ghasemi2021", tokenizers["wordpiece"], max_length=128)
    assert processor([QUERY], [LICENSE])["input_ids"].shape == (1, 1, 128)


def test_queries_are_cut_at_their_limit(tokenizers: Tokenizers) -> None:
    processor = DocumentProcessor(tokenizers["wordpiece"], max_query_tokens=5)
    assert len(processor.encode_query("the work " * 30)) == 5
    whole = DocumentProcessor(tokenizers["wordpiece"], max_query_tokens=None)
    assert len(whole.encode_query("the work " * 30)) == 60


def test_a_longer_query_takes_its_room_from_the_passages(tokenizers: Tokenizers) -> None:
    processor = DocumentProcessor(tokenizers["wordpiece"], window=40, stride=30, max_length=60, max_query_tokens=40)
    encoded = processor.encode_documents([LICENSE[:1500]])[0]
    for length in (5, 17, 30, 40):
        passages, _ = processor.split(encoded, length)
        longest = max(len(passage.token_ids) for passage in passages)
        assert longest == min(40, 60 - 3 - length)


def test_documents_are_tokenized_in_one_call(
    monkeypatch: pytest.MonkeyPatch, tiny_ranker: Callable, random_text: Callable
) -> None:
    """Once per document, however many queries and however often it stands in the pairs."""
    model = tiny_ranker(MaxPForSequenceClassification, "max")
    tokenized: list[str] = []
    call = tokenization._call

    def counting(tokenizer: PreTrainedTokenizerBase, texts: list[str], **options: object) -> object:
        tokenized.extend(texts)
        return call(tokenizer, texts, **options)

    monkeypatch.setattr(tokenization, "_call", counting)
    texts = [random_text(30, seed=n) for n in range(4)]
    queries = ["the work", "a license", "grant"]
    scores = model.score([(query, text) for query in queries for text in texts])
    assert sorted(tokenized) == sorted([*queries, *texts])
    assert scores[5] == pytest.approx(model.score([(queries[1], texts[1])])[0], abs=1e-5)


def test_batch_has_the_shapes_that_the_model_takes(tokenizers: Tokenizers) -> None:
    processor = DocumentProcessor(tokenizers["wordpiece"], window=10, max_passages=4)
    batch = processor(["one", "two words"], ["", "the work " * 30])
    assert batch["passage_mask"].tolist() == [[True, False, False, False], [True] * 4]
    assert batch["input_ids"].shape == batch["attention_mask"].shape == batch["token_type_ids"].shape
    assert not batch["attention_mask"][~batch["passage_mask"]].any()
    assert list(batch) == processor.model_input_names
    assert batch["input_ids"].dtype == torch.int64
    # RoBERTa has no segments.
    assert "token_type_ids" not in DocumentProcessor(tokenizers["byte_bpe"])(["one"], ["two"])


def settings_of(processor: DocumentProcessor) -> dict:
    return {name: value for name, value in processor.to_dict().items() if name != "auto_map"}


def test_saved_and_loaded_it_is_the_same(tokenizers: Tokenizers, tmp_path: Path) -> None:
    for preset in PRESETS:
        processor = DocumentProcessor.from_preset(preset, tokenizers["sentencepiece"], seed=7)
        processor.save_pretrained(tmp_path / preset)
        loaded = DocumentProcessor.from_pretrained(tmp_path / preset)
        assert settings_of(loaded) == settings_of(processor)
        document = {"title": "Apache", "text": LICENSE}
        assert torch.equal(loaded([QUERY], [document])["input_ids"], processor([QUERY], [document])["input_ids"])


@pytest.mark.parametrize(
    "options, words",
    [
        ({"unit": "line"}, "unit is 'line'"),
        ({"selection": "best"}, "selection is 'best'"),
        ({"window": 0}, "window is 0"),
        ({"max_passages": 2.5}, r"max_passages is 2\.5"),
        ({"max_passages": True}, "max_passages is True"),
        ({"max_length": 0}, "max_length is 0"),
        ({"max_length": "256"}, "max_length is '256'"),
        ({"title_words": -1}, "title_words is -1"),
        ({"heading_words": None}, "heading_words is None"),
        ({"seed": "x"}, "seed is 'x'"),
        ({"seed": 2**70}, "seed is 1180591620717411303424"),
        ({"repeat_title": "no"}, "repeat_title is 'no'"),
        ({"strip_tags": 1}, "strip_tags is 1"),
        ({"window": 10, "stride": 11}, "stride=11 .*window=10"),
        ({"unit": "word", "window": None}, "how many words"),
        ({"max_length": 60, "max_query_tokens": 57}, "leaves no room"),
    ],
)
def test_wrong_settings_are_named(options: dict, words: str, tokenizers: Tokenizers) -> None:
    with pytest.raises(ValueError, match=words):
        DocumentProcessor(tokenizers["wordpiece"], **options)


def test_an_unknown_preset_is_named(tokenizers: Tokenizers) -> None:
    with pytest.raises(ValueError, match=r"no preset 'parade'.*li2023"):
        DocumentProcessor.from_preset("parade", tokenizers["wordpiece"])


def test_auto_processor_loads_it(tmp_path: Path, tiny_ranker: Callable) -> None:
    tiny_ranker(ParadeForSequenceClassification, "attn").save_pretrained(tmp_path)
    loaded = AutoProcessor.from_pretrained(tmp_path)
    assert type(loaded) is DocumentProcessor
    assert loaded.window == 12
