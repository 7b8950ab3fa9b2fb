"""What a stage learns from: pairs of a first stage's lists, ready triples, or the best passages of documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate import PartialState

from docparade.reranking.documents import CollectionDocuments, Documents
from docparade.reranking.loading import load_ranker
from docparade.reranking.resumable_parts import is_done
from docparade.retrieval.collections.collection import load_collection
from docparade.retrieval.collections.hugging_face import check_hub_name
from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import Qrels, ranking
from docparade.trainer.checkpoints import make_folder
from docparade.trainer.pairs import PairDataset, PairSampler
from docparade.trainer.passage_filter import filter_passages
from docparade.trainer.triples import Triples

from .models import locate, processor_settings, set_processor
from .query_sets import Material, hold_out, load_material, told_as, training_judgments
from .recipe import Recipe, Stage

MODEL_FOLDER = "model"
"""In a stage's folder: its best model, when it is done."""


@dataclass(frozen=True)
class Lesson:
    """What a stage learns from: training pairs with the texts behind their ids, and what chooses the model."""

    pairs: PairDataset
    queries: Mapping[str, str] | None
    documents: Documents | None
    validation: tuple[Material, ...]
    read: frozenset[str] = frozenset()
    """Ids of the documents that pairs are made of, where they are known beforehand."""
    are_passages: bool = False
    """Whether the texts of pairs are passages, which are not cut into smaller ones."""


def lesson_of_queries(
    stage: Stage, seed: int, material: Material, queries: Iterable[str], validation: tuple[Material, ...], qrels: Qrels
) -> Lesson:
    """Pairs drawn from the first stage's lists of training queries."""
    training = stage.training
    chosen = list(queries)
    max_rank = training["max_rank"]
    # Of all queries, and not of the training ones alone: what is kept of these documents serves every fold.
    lists = {query: ranking(material.run.get(query, {}))[:max_rank] for query in material.queries}
    positives = sum(qrels.get(query, {}).get(document, 0) > 0 for query in chosen for document in lists[query])
    window = training["negative_ranks"]
    pairs = PairSampler(
        material.run,
        qrels,
        chosen,
        # Without a number, an epoch is as many pairs as the lists hold relevant documents.
        pairs_per_epoch=training["pairs_per_epoch"] or max(positives, 1),
        seed=seed,
        max_rank=max_rank,
        negative_ranks=None if window is None else (window[0], window[1]),
        negatives=training["negatives"],
    )
    read = frozenset(document for documents in lists.values() for document in documents)
    return Lesson(pairs, material.queries, material.documents, validation, read)


def lesson_of_triples(stage: Stage, seed: int, validation: tuple[Material, ...], place: str) -> Lesson:
    """Ready triples: texts from files or a Hugging Face dataset, or ids of one ir_datasets dataset."""
    options = _options(stage, seed)
    sources = stage.data.triples
    with told_as(f"{place}.triples"):
        if are_files(sources):
            return Lesson(Triples.from_files(sources, **options), None, None, validation)
        if sources[0].startswith("hf:"):
            return Lesson(Triples.from_dataset(load_hub_triples(sources[0]), **options), None, None, validation)
        triples = Triples.from_ir_datasets(sources[0], **options)
        collection = load_collection(sources[0])
        return Lesson(triples, collection.queries(), CollectionDocuments(collection), validation)


def are_files(sources: Sequence[str]) -> bool:
    """Whether triples come from files; several of anything else are refused."""
    if all(Path(name).suffix in (".jsonl", ".gz", ".xz") for name in sources):
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


def lesson_of_stage(recipe: Recipe, stage: Stage, folder: Path) -> Lesson:
    """What a stage without folds learns from."""
    place = recipe.place("data", stage)
    validation = tuple(
        load_material(one, folder, recipe.place(f"validation.{number}", stage)).to_measure()
        for number, one in enumerate(stage.validation, start=1)
    )
    if stage.data.triples:
        return lesson_of_triples(stage, recipe.seed, validation, place)
    material = load_material(stage.data, folder, place)
    qrels = training_judgments(stage.data, material)
    queries = material.judged()
    if stage.data.validation_share:
        held_out = hold_out(material, stage.data.validation_share, recipe.seed)
        queries = list(held_out.train)
        validation = (*validation, material.of(held_out.dev, "dev", qrels).to_measure())
    if stage.data.passage_filter:
        return _lesson_of_passages(recipe, stage, material.of(queries, qrels=qrels), validation, folder)
    with told_as(place):
        return lesson_of_queries(stage, recipe.seed, material, queries, validation, qrels)


def _lesson_of_passages(
    recipe: Recipe, stage: Stage, material: Material, validation: tuple[Material, ...], folder: Path
) -> Lesson:
    """The passages of relevant documents that a scorer likes best; the list is made once."""
    wanted = stage.data.passage_filter
    assert wanted is not None
    kept = stage_folder(folder, stage) / "passages.jsonl.gz"
    if not is_done(kept):
        place = recipe.place("data.passage_filter.scorer", stage)
        trained = {one.name: stage_folder(folder, one) / MODEL_FOLDER for one in recipe.stages}
        scorer = load_ranker(str(trained.get(wanted.scorer) or locate(wanted.scorer, place)), place)
        # Trained on passages, it now cuts documents as this stage does.
        number = recipe.stages.index(stage)
        start = trained[recipe.stages[number - 1].name] if number else None
        section = recipe.place("model", stage)
        set_processor(scorer, processor_settings(stage.model, section, start), section)
        make_folder(kept.parent)
        filter_passages(
            scorer.to(PartialState().device),
            material.run,
            material.queries,
            material.qrels,
            material.documents,
            kept,
            keep=wanted.keep,
            depth=stage.training["max_rank"],
            seed=recipe.seed,
        )
    triples = Triples.from_files(kept, **_options(stage, recipe.seed))
    return Lesson(triples, None, None, validation, are_passages=True)


def stage_folder(folder: Path, stage: Stage) -> Path:
    """Where a stage's files are, in the folder of a run."""
    return folder / "stages" / stage.name


def _options(stage: Stage, seed: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "pairs_per_epoch": stage.training["pairs_per_epoch"],
        "negatives": stage.training["negatives"],
    }
