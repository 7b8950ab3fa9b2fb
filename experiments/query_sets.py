"""What a recipe's data are on this machine: queries, judgments, the first stage's lists and the documents."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from accelerate import PartialState

from docparade.reranking import fingerprints
from docparade.reranking.documents import CollectionDocuments
from docparade.retrieval.collections.collection import Collection, Document, load_collection
from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.measures import binary
from docparade.retrieval.folds import Fold, Folds, k_folds, leave_one_out, read_folds
from docparade.retrieval.index.first_stage import retrieve
from docparade.retrieval.judgment_samples import sample_judgments
from docparade.retrieval.runs import Qrels, Run, merge, read_qrels, read_run, write_run
from docparade.trainer.checkpoints import make_folder

from .schema import check_name
from .sections import SCORED_DOCUMENTS, DataRecipe

FIRST_STAGE_FOLDER = "first-stage"


@dataclass(frozen=True)
class Material:
    """Queries with what belongs to them; judgments, lists and documents may be of more queries than these."""

    name: str
    queries: dict[str, str]
    qrels: Qrels
    run: Run
    documents: CollectionDocuments
    years: dict[str, list[str]]
    """Collection -> ids of its queries, where several were taken together."""

    def judged(self) -> list[str]:
        """The queries that have judgments."""
        return [query for query in self.queries if self.qrels.get(query)]

    def of(self, queries: Iterable[str], name: str | None = None, qrels: Qrels | None = None) -> Material:
        """The same of some of the queries; ids that are not there are left out."""
        chosen = {query: self.queries[query] for query in queries if query in self.queries}
        judgments = self.qrels if qrels is None else qrels
        return replace(
            self,
            name=name or self.name,
            queries=chosen,
            qrels={query: judgments[query] for query in chosen if query in judgments},
            run={query: self.run[query] for query in chosen if self.run.get(query)},
        )

    def to_measure(self) -> Material:
        """The same of the queries that have judgments."""
        return self.of(self.judged())


class CollectionUnion(Collection):
    """Several collections as one: their queries and judgments together, a document from the first that has it."""

    def __init__(self, collections: list[Collection]) -> None:
        self.name = " + ".join(collection.name for collection in collections)
        self.collections = collections
        # The topics of several years often have one set of documents.
        versions = [collection.version() for collection in collections]
        self.sources = [c for i, c in enumerate(collections) if versions[i] not in versions[:i]]

    def documents(self) -> Iterator[Document]:
        for source in self.sources:
            yield from source.documents()

    def get_many(self, ids: Iterable[str]) -> dict[str, Document]:
        if len(self.sources) == 1:
            return self.sources[0].get_many(ids)
        return {document_id: self._find(document_id) for document_id in dict.fromkeys(ids)}

    def _find(self, document_id: str) -> Document:
        for source in self.sources:
            try:
                return source.document(document_id)
            except InputError:
                continue
        raise InputError(f"{self.name} have no document {document_id}.")

    def __len__(self) -> int:
        return sum(len(source) for source in self.sources)

    def queries(self, field: str | None = None) -> dict[str, str]:
        queries: dict[str, str] = {}
        for collection in self.collections:
            found = collection.queries(field)
            if shared := queries.keys() & found.keys():
                raise InputError(f"query {min(shared)} is in two of {self.name}; their queries cannot be told apart.")
            queries |= found
        return queries

    def qrels(self) -> Qrels:
        return {query: grades for collection in self.collections for query, grades in collection.qrels().items()}

    def version(self) -> dict[str, object]:
        return {"union": [source.version() for source in self.sources]}


def load_material(data: DataRecipe, folder: Path, place: str) -> Material:
    """Open the collection, and get or make the first stage's lists; those that are made are kept in the folder.

    Args:
        data: The recipe's section, with a collection.
        folder: The run's folder.
        place: The section's place, for what is wrong: `recipe.yaml, data`.
    """
    opened = open_data(data, place)
    parts, queries = opened.parts, opened.queries
    if data.max_queries is not None:
        judged = sorted(query for query in queries if opened.qrels.get(query))
        chosen = set(random.Random("queries").sample(judged, min(data.max_queries, len(judged))))
        parts = [{query: text for query, text in part.items() if query in chosen} for part in parts]
        queries = {query: text for query, text in queries.items() if query in chosen}
    return Material(
        name=data.label,
        queries=queries,
        qrels=binary(opened.qrels) if data.binary else opened.qrels,
        run=_first_stage(data, opened.collections, parts, folder, place),
        documents=CollectionDocuments(opened.source),
        years={collection.name: list(part) for collection, part in zip(opened.collections, parts, strict=True)},
    )


@dataclass(frozen=True)
class OpenedData:
    """A section's collections, with their queries and judgments; lists and documents are not read yet."""

    collections: list[Collection]
    source: Collection
    """All of them as one."""
    parts: list[dict[str, str]]
    """The queries of each."""
    queries: dict[str, str]
    qrels: Qrels


