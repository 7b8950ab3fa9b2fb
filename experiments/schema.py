"""The sections of a recipe with their keys: the model, the data, the reranking. `recipe` puts them together."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal, cast, get_type_hints

from docparade.modeling import PRESETS, CedrConfig, DocumentProcessor, MaxPConfig, ParadeConfig
from docparade.reranking.vector_types import VectorType
from docparade.retrieval.birch import MOST_PASSAGES
from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.significance import Correction
from docparade.retrieval.judgment_samples import SampleStyle
from docparade.trainer.arguments import SEEDS

from .first_stage_recipe import FirstStageRecipe
from .typed_values import LONGEST_NAME, build, check_keys, check_name, inside, shown, typed

Family = Literal["maxp", "parade", "cedr"]
CONFIGS: dict[str, type] = {"maxp": MaxPConfig, "parade": ParadeConfig, "cedr": CedrConfig}
SOURCES = ("encoder", "cross_encoder", "bi_encoder", "checkpoint")
DEFAULT_PRESET = "whole"
"""of models that are built anew; a checkpoint has settings of its own"""
SCORED_DOCUMENTS = "scored_documents"
"""as `data.run`: the list that comes with the collection"""
FOLD = "{fold}"
"""in a path: the fold's name"""
PACKAGE = "package:"
"""before a model's path: weights that an installed Python package carries"""

# Settings that a bi-encoder has of its own.
_OF_BI_ENCODER = ("max_length", "query_prompt", "passage_prompt")
# Settings that say what a model's inputs are made of, not how documents are cut.
_INPUT_FORM = ("separate", "query_prompt", "passage_prompt")
# A Hub id, a path, or a package's folder; of collections, an ir_datasets id, a path, hf:... or docparade:...
_PLACE = re.compile(r"(package:|hf:|docparade:)?[\w./~{}+-]+").fullmatch


