"""`DocumentRanker`: ranking texts, building a ranker on an encoder, loading and saving, for all families."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel
from transformers.utils import logging

from .checkpoint_files import (
    TRUST_NO_CODE,
    check_config_file,
    check_finite_weights,
    naming_damaged_weights,
    read_processor,
    write_json,
)
from .configuration_ranker import is_ranker
from .documents import DocumentLike
from .engine import read_pairs
from .engine_inference import changing_mode
from .engine_kept import DocumentVectors, encode_documents
from .engine_ranking import rank_all
from .engine_results import RankedDocument
from .loading_options import PathLike, pick, pick_source_options
from .modeling_passages import PassageModel
from .processing_document import DocumentProcessor
from .processing_settings import Preset
from .ranker_options import SortedOptions, parameter_names, sort_options
from .ranker_source import Source, Start
from .reader_bi_encoder import Pooling, Similarity
from .readers import INPUT_SETTINGS, READERS
from .reading_options import ReadingArguments, ReadingOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.get_logger(__name__)

Ranker = TypeVar("Ranker", bound="DocumentRanker")

# Arguments of `save_pretrained` that are for `push_to_hub`.
_HUB_OPTIONS = ("repo_id", "commit_message", "private", "token", "revision", "create_pr", "license", "language")


class DocumentRanker(PassageModel):
    """A ranker of long documents: ranks texts, is built on an encoder, is loaded and saved.

    Its subclasses are `MaxPForSequenceClassification`, `ParadeForSequenceClassification` and
    `CedrForSequenceClassification`.
    """

    auto_classes: ClassVar[tuple[str, ...]] = ("AutoModel", "AutoModelForSequenceClassification")
    relation: ClassVar[tuple[str, ...]] = ()
    """Parts beside the reader that a new ranker of the same family takes over from a ranker on a bi-encoder."""

    if TYPE_CHECKING:
        # PreTrainedModel wraps `to` so that type checkers take its first argument for the model.
        def to(self: Ranker, *args: Any, **kwargs: Any) -> Ranker:  # type: ignore[override]
            """Move the model to a device or a dtype, as `torch.nn.Module.to` does."""

    # --- Ranking -----------------------------------------------------------------------------------------------------

    def rank(
        self,
        query: str,
        documents: Iterable[DocumentLike],
        top_k: int | None = None,
        **options: Unpack[ReadingArguments],
    ) -> list[RankedDocument]:
        """Rank documents for a query, the best first.

        Args:
            query: The query.
            documents: Strings; dicts with `text` and optionally `id` (or `_id`, `doc_id`), `title` and `headings`; or
                objects with such attributes, such as `collection.document(id)`.
            top_k: How many documents to return; `None` is all.
            **options: How documents are read: the fields of `ReadingOptions`, such as `keep_passages` (fewer passages
                of each), `vectors` (kept ones, of a bi-encoder), `batch_tokens` and `progress`.

        Example:
            ```python
            model.rank("why is the sky blue", ["Rayleigh scattering ...", "Bread rises ..."])[0]
            ```
        """
        (ranking,) = self.rank_all([(query, documents)], top_k, **options)
        return ranking

    def rank_all(
        self,
        requests: Sequence[tuple[str, Iterable[DocumentLike]]],
        top_k: int | None = None,
        **options: Unpack[ReadingArguments],
    ) -> list[list[RankedDocument]]:
        """Rank documents for each of several queries, with the options of `rank`; all are read together.

        Example:
            ```python
            model.rank_all([("blue sky", ["Rayleigh ..."]), ("bread", ["Yeast ...", "Salt ..."])])
            ```
        """
        return rank_all(self, requests, top_k, ReadingOptions.of(options))

    def score(self, pairs: Sequence[tuple[str, DocumentLike]], **options: Unpack[ReadingArguments]) -> list[float]:
        """Score pairs of a query and a document, with the options of `rank`.

        A document that is in several pairs is tokenized once.

        Example:
            ```python
            model.score([("why is the sky blue", "Rayleigh scattering ...")])  # [3.1]
            ```
        """
        checked = ReadingOptions.of(options)
        if checked.max_passages_per_query is not None:
            raise ValueError("max_passages_per_query is for lists of documents, and these are pairs: use rank.")
        return [reading.score for reading in read_pairs(self, pairs, checked)]

    def encode_documents(self, documents: Iterable[DocumentLike]) -> DocumentVectors:
        """For a bi-encoder: encode the passages of documents, for `rank` with `vectors` or `choose_by`.

        Example:
            ```python
            vectors = model.encode_documents(documents)
            model.rank("why is the sky blue", documents, vectors=vectors)
            ```
        """
        return encode_documents(self, documents)

    def train(self: Ranker, mode: bool = True) -> Ranker:
        """Put the model into training mode, or out of it; while another thread ranks with it, this is an error."""
        with changing_mode(self, mode):
            return super().train(mode)

    # --- Building ----------------------------------------------------------------------------------------------------

    @classmethod
    def from_encoder(
        cls: type[Ranker],
        source: PathLike,
        aggregation: str | None = None,
        preset: Preset | None = None,
        **options: Any,
    ) -> Ranker:
        """Build a ranker on a pretrained encoder. Its head or aggregator has new weights, and has to be trained.

        Args:
            source: The encoder's Hub id or folder. If it is a ranker's checkpoint, its encoder is used.
            aggregation: How passages are combined; `None` is the family's default.
            preset: Input settings: a key of `PRESETS`. `whole`, the default, reads every passage of a document, or as
                many as the aggregation can; the others are settings of papers. A ranker's checkpoint keeps its own
                settings unless a preset is given.
            **options: Fields of the configuration (`k`, `passage_vector`, ...) and of the processor (`window`,
                `max_length`, ...), which override the preset's, and arguments of `from_pretrained` (`dtype`,
                `attn_implementation`, `revision`, ...).

        Example:
            ```python
            ParadeForSequenceClassification.from_encoder(
                "google/electra-base-discriminator", aggregation="transformer"
            )
            ```
        """
        return cls._build_anew(source, aggregation, preset, options)

    @classmethod
    def _build_anew(
        cls: type[Ranker],
        source: PathLike,
        aggregation: str | None,
        preset: Preset | None,
        options: Mapping[str, Any],
        **head: Any,
    ) -> Ranker:
        """Build a ranker that has to be trained; `head` are arguments of `_load_encoder` about the encoder's head."""
        sorted_options = sort_options(options, cls.config_class)
        check_config_file(source, pick_source_options(sorted_options.loading))
        with naming_damaged_weights(source):
            encoder = cls._load_encoder(source, **head, **sorted_options.loading)
        start = Start(encoder, {"kind": cls.config_class.default_reader})
        return cls._assemble(source, start, aggregation, preset, sorted_options)

    @classmethod
    def from_bi_encoder(
        cls: type[Ranker],
        source: PathLike,
        aggregation: str | None = None,
        preset: Preset | None = None,
        *,
        pooling: Pooling | None = None,
        similarity: Similarity | None = None,
        late_interaction: bool | None = None,
        **options: Any,
    ) -> Ranker:
        """Build a ranker on a bi-encoder, which reads query and passages separately.

        In the score family, a passage's score is its similarity to the query: the ranker needs no training. In the
        vector family, the passage vector is a learned projection of both vectors, and has to be trained.

        Args:
            source: Hub id or folder of a sentence-transformers model, whose pooling, dense layers, normalization,
                similarity and prompts are read from its files; of a ranker on a bi-encoder, whose encoder, vectors and
                input settings are used; or of any encoder, with `pooling`.
            aggregation: As in `from_encoder`.
            preset: As in `from_encoder`.
            pooling: How the states of tokens become a vector; only for an encoder that does not say so itself.
            similarity: Of query and passage; `None` is the model's own, or the cosine.
            late_interaction: Whether scores add how well tokens match; for MaxP rankers. `None` is as in the source, if
                that is a ranker's checkpoint, and else false.
            **options: As in `from_encoder`; also `query_prompt` and `passage_prompt`.

        Example:
            ```python
            model = MaxPForSequenceClassification.from_bi_encoder("sentence-transformers/all-MiniLM-L6-v2")
            model.rank("why is the sky blue", long_documents)
            ```
        """
        wanted = {"pooling": pooling, "similarity": similarity, "late_interaction": late_interaction}
        return cls._build(True, source, wanted, aggregation, preset, options)

    @classmethod
    def _build(
        cls: type[Ranker],
        separate: bool,
        name: PathLike,
        wanted: Mapping[str, Any],
        aggregation: str | None,
        preset: Preset | None,
        options: Mapping[str, Any],
    ) -> Ranker:
        """Build a ranker that needs no new head: with the first reader that takes its source.

        Args:
            separate: Whether query and passage are read apart.
            name: The source.
            wanted: The user's choices of readers' settings.
            aggregation: As in `from_encoder`.
            preset: As in `from_encoder`.
            options: As in `from_encoder`.
        """
        sorted_options = sort_options(options, cls.config_class)
        source = Source(name, sorted_options.loading, sorted_options.processor)
        given = {name: value for name, value in wanted.items() if value is not None}
        if is_ranker(source.config):
            start = cls._restart(separate, source, given)
        else:
            starts = (reader.start(source, given) for reader in READERS.values() if reader.separate == separate)
            start = next(start for start in starts if start is not None)
        return cls._assemble(name, start, aggregation, preset, sorted_options._replace(loading=source.options))

    @classmethod
    def _restart(cls, separate: bool, source: Source, given: Mapping[str, Any]) -> Start:
        """Start from the reader of another ranker, of any family."""
        trained = cast(DocumentRanker, source.load(AutoModel))
        feature, reader = cls.config_class.feature, READERS[trained.config.reader.kind]
        encoder_of(trained, source.name)
        if reader.separate != separate:
            raise ValueError(
                f"{source} is a ranker on a cross-encoder: use from_encoder or from_cross_encoder."
                if separate
                else f"{source} is a ranker on a bi-encoder, whose encoder gives vectors and no scores. Use "
                "from_encoder, which adds a new head."
            )
        if not separate and trained.config.feature != feature:
            raise ValueError(
                f"{source} is a {trained.config.model_type.upper()} ranker, whose encoder gives vectors and no scores. "
                "Use from_encoder, which adds a new head."
            )
        start = reader.restart(source, trained, given, feature)
        if separate and trained.config.model_type == cls.config_class.model_type:
            start.weights |= {name: getattr(trained, name).state_dict() for name in cls.relation}
        return start

    @classmethod
    def _assemble(
        cls: type[Ranker],
        source: PathLike,
        start: Start,
        aggregation: str | None,
        preset: Preset | None,
        options: SortedOptions,
    ) -> Ranker:
        inputs = {**start.processor, **options.processor}
        inputs |= {name: value for name, value in start.processor.items() if name == "separate"}
        processor = cls._new_processor(source, preset, inputs, pick_source_options(options.loading))
        encoder = start.encoder
        check_finite_weights(source, encoder)
        # Saved files must not contain a path of this machine.
        encoder.config._name_or_path = ""
        config = {**start.config, **options.config, "reader": start.reader}
        if aggregation is not None:
            config["aggregation"] = aggregation
        if "max_passages" in parameter_names(cls.config_class) and processor.max_passages is not None:
            config.setdefault("max_passages", processor.max_passages)
        model = cls(cls.config_class(encoder_config=encoder.config, **config), encoder=encoder)
        for name, part in model.named_children():
            if name != "encoder":
                part.to(device=encoder.device, dtype=encoder.dtype if name == "reader" else None)
        if processor.max_passages is None and model.config.passage_limit is not None:
            processor = processor.with_options(max_passages=model.config.passage_limit)
        model.processor = processor
        model._limit_queries(start.query_length)
        model._load_parts(source, start.weights)
        model.aggregator.start_from(encoder, processor.tokenizer)
        return model.eval()

    def _load_parts(self, source: PathLike, weights: Mapping[str, dict[str, Tensor]]) -> None:
        """Load the weights of parts beside the encoder, as far as this ranker has these parts."""
        with naming_damaged_weights(source):
            for name, state in weights.items():
                part = getattr(self, name, None)
                if part is not None:
                    # The weight of tokens' matches may be new, or left out.
                    part.load_state_dict(state, strict=False)

    def _limit_queries(self, length: int | None) -> None:
        """Read no more tokens of a query than the bi-encoder was made for, with special tokens and prompt."""
        if length is None:
            return
        processor = self.require_processor()
        room = length - processor.single_template.length - len(processor.query_prompt_ids)
        if room < 1:
            raise ValueError(f"query_length is {length}, which leaves no room for a query beside its prompt.")
        limits = (processor.max_query_tokens, room)
        self.processor = processor.with_options(max_query_tokens=min(limit for limit in limits if limit is not None))

    @classmethod
    def _new_processor(
        cls, source: PathLike, preset: Preset | None, options: dict[str, Any], source_options: dict[str, Any]
    ) -> DocumentProcessor:
        """The processor of a new ranker: with the settings of the ranker it is built on, or of a preset."""
        if preset is None:
            config = AutoConfig.from_pretrained(source, **TRUST_NO_CODE, **source_options)
            own = read_processor(source, source_options) if is_ranker(config) else None
            if own is not None:
                return own.with_options(**{**INPUT_SETTINGS, **options})
        tokenizer = AutoTokenizer.from_pretrained(source, **TRUST_NO_CODE, **source_options)
        return DocumentProcessor.from_preset(preset or "whole", tokenizer, **options)

    @classmethod
    def _load_encoder(cls, source: PathLike, **options: Any) -> PreTrainedModel:
        """An encoder with pretrained weights."""
        encoder: PreTrainedModel = AutoModel.from_pretrained(source, use_safetensors=True, **TRUST_NO_CODE, **options)
        # The encoder of a ranker that was trained on passages is a good start (Li et al., 2023).
        return cast(PreTrainedModel, encoder_of(encoder, source).base_model)

    # --- Loading and saving ------------------------------------------------------------------------------------------

    @classmethod
    def from_pretrained(
        cls: type[Ranker], pretrained_model_name_or_path: PathLike | None, *args: Any, **kwargs: Any
    ) -> Ranker:
        """Load a ranker with its processor, ready to rank. Weights are read from safetensors only.

        A checkpoint that lacks weights is an error. In addition to the arguments of `PreTrainedModel.from_pretrained`,
        `max_passages` sets how many passages of a document are read; `None` is all.

        Example:
            ```python
            AutoModel.from_pretrained("org/parade-electra", max_passages=8)
            ```
        """
        if kwargs.get("use_safetensors") is False:
            raise ValueError(
                "use_safetensors=False would unpickle the weights, which can run code: docparade does not."
            )
        source = pretrained_model_name_or_path
        wants_info = kwargs.pop("output_loading_info", False)
        changes = {"max_passages": kwargs.pop("max_passages")} if "max_passages" in kwargs else {}
        source_options = pick_source_options(kwargs)
        kwargs.update(use_safetensors=True, output_loading_info=True)
        with naming_damaged_weights(source):
            loaded = super().from_pretrained(source, *args, **kwargs)
        model, info = cast("tuple[Ranker, dict[str, Any]]", loaded)
        if missing := sorted(set(info["missing_keys"]) - model._optional_weights(source, source_options)):
            raise ValueError(
                f"{source} lacks {len(missing)} weights of {cls.__name__}, such as {missing[0]}: "
                f"it is damaged, or the checkpoint of another model."
            )
        check_finite_weights(source, model)
        if source is not None:
            model._load_processor(source, source_options, changes)
        return (model, info) if wants_info else model  # type: ignore[return-value]

    def _optional_weights(self, source: PathLike | None, source_options: dict[str, Any]) -> set[str]:
        """Weights with a fixed start, which a checkpoint may lack if it was saved with another aggregation."""
        fixed = {f"aggregator.{name}" for name in self.aggregator.fixed_start}
        if not fixed or source is None:
            return set()
        saved, _ = self.config_class.get_config_dict(source, **source_options)
        return fixed if saved.get("aggregation") != self.config.aggregation else set()

    def _load_processor(self, source: PathLike, source_options: dict[str, Any], changes: dict[str, Any]) -> None:
        """Load the processor beside the weights, and change some of its settings."""
        processor = read_processor(source, source_options)
        if processor is None:
            if changes:
                raise ValueError(f"{source} has no processor_config.json, so max_passages cannot be set.")
            return
        try:
            self.processor = processor
        except ValueError as error:
            raise ValueError(f"{source}, processor_config.json: {error}") from None
        if changes:
            self.processor = processor.with_options(**changes)

    def save_pretrained(  # type: ignore[override]
        self, save_directory: PathLike, is_main_process: bool = True, push_to_hub: bool = False, **kwargs: Any
    ) -> None:
        """Save the model, its processor, and the code that loads them where docparade is not installed."""
        # Imported here so that transformers copies these files with the model, also when a model that was loaded with
        # trust_remote_code is saved again.
        from .handler import EndpointHandler  # noqa: F401
        from .pipeline import TextRankingPipeline  # noqa: F401
        from .sentence_transformers_module import MODULES, SETTINGS

        self._warn_of_missing_code()
        hub_options = pick(kwargs, _HUB_OPTIONS)
        self.config.auto_map = _auto_map(self)
        super().save_pretrained(save_directory, is_main_process=is_main_process, **kwargs)
        if not is_main_process:
            return
        if self.processor is not None:
            self.processor.save_pretrained(save_directory)
        folder = Path(save_directory)
        write_json(folder / "modules.json", MODULES)
        write_json(folder / "config_sentence_transformers.json", SETTINGS)
        if push_to_hub:
            self.push_to_hub(hub_options.pop("repo_id", folder.name), **hub_options)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:  # type: ignore[override]
        """Publish the ranker on the Hugging Face Hub, with its processor, code and card, and return its address.

        The copy of this code in a checkpoint writes no card: there, this is `PreTrainedModel.push_to_hub`.

        Args:
            repo_id: The name on the Hub: `user/name`.
            **options: `license` and `language` for the card, and `private`, `revision`, `create_pr`, `token` and
                `commit_message`, as in `docparade.hub_cards.push_folder`.

        Example:
            ```python
            model.push_to_hub("org/parade-electra", license="apache-2.0", language="en")
            ```
        """
        if not __name__.startswith("docparade."):
            return super().push_to_hub(repo_id, **options)  # type: ignore[arg-type]
        # By its name, because this file must not depend on files that are not copied with it.
        publishing = import_module("docparade.hub_cards.publishing.hub_push")
        return cast(str, publishing.push_model(self, repo_id, **options))

    def _warn_of_missing_code(self) -> None:
        """Warn that the code of a user's own aggregation or reader is not saved."""
        for part, setting, name, table in (
            (self.aggregator, "aggregation", self.config.aggregation, self.config.aggregator_table),
            (self.reader, "reader", self.config.reader.kind, "READERS"),
        ):
            kind = type(part)
            if kind.__module__.rpartition(".")[0] != __name__.rpartition(".")[0]:
                logger.warning(
                    f"The checkpoint does not contain the code of its {setting} {name!r}, "
                    f"{kind.__module__}.{kind.__qualname__}: to load it, install docparade, and set "
                    f"{table}[{name!r}] = {kind.__name__} before."
                )


def _auto_map(model: DocumentRanker) -> dict[str, str]:
    """Where transformers finds the classes in the checkpoint's folder."""

    def place(kind: type) -> str:
        return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"

    return {"AutoConfig": place(type(model.config)), **dict.fromkeys(model.auto_classes, place(type(model)))}


def encoder_of(model: PreTrainedModel, source: PathLike) -> PreTrainedModel:
    """The encoder of a ranker; any other model is an encoder itself."""
    if not is_ranker(model.config):
        return model
    if model.config.int8:
        raise ValueError(f"{source} holds 8-bit integers, which cannot be trained: use the ranker it was made from.")
    return cast(DocumentRanker, model).encoder
