"""Finding and loading saved models, with errors of one sentence that name the option or the key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub.constants import HF_HUB_OFFLINE
from transformers import AutoConfig, AutoModel, PreTrainedConfig
from transformers.utils import CONFIG_NAME, cached_file, logging

from docparade.modeling import READERS, DocumentRanker, MaxPForSequenceClassification
from docparade.modeling.checkpoint_files import PickledWeightsError, check_config_file
from docparade.modeling.configuration_ranker import is_ranker
from docparade.modeling.encoders import position_limit
from docparade.modeling.reader_cross_encoder import LinearHeadError
from docparade.modeling.sentence_transformers_files import SentenceTransformersFiles
from docparade.reranking.processes.process_group import is_main_process
from docparade.retrieval.errors import InputError

logger = logging.get_logger(__name__)

# A model's folder has one of these: that of a whole model, or of an adapter, which names its base model.
CONFIGS = (CONFIG_NAME, "adapter_config.json")
# A loaded ranker scores this pair once, as a test.
_TRIAL = ("a query", "a document")


def load_ranker(
    source: str, place: str = "", reading: Mapping[str, Any] | None = None, **options: Any
) -> DocumentRanker:
    """Load a ranker, or a plain cross-encoder (such as monoT5) or bi-encoder, which then ranks with MaxP.

    Args:
        source: A folder or a Hub id.
        place: Where the user named it, for error messages: `--model`, or `recipe.yaml, teacher`.
        reading: Settings of the processor that replace the model's own: `{"window": 150, "stride": 75}`.
        **options: Arguments of `from_pretrained`, such as `max_passages`.

    Example:
        ```python
        load_ranker("cross-encoder/ms-marco-MiniLM-L6-v2", "--model").rank(query, documents)
        ```
    """
    check_source(source, place)
    label = _label(source, place)
    with explain_load_errors(source, place):
        plain = _load_plain_config(source)
        is_bi_encoder = plain is not None and bool(SentenceTransformersFiles(source, {}).pooling)
        if plain is None:
            ranker = AutoModel.from_pretrained(source, trust_remote_code=False, **options)
        elif is_bi_encoder:
            ranker = MaxPForSequenceClassification.from_bi_encoder(source, **options)
        else:
            check_classifier(plain, label)
            ranker = MaxPForSequenceClassification.from_cross_encoder(source, **options)
    if not isinstance(ranker, DocumentRanker):
        raise _not_a_ranker(label, ranker.config)
    if ranker.processor is None:
        raise InputError(f"{label} has no processor_config.json, so it cannot read text; save it with its processor.")
    if reading:
        _set_reading(ranker, reading, label)
    # Impossible settings and weights that are not numbers only show when a text is read.
    with explain_load_errors(source, place):
        ranker.score([_TRIAL])
    if plain is not None and is_main_process():
        logger.warning(f"{label} is a plain {ranker.reader.describe()}; {_describe_reading(ranker)}.")
    return ranker


def _set_reading(ranker: DocumentRanker, reading: Mapping[str, Any], label: str) -> None:
    """Change settings of the processor; an encoder with shorter inputs than a preset's keeps to its own."""
    settings: dict[str, Any] = dict(reading)
    limit, length = position_limit(ranker.encoder), settings.get("max_length")
    if limit is not None and length is not None and length > limit:
        if is_main_process():
            logger.warning(f"{label} has inputs of {limit} tokens, not of {length}: the encoder reads no more.")
        settings["max_length"] = limit
    try:
        ranker.processor = ranker.require_processor().with_options(**settings)
    except ValueError as error:
        raise InputError(f"{label} cannot read documents in this way: {error}") from None


def check_source(source: str, place: str = "") -> None:
    """Refuse a folder without a model. Nothing is loaded, and a Hub id is not checked."""
    folder, label = Path(source), _label(source, place)
    if not source.strip():
        raise InputError(f"{place or 'the model'} is empty; name a folder, or an id on the Hub.")
    if folder.is_dir():
        if any((folder / name).is_file() for name in CONFIGS):
            return
        below = next((found.parent for name in CONFIGS for found in sorted(folder.glob(f"*/{name}"))), None)
        hint = f"; {below} does" if below else ""
        raise InputError(f"{label} cannot be loaded: the folder holds no model (config.json){hint}.")
    if folder.exists():
        raise InputError(f"{label} cannot be loaded: it is a file; name the folder that holds the model.")
    if _is_path(source):
        raise InputError(f"{label} cannot be loaded: there is no such folder.")


