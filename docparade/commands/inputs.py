"""What several commands read: judgments, runs and numbers."""

from os.path import normpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from docparade.retrieval.errors import InputError, check_choice, errors_at
from docparade.retrieval.runs import Qrels, read_qrels

if TYPE_CHECKING:
    from docparade.retrieval.evaluation.gains import Gains

Number = TypeVar("Number", int, float)

CollectionOption = Annotated[
    str | None,
    typer.Option(help="The collection whose judgments to use: an ir_datasets id such as 'cranfield', or a folder."),
]
QrelsOption = Annotated[Path | None, typer.Option(help="A TREC qrels file, instead of the judgments of a collection.")]
DTYPES = ("float32", "bfloat16", "float16")
DtypeOption = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE",
        help="The precision to read in: float32, or bfloat16 or float16, which are faster where the hardware has them, "
        "and not exact. Default: that of the model's files.",
    ),
]
BinaryOption = Annotated[bool, typer.Option("--binary", help="Count every grade above 0 as 1.")]
GainsOption = Annotated[
    str | None,
    typer.Option(
        metavar="GRADE=GAIN,…",
        help="What grades count in all measures, such as 1=4,2=3,3=2,4=1 for cranfield, where 1 is the best grade. "
        "-1=4 counts a grade of -1 as relevant, too.",
    ),
]


def read_judgments(collection: str | None, qrels: Path | None) -> Qrels:
    """The judgments of a collection or of a file; the user names one of them."""
    if (collection is None) == (qrels is None):
        raise InputError("give either --collection or --qrels for the judgments.")
    if qrels is not None:
        return read_qrels(qrels)
    from docparade.retrieval.collections.catalog import load_collection

    return load_collection(str(collection)).qrels()


def parse_gains(gains: str | None, binary: bool, collection: str | None, makes_runs: bool = False) -> "Gains":
    """What grades count; a warning if the collection's own grades are no gains, and none are named.

    A command that `makes_runs` takes no documents out of them.
    """
    from docparade.retrieval.evaluation.gains import Gains

    with errors_at("--gains"):
        found = Gains.of(gains, binary)
        if makes_runs:
            found.check_none_out()
    if collection is not None and found.misread(collection):
        from docparade.commands.output import note

        note(
            f"{collection}'s grades run from 1, the best, to 4, the weakest, so nDCG and other graded measures count "
            "them upside down; add --binary, or --gains 1=4,2=3,3=2,4=1. AP and P are not affected."
        )
    return found


def name_model(model: str | None) -> str:
    """The ranker that the user names, or else the default one, which is announced."""
    if model is not None:
        return model

    from docparade.commands.output import note
    from docparade.default import DEFAULT_RANKER

    note("using the default ranker; name another one with --model.")
    return str(DEFAULT_RANKER)


def parse_dtype(dtype: str | None) -> dict[str, Any]:
    """The option as an argument of `from_pretrained`; no argument keeps the precision of the model's files."""
    return {} if dtype is None else {"dtype": check_choice(dtype, DTYPES, "--dtype")}


def read_query_ids(path: Path) -> list[str]:
    """The query ids of a file, one a line; an id that occurs twice counts once."""
    from docparade.retrieval.storage.files import read_lines

    ids = {}
    for number, line in read_lines(path):
        if len(line.split()) != 1:
            raise InputError(f"{path}, line {number}: '{line.strip()[:50]}' is not a query id; write one id a line.")
        ids[line.strip()] = number
    if not ids:
        raise InputError(f"{path} has no query ids; write one id a line.")
    return list(ids)


def name_runs(paths: list[Path]) -> dict[Path, str]:
    """A short name for each run: the file's name, or its whole path if two files have the same name.

    Two spellings of a path are one run.
    """
    spelled = {path: normpath(path.absolute()) for path in paths}
    first = {place: path for path, place in reversed(spelled.items())}
    names = [path.name for path in first.values()]
    labels = {place: path.name if names.count(path.name) == 1 else str(path) for place, path in first.items()}
    return {path: labels[place] for path, place in spelled.items()}


def numbers(text: str, option: str, kind: type[Number]) -> list[Number]:
    """The numbers of an option, separated by spaces or commas."""
    try:
        values = [kind(word) for word in text.replace(",", " ").split()]
    except ValueError:
        values = []
    if not values:
        form = "whole numbers" if kind is int else "numbers"
        raise InputError(f"{option} is '{text}', and must be {form} separated by spaces.")
    return values


def at_least_one(option: str, value: int | None) -> None:
    """Refuse a count below 1."""
    if value is not None and value < 1:
        raise InputError(f"{option} must be at least 1, and is {value}.")
