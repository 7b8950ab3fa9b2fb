"""Recipes cut down to one step: their models, collections and numbers are replaced by tiny ones, the rest stays.

`cut_down` works on a recipe's content, and writes `tiny:bert` for a model that is a BERT, and `tiny:ID` for a
collection; two recipes whose `outline` is the same run through the same code. `TinyWorld` then makes what is named.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ir_datasets
from ir_datasets.datasets.base import Dataset
from ir_datasets.datasets.msmarco_document_v2 import MsMarcoV2Document
from ir_datasets.formats import TrecQrels, TrecQueries, TrecScoredDocs, TsvDocPairs, TsvDocs
from ir_datasets.util import LocalDownload

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.experiments.recipes.data_recipe import SCORED_DOCUMENTS
from docparade.experiments.recipes.model_recipe import SOURCES, preset_settings
from support.project import ENCODERS, LENGTH_DEPENDENT_ENCODERS, WORDS

TINY = "tiny:"
# Highest values. A recipe that has a lower one, or none, keeps it.
LIMITS: dict[str, float] = {
    **{"window": 12, "stride": 8, "max_length": 40, "max_query_tokens": 8, "max_passages": 3},
    **{"title_words": 2, "heading_words": 2, "depth": 2, "rerank_depth": 2, "hits": 8, "max_rank": 8},
    **{"num_train_epochs": 1, "pairs_per_epoch": 4, "batch_size": 2, "max_queries": 3, "evaluation_epochs": 1},
    **{"eval_steps": 1, "chunk_passages": 2},
}
SETTINGS = ("window", "stride", "max_length", "max_query_tokens", "max_passages", "title_words", "heading_words")
LOWEST_RATE = 0.5
"""of a sample of the judgments: there are few"""
NEGATIVE_RANKS = [3, 8]
# What is a name, or changes numbers alone.
NOT_OUTLINED = ("name", "paper", "reproduces", "seed", "query_field", "table")


def cut_down(content: Mapping[str, Any]) -> dict[str, Any]:
    """A complete recipe (`read_recipe`) with tiny models, collections and numbers, and a single training step."""
    small = _cut(content, "")
    for section in _sections(small, "training"):
        if section.get("num_train_epochs") != 0:  # a model that is measured as it is
            section["max_steps"] = 1
    for section in _sections(small, "model"):
        if "preset" in section or not section.keys().isdisjoint(set(SOURCES) - {"checkpoint"}):
            _limit_preset(section)
    processor = small.get("rerank", {}).get("processor", {})
    if "preset" in processor:
        _limit_preset(processor)
    data = small["stages"][list(small["stages"])[-1]].get("data", {}) if "stages" in small else small["data"]
    if data.get("folds"):
        data.setdefault("fold", 1)
    return small


def outline(content: Any, key: str = "") -> Any:
    """What decides which code a recipe runs through: without names, and any number like any other."""
    if isinstance(content, Mapping):
        return {name: outline(value, name) for name, value in content.items() if name not in NOT_OUTLINED}
    if key in ("collection", "triples"):
        return min(len(content), 2) if isinstance(content, list) else 1
    if isinstance(content, list):
        return [outline(value, key) for value in content]
    if isinstance(content, (int, float)) and not isinstance(content, bool):
        return min(content, 3) if key == "count" else 0  # two folds have no queries to validate on
    return content


def _cut(value: Any, key: str) -> Any:
    if key in ("collection", "triples") and value is not None:
        return [f"{TINY}{name}" for name in ([value] if isinstance(value, str) else value)]
    if key in (*SOURCES, "teacher") and value is not None:
        return f"{TINY}{find_architecture(value)}"
    if isinstance(value, Mapping):
        return {name: _cut(inner, name) for name, inner in value.items()}
    if key == "negative_ranks" and value is not None:
        return NEGATIVE_RANKS
    if isinstance(value, list):
        return [_cut(inner, key) for inner in value]
    if key == "engine":
        return "embedded"  # Lucene needs Java
    if key == "rate":
        return max(value, LOWEST_RATE)
    if key in LIMITS and isinstance(value, (int, float)):
        return min(value, LIMITS[key])
    return value


def find_architecture(name: str) -> str:
    """The architecture that a model's name speaks of first; BERT, if it speaks of none."""
    known = {each.replace("_", ""): each for each in (*ENCODERS, *LENGTH_DEPENDENT_ENCODERS, "t5")}
    found = [(place, -len(word), each) for word, each in known.items() if (place := name.lower().find(word)) >= 0]
    return min(found, default=(0, 0, "bert"))[-1]


def _sections(content: Mapping[str, Any], key: str) -> Iterator[dict[str, Any]]:
    """A section of the recipe, and those of its stages."""
    for place in (content, *(stage or {} for stage in content.get("stages", {}).values())):
        if isinstance(place.get(key), dict):
            yield place[key]


def _limit_preset(section: dict[str, Any]) -> None:
    settings = preset_settings(section.get("preset", "whole")) | section
    for name in SETTINGS:
        value = settings.get(name)
        if isinstance(value, int) and value > LIMITS[name]:
            section[name] = LIMITS[name]


