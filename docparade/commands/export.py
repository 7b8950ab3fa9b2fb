"""`docparade export`: a smaller copy of a ranker."""

from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from docparade.commands.output import check_new_folder, write_new_folder
from docparade.retrieval.errors import InputError, check_choice

Form = Literal["int8", "compact"]
"""`int8` computes in 8-bit integers; `compact` only takes less space on disk."""


def export(
    model: Annotated[
        str, typer.Option(help="The ranker, or a plain cross-encoder: a folder, or an id on the Hugging Face Hub.")
    ],
    output: Annotated[Path, typer.Option(help="The folder to write; it must not exist yet.")],
    form: Annotated[
        str,
        typer.Option(
            metavar="FORM",
            help="int8: computes in 8-bit integers. compact: small files, loaded in full precision; can be trained.",
        ),
    ] = "int8",
) -> None:
    r"""Make a ranker smaller: its encoder computes in 8-bit integers, which is also faster on CPUs.

    Scores change a little. The new ranker is used like the old one (AutoModel.from_pretrained, model.rank, docparade
    rerank), but cannot be trained.

    With --form compact, weights are stored in half precision and the word embeddings in 8-bit floats: about a third of
    the size. They are loaded in full precision, so the ranker can be trained and is as fast as before.

    Examples:

        docparade export --model outputs/quickstart/model --output quickstart-int8
        docparade export --model outputs/quickstart/model \
            --output small --form compact
        docparade rerank --model quickstart-int8 \
            --collection docparade:pydocs/test --run bm25.txt --output out.txt

    How much faster it is, and how far its scores are from the old ones:

        docparade benchmark --collection docparade:pydocs \
            --model outputs/quickstart/model --systems "docparade int8"
    """
    check_choice(form, get_args(Form), "--form")
    check_new_folder(output)

    from docparade.modeling import to_int8
    from docparade.modeling.checkpoint_files import compact_weights
    from docparade.reranking.loading import load_ranker

    ranker = load_ranker(model, "--model")
    try:
        small = to_int8(ranker) if form == "int8" else ranker
    except ValueError as error:
        raise InputError(f"--model: {model}: {error}") from None
    weights = compact_weights(ranker) if form == "compact" else None
    write_new_folder(output, lambda folder: small.save_pretrained(folder, state_dict=weights))
