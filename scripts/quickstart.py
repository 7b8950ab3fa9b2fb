"""The main job, end to end: collection, BM25, training, reranking, measures, and the passages that mattered.

Runs configs/recipes/quickstart.yaml: the documents are the documentation of Python's standard library and of packages
that are installed anyway, the queries are summary lines taken out of them, and the encoder is MiniLM, from a package.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from rich.console import Console
from rich.table import Table
from transformers import AutoModel
from transformers.utils import logging

import docparade
from docparade.commands.output import note
from docparade.commands.running import load, report
from docparade.retrieval import InputError, load_collection, ranking, read_run
from docparade.trainer.run import run_recipe

RECIPE = Path(__file__).parents[1] / "configs" / "recipes" / "quickstart.yaml"
SHOWN = 3
console = Console(width=120, highlight=False)


def show_one_query(folder: Path) -> None:
    """Rank the first stage's best documents of one test query, and print the passage that mattered in each."""
    collection = load_collection("docparade:pydocs/test")
    run = read_run(folder / "runs" / "test.txt")
    query = next(iter(run))
    text = collection.queries()[query]
    [relevant] = collection.qrels()[query]
    documents = [collection.document(document) for document in ranking(run[query])[:10]]
    model = AutoModel.from_pretrained(folder / "model")
    best = model.rank(text, [{"id": d.id, "title": d.title, "text": d.text} for d in documents], top_k=SHOWN)
    console.print(f"\nOne test query: [bold]{text}[/bold] (taken out of {relevant})\n")
    table = Table("document", "score", "read", "the passage that mattered most")
    for document in best:
        passage = document.best_passage
        place = f"[dim]characters {passage.start}–{passage.end}:[/dim] {textwrap.shorten(passage.text, 240)}"
        read = f"{len(document.passages)} of {len(document.passages) + document.unread} passages"
        table.add_row(str(document.id), f"{document.score:.3f}", read, place)
    console.print(table)


def show_next_commands(folder: Path) -> None:
    """Print what to do with the ranker."""
    console.print(f"\nThe ranker is in {folder / 'model'}; what was measured is in {folder / 'measures.md'}. Next:\n")
    for command in (
        f"docparade rerank --model {folder / 'model'} --collection docparade:pydocs/test "
        f"--run {next((folder / 'first-stage').glob('test*'), 'bm25.txt')} --output reranked.txt",
        "docparade train configs/recipes/quickstart.yaml --training.num_train_epochs 4 --output outputs/longer",
        "docparade train --help",
    ):
        console.print(f"    {command}", soft_wrap=True)
    console.print("\n    import docparade\n    from transformers import AutoModel")
    console.print(f'    model = AutoModel.from_pretrained("{folder / "model"}")\n    model.rank(query, documents)')


def main() -> None:
    """Run the example; arguments are keys of the recipe, and --output names the folder."""
    arguments = sys.argv[1:]
    if {"-h", "--help"} & set(arguments):
        print(f"{__doc__}\nusage: quickstart.py [--output FOLDER] [--KEY VALUE ...]   keys of {RECIPE.name}")
        return
    folder = Path("outputs/quickstart")
    if "--output" in arguments:
        place = arguments.index("--output")
        folder = Path(*arguments[place + 1 : place + 2])
        del arguments[place : place + 2]
    logging.set_verbosity_error()
    note(f"docparade {docparade.__version__}: retrieving, training and reranking; some minutes on two cores")
    results = run_recipe(load(RECIPE, "", arguments), folder)
    report(results, folder, as_json=False)
    show_one_query(folder)
    show_next_commands(folder)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"docparade: {error}")
