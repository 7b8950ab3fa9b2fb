"""ir_datasets ids as collections: the real Cranfield, small datasets of its own classes, and what is missing."""

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from docparade.retrieval.collections.catalog import load_collection
from docparade.retrieval.collections.irds import IrDatasetsCollection, _to_document
from docparade.retrieval.errors import InputError
from docparade.retrieval.index.first_stage import retrieve


def test_cranfield(cranfield: str) -> None:
    collection = load_collection(cranfield)
    assert len(collection) == 1400
    queries = collection.queries()
    assert len(queries) == 225
    assert queries["1"].split()[:3] == ["what", "similarity", "laws"]
    assert sum(len(grades) for grades in collection.qrels().values()) == 1837
    documents = {document.id: document for document in collection.documents()}
    assert len(documents) == 1400
    assert documents["471"].text == documents["995"].text == ""
    fetched = collection.get_many(["1400", "1", "471"])
    assert list(fetched) == ["1400", "1", "471"]
    assert all(fetched[name] == documents[name] for name in fetched)
    assert documents["1"].title.startswith("experimental investigation")
    # The text repeats the title, which counts once.
    assert documents["1"].contents() == documents["1"].text
    with pytest.raises(InputError, match=r"cranfield .*1401"):
        collection.document("1401")
    with pytest.raises(InputError, match=r"cranfield .*description; .*text"):
        collection.queries("description")
    with pytest.raises(InputError, match="has no scored documents"):
        collection.scored_documents()


@pytest.fixture
def registered(tmp_path: Path) -> str:
    """A dataset of ir_datasets' own handlers: TREC topics with fields, documents, judgments, scored documents."""
    import ir_datasets
    from ir_datasets.formats import TrecQueries, TrecScoredDocs, TsvDocs
    from ir_datasets.util import StringFile

    name = f"docparade-test-{tmp_path.name}"
    topics = (
        "<top>\n<num> Number: 301\n<title> wings\n<desc> Description:\nlift of wings\n<narr> Narrative:\nall\n</top>\n"
    )
    dataset = ir_datasets.Dataset(
        TsvDocs(StringFile("d1\twing\nd2\tplate\n", "docs.tsv"), namespace="test"),
        TrecQueries(StringFile(topics, "topics.txt"), namespace="test"),
        TrecScoredDocs(StringFile("301 Q0 d2 1 2.5 tag\n301 Q0 d1 2 1.5 tag\n", "run.txt")),
    )
    ir_datasets.registry.register(name, dataset)
    return name


def test_query_fields_and_scored_documents(registered: str) -> None:
    collection = load_collection(registered)
    assert collection.queries() == collection.queries("title") == {"301": "wings"}
    assert collection.queries("description") == {"301": "lift of wings"}
    with pytest.raises(InputError, match=r"desc; .*title, description, narrative"):
        collection.queries("desc")
    assert collection.scored_documents() == {"301": {"d2": 2.5, "d1": 1.5}}
    with pytest.raises(InputError, match="has no qrels"):
        collection.qrels()
    assert [document.text for document in collection.documents()] == ["wing", "plate"]
    assert len(collection) == 2
    assert retrieve(collection, queries={"301": "wings"})["301"].keys() == {"d1"}


def test_of_several_judged_passages_of_a_document_the_highest_grade_counts(tmp_path: Path) -> None:
    """TREC Genomics, by ir_datasets' own reader: query, document, where the passage begins, its length, its grade."""
    import ir_datasets
    from ir_datasets.datasets.highwire import QREL_DEFS_06, HighwireQrels
    from ir_datasets.util import StringFile

    lines = "160 7 10 5 DEFINITELY\n160 7 90 5 NOT\n160 8 10 5 NOT\n160 8 20 5 POSSIBLY\n"
    name = f"docparade-test-{tmp_path.name}"
    dataset = ir_datasets.Dataset(HighwireQrels(StringFile(lines, "qrels.txt"), QREL_DEFS_06))
    ir_datasets.registry.register(name, dataset)
    assert load_collection(name).qrels() == {"160": {"7": 2, "8": 1}}


def test_title_and_headings_are_kept_apart() -> None:
    from ir_datasets.datasets.msmarco_document_v2 import MsMarcoV2Document

    document = _to_document(MsMarcoV2Document("D1", "http://x", "A title", "One\nTwo", "The body"))
    assert (document.id, document.title, document.headings, document.text) == ("D1", "A title", "One\nTwo", "The body")


def test_a_document_without_plain_text_gives_what_its_class_offers() -> None:
    class Page(NamedTuple):
        doc_id: str
        body: bytes

        def default_text(self) -> str:
            return self.body.decode().upper()

    assert _to_document(Page("p", b"page")).text == "PAGE"