@dataclass(frozen=True)
class ModelRecipe:
    """What is trained: where its weights come from, how passages are cut and put together.

    One of `encoder` (a new head is put on it), `cross_encoder` (its own head is used), `bi_encoder` (its similarity is
    used) and `checkpoint` (a ranker that was saved before) says where weights come from: a Hub id, a folder, or
    `package:NAME/folder`. `{fold}` in it stands for the fold's name. `options` are fields of the family's configuration
    and of `DocumentProcessor`; in the file they are beside the other keys. A checkpoint keeps its own settings unless
    `preset` or `options` name them.
    """

    family: Family = "parade"
    encoder: str | None = None
    cross_encoder: str | None = None
    bi_encoder: str | None = None
    checkpoint: str | None = None
    revision: str | None = None
    layers: tuple[int, ...] | None = None
    """Keep these layers of the encoder, counted from 0."""
    late_interaction: bool | None = None
    """For a bi-encoder: whether scores also compare tokens."""
    true_token: str | None = None
    false_token: str | None = None
    """For a cross-encoder that is an encoder-decoder: the words for relevant and not relevant; by default `true` and
    `false`."""
    num_labels: Literal[1, 2] | None = None
    """For an encoder of the family maxp: outputs of the new head; by default two if `passage_score` is a probability,
    and else one."""
    aggregation: str | None = None
    preset: str | None = None
    """Input settings of a paper, all of them; without one, a checkpoint's own, or else those of `DEFAULT_PRESET`."""
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = [name for name in SOURCES if getattr(self, name) is not None]
        if len(given) != 1:
            raise InputError(f"names {', '.join(given) or 'no weights'}; give exactly one of {', '.join(SOURCES)}.")
        check_place(given[0], self.source)
        if self.preset is not None and self.preset not in PRESETS:
            raise InputError(f"preset is '{self.preset}', and has to be one of {', '.join(PRESETS)}.")
        if self.cross_encoder and self.family != "maxp":
            raise InputError("cross_encoder goes with family maxp, which uses its head; use encoder.")
        if self.bi_encoder and self.family == "cedr":
            raise InputError("family cedr reads query and passage together; use encoder, or family maxp.")
        if self.late_interaction is not None and (self.bi_encoder is None or self.family != "maxp"):
            raise InputError("late_interaction goes with bi_encoder and family maxp; leave it out.")
        for name in self.words:
            if self.cross_encoder is None:
                raise InputError(f"{name} goes with cross_encoder; leave it out.")
        if self.num_labels is not None and (self.encoder is None or self.family != "maxp"):
            raise InputError("num_labels goes with encoder and family maxp; leave it out.")
        if self.layers is not None and (not self.layers or min(self.layers) < 0):
            raise InputError(f"layers is {list(self.layers)}, and has to be numbers of layers, counted from 0.")
        # Settings of a checkpoint can only be checked together with its own.
        processor = None if self.keeps_settings else json.dumps(self.processor_options)
        _check_by_building(self.family, json.dumps(self.config_options), processor, self.num_labels)

    @property
    def source(self) -> str:
        """Where the weights come from."""
        return cast(str, getattr(self, self.source_key))

    @property
    def source_key(self) -> str:
        """Which of the keys names the weights."""
        return next(name for name in SOURCES if getattr(self, name) is not None)

    @property
    def words(self) -> dict[str, Any]:
        """The words for relevant and not relevant, as far as the recipe names them."""
        given = {"true_token": self.true_token, "false_token": self.false_token}
        return {name: word for name, word in given.items() if word is not None}

    @property
    def keeps_settings(self) -> bool:
        """Whether the checkpoint's processor settings are kept, except for those that the recipe names."""
        return self.checkpoint is not None and self.preset is None

    @property
    def processor_options(self) -> dict[str, Any]:
        """All settings of the processor; for a checkpoint without a preset, only those that the recipe names."""
        given = {name: value for name, value in self.options.items() if name in parameters(DocumentProcessor)}
        if self.keeps_settings:
            return given
        preset = self.preset or DEFAULT_PRESET
        if self.bi_encoder is None:
            return preset_settings(preset) | given
        # What neither the preset nor the recipe names is read from the bi-encoder's own files.
        own = {name for name in _OF_BI_ENCODER if name not in PRESETS[preset]}
        settings = {name: value for name, value in preset_settings(preset).items() if name not in own}
        return settings | given | {"separate": True}

    @property
    def config_options(self) -> dict[str, Any]:
        """All settings of the family's configuration that are not its default."""
        known = parameters(CONFIGS[self.family])
        chosen = {} if self.aggregation is None else {"aggregation": self.aggregation}
        given = {name: value for name, value in self.options.items() if name in known}
        # `max_passages: null` (all passages) is for the processor; the model's configuration needs a number.
        if given.get("max_passages", 0) is None:
            del given["max_passages"]
        return chosen | given

    @classmethod
    def of(cls, content: Any, place: str) -> ModelRecipe:
        """Read the section; keys that are not its own are options, typed as the classes they go to."""
        if not isinstance(content, Mapping):
            raise InputError(
                f"{place}: is {shown(content)}, and has to be a mapping, or the name of a file in models/."
            )
        own = [f.name for f in fields(cls) if f.name != "options"]
        family = typed(content.get("family", "parade"), Family, inside(place, "family"))
        hints = parameters(CONFIGS[family]) | parameters(DocumentProcessor)
        check_keys(content, [*own, *hints], place)
        options = {k: typed(v, hints[k], inside(place, k)) for k, v in content.items() if k not in own}
        section = {k: v for k, v in content.items() if k in own}
        return build(cls, {**section, "options": options}, place)

    def to_dict(self) -> dict[str, Any]:
        """The section as a file has it, with all of the processor's settings."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "options"}
        given = {name: value for name, value in own.items() if value is not None}
        return plain(given | self.processor_options | self.config_options)


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
            _check_lowest(self, "count", 2)
        if self.file is not None:
            _check_path("file", self.file)
        if not self.dev and self.count is None:
            raise InputError("dev goes with count; leave dev parts empty in the file, or set dev_share to 0.")
        _check_share(self, "dev_share")
        check_seed(self.seed)


@dataclass(frozen=True)
class SampleRecipe:
    """A sample of the judgments to train and validate on; test judgments stay complete."""

    style: SampleStyle
    rate: float
    seed: int = 42

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InputError(f"rate is {self.rate}, and has to be above 0 and at most 1.")
        check_seed(self.seed)


@dataclass(frozen=True)
class PassageFilterRecipe:
    """Train on the passages of relevant documents that another model scores highest, instead of on whole documents."""

    scorer: str
    """An earlier stage's name, or a checkpoint."""
    keep: int = 5
    max_passages: int | None = None
    """The most passages of a document to choose from; by default as many as the stage's model reads."""

    def __post_init__(self) -> None:
        _check_lowest(self, "keep", 1)
        if self.max_passages is not None:
            _check_lowest(self, "max_passages", 1)
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
            if not _is_place(name):
                raise InputError(f"{shown(name)} is no ir_datasets id, folder or file, nor hf:NAME or docparade:NAME.")
        for key in ("run", "qrels"):
            if (path := getattr(self, key)) is not None:
                _check_path(key, path)
        if self.run is not None and self.first_stage is not None:
            raise InputError("give either a run or a first_stage.")
        if self.max_queries is not None:
            _check_lowest(self, "max_queries", 1)
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
        if not isinstance(content, Mapping):
            raise InputError(f"{place}: is {shown(content)}, and has to be a mapping, or the name of a file in data/.")
        alone = {"collection": str, "triples": str, "birch": int}
        listed = {
            key: [value] if key in alone and isinstance(value, alone[key]) else value for key, value in content.items()
        }
        data = build(cls, listed, place)
        if data.collection and data.run is None and data.first_stage is None:
            return replace(data, first_stage=FirstStageRecipe())
        return data

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


