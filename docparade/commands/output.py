"""Output of commands: tables and JSON on standard output, notes and logs on standard error, files and folders."""

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from io import TextIOWrapper
from os.path import realpath
from pathlib import Path
from typing import Annotated, Any

import typer

from docparade.retrieval.errors import InputError
from docparade.retrieval.storage.files import check_output, check_output_folder

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
PlotOption = Annotated[
    Path | None, typer.Option(help="Also draw a plot, as .png, .svg or .pdf (needs the plots extra).")
]
WIDE = 10_000
"""width of a table outside a terminal, so that nothing is folded or cut"""


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
        sys.stdout.reconfigure(errors="replace")  # so that a † that the terminal cannot show is not an error
    console = Console(width=None if sys.stdout.isatty() else WIDE, highlight=False, markup=False)
    console.print(title, table, caption, sep="\n")


def print_json(content: Any) -> None:
    """Print JSON that is valid whatever the encoding of standard output."""
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
    """The number of queries, with the first three ids.

    >>> counted_queries(["1"]), counted_queries(["1", "2", "3", "4"])
    ('1 query (1)', '4 queries (1, 2, 3, …)')
    """
    ids = list(queries)
    return f"{counted(len(ids), 'query')} ({', '.join(ids[:3])}{', …' if len(ids) > 3 else ''})"


def note(sentence: str) -> None:
    """Print a note on standard error."""
    print(f"docparade: {sentence}", file=sys.stderr)


@contextmanager
def logs_on_stderr() -> Iterator[None]:
    """Send what libraries print, such as Trainer's losses, to standard error; standard output is for results."""
    with redirect_stdout(sys.stderr):
        yield


def check_outputs(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path] | None = None) -> None:
    """Refuse outputs that cannot be written, or that would replace an input; called before any work.

    Args:
        outputs: Option -> the file to write, or None.
        inputs: Option -> a file that is read.
    """
    taken = {realpath(path): option for option, path in (inputs or {}).items()}
    for option, path in outputs.items():
        if path is None:
            continue
        target = realpath(path)
        if target in taken:
            raise InputError(f"{option} {path} is the same as {taken[target]}; name another file.")
        taken[target] = option
        check_output(path, option)


def check_new_folder(output: Path) -> None:
    """Refuse an `--output` that exists or cannot be written; called before any work."""
    if output.exists():
        raise InputError(f"--output {output} already exists; name a new folder.")
    check_output_folder(output, "--output")


def write_new_folder(output: Path, save: Callable[[Path], None]) -> None:
    """Write a model's folder that does not exist yet: `save` is given the folder to write to."""
    from docparade.retrieval.storage.locks import lock_output
    from docparade.trainer.checkpoints import explain_write_errors

    with lock_output(output):
        if output.exists():
            note(f"another command has written {output} meanwhile; it is kept unchanged.")
            return
        # The folder is renamed when it is complete: an interrupted command leaves no folder of this name.
        unfinished = output.with_name(f".{output.name}.unfinished")
        try:
            with explain_write_errors(output):
                shutil.rmtree(unfinished, ignore_errors=True)
                save(unfinished)
                unfinished.rename(output)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    note(f"wrote {output}.")


def files_in(option: str, name: str) -> dict[str, Path]:
    """The files of a folder that an option names, as inputs for `check_outputs`; none if it is not a folder."""
    folder = Path(name)
    return {f"{file.name} of {option}": file for file in folder.iterdir()} if folder.is_dir() else {}
