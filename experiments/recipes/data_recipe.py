"""The section `data` of a recipe: collections, queries, judgments and lists, to train on or to test on."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from docparade.retrieval.birch import MOST_PASSAGES
from docparade.retrieval.errors import InputError, errors_at
from docparade.retrieval.evaluation.gains import Gains
from docparade.retrieval.judgment_samples import SampleStyle

from .first_stage_recipe import FirstStageRecipe
from .typed_values import (
    LONGEST_NAME,
    build,
    check_lowest,
    check_mapping,
    check_name,
    check_place,
    is_place,
    plain,
    shown,
)

SCORED_DOCUMENTS = "scored_documents"
"""as `data.run`: the list that comes with the collection"""
FOLD = "{fold}"
"""in a path: the fold's name"""


@dataclass(frozen=True)
class FoldsRecipe:
    """Folds by query: `count` seeded ones, those of a `file` of Capreolus' form, or one for each collection."""

    count: int | None = None
    seed: int = 42
    dev: bool = True
    """With `count`: whether one part of a fold is held out to choose the model; without it, the last model is taken."""
    file: str | None = None
    leave_one_out: bool = False
    dev_share: float = 0.1
    """With `leave_one_out`: the share of the training queries that is held out to choose the model."""

    def __post_init__(self) -> None:
        if (self.count is not None) + (self.file is not None) + self.leave_one_out != 1:
            raise InputError("give exactly one of count, file and leave_one_out.")
        if self.count is not None:
            check_lowest(self, "count", 2)
        if not self.dev and self.count is None:
            raise InputError("dev goes with count; leave dev parts empty in the file, or set dev_share to 0.")
        _check_share(self, "dev_share")


@dataclass(frozen=True)
class SampleRecipe:
    """A sample of the judgments to train and validate on; test judgments stay complete."""

    style: SampleStyle
    rate: float
    seed: int = 42

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InputError(f"rate is {self.rate}, and has to be above 0 and at most 1.")


@dataclass(frozen=True)
class PassageFilterRecipe:
    """Train on the passages of relevant documents that another model scores highest, instead of on whole documents."""

    scorer: str
    """An earlier stage's name, or a checkpoint."""
    keep: int = 5
    max_passages: int | None = None
    """The most passages of a document to choose from; by default as many as the stage's model reads."""

    def __post_init__(self) -> None:
        check_lowest(self, "keep", 1)
        if self.max_passages is not None:
            check_lowest(self, "max_passages", 1)
        check_place("scorer", self.scorer)


