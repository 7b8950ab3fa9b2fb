"""`docparade export`: a ranker for CPUs, in 8-bit integers."""

from pathlib import Path
from typing import Annotated

import typer

from docparade.commands.inputs import load_ranker
from docparade.commands.output import note
from docparade.retrieval.errors import InputError


def export(
    model: Annotated[str, typer.Option(help="The ranker: a folder or a Hub id.")],
    output: Annotated[Path, typer.Option(help="The folder to write; a new one.")],
) -> None:
    """Write a ranker whose encoder computes in 8-bit integers: faster on a CPU, smaller, and not exact.

    It is loaded and used as the ranker that it is made from: AutoModel.from_pretrained, model.rank, docparade rerank.
    It cannot be trained.

    Example: docparade export --model outputs/parade --output outputs/parade-int8
    """
    from docparade.modeling import to_int8

    if output.exists():
        raise InputError(f"--output: {output} is there already; name a new folder.")
    try:
        ranker = to_int8(load_ranker(model))
    except ValueError as error:
        raise InputError(f"--model {model}: {error}") from None
    ranker.save_pretrained(output)
    note(
        f"wrote {output}; what it gains: docparade benchmark --model {model} --systems 'docparade int8' --collection …"
    )
