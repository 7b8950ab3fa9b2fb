"""`docparade space`: a web page that ranks long documents with a model."""

from typing import Annotated

import typer

from docparade.commands.inputs import at_least_one, name_model
from docparade.commands.output import note
from docparade.retrieval.errors import InputError


def space(
    model: Annotated[
        list[str] | None,
        typer.Option(
            envvar="MODEL_ID",
            help="A ranker, cross-encoder or bi-encoder: a folder, or an id on the Hugging Face Hub. Give it twice to "
            "compare two. Default: the ranker that comes with docparade.",
        ),
    ] = None,
    collection: Annotated[
        str | None,
        typer.Option(
            help="Also search this collection with BM25: an ir_datasets id, a folder, hf:NAME or docparade:pydocs."
        ),
    ] = None,
    depth: Annotated[
        int | None, typer.Option(help="How many documents of the collection to rank.", show_default="20")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Serve at this port.", show_default="the first free from 7860")
    ] = None,
    share: Annotated[
        bool, typer.Option("--share", help="Also make a public address, through Gradio's servers, for a week.")
    ] = False,
) -> None:
    r"""Show a web page that ranks long documents, and which of their passages mattered.

    Type a query, and rank the examples, your own text or files (txt, md, html, jsonl, pdf), or what BM25 finds in a
    collection. Each document is drawn as a strip with one cell for each passage, colored by its score; a cell leads to
    its passage in the text. Two models, or two ways to combine passages, can be compared side by side.

    The page is served on this machine only, until Ctrl+C. It needs pip install gradio pypdf.

    Examples:

        docparade space --model outputs/quickstart/model
        docparade space --model outputs/quickstart/model \
            --collection docparade:pydocs/test
        docparade space --model sentence-transformers/all-MiniLM-L6-v2 \
            --model cross-encoder/ms-marco-MiniLM-L6-v2 --port 8000
    """
    if port is not None and not 0 < port < 65536:
        raise InputError(f"--port must be from 1 to 65535, and is {port}.")
    at_least_one("--depth", depth)
    if depth is not None and collection is None:
        raise InputError("--depth is for the documents of a collection; add --collection, or leave it out.")

    from docparade.hub_cards.space.page import DEFAULT_DEPTH, Space, build_page, import_gradio, serve
    from docparade.hub_cards.space.sources import MAX_DOCUMENTS
    from docparade.reranking.loading import check_source

    if depth is not None and depth > MAX_DOCUMENTS:
        raise InputError(f"--depth must be at most {MAX_DOCUMENTS}, and is {depth}.")

    import_gradio()
    models = model or [name_model(None)]
    for source in models:
        check_source(source, "--model")
    page = build_page(Space.open(models, collection, DEFAULT_DEPTH if depth is None else depth))
    try:
        _, address, public = serve(page, server_port=port, share=share, quiet=True, prevent_thread_lock=True)
    except OSError as error:
        place = "all ports from 7860 to 7959 are" if port is None else f"port {port} is"
        raise InputError(f"{place} taken; choose another one with --port.") from error
    note(f"the page is at {address} (Ctrl+C ends it).")
    if public:
        note(f"everybody can open it at {public}")
    page.block_thread()
