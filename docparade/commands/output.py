"""How commands speak: tables and JSON on standard output, notes on standard error."""

import json
import sys
from collections.abc import Iterable, Sequence
from io import TextIOWrapper
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
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a † that the terminal cannot show is no reason to stop
    console = Console(width=None if sys.stdout.isatty() else WIDE, highlight=False, markup=False)
    console.print(title, table, caption, sep="\n")


def print_json(content: Any) -> None:
    """Print JSON that a machine reads back exactly, whatever the encoding of standard output."""
    ascii_only = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    print(json.dumps(content, indent=1, ensure_ascii=ascii_only))


def counted(number: int, noun: str) -> str:
    """A number of things, in the singular or the plural.

    >>> counted(1, "judged query"), counted(2, "judged query"), counted(0, "document")
    ('1 judged query', '2 judged queries', '0 documents')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") else f"{number} {noun}s"


def counted_queries(queries: Iterable[str]) -> str:
    """The number of queries, with the first ids.

    >>> counted_queries(["1"]), counted_queries(["1", "2", "3", "4"])
    ('1 query (1)', '4 queries (1, 2, 3, …)')
    """
    ids = list(queries)
    return f"{counted(len(ids), 'query')} ({', '.join(ids[:3])}{', …' if len(ids) > 3 else ''})"


def note(sentence: str) -> None:
    """Tell the user something beside the result."""
    print(f"docparade: {sentence}", file=sys.stderr)
