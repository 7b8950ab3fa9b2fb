"""`docparade encode`: keep a bi-encoder's vectors of a collection."""

from typing import Annotated

import typer

from docparade.commands.bi_encoders import load_bi_encoder
from docparade.commands.inputs import DtypeOption, name_model, parse_dtype
from docparade.commands.output import counted, note
from docparade.reranking.caches.vector_types import VECTOR_TYPES
from docparade.retrieval.errors import check_choice


def encode(
    collection: Annotated[
        str, typer.Option(help="The documents: an ir_datasets id, a folder, hf:NAME or docparade:pydocs.")
    ],
    model: Annotated[
        str | None,
        typer.Option(
            help="A bi-encoder: a sentence-transformers model or a ranker; a folder, or an id on the Hub. "
            "Default: the ranker that comes with docparade."
        ),
    ] = None,
    vectors: Annotated[str, typer.Option(metavar="TYPE", help="How to store vectors: float32, float16 or int8.")] = (
        "float16"
    ),
    dtype: DtypeOption = None,
) -> None:
    r"""Encode the passages of a collection with a bi-encoder, and keep their vectors.

    They are kept in DOCPARADE_CACHE (or ~/.cache/docparade), for `docparade rerank --vectors` and `docparade retrieve
    --method dense`. An interrupted command continues where it stopped when it is started again. Documents that
    the model has encoded before, for whatever collection or run, are not encoded again.

    Examples:

        docparade encode --collection docparade:pydocs
        docparade encode --model sentence-transformers/all-MiniLM-L6-v2 \
            --collection cranfield

    On several GPUs or processes, which share the documents:

        accelerate launch -m docparade encode --model …
    """
    chosen = check_choice(vectors, VECTOR_TYPES, "--vectors")
    precision = parse_dtype(dtype)

    from docparade.reranking.caches.vector_cache import VectorCache
    from docparade.reranking.loading import check_source
    from docparade.reranking.processes.process_group import join_process_group
    from docparade.retrieval.collections.catalog import load_collection

    named = name_model(model)
    check_source(named, "--model")
    source = load_collection(collection)
    state = join_process_group()
    ranker = load_bi_encoder(named, "--model", **precision)
    cache = VectorCache.open(None, ranker, source, vector_type=chosen)
    if state.is_main_process:
        processes = f" ({state.num_processes} processes)" if state.num_processes > 1 else ""
        note(f"{cache.folder}: {counted(len(cache), 'document')}, {counted(cache.passages, 'passage')}{processes}.")