def open_data(data: DataRecipe, place: str) -> OpenedData:
    """Open the collections of a section; the arguments are those of `load_material`."""
    with told_as(f"{place}.collection"):
        collections = [load_collection(name) for name in data.collection]
        source = collections[0] if len(collections) == 1 else CollectionUnion(collections)
    with told_as(f"{place}.query_field" if data.query_field else f"{place}.collection"):
        parts = [collection.queries(data.query_field) for collection in collections]
        queries = parts[0] if len(parts) == 1 else source.queries(data.query_field)
    with told_as(f"{place}.qrels" if data.qrels else f"{place}.collection"):
        qrels = read_qrels(data.qrels) if data.qrels else source.qrels()
    if not any(qrels.get(query) for query in queries):
        if data.qrels:
            raise InputError(f"{place}.qrels: {data.qrels} has no judgments of the queries of {source.name}.")
        raise InputError(f"{place}.collection: {source.name} has no judgments of its queries; name a file with qrels.")
    return OpenedData(collections, source, parts, queries, qrels)


def _first_stage(
    data: DataRecipe, collections: list[Collection], parts: list[dict[str, str]], folder: Path, place: str
) -> Run:
    if data.run == SCORED_DOCUMENTS:
        with told_as(f"{place}.run"):
            return merge(collection.scored_documents() for collection in collections)
    if data.run is not None:
        with told_as(f"{place}.run"):
            return read_run(data.run)
    stage, path = data.first_stage, first_stage_file(data, folder)
    assert stage is not None
    # The first process makes it, the others wait and read.
    with PartialState().main_process_first(), told_as(f"{place}.first_stage"):
        if not path.is_file():
            runs = [
                retrieve(collection, stage, queries, stage.hits, stage.engine)
                for collection, queries in zip(collections, parts, strict=True)
            ]
            make_folder(path.parent)
            write_run(merge(runs), path, tag=stage.method)
    return read_run(path)


def first_stage_file(data: DataRecipe, folder: Path) -> Path:
    """Where the first stage's lists of a section are kept in the run's folder."""
    stage = data.first_stage
    assert stage is not None
    key = fingerprints.of_values([data.collection, data.query_field, data.max_queries, vars(stage)])[:8]
    return folder / FIRST_STAGE_FOLDER / f"{data.label}-{stage.method}-{key}.txt"


def make_folds(data: DataRecipe, material: Material, place: str) -> Folds:
    """The folds that the section asks for, of queries that have judgments."""
    folds = data.folds
    assert folds is not None
    judged = material.judged()
    with told_as(f"{place}.folds"):
        if folds.file is not None:
            read = read_named_folds(folds.file)
            unknown = [query for fold in read.values() for query in fold.test if query not in material.queries]
            if unknown:
                raise InputError(f"{folds.file} tests query {unknown[0]}, which {material.name} does not have.")
            return read
        if folds.leave_one_out:
            years = {name: [query for query in judged if query in set(ids)] for name, ids in material.years.items()}
            named = leave_one_out(years, folds.dev_share, folds.seed)
            return {f"s{number}": fold for number, fold in enumerate(named.values(), start=1)}
        assert folds.count is not None
        return k_folds(judged, folds.count, folds.seed)


def fold_names(data: DataRecipe, place: str) -> list[str]:
    """The names of the folds that the section asks for, which need no data."""
    folds = data.folds
    assert folds is not None
    if folds.file is not None:
        with told_as(f"{place}.folds.file"):
            return list(read_named_folds(folds.file))
    count = len(data.collection) if folds.leave_one_out else folds.count
    assert count is not None
    return [f"s{number}" for number in range(1, count + 1)]


def read_named_folds(path: str) -> Folds:
    """Read a fold file whose folds can have folders of their names."""
    folds = read_folds(path)
    for name in folds:
        check_name(f"{path}: the name of a fold", name)
    return folds


def choose_fold(folds: Iterable[str], wanted: str, place: str) -> str:
    """A fold's name, where its name or its number was given."""
    names = list(folds)
    for name in (wanted, f"s{wanted}"):
        if name in names:
            return name
    raise InputError(f"{place}: there is no fold {wanted}; the folds are {', '.join(names)}.")


def hold_out(material: Material, share: float, seed: int) -> Fold:
    """Training queries, and a share of them held out to choose the model."""
    ids = sorted(material.judged())
    random.Random(f"hold out {seed}").shuffle(ids)
    count = round(share * len(ids))
    return Fold(tuple(ids[count:]), tuple(ids[:count]), ())


def training_judgments(data: DataRecipe, material: Material) -> Qrels:
    """The judgments to train and validate on: all, or the sample that the recipe asks for."""
    if data.sample is None:
        return material.qrels
    return sample_judgments(material.qrels, data.sample.rate, data.sample.style, data.sample.seed)


@contextmanager
def told_as(place: str) -> Iterator[None]:
    """What is wrong inside is told with the place in the recipe."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
