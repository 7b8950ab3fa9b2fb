"""`TrainingData`: pairs drawn from a first stage's lists, ready triples, or the best passages of documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate import PartialState

from docparade.experiments.recipes.data_recipe import is_triple_file
from docparade.experiments.recipes.recipe import Recipe, Stage
from docparade.reranking.caches.document_lookup import CollectionDocuments, Documents
from docparade.reranking.loading import load_ranker
from docparade.reranking.processes.resumable_work import is_done
from docparade.reranking.query_set import QuerySet
from docparade.retrieval.collections.catalog import load_collection
from docparade.retrieval.collections.hugging_face import check_hub_name
from docparade.retrieval.errors import InputError, errors_at
from docparade.retrieval.folds import Fold
from docparade.retrieval.runs import Qrels, ranking
from docparade.retrieval.storage.files import make_folder
from docparade.trainer.data.labeled_documents import LabeledDocuments
from docparade.trainer.data.pairs import PairDataset, PairSampler, unretrieved_relevant
from docparade.trainer.data.passage_filter import filter_passages
from docparade.trainer.data.triples import Triples

from .data_loading import load_query_set, training_judgments
from .model_building import locate, processor_settings, set_processor
from .output_folder import OutputFolder
from .query_splits import hold_out


@dataclass(frozen=True)
class TrainingData:
    """What a stage learns from: training examples, the texts behind their ids, and the sets that choose the model."""

    examples: PairDataset | LabeledDocuments
    queries: Mapping[str, str] | None
    documents: Documents | None
    validation: tuple[QuerySet, ...]
    read: frozenset[str] = frozenset()
    """Ids of the documents that examples are made of, if they are known beforehand."""
    are_passages: bool = False
    """Whether the texts of examples are passages, which are not cut into smaller ones."""


def load_training_data(recipe: Recipe, stage: Stage, output: OutputFolder) -> TrainingData:
    """What a stage without folds learns from."""
    place = recipe.place("data", stage)
    validation = tuple(
        load_query_set(one, output, recipe.place(f"validation.{number}", stage)).select_judged()
        for number, one in enumerate(stage.validation, start=1)
    )
    if stage.data.triples:
        return _read_triples(stage, recipe.seed, validation, place)
    queries = load_query_set(stage.data, output, place)
    qrels = training_judgments(stage.data, queries)
    train = list(queries.judged())
    if stage.data.validation_share:
        split = hold_out(queries, stage.data.validation_share, recipe.seed)
        train = list(split.train)
        validation = (*validation, queries.select(split.dev, "dev", qrels).select_judged())
    if stage.data.passage_filter:
        return _filter_passages(recipe, stage, queries.select(train, qrels=qrels), validation, output)
    with errors_at(place):
        return _read_lists(stage, recipe.seed, queries, train, qrels, validation)


def training_data_of_fold(recipe: Recipe, queries: QuerySet, fold: Fold) -> TrainingData:
    """What the last stage learns from on one fold."""
    stage = recipe.stages[-1]
    qrels = training_judgments(stage.data, queries)
    dev = queries.select(fold.dev, "dev", qrels).select_judged()
    train = [query for query in fold.train if query in queries.queries]
    with errors_at(recipe.place("data", stage)):
        return _read_lists(stage, recipe.seed, queries, train, qrels, (dev,) if dev.queries else ())


def _read_lists(
    stage: Stage, seed: int, queries: QuerySet, train: list[str], qrels: Qrels, validation: tuple[QuerySet, ...]
) -> TrainingData:
    """Pairs drawn from the first stage's lists of the training queries, or all documents of these lists."""
    training = stage.training
    max_rank, unretrieved = training["max_rank"], training["unretrieved_positives"]
    shared: dict[str, Any] = {"seed": seed, "max_rank": max_rank, "unretrieved_positives": unretrieved}
    window = training["negative_ranks"]
    examples: PairDataset | LabeledDocuments
    if training["examples"] == "lists":
        count = training["pairs_per_epoch"]
        examples = LabeledDocuments.from_run(queries.run, qrels, train, examples_per_epoch=count, **shared)
    else:
        examples = PairSampler(
            queries.run,
            qrels,
            train,
            pairs_per_epoch=training["pairs_per_epoch"],
            negative_ranks=None if window is None else (window[0], window[1]),
            negatives=training["negatives"],
            **shared,
        )
    # Of all queries, not only of those to train on: every fold then uses the same token cache.
    read: set[str] = set()
    for query in queries.queries:
        documents = ranking(queries.run.get(query, {}))[:max_rank]
        read.update(documents, unretrieved_relevant(documents, qrels.get(query, {})) if unretrieved else ())
    return TrainingData(examples, queries.queries, queries.documents, validation, frozenset(read))


