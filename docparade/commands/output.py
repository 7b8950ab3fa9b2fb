"""How commands speak: tables and JSON on standard output, notes on standard error."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
WIDE = 10_000
"""width of a table that no terminal shows: nothing is folded or cut"""


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> None:
    """Print a table; the first column is text, the others are numbers."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else WIDE, highlight=False, markup=False)
    console.print(title, table, caption, sep="\n")


def print_json(content: Any) -> None:
    """Print JSON that a machine reads back exactly."""
    print(json.dumps(content, indent=1, ensure_ascii=False))


def note(sentence: str) -> None:
    """Tell the user something beside the result."""
    print(f"docparade: {sentence}", file=sys.stderr)