@dataclass(frozen=True)
class DataRecipe:
    """Documents, queries, judgments and the first stage's list, to train on, to validate on, or to test on.

    Files are paths from the folder in which the command is run.
    """

    collection: tuple[str, ...] = ()
    """One collection, or several whose queries are taken together."""
    name: str | None = None
    query_field: str | None = None
    max_queries: int | None = None
    """Take a sample of this many of the queries that have judgments; the same one every time."""
    run: str | None = None
    """A TREC run, in whose path `{fold}` stands for the fold's name, or `scored_documents`: the list that comes with
    the collection."""
    first_stage: FirstStageRecipe | None = None
    qrels: str | None = None
    """A file of TREC judgments, instead of the collection's own."""
    triples: tuple[str, ...] = ()
    """To train on ready triples: ir_datasets ids, JSONL files, or `hf:` and a dataset's name."""
    binary: bool = False
    """Count every grade above 0 as 1."""
    gains: str | None = None
    """What grades count in training and in all measures, such as `1=4,2=3,3=2,4=1`; `-1=1` makes -1 relevant, too."""
    folds: FoldsRecipe | None = None
    fold: str | None = None
    """The one fold that `docparade train` works on: its number or its name."""
    validation_share: float | None = None
    """Without folds and validation sets: the share of the queries that is held out to choose the model."""
    sample: SampleRecipe | None = None
    passage_filter: PassageFilterRecipe | None = None
    birch: tuple[int, ...] = ()
    """Test sets: interpolate the list with this many best passages, weights chosen by `folds` (Birch); for several
    numbers, documents are read once."""

    def __post_init__(self) -> None:
        if bool(self.collection) == bool(self.triples):
            raise InputError("give either a collection or triples.")
        for name in (*self.collection, *self.triples):
            if not is_place(name):
                raise InputError(f"{shown(name)} is no ir_datasets id, folder or file, nor hf:NAME or docparade:NAME.")
        with errors_at("gains"):
            self.counting.check_none_out()
        if self.run is not None and self.first_stage is not None:
            raise InputError("give either a run or a first_stage.")
        if self.max_queries is not None:
            check_lowest(self, "max_queries", 1)
        if self.validation_share is not None:
            _check_share(self, "validation_share")
        if self.triples and (self.folds or self.passage_filter or self.sample or self.validation_share):
            raise InputError("triples are ready: folds, sample, passage_filter and validation_share need a collection.")
        if self.folds and self.passage_filter:
            raise InputError("passage_filter does not go with folds; train on other data, or without it.")
        if self.folds and self.folds.leave_one_out and len(self.collection) < 2:
            raise InputError("folds.leave_one_out needs at least two collections.")
        if self.varies_by_fold and self.folds is None:
            key = "run" if self.first_stage is None else "first_stage.tune"
            raise InputError(f"{key} is for folds: say which there are with folds, or leave it out.")
        if self.fold is not None and self.folds is None:
            raise InputError("fold names one of several folds: say which there are with folds.")
        if self.birch and not (self.folds and all(1 <= count <= MOST_PASSAGES for count in self.birch)):
            raise InputError(f"birch is numbers of passages, 1 to {MOST_PASSAGES}, and needs folds to choose weights.")
        if len(set(self.birch)) < len(self.birch):
            raise InputError(f"birch is {list(self.birch)}, and has to name each number of passages once.")
        if self.name is not None:
            check_name("name", self.name)

    @classmethod
    def of(cls, content: Any, place: str) -> DataRecipe:
        """Read the section; a single collection, file of triples or number may stand without a list around it."""
        check_mapping(content, place, "the name of a file in data/")
        alone = {"collection": str, "triples": str, "birch": int}
        listed = {
            key: [value] if key in alone and isinstance(value, alone[key]) else value for key, value in content.items()
        }
        data = build(cls, listed, place)
        if data.collection and data.run is None and data.first_stage is None:
            return replace(data, first_stage=FirstStageRecipe())
        return data

    @property
    def counting(self) -> Gains:
        """What grades count."""
        return Gains.of(self.gains, self.binary)

    @property
    def varies_by_fold(self) -> bool:
        """Whether each fold has lists of its own."""
        return FOLD in (self.run or "") or (self.first_stage is not None and self.first_stage.tune is not None)

    @property
    def label(self) -> str:
        """A short name for files and tables."""
        source = (*self.collection, *self.triples)[0]
        return self.name or re.sub(r"[^a-zA-Z0-9_.+-]+", "-", source).lstrip("-.+")[:LONGEST_NAME].rstrip("-") or "data"

    def to_dict(self) -> dict[str, Any]:
        """The section as a file has it."""
        return plain({name: value for name, value in asdict(self).items() if value not in (None, ())})


def birch_label(count: int) -> str:
    """How the run of Birch with this many passages is called.

    Example:
        >>> birch_label(3)
        'birch-3s'
    """
    return f"birch-{count}s"


def is_triple_file(name: str) -> bool:
    """Whether a source of triples is a file of JSON lines.

    Example:
        >>> is_triple_file("pairs.jsonl.xz"), is_triple_file("msmarco-passage/train/triples-small")
        (True, False)
    """
    return name.endswith((".jsonl", ".gz", ".xz"))


def _check_share(recipe: object, name: str) -> None:
    value = getattr(recipe, name)
    if not 0 <= value < 1:
        raise InputError(f"{name} is {value}, and has to be at least 0 and below 1.")
