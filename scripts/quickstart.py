"""The whole workflow in one script: BM25, training, reranking, measures, and the most important passages.

Runs the recipe quickstart. The documents are the docstrings of Python's standard library and of installed packages, the
queries are summary lines removed from them, and the ranker is the one that comes with docparade.
"""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

from rich.console import Console
from rich.table import Table
from transformers import AutoModel
from transformers.utils import logging

import docparade
from docparade.commands.output import logs_on_stderr, note
from docparade.commands.running import load_with_overrides, report_results
from docparade.experiments.output_folder import OutputFolder
from docparade.experiments.runner import run_recipe
from docparade.retrieval import InputError, load_collection, ranking, read_run

RECIPE = "quickstart"
SHOWN = 3
console = Console(width=120, highlight=False)


def show_one_query(folder: Path) -> None:
    """Rank the top documents of one test query, and print the most important passage of each."""
    collection = load_collection("docparade:pydocs/test")
    run = read_run(OutputFolder(folder).runs / "test.txt")
    query = next(iter(run))
    text = collection.queries()[query]
    [relevant] = collection.qrels()[query]
    documents = [collection.document(document) for document in ranking(run[query])[:10]]
    model = AutoModel.from_pretrained(folder / "model")
    best = model.rank(text, [{"id": d.id, "title": d.title, "text": d.text} for d in documents], top_k=SHOWN)
    console.print(f"\nOne test query: [bold]{text}[/bold] (removed from {relevant})\n")
    table = Table("document", "score", "read", "most important passage")
    for document in best:
        passage = document.best_passage
        place = f"[dim]characters {passage.start}–{passage.end}:[/dim] {textwrap.shorten(passage.text, 240)}"
        read = f"{len(document.passages)} of {len(document.passages) + document.unread} passages"
        table.add_row(str(document.id), f"{document.score:.3f}", read, place)
    console.print(table)


def show_next_commands(folder: Path) -> None:
    """Print what to do next with the ranker. The commands work in a new shell, without .venv on the PATH."""
    here = Path(os.path.relpath(Path(sys.executable).parent))
    model, first_stage = folder / "model", next((folder / "first-stage").glob("test*"))
    console.print(f"\nThe ranker is in {model}; its measures are in {folder / 'measures.md'}. Next:\n")
    for command in (
        f"rerank --model {model} --collection docparade:pydocs/test --run {first_stage} --depth 10 --output out.txt",
        f"train {RECIPE} --training.num_train_epochs 4 --output outputs/longer",
        "--help",
    ):
        console.print(f"    {here / 'docparade'} {command}", soft_wrap=True)
    console.print(f"\nIn Python ({here / 'python'}):\n")
    for line in (
        "import docparade",
        "from transformers import AutoModel",
        f'model = AutoModel.from_pretrained("{model}")',
        'model.rank("compare two texts", ["difflib finds differences between texts.", "json reads and writes JSON."])',
    ):
        console.print(f"    {line}", soft_wrap=True, markup=False)


def main() -> None:
    """Run the quickstart; arguments change keys of the recipe, and --output names the folder."""
    arguments = sys.argv[1:]
    if {"-h", "--help"} & set(arguments):
        print(f"{__doc__}\nusage: quickstart.py [--output FOLDER] [--KEY VALUE ...]   keys of the recipe")
        return
    folder = Path("outputs/quickstart")
    if "--output" in arguments:
        place = arguments.index("--output")
        folder = Path(*arguments[place + 1 : place + 2])
        del arguments[place : place + 2]
    logging.set_verbosity_error()
    note(f"docparade {docparade.__version__}: retrieving, training and reranking; some minutes on two cores")
    recipe = load_with_overrides(RECIPE, "", arguments)
    with logs_on_stderr():
        results = run_recipe(recipe, folder)
    report_results(results, folder, as_json=False)
    show_one_query(folder)
    show_next_commands(folder)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"docparade: {error}")
