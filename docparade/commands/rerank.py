"""`docparade rerank`: rerank a first-stage run with a model."""

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from docparade.commands.bi_encoders import load_bi_encoder
from docparade.commands.inputs import DtypeOption, at_least_one, name_model, parse_dtype
from docparade.commands.output import check_outputs, counted, files_in, note
from docparade.commands.passage_options import (
    MaxPassagesOption,
    MaxQueryTokensOption,
    PresetOption,
    StrideOption,
    UnitOption,
    WindowOption,
    parse_passage_options,
)
from docparade.reranking.caches.vector_types import VECTOR_TYPES, VectorType
from docparade.retrieval.errors import InputError, check_choice

if TYPE_CHECKING:
    from docparade.modeling import DocumentRanker
    from docparade.reranking.caches.document_lookup import Documents

DEPTH = 100
HITS = 1000
NO_VECTORS = "none"
EXACT: VectorType = "float32"
"""The type of vectors in which scores are those of reading the texts."""


def rerank(
    collection: Annotated[
        str,
        typer.Option(help="Documents and queries: an ir_datasets id, a folder, hf:NAME or docparade:pydocs."),
    ],
    output: Annotated[Path, typer.Option(help="The run to write: a TREC file, compressed if its name ends in .gz.")],
    run: Annotated[Path | None, typer.Option(help="The run to rerank: a TREC file, also as .gz.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="The ranker, or a plain cross-encoder or bi-encoder: a folder, or an id on the Hugging Face Hub. "
            "Default: the ranker that comes with docparade."
        ),
    ] = None,
    all_documents: Annotated[
        bool,
        typer.Option(
            "--all-documents", help="In place of --run: score every document of the collection for each query."
        ),
    ] = False,
    depth: Annotated[
        int | None, typer.Option(help="How many documents of each query to rerank.", show_default="100")
    ] = None,
    hits: Annotated[
        int | None,
        typer.Option(help="With --all-documents: how many documents of each query to write.", show_default="1000"),
    ] = None,
    max_queries: Annotated[
        int | None, typer.Option(help="Only the first N queries of --run: to see whether all is well, and how long.")
    ] = None,
    first_stage_share: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Mix in the run's own scores with this share, from 0 to 1: z-scores over the documents that are "
            "reranked. 0.3 suits the default ranker.",
            show_default="0, the model alone",
        ),
    ] = None,
    field: Annotated[
        str | None, typer.Option(help="Which text of a query to use if it has several: title, description, …")
    ] = None,
    passage_scores: Annotated[
        Path | None, typer.Option(help="Also write the score of every passage to this file, for docparade fuse birch.")
    ] = None,
    keep_passages: Annotated[
        int | None,
        typer.Option(help="Read only this many passages of a document, those closest to the query. Faster, not exact."),
    ] = None,
    max_passages_per_query: Annotated[
        int | None,
        typer.Option(help="Read only this many passages of all documents of a query. Faster, not exact."),
    ] = None,
    choose_by: Annotated[
        str | None,
        typer.Option(
            metavar="BI_ENCODER",
            help="Choose these passages by a bi-encoder's kept vectors (float16) instead of BM25: a folder, or an id "
            "on the Hub.",
        ),
    ] = None,
    cache_tokens: Annotated[
        bool,
        typer.Option(
            "--cache-tokens",
            help="Keep the documents' tokens on disk for the next reranking; --all-documents always does.",
        ),
    ] = False,
    vectors: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE",
            help="For bi-encoders: how the documents' vectors are kept (float32, float16 or int8); none reads the "
            "documents again for each query.",
            show_default="float32, without options for reading texts",
        ),
    ] = None,
    preset: PresetOption = None,
    unit: UnitOption = None,
    window: WindowOption = None,
    stride: StrideOption = None,
    max_passages: MaxPassagesOption = None,
    max_query_tokens: MaxQueryTokensOption = None,
    dtype: DtypeOption = None,
) -> None:
    r"""Rerank a run: a model reads the best documents of each query and scores them.

    Documents below --depth are not read; they follow the others in their old order. An interrupted command continues
    where it stopped when it is started again (finished parts are kept in OUTPUT.parts).

    A plain bi-encoder (sentence-transformers) or cross-encoder (also monoT5) works without training: a document's score
    is that of its best passage (MaxP).

    Documents are cut into passages as the model was trained, unless --preset, --unit, --window, --stride or
    --max-passages say otherwise; --max-query-tokens is for long queries.

    A bi-encoder, such as the default ranker, encodes each document of the run once. The vectors are kept in
    DOCPARADE_CACHE (or ~/.cache/docparade) and used again the next time; how much disk they take is said first.

    With --all-documents there is no first stage: the model reads every document for each query, which takes long for
    large collections. A bi-encoder encodes every document once (with late interaction, once for every 64 queries).

    Examples:

        docparade rerank --collection docparade:pydocs/test \
            --run bm25.txt --depth 5 --max-queries 10 --output out.txt
        docparade rerank --collection docparade:pydocs/test --run bm25.txt \
            --first-stage-share 0.3 --output out.txt
        docparade rerank --model outputs/quickstart/model \
            --collection docparade:pydocs/test --run bm25.txt --output out.txt
        docparade rerank --model cross-encoder/ms-marco-MiniLM-L6-v2 \
            --collection cranfield --run bm25.txt --output out.txt --depth 50
        docparade rerank --model cross-encoder/ms-marco-MiniLM-L6-v2 \
            --collection cranfield --run bm25.txt --output out.txt \
            --keep-passages 4 --choose-by sentence-transformers/all-MiniLM-L6-v2
        docparade rerank --model cross-encoder/ms-marco-MiniLM-L6-v2 \
            --collection cranfield --all-documents --hits 100 --output full.txt
        docparade rerank --collection cranfield --run bm25.txt --output out.txt \
            --preset yang2019 --passage-scores sentences.jsonl
        docparade rerank --model outputs/quickstart/model --window 150 \
            --stride 75 --max-passages 64 \
            --collection docparade:pydocs/test --run bm25.txt --output out.txt

    On several GPUs or processes, in half precision:

        accelerate launch -m docparade rerank --dtype bfloat16 --model …
    """
    precision = parse_dtype(dtype)
    passages = parse_passage_options(preset, unit, window, stride, max_passages, max_query_tokens)
    wanted = None if vectors is None else check_choice(vectors, (*VECTOR_TYPES, NO_VECTORS), "--vectors")
    chosen = next((vector_type for vector_type in VECTOR_TYPES if vector_type == wanted), None)
    reading = {
        "--keep-passages": keep_passages,
        "--max-passages-per-query": max_passages_per_query,
        "--choose-by": choose_by,
        "--cache-tokens": cache_tokens or None,
    }
    read_texts = [option for option, value in reading.items() if value is not None]
    if chosen is not None and read_texts:
        raise InputError(f"{read_texts[0]} is for reading texts, which --vectors does not; leave one of them out.")
    _check_candidates(run, all_documents, depth, hits, passage_scores, first_stage_share)
    at_least_one("--depth", depth)
    at_least_one("--hits", hits)
    at_least_one("--max-queries", max_queries)
    if all_documents and max_queries is not None:
        raise InputError("--max-queries is for --run; leave it out with --all-documents.")
    at_least_one("--keep-passages", keep_passages)
    at_least_one("--max-passages-per-query", max_passages_per_query)
    _check_limits(keep_passages, max_passages_per_query, choose_by, passage_scores)
    if all_documents and (choose_by is not None or max_passages_per_query is not None):
        option = "--choose-by" if max_passages_per_query is None else "--max-passages-per-query"
        raise InputError(f"{option} is for --run; leave it out with --all-documents.")
    named = name_model(model)
    models = {**files_in("--model", named), **(files_in("--choose-by", choose_by) if choose_by else {})}
    read = {
        **({} if run is None else {"--run": run}),
        **files_in("--collection", collection),
        **models,
    }
    parts = {"OUTPUT.parts, which holds unfinished work": Path(f"{output}.parts")}
    check_outputs({"--output": output, "--passage-scores": passage_scores}, {**read, **parts})

    from docparade.retrieval.collections.catalog import load_collection
    from docparade.retrieval.runs import read_run, top_documents

    first_stage = {} if run is None else dict(islice(read_run(run).items(), max_queries))

    from docparade.reranking.processes.resumable_work import check_parts

    check_parts(output)

    from docparade.reranking.caches.document_lookup import CollectionDocuments
    from docparade.reranking.caches.token_cache import TokenCache
    from docparade.reranking.caches.vector_cache import VectorCache
    from docparade.reranking.full_ranking import rank_all_documents
    from docparade.reranking.loading import check_source, load_ranker
    from docparade.reranking.processes.process_group import join_process_group
    from docparade.reranking.rerank_run import check_input, rerank_to_file

    # The ranker is loaded last, because it may have to be downloaded.
    check_source(named, "--model")
    if choose_by is not None:
        check_source(choose_by, "--choose-by")
    source = load_collection(collection)
    queries = source.queries(field)
    if unknown := next((query for query in first_stage if query not in queries), None):
        raise InputError(
            f"--run {run} has query {unknown}, which --collection {collection} does not have; give a run of this "
            "collection's queries."
        )
    state = join_process_group()
    ranker = load_ranker(named, "--model", passages, **precision).to(state.device)
    documents = CollectionDocuments(source)
    if run is None and chosen is None and ranker.scores_by_vectors:
        if keep_passages is not None:
            raise InputError("--keep-passages is for reading texts; a bi-encoder ranks all documents by their vectors.")
        if wanted == NO_VECTORS:
            raise InputError("--vectors none is for --run; a bi-encoder ranks all documents by their vectors.")
        chosen = EXACT
    chooser = None if choose_by is None else load_bi_encoder(choose_by, "--choose-by")
    ids = None if run is None else sorted(top_documents(first_stage, depth or DEPTH))
    # Before documents are encoded, which can take hours.
    check_input(ranker, first_stage, queries, depth or DEPTH)
    if ids is not None and ranker.vector_head is not None and wanted is None and not read_texts:
        chosen = _choose_vectors(ranker, documents, ids)

    def open_vectors(bi_encoder: "DocumentRanker", vector_type: VectorType) -> VectorCache:
        return VectorCache.open(None, bi_encoder, source, ids, vector_type)

    kept = None if chosen is None else open_vectors(ranker, chosen)
    chosen_by = None if chooser is None else open_vectors(chooser, "float16")
    encode_documents = None
    if kept is None and (cache_tokens or run is None):
        encode_documents = TokenCache.open(None, ranker.require_processor(), documents, ids).encode_documents
    processes = f" ({state.num_processes} processes)" if state.num_processes > 1 else ""
    if run is None:
        pairs = f"{counted(len(queries), 'query')} and {counted(len(documents), 'document')}"
        if state.is_main_process:
            note(f"scoring {len(queries) * len(documents):,} pairs of {pairs}{processes}.")
        rank_all_documents(
            ranker,
            queries,
            documents,
            output,
            hits or HITS,
            encode_documents=encode_documents,
            vectors=kept,
            keep_passages=keep_passages,
        )
        if state.is_main_process:
            written = min(hits or HITS, len(documents))
            note(f"{output}: the best {counted(written, 'document')} for {counted(len(queries), 'query')}.")
        return
    rerank_to_file(
        ranker,
        first_stage,
        queries,
        documents,
        output,
        depth or DEPTH,
        passage_scores=passage_scores,
        encode_documents=encode_documents,
        vectors=kept,
        keep_passages=keep_passages,
        choose_by=chosen_by,
        max_passages_per_query=max_passages_per_query,
        first_stage_share=first_stage_share or 0,
    )
    if state.is_main_process:
        best = f"up to {counted(depth or DEPTH, 'document')} of each"
        mixed = f", {first_stage_share:g} of the scores from --run" if first_stage_share else ""
        note(f"{output}: {counted(len(first_stage), 'query')}, {best} reranked{mixed}{processes}.")


