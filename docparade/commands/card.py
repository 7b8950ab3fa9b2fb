"""`docparade card`: write the model card of a checkpoint."""

from pathlib import Path
from typing import Annotated

import typer

from docparade.commands.output import note


def card(
    folder: Annotated[Path, typer.Argument(help="A checkpoint, or the output folder of a recipe.")],
    license: Annotated[
        str | None, typer.Option(help="The license of the weights, by the Hub's identifier: apache-2.0, mit, …")
    ] = None,
    language: Annotated[
        list[str] | None, typer.Option(help="The code of a language: en. May be given several times.")
    ] = None,
    repo_id: Annotated[str | None, typer.Option(help="The model's name on the Hub: user/name.")] = None,
    title: Annotated[str | None, typer.Option(help="The title. Default: the name on the Hub, or the method.")] = None,
    base_model: Annotated[str | None, typer.Option(help="The encoder's name on the Hub: user/name.")] = None,
    fields: Annotated[
        Path | None, typer.Option("--fields", help="A YAML file with these and other fields; options replace them.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a card even if it was edited by hand outside its notes.")
    ] = False,
) -> None:
    """Write or refresh the model card, README.md, of a checkpoint.

    The card has the method with a picture, how to use the model, passage settings, results with significance, speed,
    training, limits, licenses and citations, all from what was saved while the model was trained and measured. What was
    not measured is left out.

    Write your own text between `<!-- notes -->` and `<!-- /notes -->`: it is kept when the card is written again.
    Fields that are not given are taken from the card that is there already.

    To add results on other collections, or times, put what these commands print into the checkpoint's folder:

        docparade evaluate --json … > outputs/quickstart/model/evaluations/NAME.json
        docparade benchmark --json … > outputs/quickstart/model/speed.json

    Example:

        docparade card outputs/quickstart --license apache-2.0 --language en
    """
    from docparade.hub_cards import CardFields, missing_card_fields, write_card
    from docparade.hub_cards.cards.fields import read_fields
    from docparade.hub_cards.cards.saved_model import find_checkpoint

    given = CardFields(
        repo_id=repo_id, title=title, license=license, language=tuple(language or ()), base_model=base_model
    )
    known = given if fields is None else given.filled_from(read_fields(fields))
    checkpoint = find_checkpoint(folder)
    path = write_card(checkpoint, known, overwrite=overwrite)
    note(f"wrote {path}.")
    if missing := missing_card_fields(checkpoint):
        options = " and ".join(f"--{name.replace('_', '-')}" for name in missing)
        note(f"to publish it, the card still needs {options}.")
