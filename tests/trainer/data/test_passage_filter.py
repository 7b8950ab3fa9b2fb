"""The passage filter keeps what the scorer finds best, and draws the rest from what is not relevant."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.training import World, world

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.reranking.caches.token_cache import TokenCache
from docparade.reranking.processes import resumable_work
from docparade.retrieval import ranking
from docparade.retrieval.errors import InputError
from docparade.trainer.data.passage_filter import filter_passages
from docparade.trainer.data.triples import Triples

DEPTH = 6


@pytest.fixture(scope="module")
def scorer(tiny_ranker: Callable[..., DocumentRanker]) -> DocumentRanker:
    return tiny_ranker(MaxPForSequenceClassification, "max")


def kept(scorer: DocumentRanker, given: World, output: Path, **options: Any) -> list[dict[str, Any]]:
    filter_passages(
        scorer, given.run, given.queries, given.qrels, given.documents, output, depth=DEPTH, keep=2, **options
    )
    return [json.loads(line) for line in output.read_text().splitlines()]


def passages_of(scorer: DocumentRanker, given: World, query: str, name: str) -> list[Any]:
    (document,) = scorer.rank(given.queries[query], [given.documents[name]])
    return document.passages


def test_the_best_passages_each_with_one_of_another_document(
    scorer: DocumentRanker, small: World, tmp_path: Path
) -> None:
    lines = kept(scorer, small, tmp_path / "kept.jsonl")
    expected = []
    for query, grades in small.qrels.items():
        for name in (name for name, grade in grades.items() if grade > 0):
            best = sorted(passages_of(scorer, small, query, name), key=lambda passage: -passage.score)[:2]
            expected += [(small.queries[query], passage.text) for passage in best]
    assert [(line["query"], line["positive"]) for line in lines] == expected
    pools = {}
    for query, found in small.run.items():
        others = [name for name in ranking(found)[:DEPTH] if small.qrels[query].get(name, 0) == 0]
        pools[small.queries[query]] = {p.text for name in others for p in passages_of(scorer, small, query, name)}
    for line in lines:
        assert set(line) == {"query", "positive", "negatives"} and len(line["negatives"]) == 1
        assert line["negatives"][0] in pools[line["query"]]
    # What was written is what training reads.
    triples = Triples.from_files(tmp_path / "kept.jsonl", seed=1)
    assert len(triples) == len(lines)
    assert {triples[i].positive for i in range(len(triples))} == {line["positive"] for line in lines}


@pytest.mark.slow
def test_every_passage_of_the_pool_is_as_likely(scorer: DocumentRanker, tmp_path: Path) -> None:
    """One long document and one short one: the long one's passages are drawn more often, in proportion."""
    given = world(1)
    (relevant, long, short) = list(given.documents)[:3]
    given.documents[long]["text"] = " ".join(f"long{i % 4}" for i in range(12 + 8 * 3))
    given.documents[short]["text"] = "short"
    given.run = {"q0": {relevant: 3.0, long: 2.0, short: 1.0}}
    given.qrels = {"q0": {relevant: 1}}
    lengths = [len(passages_of(scorer, given, "q0", name)) for name in (long, short)]
    drawn = Counter(
        line["negatives"][0] == "short"
        for seed in range(60)
        for line in kept(scorer, given, tmp_path / f"{seed}.jsonl", seed=seed)
    )
    assert drawn[True] / sum(drawn.values()) == pytest.approx(lengths[1] / sum(lengths), abs=0.08)


def test_the_draw_depends_on_the_seed_and_the_passage_alone(
    scorer: DocumentRanker, small: World, tmp_path: Path
) -> None:
    whole = kept(scorer, small, tmp_path / "whole.jsonl")
    assert kept(scorer, small, tmp_path / "again.jsonl") == whole
    assert kept(scorer, small, tmp_path / "other.jsonl", seed=7) != whole
    cache = TokenCache.open(tmp_path, scorer.require_processor(), small.documents)
    assert kept(scorer, small, tmp_path / "cached.jsonl", encode_documents=cache.encode_documents) == whole
    alone = World(small.queries, small.documents, {"q2": small.run["q2"]}, small.qrels)
    assert kept(scorer, alone, tmp_path / "alone.jsonl") == [
        line for line in whole if line["query"] == small.queries["q2"]
    ]


def test_titles_are_where_the_model_read_them(tiny_ranker: Any, tmp_path: Path) -> None:
    given = world(1)
    for document in given.documents.values():
        document |= {"title": "The Title", "headings": "Some Headings"}
    once = tiny_ranker(MaxPForSequenceClassification, "max")
    leads = {line["positive"].startswith("The Title Some Headings ") for line in kept(once, given, tmp_path / "once")}
    each = tiny_ranker(MaxPForSequenceClassification, "max", unit="word", window=5, stride=3, repeat_title=True)
    lines = kept(each, given, tmp_path / "each")
    texts = [text for line in lines for text in (line["positive"], *line["negatives"])]
    assert all(text.startswith("The Title Some Headings ") for text in texts)
    assert False in leads


def test_it_continues_where_it_stopped(
    scorer: DocumentRanker, small: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    whole = kept(scorer, small, tmp_path / "whole.jsonl")
    write = resumable_work.Parts.write

    def write_two(self: resumable_work.Parts, number: int, made_from: Any, results: Any) -> None:
        if number == 2:
            raise KeyboardInterrupt
        write(self, number, made_from, results)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(resumable_work.Parts, "write", write_two)
        kept(scorer, small, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()
    assert kept(scorer, small, tmp_path / "out.jsonl") == whole
    assert "2 of 4 parts" in caplog.text


def test_queries_without_pairs_are_left_out_with_a_warning(
    scorer: DocumentRanker, small: World, tmp_path: Path, caplog: Any
) -> None:
    qrels = {query: grades for query, grades in small.qrels.items() if query != "q1"}
    lines = kept(scorer, World(small.queries, small.documents, small.run, qrels), tmp_path / "out.jsonl")
    assert "1 of 4 queries are left out" in caplog.text
    assert {line["query"] for line in lines} == {text for query, text in small.queries.items() if query != "q1"}
    with pytest.raises(InputError, match="no query of the run"):
        kept(scorer, World(small.queries, small.documents, small.run, {}), tmp_path / "none.jsonl")
    lost = {**small.qrels, "q0": {"lost": 1}}
    with pytest.raises(InputError, match=r"query q0: .*document lost"):
        kept(scorer, World(small.queries, small.documents, small.run, lost), tmp_path / "none.jsonl")
    assert not list(tmp_path.glob("none*"))
