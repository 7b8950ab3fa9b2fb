"""The command line: `docparade --help`.

Each command is a function in a file of its own under `docparade/commands/`, added to `app` here. The functions import
what they need when they are called, so that `--help` answers at once.
"""

import sys
from typing import Annotated

import typer

from docparade import __version__
from docparade.commands.analyze import app as analyze
from docparade.commands.benchmark import benchmark
from docparade.commands.card import card
from docparade.commands.convert import convert
from docparade.commands.crossval import crossval
from docparade.commands.distill import distill
from docparade.commands.encode import encode
from docparade.commands.evaluate import evaluate
from docparade.commands.export import export
from docparade.commands.fuse import app as fuse
from docparade.commands.mine import mine
from docparade.commands.models import models
from docparade.commands.push import push
from docparade.commands.rank import rank
from docparade.commands.recipe_table import table
from docparade.commands.recipes import recipes
from docparade.commands.rerank import rerank
from docparade.commands.retrieve import retrieve
from docparade.commands.running import OVERRIDES
from docparade.commands.space import space
from docparade.commands.train import train
from docparade.retrieval.errors import InputError
from docparade.start import INTERRUPTED

RANK, TRAIN, MEASURE, PUBLISH = "Rank", "Train", "Measure", "Publish"

app = typer.Typer(
    name="docparade",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("rank", rich_help_panel=RANK)(rank)
app.command("retrieve", rich_help_panel=RANK)(retrieve)
app.command("rerank", rich_help_panel=RANK)(rerank)
app.command("encode", rich_help_panel=RANK)(encode)
app.add_typer(fuse, name="fuse", rich_help_panel=RANK)
app.command("space", rich_help_panel=RANK)(space)
app.command("recipes", rich_help_panel=TRAIN)(recipes)
app.command("train", rich_help_panel=TRAIN, context_settings=OVERRIDES)(train)
app.command("crossval", rich_help_panel=TRAIN, context_settings=OVERRIDES)(crossval)
app.command("table", rich_help_panel=TRAIN, context_settings=OVERRIDES)(table)
app.command("mine", rich_help_panel=TRAIN)(mine)
app.command("distill", rich_help_panel=TRAIN, context_settings=OVERRIDES)(distill)
app.command("export", rich_help_panel=TRAIN)(export)
app.command("convert", rich_help_panel=TRAIN)(convert)
app.command("evaluate", rich_help_panel=MEASURE)(evaluate)
app.add_typer(analyze, name="analyze", rich_help_panel=MEASURE)
app.command("benchmark", rich_help_panel=MEASURE)(benchmark)
app.command("card", rich_help_panel=PUBLISH)(card)
app.command("push", rich_help_panel=PUBLISH)(push)
app.command("models", rich_help_panel=PUBLISH)(models)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"docparade {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    r"""Rerank long documents: a model reads the whole document, passage by passage.

    A first try on Python's own documentation (needs no download):

        docparade train quickstart
        docparade retrieve --collection docparade:pydocs/test --output bm25.txt
        docparade rerank --model outputs/quickstart/model --depth 5 \
            --collection docparade:pydocs/test --run bm25.txt --output out.txt
        docparade evaluate --collection docparade:pydocs/test bm25.txt out.txt

    - A **collection** holds documents, queries and judgments: an ir_datasets id such as cranfield, a folder of your
      own, hf:NAME for a dataset on the Hugging Face Hub, or docparade:pydocs.
    - A **run** lists the documents found for each query, best first, in a TREC file.
    - A **recipe** is a YAML file that describes how a ranker is trained and tested.

    docparade COMMAND --help explains a command and shows examples.
    """


def main(*command: str) -> None:
    """Run the command line, or one command of it; a user's mistake ends in one sentence on stderr and exit code 2."""
    try:
        app([*command, *sys.argv[1:]], prog_name="docparade")
    # The second is for scores that are not finite numbers.
    except (InputError, FloatingPointError) as error:
        print(f"docparade: {error}", file=sys.stderr)
        sys.exit(2)
    except SystemExit as end:
        if end.code == INTERRUPTED:
            print("docparade: interrupted; the same command goes on from what it has finished.", file=sys.stderr)
        raise