def _choose_vectors(ranker: "DocumentRanker", documents: "Documents", ids: list[str]) -> VectorType | None:
    """Whether the vectors of a run's documents are kept: not if the disk has no room for them."""
    from docparade.reranking.caches.vector_size import estimate_size
    from docparade.reranking.processes.process_group import is_main_process, share_from_main
    from docparade.retrieval.storage.cache import cache_folder, free_space

    folder = cache_folder()
    size = estimate_size(ranker, documents, ids, EXACT)
    free = share_from_main(free_space(folder))
    # They are there twice while the cache is put together.
    fits = free is None or 2 * size < free
    if is_main_process():
        of_all = f"vectors of {counted(len(ids), 'document')}, about {_in_megabytes(size)},"
        if fits:
            note(f"{of_all} are kept in {folder} for the next time; --vectors float16 takes half, none keeps none.")
        else:
            note(
                f"{of_all} do not fit into {folder} twice, as making them needs, with {_in_megabytes(free or 0)} free: "
                "documents are read again for each query. Set DOCPARADE_CACHE to another folder to keep them."
            )
    return EXACT if fits else None


def _in_megabytes(size: int) -> str:
    """A size for people.

    >>> _in_megabytes(202_142_208), _in_megabytes(4_200_551_391), _in_megabytes(9)
    ('202 MB', '4.2 GB', '1 MB')
    """
    megabytes = max(1, round(size / 1e6))
    return f"{megabytes} MB" if megabytes < 1000 else f"{megabytes / 1000:.1f} GB"