def find_file(source: str, name: str, revision: str | None = None, **options: Any) -> Path | None:
    """Find a file of a model in its folder, the cache or on the Hub."""
    if Path(source).is_dir():
        file = Path(source) / name
        return file if file.is_file() else None
    if _is_path(source):
        return None
    try:
        found = cached_file(source, name, revision=revision, _raise_exceptions_for_missing_entries=False, **options)
    except (OSError, ValueError):
        return None
    return None if found is None else Path(found)


@contextmanager
def explain_load_errors(source: str, place: str) -> Iterator[None]:
    """Turn any error from loading a model into an `InputError` of one sentence; show no progress bars."""
    logging.disable_progress_bar()
    label = _label(source, place)
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, FloatingPointError) as error:
        raise InputError(f"{label} cannot be loaded: {_find_reason(source, error)}") from error
    # A damaged tokenizer raises a bare Exception, a damaged configuration any exception.
    except Exception as error:
        cause = f"{type(error).__name__}: {_one_line(error)}"
        raise InputError(
            f"{label} cannot be loaded: {_find_damaged_file(source)} is damaged ({cause}); save or fetch it again."
        ) from error


def _find_damaged_file(source: str) -> str:
    try:
        AutoConfig.from_pretrained(source, local_files_only=True, trust_remote_code=False)
    except Exception:
        return str(Path(source) / CONFIG_NAME)
    return "one of its files"


def _find_reason(source: str, error: Exception) -> str:
    """Why a model cannot be loaded: it was not found, or the error's own message, with a command that helps."""
    if isinstance(error, (PickledWeightsError, LinearHeadError)):
        option = " --linear-head" if isinstance(error, LinearHeadError) else ""
        return f"{_one_line(error)} The command is docparade convert {source}{option} --output FOLDER."
    if Path(source).exists() or find_file(source, CONFIG_NAME, local_files_only=True) is not None:
        return _one_line(error)
    if HF_HUB_OFFLINE:
        return "there is no such folder, and the Hugging Face cache has no model of this name (HF_HUB_OFFLINE is set)."
    return f"there is no such folder, and it cannot be loaded from the Hub: {_one_line(error)}"


def _is_path(source: str) -> bool:
    """Whether this cannot be a Hub id, which is a name, or an organization and a name."""
    return Path(source).is_absolute() or len(Path(source).parts) > 2 or source.startswith((".", "~"))


def _label(source: str, place: str) -> str:
    return f"{place}: {source}" if place else source


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _load_plain_config(source: str) -> PreTrainedConfig | None:
    """Load the configuration of a checkpoint if it is not one of docparade's; an adapter has none of its own."""
    if (Path(source) / "adapter_config.json").is_file():
        return None
    check_config_file(source, {})
    config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    return None if is_ranker(config) else config


def check_classifier(config: PreTrainedConfig, label: str) -> None:
    """Refuse a plain model that is not a bi-encoder and has no head to score passages with."""
    if config.architectures and not any(reader.takes_head(config) for reader in READERS.values()):
        raise _not_a_ranker(label, config)


def _not_a_ranker(label: str, config: PreTrainedConfig) -> InputError:
    return InputError(
        f"{label} is a {config.model_type} model, not a ranker of long documents; build one on it with from_encoder, "
        "and train it."
    )


def _describe_reading(ranker: DocumentRanker) -> str:
    """Describe how a plain model reads documents that are longer than its input."""
    processor = ranker.require_processor()
    limit = "all passages" if processor.max_passages is None else f"at most {processor.max_passages} passages"
    size = f" of {processor.window} {processor.unit}s" if processor.window else ""
    return f"it reads {limit}{size} of a document, whose score is the best passage's (MaxP)"
