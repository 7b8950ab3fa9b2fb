"""The command line: `docparade --help`.

Each command is a function in a file of its own under `docparade/commands/`, added to `app` here. The functions import
what they need when they are called, so that `--help` answers at once.
"""

import sys

import typer

from docparade.commands.analyze import app as analyze
from docparade.commands.benchmark import benchmark
from docparade.commands.crossval import crossval
from docparade.commands.distill import distill
from docparade.commands.evaluate import evaluate
from docparade.commands.export import export
from docparade.commands.fuse import app as fuse
from docparade.commands.recipes import OVERRIDES
from docparade.commands.rerank import rerank
from docparade.commands.retrieve import retrieve
from docparade.commands.train import train
from docparade.retrieval.errors import InputError

app = typer.Typer(
    name="docparade",
    no_args_is_help=True,
    help="Re-rank long documents, read whole.",
    pretty_exceptions_show_locals=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("retrieve")(retrieve)
app.command("train", context_settings=OVERRIDES)(train)
app.command("crossval", context_settings=OVERRIDES)(crossval)
app.command("distill", context_settings=OVERRIDES)(distill)
app.command("rerank")(rerank)
app.command("evaluate")(evaluate)
app.command("benchmark")(benchmark)
app.command("export")(export)
app.add_typer(fuse, name="fuse")
app.add_typer(analyze, name="analyze")


@app.callback()
def _root() -> None:
    """Re-rank long documents, read whole."""


def main() -> None:
    """Run the command line; a user's mistake ends in one sentence on stderr and exit code 2."""
    try:
        app(prog_name="docparade")
    except InputError as error:
        print(f"docparade: {error}", file=sys.stderr)
        sys.exit(2)