class Missing:
    """A dataset whose files are not there, as ir_datasets reports it."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def has_docs(self) -> bool:
        return True

    def docs_iter(self) -> Any:
        raise self.error


@pytest.mark.parametrize("licensed", [True, False])
def test_a_missing_dataset_is_one_sentence_that_says_where_it_belongs(licensed: bool) -> None:
    from ir_datasets.util import home_path

    collection = IrDatasetsCollection("cranfield")
    place = home_path() / "cranfield" / ("corpus" if licensed else "")
    error = FileNotFoundError(str(place)) if licensed else RuntimeError("All download sources failed", [])
    collection._dataset = Missing(error)
    with pytest.raises(InputError) as caught:
        next(collection.documents())
    message = str(caught.value)
    assert f"cranfield is not on this machine and could not be downloaded: its docs must be in {place} " in message
    assert "IR_DATASETS_HOME" in message
    assert "\n" not in message


def test_only_what_a_user_must_read_is_logged(capfd: pytest.CaptureFixture[str]) -> None:
    import ir_datasets

    IrDatasetsCollection("cranfield")
    log = ir_datasets.log.easy()
    log.info("download error: no network. Retrying from start.")
    log.warn("Download failed: no network")
    log.info("Please confirm you agree")
    with log.duration("opening zip file"):
        log.info("Opening docs.pklz4/bin with MMAP")
    log.warn("low disk space")
    assert capfd.readouterr().err.splitlines() == ["[INFO] Please confirm you agree", "[WARNING] low disk space"]
    assert logging.getLogger("ir_datasets").level == logging.INFO


def test_the_store_of_documents_is_built_without_a_word(
    registered: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """ir_datasets' own store, built and opened: it logs both, beside its bar of progress."""
    import ir_datasets
    from ir_datasets.indices import PickleLz4FullStore

    collection = IrDatasetsCollection(registered)
    dataset = ir_datasets.load(registered)
    store = PickleLz4FullStore(
        tmp_path / "store", dataset.docs_iter, dataset.docs_cls(), lookup_field="doc_id", index_fields=["doc_id"]
    )
    collection._store = store
    assert collection.document("d2").text == "plate"
    assert "[INFO]" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("cranfeild", "cranfield"),
        ("Cranfield", "cranfield"),
        ("msmarco-document/trec-dl-19", "msmarco-document/trec-dl-2019"),
        ("pydocs", "docparade:pydocs"),
        ("pydocs/tests", "docparade:pydocs/test"),
        ("smal", "small"),
        ("./small2", "small"),
        ("../NAME/smal/", "../NAME/small"),
    ],
)
def test_a_near_name(name: str, near: str, small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = small.folder.parent
    monkeypatch.chdir(parent)
    wrong, right = (text.replace("NAME", parent.name) for text in (name, near))
    with pytest.raises(InputError) as caught:
        load_collection(wrong)
    sentence = f"{wrong} is neither a folder here nor an id that ir_datasets knows; did you mean {right}?"
    assert str(caught.value) == sentence


def test_a_file_is_no_collection(small: Any) -> None:
    with pytest.raises(InputError, match=r"docs\.jsonl is a file"):
        load_collection(small.folder / "docs.jsonl")


def test_a_home_of_ir_datasets_that_cannot_be_written_is_one_sentence(
    cranfield: str, mount: Callable[..., Path]
) -> None:
    home = mount()
    shutil.copyfile(Path(os.environ["IR_DATASETS_HOME"], cranfield, "docs.txt"), home / "docs.txt")

    def said() -> str:
        code = "from docparade.retrieval import InputError, load_collection\n"
        code += "try:\n    load_collection('cranfield').document('1')\nexcept InputError as error:\n    print(error)\n"
        environment = {**os.environ, "IR_DATASETS_HOME": str(home)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    subprocess.run(["mount", "-o", "remount,ro", home], check=True)
    advice = (
        "(Read-only file system); free some space there, or set IR_DATASETS_HOME to a folder that can be written.\n"
    )
    assert said() == f"ir_datasets cannot write to {home / 'aol-ia'} {advice}"
    subprocess.run(["mount", "-o", "remount,rw", home], check=True)
    # It makes some folders when it is imported, and the store of documents when one is asked for by id.
    subprocess.run(
        [sys.executable, "-c", "import ir_datasets"], env={**os.environ, "IR_DATASETS_HOME": str(home)}, check=True
    )
    (home / "cranfield").mkdir(exist_ok=True)
    (home / "docs.txt").rename(home / "cranfield" / "docs.txt")
    subprocess.run(["mount", "-o", "remount,ro", home], check=True)
    assert said() == f"ir_datasets cannot write to {home} {advice}"
