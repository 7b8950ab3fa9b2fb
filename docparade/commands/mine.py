"""`docparade mine`: add hard negatives to training pairs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from docparade.commands.bi_encoders import load_bi_encoder
from docparade.commands.inputs import DtypeOption, at_least_one, name_model, parse_dtype
from docparade.commands.output import check_outputs, counted, note
from docparade.retrieval.errors import InputError, check_choice

if TYPE_CHECKING:
    from docparade.reranking.caches.vector_cache import VectorCache
    from docparade.trainer.data.hard_negatives import TextPool

METHODS = ("bm25", "dense")
ENDINGS = (".jsonl", ".jsonl.gz")


def mine(
    pairs: Annotated[
        Path, typer.Argument(help='JSON lines of {"query", "positive", "negatives"}; also as .gz or .xz.')
    ],
    output: Annotated[Path, typer.Option(help="The file to write, as .jsonl or .jsonl.gz.")],
    methods: Annotated[
        str, typer.Option(help="How texts are found: bm25, dense (a bi-encoder), or both: 'bm25 dense'.")
    ] = "bm25",
    negatives: Annotated[int, typer.Option(help="How many texts to add to a pair, of each method.")] = 3,
    depth: Annotated[int, typer.Option(help="How many texts each method finds for a query, at most.")] = 50,
    margin: Annotated[
        float | None,
        typer.Option(
            help="Leave out texts that the bi-encoder does not score lower than the relevant text by at least this "
            "much: they may be relevant, too."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="dense and --margin: the bi-encoder, a folder or a Hub id. Default: the ranker that comes with "
            "docparade."
        ),
    ] = None,
    every_pair: Annotated[
        bool, typer.Option("--every-pair", help="Also add to pairs that have negatives; by default, these stay.")
    ] = False,
    dtype: DtypeOption = None,
) -> None:
    r"""Add hard negatives to training pairs: texts that are found for a query, and are not relevant to it.

    Texts are searched for among those of the file: the relevant ones and the negatives of all pairs. Texts that are
    relevant to the same query in another pair are left out.

    Examples:

        docparade mine pairs.jsonl --output mined.jsonl
        docparade mine pairs.jsonl.xz --output mined.jsonl.gz \
            --methods "bm25 dense" --margin 0.05 \
            --model sentence-transformers/all-MiniLM-L6-v2

    Train on the result with a recipe whose data are `triples: [mined.jsonl]` and `training: {negatives: 4}`.
    """
    chosen = [check_choice(method, METHODS, "--methods") for method in dict.fromkeys(methods.split())]
    if not chosen:
        raise InputError("--methods is empty; name bm25, dense, or both.")
    at_least_one("--negatives", negatives)
    at_least_one("--depth", depth)
    if margin is not None and not 0 <= margin < float("inf"):
        raise InputError(f"--margin must be a number from 0, and is {margin}.")
    precision = parse_dtype(dtype)
    for option, value in {"--model": model, "--dtype": dtype}.items():
        if value is not None and margin is None and "dense" not in chosen:
            raise InputError(f"{option} is for --methods dense and for --margin; leave it out.")
    if not output.name.endswith(ENDINGS):
        raise InputError(f"--output {output}: the name of the file must end in {' or '.join(ENDINGS)}.")
    check_outputs({"--output": output}, {"the pairs": pairs})

    from docparade.retrieval.index.first_stage import retrieve
    from docparade.trainer.data.hard_negatives import TextPool, find_too_close, mine_negatives
    from docparade.trainer.data.triples import check_file, read_triples, write_triples

    check_file(pairs)
    rows = list(read_triples(pairs))
    pool = TextPool(rows, pairs.name)
    places = [place for place, row in enumerate(rows) if every_pair or not row.negatives]
    queries = {pool.query_ids[rows[place].query]: rows[place].query for place in places}
    if not queries:
        raise InputError(f"{pairs}: all pairs have negatives; add more with --every-pair.")
    runs, vectors = [], None
    if "dense" in chosen or margin is not None:
        vectors = _open_vectors(model, pool, precision)
    if "bm25" in chosen:
        runs.append(retrieve(pool, queries=queries, hits=depth))
    if "dense" in chosen and vectors is not None:
        runs.append(dict(zip(queries, vectors.search(list(queries.values()), depth), strict=True)))
    close = None if margin is None or vectors is None else find_too_close(runs, pool, vectors, margin)
    new = mine_negatives([rows[place] for place in places], runs, pool, negatives, close)
    mined = [*rows]
    for place, row in zip(places, new, strict=True):
        mined[place] = row
    write_triples(mined, output)
    added = sum(len(after.negatives) - len(before.negatives) for before, after in zip(rows, mined, strict=True))
    without = sum(not row.negatives for row in mined)
    note(f"{output}: {counted(added, 'negative')} for {counted(len(rows), 'pair')}.")
    if without:
        note(f"{counted(without, 'pair')} still without negatives: nothing else was found for the query.")


def _open_vectors(model: str | None, pool: "TextPool", precision: dict[str, Any]) -> "VectorCache":
    from docparade.reranking.caches.vector_cache import VectorCache

    return VectorCache.open(None, load_bi_encoder(name_model(model), "--model", **precision), pool)
