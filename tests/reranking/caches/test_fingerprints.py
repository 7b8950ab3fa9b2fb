"""Fingerprints change when what they stand for does, and not with comments in the code."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from transformers import AutoModel, BertTokenizer
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from docparade import DocumentProcessor, DocumentRanker, MaxPForSequenceClassification
from docparade.modeling import encoder_fingerprint, processing_document
from docparade.reranking.caches import fingerprints

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] the rain falls on river s ##s ##ing fall wing a b . , ! ? < > / p é 漢"
DOCUMENTS = [
    {"title": "", "text": ""},
    {"title": "The Rain", "text": "The Rain falls on the river. Falling, falling! Wings? A b."},
    {
        "title": "Rivers",
        "headings": "On rain. On wings",
        "text": "<p>Rain\n\nfalls.</p> The river <b>s</b>; 漢 é 😀 a.b",
    },
    {"title": " ".join(["the rain falls"] * 9), "headings": "river " * 40, "text": "  on\tthe  river . " * 3},
    {"text": "rain " * 200},
    {"title": "The rain", "text": "<html><title>The rain</title><p>The <b>r</b>iver &amp; rain<br>falls on it.</p>"},
]
# Of each version, the hash of what `encode_documents` returns. Where it differs, raise TOKENIZATION_VERSION in
# modeling/processing_document.py and add a line: what was cached before must not be read any more.
RESULTS = {
    1: "62519d72bf1b40109c59fd0111e0d094ee17f31dd3b7fbdc044efc31939d9bf8",
    2: "cf3dbe8c111f79dbd20c5d6f759410f7fdc61bac2748102aaf7c84a2d7755814",
}


def results() -> str:
    """A hash of all that comes out of `encode_documents`, with all settings that have a say in it."""
    hashed = hashlib.sha256()
    words = {word: number for number, word in enumerate(VOCABULARY.split())}
    for unit, repeat_title, strip_tags in product(("token", "word", "sentence"), (False, True), (False, True, "html")):
        processor = DocumentProcessor(
            BertTokenizer(vocab=words),
            unit=unit,
            window=3,
            repeat_title=repeat_title,
            title_words=4,
            heading_words=5,
            strip_tags=strip_tags,
        )
        for encoded in processor.encode_documents(DOCUMENTS):
            for values in (encoded.token_ids, encoded.spans, encoded.bounds, encoded.prefix):
                hashed.update(f"{values.shape} {values.tolist()}".encode())
    return hashed.hexdigest()


def test_another_result_is_another_version() -> None:
    assert max(RESULTS) == processing_document.TOKENIZATION_VERSION
    assert results() == RESULTS[processing_document.TOKENIZATION_VERSION], "see RESULTS"


def test_the_version_is_that_of_the_processors_own_code(
    tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    """A checkpoint carries the code that it was saved with; comments in it change nothing, its version does."""
    ranker = tiny_ranker(MaxPForSequenceClassification, "max")
    ours = encoder_fingerprint.fingerprint_tokenization(ranker.require_processor())

    def with_code(folder: Path, change: Callable[[str], str]) -> str:
        ranker.save_pretrained(folder)
        code = folder / "processing_document.py"
        code.write_text(change(code.read_text(encoding="utf-8")), encoding="utf-8")
        kind = get_class_from_dynamic_module("processing_document.DocumentProcessor", str(folder))
        assert kind is not DocumentProcessor
        return encoder_fingerprint.fingerprint_tokenization(kind.from_pretrained(folder))

    version = f"TOKENIZATION_VERSION = {processing_document.TOKENIZATION_VERSION}"
    assert with_code(tmp_path / "commented", lambda code: code + "\n# A comment.\n") == ours
    later = with_code(tmp_path / "later", lambda code: code.replace(version, "TOKENIZATION_VERSION = 99"))
    older = with_code(tmp_path / "older", lambda code: code.replace(version, ""))
    assert len({ours, later, older}) == 3


@pytest.mark.parametrize("options", [{}, {"pooling": "mean"}])
def test_saving_and_loading_change_no_fingerprint(
    options: dict[str, str], tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    """Both add values to configurations, and the training saves a model whose kept vectors it uses."""
    ranker = copy.deepcopy(tiny_ranker(MaxPForSequenceClassification, "avg", **options))

    def both(model: DocumentRanker) -> tuple[str, object]:
        return fingerprints.fingerprint_model(model), encoder_fingerprint.fingerprint_encoder(model)

    before = both(ranker)
    ranker.save_pretrained(tmp_path / "saved")
    assert both(ranker) == before
    assert both(AutoModel.from_pretrained(tmp_path / "saved")) == before