@dataclass(frozen=True)
class RerankRecipe:
    """How test queries are reranked."""

    depth: int = 100
    untrained: bool = False
    """Whether the ranker is also measured as it is before the training (zero-shot)."""
    candidates: Literal["first_stage", "all"] = "first_stage"
    """`all`: every document of the collection, whatever the first stage found."""
    hits: int = 1000
    """With `candidates: all`: how many documents of each query are kept."""
    processor: dict[str, Any] = field(default_factory=dict)
    """Passage settings that replace those of training: a `preset`, or fields of `DocumentProcessor`."""
    vectors: VectorType | None = None
    """For bi-encoders: rerank with kept passage vectors, stored as this type, instead of reading documents."""

    def __post_init__(self) -> None:
        _check_lowest(self, "depth", 1)
        _check_lowest(self, "hits", 1)
        preset = self.processor.get("preset")
        if preset is not None and preset not in list(PRESETS):  # a list, because the value may not be hashable
            raise InputError(f"processor.preset is '{preset}', and has to be one of {', '.join(PRESETS)}.")

    @classmethod
    def of(cls, content: Any, place: str) -> RerankRecipe:
        """Read the section, and check the processor's settings as the model's are."""
        recipe = build(cls, content, place)
        hints = parameters(DocumentProcessor) | {"preset": str}
        inner = inside(place, "processor")
        check_keys(recipe.processor, hints, inner)
        return replace(
            recipe, processor={name: typed(v, hints[name], inside(inner, name)) for name, v in recipe.processor.items()}
        )

    @property
    def processor_options(self) -> dict[str, Any]:
        """The processor's settings that are not those of training."""
        own = {name: value for name, value in self.processor.items() if name != "preset"}
        preset = self.processor.get("preset")
        if preset is None:
            return own
        # A preset says how passages are cut; whether they are read apart from the query is up to the model.
        return {name: v for name, v in preset_settings(preset).items() if name not in _INPUT_FORM} | own


