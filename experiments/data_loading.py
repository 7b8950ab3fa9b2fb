"""From a recipe's data section to a `QuerySet`: the collection is opened, and the first stage's run read or made."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from accelerate import PartialState, logging

from docparade.experiments.recipes.data_recipe import SCORED_DOCUMENTS, DataRecipe
from docparade.reranking.caches.document_lookup import CollectionDocuments
from docparade.reranking.caches.fingerprints import fingerprint_values
from docparade.reranking.query_set import QuerySet
from docparade.retrieval.collections.catalog import load_collection
from docparade.retrieval.collections.collection import Collection
from docparade.retrieval.collections.union import CollectionUnion
from docparade.retrieval.errors import InputError, errors_at
from docparade.retrieval.index.first_stage import Engine, FirstStage, retrieve
from docparade.retrieval.judgment_samples import sample_judgments
from docparade.retrieval.runs import Qrels, Run, merge, read_qrels, read_run, write_run
from docparade.retrieval.storage.files import make_folder

from .output_folder import OutputFolder

logger = logging.get_logger(__name__)


def load_query_set(data: DataRecipe, output: OutputFolder, place: str) -> QuerySet:
    """Open the collection, and read the first stage's run, or make it and keep it in the output folder.

    If each fold has lists of its own, the run is empty: see `fold_lists`.

    Args:
        data: The recipe's section, with a collection.
        output: The experiment's folder.
        place: The section's place, for errors: `recipe.yaml, data`.
    """
    opened = open_data(data, place)
    if data.qrels is None and data.counting.misread(opened.source.name):
        _say_misread(opened.source.name, place)
    with errors_at(f"{place}.gains"):
        qrels = data.counting.judge(opened.qrels)
    return QuerySet(
        name=data.label,
        queries=opened.queries,
        run={} if data.varies_by_fold else _first_stage(data, opened, output, place),
        qrels=qrels,
        documents=CollectionDocuments(opened.source),
    )


@cache
def _say_misread(collection: str, place: str) -> None:
    logger.warning(
        "%s: %s's grades run from 1, the best, to 4, the weakest, so nDCG and other graded measures count them upside "
        "down; add binary: true, or gains: 1=4,2=3,3=2,4=1.",
        place,
        collection,
    )


@dataclass(frozen=True)
class OpenedData:
    """A section's collections with the queries and judgments that it takes; runs and documents are not read yet."""

    collections: list[Collection]
    source: Collection
    """All of them as one."""
    parts: list[dict[str, str]]
    """The queries of each."""
    queries: dict[str, str]
    qrels: Qrels


def open_data(data: DataRecipe, place: str) -> OpenedData:
    """Open the collections of a section; the arguments are those of `load_query_set`."""
    with errors_at(f"{place}.collection"):
        collections = [load_collection(name) for name in data.collection]
        source = collections[0] if len(collections) == 1 else CollectionUnion(collections)
    with errors_at(f"{place}.query_field" if data.query_field else f"{place}.collection"):
        parts = [collection.queries(data.query_field) for collection in collections]
        queries = parts[0] if len(parts) == 1 else source.queries(data.query_field)
    with errors_at(f"{place}.qrels" if data.qrels else f"{place}.collection"):
        qrels = read_qrels(data.qrels) if data.qrels else source.qrels()
    if not any(qrels.get(query) for query in queries):
        if data.qrels:
            raise InputError(f"{place}.qrels: {data.qrels} has no judgments of the queries of {source.name}.")
        raise InputError(f"{place}.collection: {source.name} has no judgments of its queries; name a file with qrels.")
    if data.max_queries is not None:
        judged = sorted(query for query in queries if qrels.get(query))
        chosen = set(random.Random("queries").sample(judged, min(data.max_queries, len(judged))))
        parts = [{query: text for query, text in part.items() if query in chosen} for part in parts]
        queries = {query: text for query, text in queries.items() if query in chosen}
    return OpenedData(collections, source, parts, queries, qrels)


def retrieve_lists(opened: OpenedData, stage: FirstStage, hits: int, engine: Engine) -> Run:
    """Search each collection of a section for its own queries."""
    parts = zip(opened.collections, opened.parts, strict=True)
    return merge(retrieve(collection, stage, queries, hits, engine) for collection, queries in parts)


def first_stage_file(data: DataRecipe, output: OutputFolder) -> Path:
    """Where the first stage's run of a section is kept."""
    stage = data.first_stage
    assert stage is not None
    key = fingerprint_values([data.collection, data.query_field, data.max_queries, asdict(stage)])[:8]
    return output.first_stage / f"{data.label}-{stage.method}-{key}.txt"


def training_judgments(data: DataRecipe, queries: QuerySet) -> Qrels:
    """The judgments to train and validate on: all, or the sample that the recipe asks for."""
    if data.sample is None:
        return queries.qrels
    return sample_judgments(queries.qrels, data.sample.rate, data.sample.style, data.sample.seed)


def _first_stage(data: DataRecipe, opened: OpenedData, output: OutputFolder, place: str) -> Run:
    if data.run == SCORED_DOCUMENTS:
        with errors_at(f"{place}.run"):
            return merge(collection.scored_documents() for collection in opened.collections)
    if data.run is not None:
        with errors_at(f"{place}.run"):
            return read_run(data.run)
    stage, path = data.first_stage, first_stage_file(data, output)
    assert stage is not None
    # The first process makes it; the others wait and read it.
    with PartialState().main_process_first(), errors_at(f"{place}.first_stage"):
        if not path.is_file():
            run = retrieve_lists(opened, stage, stage.hits, stage.engine)
            make_folder(path.parent)
            write_run(run, path, tag=stage.method)
    return read_run(path)
