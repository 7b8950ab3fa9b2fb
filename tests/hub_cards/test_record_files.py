"""The files of a checkpoint are read in one way, whether a card is written from them or they are published."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.hub_cards import preview_folder, write_card
from docparade.hub_cards.record_files import read_json
from docparade.retrieval.errors import InputError

DAMAGE = {"{": r"cannot be read \(.*\)", "[]": "is not a JSON object", "\udcff": r"cannot be read \(.*\)"}


def test_a_file_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert read_json(tmp_path / "speed.json") == {}


@pytest.mark.parametrize("name", ["config.json", "processor_config.json", "measured.json"])
@pytest.mark.parametrize("content", DAMAGE, ids=["cut off", "a list", "no UTF-8"])
def test_a_damaged_file_is_told_in_the_same_words(
    content: str, name: str, tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    tiny_ranker(MaxPForSequenceClassification, "max").save_pretrained(tmp_path)
    (tmp_path / name).write_bytes(content.encode(errors="surrogateescape"))
    sentence = f"{re.escape(str(tmp_path / name))} {DAMAGE[content]}"
    with pytest.raises(InputError, match=f"^{sentence}"):
        write_card(tmp_path)
    with pytest.raises(InputError, match=f"^{sentence}"):
        preview_folder(tmp_path, "org/tiny", license="mit", language="en")


@pytest.mark.parametrize("content", ["[", "{}", '[{"path": ""}]'], ids=["cut off", "an object", "no type"])
def test_damaged_modules_are_not_published(
    content: str, tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    tiny_ranker(MaxPForSequenceClassification, "max").save_pretrained(tmp_path)
    (tmp_path / "modules.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"modules\.json"):
        preview_folder(tmp_path, "org/tiny", license="mit", language="en")