def _check_limits(keep: int | None, per_query: int | None, choose_by: str | None, passage_scores: Path | None) -> None:
    """Refuse options that exclude or need each other."""
    if keep is not None and per_query is not None:
        raise InputError("--keep-passages and --max-passages-per-query both limit what is read; leave one of them out.")
    if choose_by is not None and keep is None and per_query is None:
        raise InputError(
            "--choose-by chooses passages; say how many, with --keep-passages or --max-passages-per-query."
        )
    if passage_scores is not None and per_query is not None:
        raise InputError(
            "--passage-scores is for passages of every document, and --max-passages-per-query may read none of some; "
            "leave one of them out."
        )


def _check_candidates(
    run: Path | None,
    all_documents: bool,
    depth: int | None,
    hits: int | None,
    passage_scores: Path | None,
    share: float | None,
) -> None:
    """Refuse options that contradict each other: a run is reranked, or all documents are ranked."""
    if run is None and not all_documents:
        raise InputError("name the run to rerank with --run, or score every document with --all-documents.")
    if run is not None and all_documents:
        raise InputError("--all-documents is in place of --run; leave one of them out.")
    if run is not None and hits is not None:
        raise InputError("--hits is for --all-documents; use --depth with --run.")
    if all_documents and depth is not None:
        raise InputError("--depth is for --run; use --hits with --all-documents.")
    if all_documents and passage_scores is not None:
        raise InputError("--passage-scores is for --run; rerank the run that --all-documents writes to get them.")
    if all_documents and share is not None:
        raise InputError("--first-stage-share is for --run; with --all-documents there is no first stage.")
    if share is not None and not 0 <= share <= 1:
        raise InputError(f"--first-stage-share must be from 0 to 1, and is {share}.")
