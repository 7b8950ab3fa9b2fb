"""`docparade rerank`: a first-stage run, scored again by a model."""

from pathlib import Path
from typing import Annotated

import typer

from docparade.commands.inputs import load_ranker
from docparade.commands.output import counted, note


def rerank(
    model: Annotated[str, typer.Option(help="The ranker: its folder, or its id on the Hub.")],
    collection: Annotated[
        str,
        typer.Option(help="Documents and queries: an ir_datasets id, a folder, 'hf:…', or 'docparade:pydocs'."),
    ],
    run: Annotated[Path, typer.Option(help="The first stage's run, a TREC file, gzip or not.")],
    output: Annotated[Path, typer.Option(help="The run to write, a TREC file; packed if the name ends in .gz.")],
    depth: Annotated[int, typer.Option(help="Documents of each query that the ranker reads.")] = 100,
    field: Annotated[
        str | None, typer.Option(help="Which text of a query, where it has several: title, description, …")
    ] = None,
    passage_scores: Annotated[
        Path | None, typer.Option(help="Also write what each passage scored, for 'docparade fuse birch'.")
    ] = None,
    keep_passages: Annotated[
        int | None,
        typer.Option(help="Read only so many passages of a document, the most promising: faster, and not exact."),
    ] = None,
    cache_tokens: Annotated[
        bool, typer.Option("--cache-tokens", help="Keep the documents' tokens in the cache, for the next reranking.")
    ] = False,
) -> None:
    """Read the best documents of a run whole, and rank them anew.

    Documents below --depth keep their old order behind those that were read. What is done is kept beside the output
    (OUTPUT.parts) until all is: the same command goes on where it was stopped, and ends with the same file.

    Example: docparade rerank --model outputs/parade --collection cranfield --run bm25.txt --output parade.txt

    With several processes: accelerate launch scripts/rerank.py, with the same options.
    """
    from docparade.retrieval.collections import load_collection
    from docparade.retrieval.runs import cut, read_run
    from docparade.trainer.documents import CollectionDocuments
    from docparade.trainer.processes import join_processes
    from docparade.trainer.rerank import rerank_to_file
    from docparade.trainer.token_cache import TokenCache

    # What is cheap to find wrong comes first.
    first_stage = read_run(run)
    source = load_collection(collection)
    queries = source.queries(field)
    state = join_processes()
    ranker = load_ranker(model).to(state.device)
    documents = CollectionDocuments(source)
    encode_documents = None
    if cache_tokens:
        read = {document for found in cut(first_stage, depth).values() for document in found}
        encode_documents = TokenCache.open(None, ranker.require_processor(), documents, read).encode_documents
    rerank_to_file(
        ranker,
        first_stage,
        queries,
        documents,
        output,
        depth,
        passage_scores=passage_scores,
        encode_documents=encode_documents,
        keep_passages=keep_passages,
    )
    if state.is_main_process:
        processes = f" ({state.num_processes} processes)" if state.num_processes > 1 else ""
        best = f"the best {counted(depth, 'document')} of each"
        note(f"{output}: {counted(len(first_stage), 'query')}, {best} reranked{processes}.")
