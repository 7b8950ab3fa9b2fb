"""The collection of Python's documentation: what is in it, what is held out, and that it is the same every time."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import assume, given, strategies as st

from docparade.retrieval import load_collection
from docparade.retrieval.errors import InputError
from docparade.retrieval.index.inverted_index import open_index
from docparade.retrieval.pydocs import docstrings, pydocs_collection as pydocs
from docparade.retrieval.pydocs.docstrings import read_modules
from docparade.retrieval.pydocs.near_duplicates import content_words, repeated_texts, similar_pairs, words_in_order
from docparade.retrieval.runs import read_qrels

WORDS = [f"word{i}" for i in range(2000)]


def filler(start: int, count: int = 60) -> str:
    return " ".join(WORDS[start : start + count])


def function(name: str, summary: str, start: int) -> str:
    return f'def {name}(first, *, second=None):\n    """{summary}\n\n    {filler(start)}\n    """\n'


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package of a few modules, that would fail if it were imported."""
    folder = tmp_path / "fakepackage"
    (folder / "tests").mkdir(parents=True)
    failing = "raise ImportError('imported')\n"
    (folder / "__init__.py").write_text(f'"""{filler(1700, 250)}"""\n' + failing, encoding="utf-8")
    alpha = [
        f'"""Alpha things.\n\n{filler(100, 150)}\n"""\n' + failing,
        function("weigh", "Weigh the ripe apples of a ``basket`` twice.", 300),
        function("weigh_soon", "Weigh the ripe apples of a basket, twice.", 400),
        function("measure", "Measure how far two distant harbors lie apart.", 500),
        function("_hidden", "Compute something nobody outside should see here.", 560),
        function("short", "Too short.", 620),
        "class Scale:\n" + '    """Balance of a very precise kind for grain."""\n',
        "    " + function("tare", "Set the empty balance back to zero again.", 700).replace("\n", "\n    "),
    ]
    (folder / "alpha.py").write_text("\n".join(alpha), encoding="utf-8")
    beta = [
        f'"""{filler(800, 150)} (roast green coffee beans, over an open fire)"""\n',
        function("distance", "Measure how far two distant harbors are apart.", 1000),
        function("bake", "Bake a loaf of dark bread from coarse flour.", 1100),
        # Its line stands in the introduction, too.
        function("roast", "Roast green coffee beans over an open fire.", 1200),
    ]
    (folder / "beta.py").write_text("\n".join(beta), encoding="utf-8")
    (folder / "copy_of_beta.py").write_text("\n".join(beta), encoding="utf-8")
    (folder / "small.py").write_text('"""A few words."""', encoding="utf-8")
    (folder / "broken.py").write_text(f'"""{filler(0, 300)}"""\ndef (', encoding="utf-8")
    (folder / "tests" / "test_it.py").write_text(f'"""{filler(1500, 300)}"""', encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(pydocs, "PACKAGES", ("fakepackage", "notinstalled"))
    return "fakepackage"


def test_modules_are_read_and_not_imported(package: str) -> None:
    names = [module.name for module in read_modules(package, 200)]
    assert names == [f"fakepackage{suffix}" for suffix in ("", ".alpha", ".beta", ".copy_of_beta")]
    assert "fakepackage" not in sys.modules
    alpha = next(module for module in read_modules(package, 200) if module.name.endswith("alpha"))
    assert alpha.introduction.startswith("Alpha things.")
    entries = {entry.name: entry for entry in alpha.entries}
    assert list(entries)[-2:] == ["Scale", "Scale.tare"]
    assert entries["measure"].signature == "measure(first, second)"
    assert entries["measure"].rest == filler(500)


def test_what_is_held_out(package: str, tmp_path: Path) -> None:
    built = tmp_path / "built"
    built.mkdir()
    pydocs.build(built)
    documents = {
        line["doc_id"]: line["text"] for line in map(json.loads, (built / "docs.jsonl").open(encoding="utf-8"))
    }
    # The copy of a document is left out.
    assert list(documents) == ["fakepackage", "fakepackage.alpha", "fakepackage.beta"]
    queries = dict(line.rstrip("\n").split("\t") for line in (built / "queries.tsv").open(encoding="utf-8"))
    # Not: lines of other documents too, private names, lines with too few words or with nothing below them.
    assert set(queries) - {"fakepackage.alpha:weigh", "fakepackage.alpha:weigh_soon"} == {
        "fakepackage.alpha:Scale.tare",
        "fakepackage.beta:bake",
    }
    # Of two like lines of one document, one is a query, and both are gone.
    assert len(queries) == 3
    assert queries["fakepackage.beta:bake"] == "Bake a loaf of dark bread from coarse flour"
    assert "apples" not in documents["fakepackage.alpha"] and "zero" not in documents["fakepackage.alpha"]
    assert "harbors" in documents["fakepackage.alpha"]
    assert f"bake(first, second)\n{filler(1100)}" in documents["fakepackage.beta"]
    expected = {query: {query.split(":")[0]: 1} for query in queries}
    assert read_qrels(built / "qrels.txt") == expected


def test_markup_is_taken_off() -> None:
    assert (
        pydocs.plain("Give the :class:`~os.PathLike` of ``path`` and *args*.") == "Give the PathLike of path and args"
    )
    assert pydocs.plain("See :py:func:`the title <a.b>` now") == "See the title now"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which a part of the real collection is built: a few of its packages."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def real(folder: Path, monkeypatch: pytest.MonkeyPatch) -> pydocs.PydocsCollection:
    monkeypatch.setenv("DOCPARADE_CACHE", str(folder))
    monkeypatch.setattr(pydocs, "PACKAGES", ("accelerate", "fsspec", "jinja2", "rich"))
    collection = load_collection("docparade:pydocs")
    assert isinstance(collection, pydocs.PydocsCollection)
    return collection


def test_no_document_answers_word_for_word(real: pydocs.PydocsCollection) -> None:
    texts = {document.id: document.text for document in real.documents()}
    lines = real.queries()
    assert len(texts) > 50 and len(lines) > 100
    assert all(5 <= len(content_words(line)) <= 20 for line in lines.values() if "_" not in line)
    for query, (document,) in ((query, grades.keys()) for query, grades in real.qrels().items()):
        assert query.startswith(f"{document}:")
        assert words_in_order(lines[query]) not in words_in_order(texts[document]), query
    assert max(Counter(query.split(":")[0] for query in lines).values()) == pydocs.QUERIES_PER_DOCUMENT
    assert all(120 < len(text.split()) <= 6000 for text in texts.values())
    words = [content_words(line) for line in lines.values()]
    owners = [query.split(":")[0] for query in lines]
    assert not [pair for pair in similar_pairs(words, 0.75) if owners[pair[0]] != owners[pair[1]]]


def test_splits_part_the_queries_and_the_relevant_documents(real: pydocs.PydocsCollection, folder: Path) -> None:
    parts = {split: load_collection(f"docparade:pydocs/{split}") for split in pydocs.SPLITS}
    queries = [part.queries() for part in parts.values()]
    assert {query: text for part in queries for query, text in part.items()} == real.queries()
    assert sum(map(len, queries)) == len(real.queries())
    relevant = [{name for grades in part.qrels().values() for name in grades} for part in parts.values()]
    assert not relevant[0] & relevant[1] and not relevant[0] & relevant[2] and not relevant[1] & relevant[2]
    assert all(part.qrels().keys() == part.queries().keys() for part in parts.values())
    shares = [len(part) / len(real.queries()) for part in queries]
    assert shares[0] > 0.7 and min(shares) > 0.03
    # One index serves all.
    assert all(len(open_index(part)) == len(part) == len(real) for part in (real, *parts.values()))
    assert len(list((folder / "indexes").iterdir())) == 1
    assert [part.name for part in parts.values()] == [f"docparade:pydocs/{split}" for split in pydocs.SPLITS]


@pytest.mark.slow
def test_the_same_versions_give_the_same_bytes(real: pydocs.PydocsCollection, tmp_path: Path) -> None:
    pydocs.build(tmp_path)
    built = Path(str(real.version()["path"])).parent
    for name in ("docs.jsonl", "queries.tsv", "qrels.txt", "splits.tsv"):
        assert (tmp_path / name).read_bytes() == (built / name).read_bytes()


@pytest.mark.parametrize(
    "name, message",
    [
        ("docparade:pydocs/dev", "docparade:pydocs is 'dev', .*train, validation, test"),
        ("docparade:other", "no collection"),
    ],
)
def test_a_wrong_name_says_what_there_is(name: str, message: str, real: pydocs.PydocsCollection) -> None:
    with pytest.raises(InputError, match=message):
        load_collection(name)


def test_similar_pairs_are_all_pairs_above_the_overlap() -> None:
    texts = [content_words(" ".join(WORDS[i % 7 : i % 7 + 3 + i % 5])) for i in range(60)]
    expected = {
        (i, j) for j in range(60) for i in range(j) if len(texts[i] & texts[j]) >= 0.6 * len(texts[i] | texts[j])
    }
    found = list(similar_pairs(texts, 0.6))
    assert set(found) == expected and len(found) == len(expected) > 100


def test_repeated_texts_keep_the_first() -> None:
    first, second = WORDS[:400], WORDS[400:800]
    assert repeated_texts([first, second, first[:300] + second[:50], second, first[:100] + WORDS[900:1300]], 0.5) == {
        2,
        3,
    }


@pytest.mark.parametrize("size", [1_000, 300_000])
@pytest.mark.parametrize("repeated", [":", "a", ":a", ":a:`", ":a:`b.", ":a:`b <", "a.", "`", '"""', "'''x", "_", "a_"])
def test_long_runs_take_time_in_proportion(repeated: str, size: int) -> None:
    text = repeated * size
    for variant in (text, f":a:`{text}", f"{text}`", f":a:`{text}<"):
        assert isinstance(pydocs.plain(variant), str)
        assert isinstance(words_in_order(variant), str)
        assert isinstance(docstrings._TRIPLE_QUOTED.findall(variant), list)


@given(st.text(alphabet="ab:`.~<> ", max_size=30))
def test_roles_are_read_as_the_plain_pattern_reads_them(line: str) -> None:
    # A title that is nothing but a space, or ends in a dot, is left out: no line of documentation has one.
    assume(not re.search(r"[`~.]\s+<", line))
    plain = re.sub(r":[\w:]+:`~?(?:[\w.]*\.)?([^`<]+?)(?:\s*<[^`]*>)?`", r"\1", line)
    assert pydocs.plain(line) == " ".join(plain.replace("`", "").split()).rstrip(".")
