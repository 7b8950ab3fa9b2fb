"""The types that a user's own program gets: real ones, checked with mypy as a user would run it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest
from support.project import PROJECT

ROOMS = ("modeling", "retrieval", "reranking", "trainer", "experiments", "hub_cards", "benchmarks", "configs")
PUBLIC = ("docparade", *(f"docparade.{room}" for room in ROOMS[:5]))

# Every line is accepted, and says what its type is.
RIGHT = """
from pathlib import Path

from typing_extensions import assert_type

import docparade
from docparade import (
    CedrForSequenceClassification, DocumentLike, DocumentRanker, MaxPForSequenceClassification,
    ParadeForSequenceClassification, RankedDocument, RankedPassage, TextRankingPipeline, to_int8,
)
from docparade.experiments import Recipe, load_recipe
from docparade.modeling import CedrConfig, DocumentProcessor, DocumentVectors, MaxPConfig, ParadeConfig
from docparade.reranking import CollectionDocuments, VectorCache, load_ranker, rerank
from docparade.retrieval import Evaluation, Run, evaluate, load_collection, read_qrels, read_run
from docparade.trainer import PairSampler, RankingTrainer, RankingTrainingArguments

maxp = MaxPForSequenceClassification.from_encoder("path", aggregation="kmax_avg", preset="li2023", k=4, unit="word")
assert_type(maxp, MaxPForSequenceClassification)
assert_type(maxp.config, MaxPConfig)
assert_type(MaxPForSequenceClassification.from_cross_encoder("path", "birch"), MaxPForSequenceClassification)
assert_type(MaxPForSequenceClassification.from_pretrained("path", max_passages=8), MaxPForSequenceClassification)
bi_encoder = MaxPForSequenceClassification.from_bi_encoder("path", "avg", pooling="mean", query_prompt="query: ", k=2)
assert_type(bi_encoder, MaxPForSequenceClassification)
assert_type(
    ParadeForSequenceClassification.from_bi_encoder("path", aggregation="cnn", similarity="dot", cnn_hidden_size=8),
    ParadeForSequenceClassification,
)
parade = ParadeForSequenceClassification.from_encoder(Path("path"), "attn", passage_vector="pooler", window=None)
assert_type(parade, ParadeForSequenceClassification)
assert_type(parade.config, ParadeConfig)
assert_type(parade.to("cpu"), ParadeForSequenceClassification)
assert_type(to_int8(parade), ParadeForSequenceClassification)
cedr = CedrForSequenceClassification.from_encoder("path", "knrm", formula="capreolus", match_layers=[-1], stride=3)
assert_type(cedr, CedrForSequenceClassification)
assert_type(cedr.config, CedrConfig)
assert_type(parade.require_processor().with_options(selection="first"), DocumentProcessor)
assert_type(DocumentProcessor.from_pretrained("path"), DocumentProcessor)

collection = load_collection("cranfield")
documents: list[DocumentLike] = ["text", {"id": 7, "text": "text"}, collection.document("1")]
ranking = maxp.rank("query", documents, top_k=3)
assert_type(ranking, list[RankedDocument])
assert_type(ranking[0].score, float)
assert_type(ranking[0].best_passage, RankedPassage)
assert_type(maxp.rank("query", ["text"]), list[RankedDocument])
assert_type(maxp.rank("query", [{"text": "text"}], keep_passages=2), list[RankedDocument])
kept = bi_encoder.encode_documents(documents)
assert_type(kept, DocumentVectors)
assert_type(bi_encoder.rank("query", documents, vectors=kept), list[RankedDocument])
cache = VectorCache.open(None, bi_encoder, collection)
assert_type(maxp.rank("query", documents, keep_passages=2, choose_by=cache), list[RankedDocument])
assert_type(maxp.rank_all([("query", documents)], progress=False), list[list[RankedDocument]])
assert_type(maxp.score([("query", "text")]), list[float])

def use(pipeline: TextRankingPipeline) -> None:
    for ranked in pipeline({"query": "query", "documents": documents}, top_k=3):
        print(ranked["score"])
    for one in pipeline([{"query": "query", "documents": ["text"]}], return_text=True):
        print(one[0]["text"])