class TinyWorld:
    """Makes what cut-down recipes name, each thing once: `world.build(recipe)`.

    Every collection has the same documents, and queries, judgments, lists and pairs of its own.
    """

    def __init__(
        self,
        folder: Path,
        encoder_folder: Callable[..., Path],
        tiny_ranker: Callable[..., DocumentRanker],
        fixture: Callable[[str], Callable[..., Path]],
    ) -> None:
        self.folder = folder
        self._encoder, self._ranker, self._fixture = encoder_folder, tiny_ranker, fixture
        self._terms = random.Random(0).sample([word for word in WORDS if word.isalpha() and len(word) > 5], 9)
        self._documents = {f"d{number}": _document(self._terms, number) for number in range(20)}
        lines = ("\t".join([name, "", *parts]) for name, parts in self._documents.items())
        (folder / "docs.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._docs = TsvDocs(LocalDownload(folder / "docs.tsv"), MsMarcoV2Document)
        self._made: dict[str, Path] = {}

    def build(self, value: Any, key: str = "", around: Mapping[str, Any] | None = None) -> Any:
        """The content with the places of what it names."""
        if isinstance(value, Mapping):
            return {name: self.build(inner, name, value) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.build(inner, key, around) for inner in value]
        if key == "collection":
            return self._collection(value).name
        if key == "triples":
            is_file = Path(value).suffix in (".jsonl", ".gz", ".xz")
            return str(self._triples()) if is_file else self._collection(value).name
        if key in (*SOURCES, "teacher") and value is not None:
            return str(self._model(key, value.removeprefix(TINY)))
        if key in ("run", "qrels") and value not in (None, SCORED_DOCUMENTS):
            assert around is not None
            [collection] = around["collection"]
            return str(self._collection(collection) / f"{key}.txt")
        return value

    def _model(self, key: str, architecture: str) -> Path:
        if architecture == "t5":
            return self._fixture("seq2seq_folder")("t5")
        if key == "encoder":
            return self._encoder(architecture)
        if key == "cross_encoder":
            return self._encoder(architecture, labels=2)
        name = f"{key}-{architecture}"
        if name not in self._made:
            options = {} if key == "teacher" else {"pooling": "mean"}
            self._made[name] = self.folder / name
            ranker = self._ranker(MaxPForSequenceClassification, "max", architecture, **options)
            ranker.save_pretrained(self._made[name])
        return self._made[name]

    def _triples(self) -> Path:
        path = self.folder / "triples.jsonl"
        if not path.exists():
            lines = [{"query": t, "positive": f"{t} {t}", "negatives": [t[::-1], "a"]} for t in self._terms]
            path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return path

    def _collection(self, name: str) -> Path:
        """The folder of a collection's files; its name is the id under which ir_datasets knows them."""
        slug = "tiny-" + re.sub(r"\W+", "-", name.removeprefix(TINY)).strip("-")
        folder = self.folder / slug
        if slug not in self._made:
            self._made[slug] = folder
            folder.mkdir()
            self._write_queries(slug, folder)
            parts = (
                TrecQueries(LocalDownload(folder / "topics.txt")),
                TrecQrels(LocalDownload(folder / "qrels.txt"), {}),
                TrecScoredDocs(LocalDownload(folder / "run.txt")),
                TsvDocPairs(LocalDownload(folder / "pairs.tsv")),
            )
            ir_datasets.registry.register(slug, Dataset(self._docs, *parts))
        return folder

    def _write_queries(self, slug: str, folder: Path) -> None:
        topics, qrels, run, pairs = [], [], [], []
        for number, term in enumerate(self._terms):
            query = f"{slug}-{number}"
            parts = f"<num> Number: {query}\n<title> {term}\n<desc> Description:\n{term} or not\n<narr> Narrative:\n-\n"
            topics.append(f"<top>\n{parts}</top>\n")
            relevant = [name for name, (_, _, text) in self._documents.items() if term in text.split()]
            others = [name for name in self._documents if name not in relevant]
            assert relevant and others
            qrels += [f"{query} 0 {name} {grade + 1}" for grade, name in enumerate(relevant[:3])]
            qrels.append(f"{query} 0 {others[0]} 0")
            listed = [*others[:3], *relevant[:3], *others[3:8]]
            run += [f"{query} Q0 {name} {rank} {-rank} tiny" for rank, name in enumerate(listed, start=1)]
            pairs.append(f"{query}\t{relevant[0]}\t{others[0]}")
        files = {"topics.txt": topics, "qrels.txt": qrels, "run.txt": run, "pairs.tsv": pairs}
        for name, lines in files.items():
            (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _document(terms: list[str], number: int) -> tuple[str, str, str]:
    """Title, headings and text of a document; each term stands in several documents."""
    draw = random.Random(number)
    words = [*draw.choices(WORDS, k=12), terms[number % 9], terms[number * 5 % 9], ". The", *draw.choices(WORDS, k=12)]
    return f"document {number}", "one heading", " ".join(words)
