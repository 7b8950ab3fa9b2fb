"""`docparade push`: publish a ranker on the Hugging Face Hub."""

from pathlib import Path
from typing import Annotated

import typer

from docparade.commands.output import counted, note, print_table


def push(
    folder: Annotated[
        Path, typer.Argument(help="A checkpoint, the output folder of a recipe, or an adapter.", show_default=False)
    ],
    repo_id: Annotated[str, typer.Argument(help="The name on the Hub: user/name or organization/name.")],
    license: Annotated[
        str | None, typer.Option(help="For the card: the license of the weights, such as apache-2.0.")
    ] = None,
    language: Annotated[
        list[str] | None, typer.Option(help="For the card: the code of a language, such as en. May be repeated.")
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="If the model is new on the Hub, make it private.")
    ] = False,
    revision: Annotated[
        str | None, typer.Option(help="The branch; it is made if it is not there.", show_default="main")
    ] = None,
    create_pr: Annotated[
        bool, typer.Option("--create-pr", help="Open a pull request instead of changing the branch.")
    ] = False,
    base_model: Annotated[
        str | None, typer.Option(help="Of an adapter: the name on the Hub of the ranker that it belongs to.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and show it, but upload nothing; needs no token.")
    ] = False,
) -> None:
    r"""Publish a ranker on the Hugging Face Hub: weights, configuration, processor, tokenizer, code and card.

    Others then load it with AutoModel, a pipeline, sentence-transformers or Inference Endpoints, without docparade.
    Look at everything first, then log in once with `hf auth login`, or set HF_TOKEN, and push:

        docparade push outputs/quickstart me/my-ranker \
            --license apache-2.0 --language en --dry-run
        docparade push outputs/quickstart me/my-ranker \
            --license apache-2.0 --language en

    Refused, before anything is uploaded: a card without license or language, weights that are not finite numbers,
    pickles by any name, access tokens and keys, and paths, user or host names of this machine. The state of the
    training is left out.

    Run the same command again after an interruption: what was uploaded is not uploaded again. If nothing has changed,
    it does nothing.
    """
    from docparade.hub_cards import preview_folder, push_folder

    languages = tuple(language or ())
    if dry_run:
        preview = preview_folder(folder, repo_id, license=license, language=languages, base_model=base_model)
        rows = [(name, f"{size:,}") for name, size in preview.sizes.items()]
        rows.append(("total", f"{sum(preview.sizes.values()):,}"))
        print_table(f"{repo_id}: {counted(len(preview.sizes), 'file')}", ["file", "bytes"], rows)
        print(preview.card)
        if preview.left_out:
            note(f"left out: {', '.join(preview.left_out)}.")
        note("nothing was uploaded; without --dry-run, the files above are published.")
        return
    done = push_folder(
        folder,
        repo_id,
        private=private or None,
        revision=revision,
        create_pr=create_pr,
        base_model=base_model,
        license=license,
        language=languages,
    )
    note(f"published {done.url}." if done.changed else f"{done.url} has these files already; nothing was uploaded.")