def _read_triples(stage: Stage, seed: int, validation: tuple[QuerySet, ...], place: str) -> TrainingData:
    """Ready triples: texts from files or a Hugging Face dataset, or ids of one ir_datasets dataset."""
    options = _options(stage, seed)
    sources = stage.data.triples
    with errors_at(f"{place}.triples"):
        if are_files(sources):
            return TrainingData(_read_files(stage, sources, seed), None, None, validation)
        if sources[0].startswith("hf:"):
            return TrainingData(Triples.from_dataset(load_hub_triples(sources[0]), **options), None, None, validation)
        triples = Triples.from_ir_datasets(sources[0], **options)
        collection = load_collection(sources[0])
        return TrainingData(triples, collection.queries(), CollectionDocuments(collection), validation)


def _filter_passages(
    recipe: Recipe, stage: Stage, queries: QuerySet, validation: tuple[QuerySet, ...], output: OutputFolder
) -> TrainingData:
    """The passages of relevant documents that a scorer scores highest, chosen once and kept in a file."""
    wanted = stage.data.passage_filter
    assert wanted is not None
    chosen = (output if stage is recipe.stages[-1] else output.stage(stage.name)).passages
    if not is_done(chosen):
        place = recipe.place("data.passage_filter.scorer", stage)
        trained = {one.name: output.stage(one.name).model for one in recipe.stages}
        scorer = load_ranker(str(trained.get(wanted.scorer) or locate(wanted.scorer, place)), place)
        # The scorer was trained on passages; here it cuts documents as this stage does.
        number = recipe.stages.index(stage)
        start = trained[recipe.stages[number - 1].name] if number else None
        section = recipe.place("model", stage)
        settings = processor_settings(stage.model, section, start)
        if wanted.max_passages is not None:
            settings = settings | {"max_passages": wanted.max_passages}
        set_processor(scorer, settings, section)
        make_folder(chosen.parent)
        filter_passages(
            scorer.to(PartialState().device),
            queries.run,
            queries.queries,
            queries.qrels,
            queries.documents,
            chosen,
            keep=wanted.keep,
            depth=stage.training["max_rank"],
            seed=recipe.seed,
        )
    return TrainingData(_read_files(stage, [chosen], recipe.seed), None, None, validation, are_passages=True)


def _read_files(stage: Stage, paths: Sequence[str | Path], seed: int) -> PairDataset | LabeledDocuments:
    """The triples of files, as pairs or as single texts with their labels."""
    if stage.training["examples"] == "lists":
        return LabeledDocuments.from_files(paths, seed=seed, examples_per_epoch=stage.training["pairs_per_epoch"])
    return Triples.from_files(paths, **_options(stage, seed))


def are_files(sources: Sequence[str]) -> bool:
    """Whether triples come from files; several sources of any other kind are refused."""
    if all(map(is_triple_file, sources)):
        return True
    if len(sources) > 1:
        raise InputError("several sources have to be files of JSON lines (.jsonl, .gz, .xz).")
    return False


def load_hub_triples(name: str) -> Any:
    """The training split of a Hugging Face dataset, streamed."""
    from datasets import load_dataset

    check_hub_name(name)
    try:
        return load_dataset(name.removeprefix("hf:"), split="train", streaming=True)
    except (OSError, ValueError) as error:
        raise InputError(
            f"the split train of {name} cannot be read, neither from the Hugging Face cache (HF_HOME) nor from the "
            f"Hub: {' '.join(str(error).split())}"
        ) from error


def _options(stage: Stage, seed: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "pairs_per_epoch": stage.training["pairs_per_epoch"],
        "negatives": stage.training["negatives"],
    }
