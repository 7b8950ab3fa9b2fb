"""The command line: `docparade --help`.

Each command is a function in a file of its own under `docparade/commands/`, added to `app` here.
"""

import typer

app = typer.Typer(name="docparade", no_args_is_help=True, help="Re-rank long documents, read whole.")


@app.callback()
def _root() -> None:
    """Re-rank long documents, read whole."""


def main() -> None:
    """Run the command line."""
    app()
