"""Time and memory of the first stage on synthetic collections of growing size.

    python scripts/benchmark_retrieval.py 10000 100000 1000000

For each size: documents of about 150 words, drawn from a Zipf distribution over 500,000 made-up words, are written to a
local collection; it is indexed, searched with 100 queries at 1000 hits, and documents are fetched by id. Every step
runs in a process of its own, so that its peak memory is its own (memory-mapped pages that it touched included). All is
written below --folder and deleted afterwards.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

WORDS = 500_000
MEAN_LENGTH = 150
QUERIES = 100
SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnprstvwz" for vowel in "aeiou"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="+", type=int, help="numbers of documents")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where there is room")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        print(json.dumps(measure(STEPS[arguments.step], arguments.folder, arguments.sizes[0])))
        return
    for size in arguments.sizes:
        print(json.dumps(benchmark(size, arguments.folder)), flush=True)


def benchmark(size: int, folder: Path) -> dict[str, float]:
    """All steps for one size, each in a process of its own."""
    scratch = Path(tempfile.mkdtemp(prefix="benchmark-", dir=folder))
    environment = {**os.environ, "DOCPARADE_CACHE": str(scratch / "cache")}
    figures: dict[str, float] = {"documents": size}
    try:
        for step in STEPS:
            command = [sys.executable, __file__, str(size), "--folder", str(scratch), "--step", step]
            done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
            figures |= {f"{step} {name}": value for name, value in json.loads(done.stdout).items()}
    finally:
        shutil.rmtree(scratch)
    return figures


def measure(step: Callable[[Path, int], dict[str, float]], folder: Path, size: int) -> dict[str, float]:
    """What a step reports, with its time and the peak memory of this process."""
    start = time.perf_counter()
    figures = step(folder, size)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"s": round(seconds, 2), "peak MB": round(peak), **figures}


def write(folder: Path, size: int) -> dict[str, float]:
    """Write the synthetic collection."""
    words = np.array([made_up_word(number) for number in range(WORDS)], dtype=object)
    with (folder / "docs.jsonl").open("w", encoding="utf-8") as file:
        for number, text in enumerate(texts(words, size, MEAN_LENGTH, seed=1)):
            file.write(json.dumps({"doc_id": f"doc-{number}", "text": text}) + "\n")
    with (folder / "queries.tsv").open("w", encoding="utf-8") as file:
        file.writelines(f"{number}\t{text}\n" for number, text in enumerate(texts(words, QUERIES, 5, seed=2)))
    return {"MB on disk": megabytes(folder)}


def index(folder: Path, size: int) -> dict[str, float]:
    """Build the index."""
    from docparade.retrieval.collections.catalog import load_collection
    from docparade.retrieval.index.inverted_index import open_index

    opened = open_index(load_collection(folder))
    return {"terms": len(opened.terms), "MB on disk": megabytes(folder / "cache")}


def search(folder: Path, size: int) -> dict[str, float]:
    """Open the index, then all queries with each method; milliseconds a query."""
    from docparade.retrieval.collections.catalog import load_collection
    from docparade.retrieval.index.first_stage import METHODS, FirstStage
    from docparade.retrieval.index.inverted_index import open_index
    from docparade.retrieval.index.searcher import Searcher

    collection = load_collection(folder)
    queries = collection.queries().values()
    start = time.perf_counter()
    opened = open_index(collection)
    figures = {"opening s": round(time.perf_counter() - start, 2)}
    for method in METHODS:
        stage = FirstStage(method)
        searcher = Searcher(opened, stage.similarity(), stage.feedback())
        start = time.perf_counter()
        for query in queries:
            searcher.search(query, hits=1000)
        figures[f"{method} ms"] = round((time.perf_counter() - start) * 1000 / QUERIES, 3)
    return figures


def fetch(folder: Path, size: int) -> dict[str, float]:
    """Find where the documents are, then fetch 1000 of them by id."""
    from docparade.retrieval.collections.catalog import load_collection

    collection = load_collection(folder)
    len(collection)
    ids = [f"doc-{number}" for number in np.random.default_rng(3).integers(size, size=1000)]
    start = time.perf_counter()
    collection.get_many(ids)
    return {"ms a document": round(time.perf_counter() - start, 3)}


STEPS: dict[str, Callable[[Path, int], dict[str, float]]] = {
    "write": write,
    "index": index,
    "search": search,
    "fetch": fetch,
}


def texts(words: np.ndarray, number: int, mean_length: int, seed: int) -> Iterator[str]:
    """Texts of words drawn by Zipf's law, of lengths that scatter as real ones do."""
    random = np.random.default_rng(seed)
    cumulative = np.cumsum(1 / (np.arange(WORDS) + 2.7))
    cumulative /= cumulative[-1]
    for _ in range(number):
        length = max(1, int(random.lognormal(np.log(mean_length) - 0.125, 0.5)))
        yield " ".join(words[np.searchsorted(cumulative, random.random(length))])


def made_up_word(number: int) -> str:
    """A word for a number: short ones for small numbers."""
    word = ""
    while number >= 0:
        number, syllable = divmod(number, len(SYLLABLES))
        word = SYLLABLES[syllable] + word
        number -= 1
    return word


def megabytes(folder: Path) -> int:
    """Size of all files below a folder."""
    return round(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6)


if __name__ == "__main__":
    main()
