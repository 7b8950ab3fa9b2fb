"""Everything is read by default; a limit is a choice, and what it leaves unread is said."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from support.project import FAMILIES, LICENSE, QUERY
from transformers import AutoModel

from docparade import DocumentProcessor, DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification

SHORT = {"window": 12, "stride": 8, "max_length": 24, "max_query_tokens": 8}
LIMITED = {"cnn", "transformer"}


@pytest.fixture
def build(encoder_folder: Callable[..., Path]) -> Callable[..., DocumentRanker]:
    def make(family: type[DocumentRanker], aggregation: str, **options: object) -> DocumentRanker:
        return family.from_encoder(encoder_folder("bert"), aggregation=aggregation, **SHORT, **options)

    return make


@pytest.mark.parametrize("family, aggregation", FAMILIES)
def test_the_whole_document_is_the_default(
    family: type[DocumentRanker], aggregation: str, build: Callable[..., DocumentRanker]
) -> None:
    model = build(family, aggregation)
    [ranked] = model.rank(QUERY, [LICENSE])
    if family is ParadeForSequenceClassification and aggregation in LIMITED:
        assert (len(ranked.passages), model.config.passage_limit) == (16, 16)
        assert ranked.unread > 100
    else:
        assert ranked.unread == 0
        assert len(ranked.passages) > 100
        assert ranked.passages[-1].end == len(LICENSE.rstrip())


@pytest.mark.parametrize("family, aggregation", FAMILIES)
def test_everything_may_be_asked_for(
    family: type[DocumentRanker], aggregation: str, build: Callable[..., DocumentRanker]
) -> None:
    limited = family is ParadeForSequenceClassification and aggregation in LIMITED
    assert build(family, aggregation, max_passages=None).processor.max_passages == (16 if limited else None)


def test_a_transformer_without_positions_has_no_limit(build: Callable[..., DocumentRanker]) -> None:
    model = build(ParadeForSequenceClassification, "transformer", passage_positions=False)
    assert model.rank(QUERY, [LICENSE])[0].unread == 0


def test_existing_cross_encoders_read_everything(encoder_folder: Callable[..., Path]) -> None:
    model = MaxPForSequenceClassification.from_cross_encoder(encoder_folder("bert", labels=1), **SHORT)
    assert model.rank(QUERY, [LICENSE])[0].unread == 0


def test_the_papers_limits_are_presets(encoder_folder: Callable[..., Path]) -> None:
    model = MaxPForSequenceClassification.from_encoder(encoder_folder("bert"), preset="li2023", **SHORT)
    assert len(model.rank(QUERY, [LICENSE])[0].passages) == 16


# --- Changing it -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family, aggregation", [FAMILIES[1], FAMILIES[9], FAMILIES[11]])
@pytest.mark.parametrize("auto", [True, False])
def test_max_passages_is_changed_at_loading(
    family: type[DocumentRanker],
    aggregation: str,
    auto: bool,
    build: Callable[..., DocumentRanker],
    tmp_path: Path,
) -> None:
    build(family, aggregation).save_pretrained(tmp_path)
    model = (AutoModel if auto else family).from_pretrained(tmp_path, max_passages=3)
    assert len(model.rank(QUERY, [LICENSE])[0].passages) == 3
    # The rest of its settings stays, and the change is saved.
    assert (model.processor.window, model.processor.stride) == (12, 8)
    model.save_pretrained(tmp_path / "again")
    again = AutoModel.from_pretrained(tmp_path / "again")
    assert again.processor.max_passages == 3
    if aggregation != "transformer":
        everything = AutoModel.from_pretrained(tmp_path / "again", max_passages=None)
        assert everything.rank(QUERY, [LICENSE])[0].unread == 0


def test_a_limit_beyond_the_aggregations_own_is_refused(build: Callable[..., DocumentRanker], tmp_path: Path) -> None:
    build(ParadeForSequenceClassification, "transformer").save_pretrained(tmp_path)
    for limit in (17, None):
        with pytest.raises(ValueError, match=rf"max_passages={limit}.*transformer.*16"):
            AutoModel.from_pretrained(tmp_path, max_passages=limit)
    with pytest.raises(ValueError, match="max_passages is 0"):
        AutoModel.from_pretrained(tmp_path, max_passages=0)


def test_max_passages_needs_a_processor(build: Callable[..., DocumentRanker], tmp_path: Path) -> None:
    build(MaxPForSequenceClassification, "max").save_pretrained(tmp_path)
    (tmp_path / "processor_config.json").unlink()
    with pytest.raises(ValueError, match=r"processor_config\.json, .*max_passages"):
        AutoModel.from_pretrained(tmp_path, max_passages=3)


def test_options_that_a_processor_does_not_have(build: Callable[..., DocumentRanker]) -> None:
    with pytest.raises(TypeError, match=r"^windows: "):
        build(MaxPForSequenceClassification, "max").processor.with_options(windows=3)


# --- What is said ----------------------------------------------------------------------------------------------------


def test_what_a_limit_leaves_unread_is_said_once_a_model(
    build: Callable[..., DocumentRanker], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    model = build(MaxPForSequenceClassification, "max", max_passages=2)
    model.rank(QUERY, ["short"])
    assert "unread" not in caplog.text
    unread = [ranked.unread for ranked in model.rank(QUERY, [LICENSE, LICENSE[:2000], "short"])]
    total = sum(unread) + 2 + 2 + 1
    assert f"max_passages=2 leaves {sum(unread)} of {total} passages unread, in 2 of 3 documents" in caplog.text
    model.rank(QUERY, [LICENSE])
    model.processor([QUERY], [LICENSE])
    assert caplog.text.count("unread") == 1
    # Another model, though with the same settings, has its own warning; a CrossEncoder's way in has it, too.
    build(MaxPForSequenceClassification, "max", max_passages=2).processor([QUERY], [LICENSE])
    assert caplog.text.count("unread") == 2


def test_passages_that_the_user_leaves_out_are_no_warning(
    build: Callable[..., DocumentRanker], caplog: pytest.LogCaptureFixture
) -> None:
    model = build(MaxPForSequenceClassification, "max")
    assert model.rank(QUERY, [LICENSE], keep_passages=2)[0].unread > 0
    assert "unread" not in caplog.text


def test_a_query_that_is_cut_is_said_once_a_model(
    build: Callable[..., DocumentRanker], caplog: pytest.LogCaptureFixture
) -> None:
    model = build(MaxPForSequenceClassification, "max")
    for words in (20, 30, 40):
        model.rank("terms " * words, ["short"])
    assert caplog.text.count("is cut to max_query_tokens=8") == 1


# --- Checkpoints that do not fit -------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlm-roberta"])
def test_a_checkpoint_without_its_tokenizer(
    architecture: str, tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    tiny_ranker(MaxPForSequenceClassification, "max", architecture).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match=r"no tokenizer\.json"):
        AutoModel.from_pretrained(tmp_path)


def test_a_tokenizer_without_words(tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path) -> None:
    tiny_ranker(MaxPForSequenceClassification, "max").save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="has no vocabulary"):
        DocumentProcessor.from_pretrained(tmp_path)


def test_an_encoder_without_a_tokenizer(encoder_folder: Callable[..., Path], tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((encoder_folder("bert") / name).read_bytes())
    with pytest.raises(ValueError, match=rf"tokenizer of {tmp_path} has no vocabulary"):
        MaxPForSequenceClassification.from_encoder(tmp_path)


def test_a_length_beyond_the_encoders_positions(tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path) -> None:
    model = tiny_ranker(MaxPForSequenceClassification, "max")
    model.save_pretrained(tmp_path)
    path = tmp_path / "processor_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "max_length": 97}))
    with pytest.raises(ValueError, match=r"processor_config\.json: max_length=97 .*96"):
        AutoModel.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="max_length=97"):
        model.processor = model.processor.with_options(max_length=97)
