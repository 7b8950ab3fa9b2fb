"""`docparade convert`: a model's pickled weights as safetensors."""

from pathlib import Path
from typing import Annotated

import typer

from docparade.commands.output import check_new_folder, note, write_new_folder


def convert(
    source: Annotated[str, typer.Argument(help="The model: a folder, or an id on the Hugging Face Hub.")],
    output: Annotated[Path, typer.Option(help="The folder to write; it must not exist yet.")],
    linear_head: Annotated[
        bool,
        typer.Option(
            "--linear-head",
            help="The head of this ELECTRA is one linear layer on the first vector; a dense layer before it, if the "
            "file has one, is not used. Needed for a local copy of Capreolus/electra-base-msmarco.",
        ),
    ] = False,
) -> None:
    r"""Write a model with pickled weights (pytorch_model.bin) as safetensors, the only format that docparade loads.

    Only tensors are read (torch.load with weights_only=True): a file with anything else in it is refused, and no code
    from it runs. The folder holds the same model, with its tokenizer, for every place that takes one: the keys encoder
    and cross_encoder of recipes, from_encoder, from_cross_encoder, and other tools.

    Capreolus/electra-base-msmarco, from which the models of two papers start, has a linear layer for a head, and
    ELECTRA's classifier has a dense layer and a GELU before it. --linear-head writes weights for the whole classifier
    that give the scores of the linear layer.

    Examples:

        docparade convert Capreolus/bert-base-msmarco --output bert-msmarco
        docparade convert Capreolus/electra-base-msmarco --linear-head \
            --output electra-msmarco
        docparade crossval li2023 --model.encoder electra-msmarco
        docparade crossval li2023-table7 --variant maxp \
            --model.cross_encoder electra-msmarco
    """
    check_new_folder(output)

    from docparade.reranking.weight_conversion import load_pickled

    converted = load_pickled(source, linear_head)
    if converted.left_out:
        note(
            f"{type(converted.model).__name__} has no place for {len(converted.left_out)} tensors, such as "
            f"{converted.left_out[0]}; they are left out."
        )
    if converted.linear_head:
        note("the head is one linear layer; the classifier's weights give its scores, without dropout in training.")
    elif type(converted.model).__name__ == "ElectraForSequenceClassification":
        note("the head is ELECTRA's own, of two layers; if it should be the last one alone, add --linear-head.")
    write_new_folder(output, converted.save)
