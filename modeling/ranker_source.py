"""`Source`, a model that a new ranker is built from, and `Start`, the parts that a reader takes from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from .checkpoint_files import TRUST_NO_CODE, check_config_file, naming_damaged_weights
from .loading_options import PathLike, pick_source_options
from .sentence_transformers_files import SentenceTransformersFiles

if TYPE_CHECKING:
    from .reader import ReaderSettings


@dataclass(frozen=True)
class Source:
    """A model on the Hub or in a folder.

    Args:
        name: The Hub id or the folder.
        loading: Arguments of `from_pretrained`.
        inputs: Settings of the processor that the user chose.
    """

    name: PathLike
    loading: dict[str, Any]
    inputs: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return str(self.name)

    @cached_property
    def files(self) -> SentenceTransformersFiles:
        """Its files as a model of sentence-transformers."""
        return SentenceTransformersFiles(self.name, pick_source_options(self.loading))

    @cached_property
    def config(self) -> PreTrainedConfig:
        """The configuration of its encoder."""
        options = pick_source_options(self.options)
        check_config_file(self.name, options)
        config: PreTrainedConfig = AutoConfig.from_pretrained(self.name, **TRUST_NO_CODE, **options)
        return config

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `from_pretrained` for the encoder, which may be in a folder of its own."""
        folders = (self.loading.get("subfolder"), self.files.encoder_folder.rstrip("/"))
        subfolder = "/".join(filter(None, folders))
        return {**self.loading, "subfolder": subfolder} if subfolder else self.loading

    @property
    def architectures(self) -> list[str]:
        """The classes that its configuration names."""
        return list(self.config.architectures or ())

    def has_head(self, kind: str) -> bool:
        """Whether it has a head, such as `ForSequenceClassification`."""
        return any(name.endswith(kind) for name in self.architectures)

    def load(self, auto: Any, **options: Any) -> PreTrainedModel:
        """Load the encoder with an Auto class."""
        self.config  # noqa: B018  (refuses a damaged configuration before anything is built)
        with naming_damaged_weights(self.name):
            encoder: PreTrainedModel = auto.from_pretrained(
                self.name, use_safetensors=True, **TRUST_NO_CODE, **self.options, **options
            )
        return encoder

    def load_whole(self, auto: Any) -> tuple[PreTrainedModel, list[str]]:
        """Load the encoder, with the names of weights that the source lacks."""
        loaded: Any = self.load(auto, output_loading_info=True)
        encoder, info = loaded
        return encoder, sorted(info["missing_keys"])

    def load_tokenizer(self) -> PreTrainedTokenizerBase:
        """Load its tokenizer."""
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            self.name, **TRUST_NO_CODE, **pick_source_options(self.options)
        )
        return tokenizer


@dataclass
class Start:
    """The parts and settings with which a new ranker starts; options of the user come before these settings."""

    encoder: PreTrainedModel
    reader: ReaderSettings | Mapping[str, Any]
    config: dict[str, Any] = field(default_factory=dict)
    """Settings of the family's configuration."""
    processor: dict[str, Any] = field(default_factory=dict)
    """Settings of the processor."""
    weights: dict[str, Any] = field(default_factory=dict)
    """The weights that the source has for parts beside the encoder, by the name of the part."""
    query_length: int | None = None
    """How many tokens of a query the model was made to read, with special tokens and prompt."""