@dataclass(frozen=True)
class SignificanceRecipe:
    """How the runs of a test set are tested against its first stage: the paired t-test, corrected or not."""

    correction: Correction = "bonferroni"
    interpolated: bool = False
    """Whether the run that is interpolated with the first stage is tested, and counted, too."""


def birch_label(count: int) -> str:
    """How the run of Birch with this many passages is called.

    Example:
        >>> birch_label(3)
        'birch-3s'
    """
    return f"birch-{count}s"


def preset_settings(preset: str) -> dict[str, Any]:
    """All settings of a processor with a paper's input settings; those that the paper does not name are the defaults.

    Without `prompt`, which an encoder-decoder has of its own, whatever its passages are.

    Example:
        >>> preset_settings("zhang2021")["window"]
        150
    """
    signature = inspect.signature(inspect.getattr_static(DocumentProcessor, "__init__"))
    names = [name for name in parameters(DocumentProcessor) if name != "prompt"]
    return {name: signature.parameters[name].default for name in names} | PRESETS[preset]


def parameters(kind: type) -> dict[str, Any]:
    """The constructor's parameters with their types, without the parts that are built elsewhere."""
    constructor = inspect.getattr_static(kind, "__init__")
    hints = get_type_hints(constructor)
    left_out = ("self", "encoder_config", "tokenizer", "aggregation", "kwargs")
    return {name: hints[name] for name in inspect.signature(constructor).parameters if name not in left_out}


def check_place(key: str, place: str) -> None:
    """Refuse what cannot be the place of a model."""
    if not _is_place(place):
        raise InputError(f"{key} is {shown(place)}, and has to be a Hub id, a folder or package:NAME/folder.")


def is_triple_file(name: str) -> bool:
    """Whether a source of triples is a file of JSON lines.

    Example:
        >>> is_triple_file("pairs.jsonl.xz"), is_triple_file("msmarco-passage/train/triples-small")
        (True, False)
    """
    return name.endswith((".jsonl", ".gz", ".xz"))


def check_seed(seed: int) -> None:
    """Refuse a seed that some random number generator does not take."""
    if not 0 <= seed < SEEDS:
        raise InputError(f"seed is {seed}, and has to be from 0 to {SEEDS - 1}.")


def _check_path(key: str, path: str) -> None:
    if not path.strip() or "\n" in path or not _is_short(path):
        raise InputError(f"{key} is {shown(path)}, and has to be the path of a file.")


def _is_place(name: str) -> bool:
    return bool(_PLACE(name)) and _is_short(name)


def _is_short(path: str) -> bool:
    """Whether a file system takes the path: its parts have at most 255 bytes."""
    return len(path.encode()) < 4096 and all(len(part.encode()) <= 255 for part in path.split("/"))


def _check_lowest(recipe: object, name: str, lowest: int) -> None:
    value = getattr(recipe, name)
    if value < lowest:
        raise InputError(f"{name} is {value}, and has to be at least {lowest}.")


def _check_share(recipe: object, name: str) -> None:
    value = getattr(recipe, name)
    if not 0 <= value < 1:
        raise InputError(f"{name} is {value}, and has to be at least 0 and below 1.")


def plain(value: Any) -> Any:
    """Values as YAML and JSON have them: tuples become lists."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


@cache
def _check_by_building(family: str, config_options: str, processor_options: str | None, labels: int | None) -> None:
    """Check options by building the classes, with a minimal encoder and tokenizer."""
    from transformers import AutoConfig

    config = json.loads(config_options)
    labels = labels or (1 if config.get("passage_score", "logit") == "logit" else 2)
    try:
        CONFIGS[family](AutoConfig.for_model("bert", num_labels=labels), **config)
    except ValueError as error:
        raise InputError(str(error)) from None
    if processor_options is not None:
        check_settings(json.loads(processor_options))


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings that a processor does not take, alone or together."""
    from transformers import BertTokenizer

    words = {word: i for i, word in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "word"))}
    try:
        DocumentProcessor(BertTokenizer(vocab=words), **settings)
    except ValueError as error:
        raise InputError(str(error)) from None