run, qrels = read_run("run.txt"), read_qrels("qrels.txt")
assert_type(run, Run)
assert_type(evaluate(qrels, run, "nDCG@20"), Evaluation)
ranker = load_ranker("path")
assert_type(ranker, DocumentRanker)
texts = CollectionDocuments(collection)
assert_type(rerank(ranker, run, collection.queries(), texts, depth=10), Run)
arguments = RankingTrainingArguments(output_dir="outputs", loss="hinge")
pairs = PairSampler(run, qrels, list(run), pairs_per_epoch=4, seed=0)
trainer = RankingTrainer(maxp, arguments, pairs, collection.queries(), texts)
assert_type(trainer, RankingTrainer)
assert_type(load_recipe("quickstart"), Recipe)
assert_type(docparade.__version__, str)
"""

# Line by line, what is refused, and the words of the error.
WRONG = {
    'MaxPForSequenceClassification.from_bi_encoder("path", pooling="median")': "\"Literal['median']\"",
    'ParadeForSequenceClassification.from_bi_encoder("path", similarity="cos")': "\"Literal['cos']\"",
    'ParadeForSequenceClassification.from_bi_encoder("path", k=3)': '"k"',
    'ParadeForSequenceClassification.from_encoder("path", preset="li2032")': "\"Literal['li2032']\"",
    'ParadeForSequenceClassification.from_encoder("path", windows=3)': '"windows"',
    'ParadeForSequenceClassification.from_encoder("path", unit="line")': "\"Literal['line']\"",
    'CedrForSequenceClassification.from_encoder("path", formula="papers")': "\"Literal['papers']\"",
    "MaxPConfig(aggregation=3)": '"int"',
    'MaxPConfig(passage_score="logits")': "\"Literal['logits']\"",
    'ParadeConfig(passage_vector="mean")': "\"Literal['mean']\"",
    'ranker.rank("query", documents=3)': '"int"',
    'ranker.rank("query", [3])': '"int"',
    'ranker.rank(7, ["text"])': '"int"',
    'ranker.rank("query", ["text"], keep=2)': '"keep"',
    'ranker.rank_all([("query", [None])])': '"None"',
    'ranker.score(["query"])': '"str"',
    'ranker.require_processor().with_options(selection="best")': "\"Literal['best']\"",
    'use({"query": "query"})': "No overload variant",
    'use({"query": "query", "documents": ["text"]}, top=3)': "No overload variant",
}
BEFORE_WRONG = """
from docparade import (
    CedrForSequenceClassification, DocumentRanker, MaxPConfig, MaxPForSequenceClassification, ParadeConfig,
    ParadeForSequenceClassification, TextRankingPipeline,
)

ranker: DocumentRanker
use: TextRankingPipeline
"""


Messages = dict[str, list[tuple[int, str]]]
"""What mypy says of each of the programs: line and message."""


# Kept, like the cache of scripts/check.sh: mypy reads torch and transformers for half a minute the first time.
FOLDER = PROJECT / ".mypy_cache" / "users"


@pytest.mark.slow
def test_a_user_gets_real_types() -> None:
    if find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    wrong = "\n".join([BEFORE_WRONG, *WRONG])
    messages = check({"right.py": RIGHT, "wrong.py": wrong, "names.py": names_program()})
    assert messages["right.py"] == []
    assert unnoticed(messages["wrong.py"]) == []
    assert untyped_names(messages["names.py"]) == []


def check(programs: dict[str, str]) -> Messages:
    """Run mypy on programs, strict, with the rooms under their import name."""
    # mypy follows folders, not setuptools' package-dir.
    package = FOLDER / "path" / "docparade"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    for name, program in programs.items():
        (FOLDER / name).write_text(program, encoding="utf-8")
    for path in [*(PROJECT / "docparade").iterdir(), *(PROJECT / room for room in ROOMS)]:
        (package / path.name).symlink_to(path)
    options = [
        "--strict",
        "--follow-imports=silent",
        "--ignore-missing-imports",
        "--config-file=",
        "--no-error-summary",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *programs],
        env={**os.environ, "MYPYPATH": str(package.parent), "MYPY_CACHE_DIR": str(FOLDER / "cache")},
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr  # it found what is wrong, and did not fail itself
    messages: Messages = {name: [] for name in programs}
    for line in done.stdout.splitlines():
        found = re.fullmatch(r"(\w+\.py):(\d+): (.*)", line)
        assert found is not None, done.stdout + done.stderr
        messages[found[1]].append((int(found[2]), found[3]))
    return messages


def unnoticed(messages: list[tuple[int, str]]) -> list[str]:
    """The wrong lines of which mypy did not say what it should."""
    first = len(BEFORE_WRONG.splitlines()) + 2
    said = {line: "".join(message for number, message in messages if number == line) for line, _ in messages}
    return [
        f"{code}: {said.get(line)}"
        for line, (code, words) in enumerate(WRONG.items(), first)
        if words not in said.get(line, "")
    ]


def names_program() -> str:
    """A program that asks for the type of every public name."""
    imports = [f"import {module}" for module in PUBLIC]
    return "\n".join([*imports, *(f"reveal_type({name})" for name in public_names())])


def public_names() -> list[str]:
    return [f"{module}.{name}" for module in PUBLIC for name in import_module(module).__all__]


def untyped_names(messages: list[tuple[int, str]]) -> list[str]:
    """The public names that are missing, or that are Any, or that return Any."""
    types = dict(messages)
    names = list(enumerate(public_names(), len(PUBLIC) + 1))
    assert len(names) > 100
    typed = re.compile(r'note: Revealed type is "(?!Any")(?!.* -> Any").*"')
    return [f"{name}: {types.get(line)}" for line, name in names if not typed.fullmatch(types.get(line, ""))]
