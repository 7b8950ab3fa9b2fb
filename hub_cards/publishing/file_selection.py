"""Which files of a model's folder are published: the files on a list, and the code that the model needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from transformers.dynamic_module_utils import get_relative_imports

from docparade.hub_cards.record_files import (
    ADAPTER,
    CARD_FILE,
    CONFIG,
    EVALUATIONS_FOLDER,
    LOG_FILE,
    RECIPE_FILE,
    RECORD_FILE,
    SPEED_FILE,
    read_json,
    read_module_types,
)
from docparade.retrieval.errors import InputError

WEIGHTS = ("model.safetensors", "model-*-of-*.safetensors", "adapter_model.safetensors")
INDEX = "model.safetensors.index.json"
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "merges.txt")
TOKENIZER = (*VOCABULARIES, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "*.model")
SENTENCE_TRANSFORMERS = ("modules.json", "config_sentence_transformers.json")
# What the card is written from.
RECORDS = (RECORD_FILE, LOG_FILE, RECIPE_FILE, SPEED_FILE, f"{EVALUATIONS_FOLDER}/*.json")
LISTED = (
    *(CARD_FILE, "LICENSE", "LICENSE.*", CONFIG, ADAPTER, "processor_config.json", INDEX),
    *(*WEIGHTS, *TOKENIZER, *SENTENCE_TRANSFORMERS, *RECORDS),
)
# The state of a training, which is never published; the pickles among it are no reason to refuse a folder.
TRAINING_STATE = ("training_args.bin", "optimizer.*", "scheduler.*", "scaler.*", "rng_state*", "trainer_state.json")
PICKLES = (".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth")


@dataclass(frozen=True)
class PublishedFiles:
    """The files of a folder, sorted into published files and files left out."""

    published: dict[str, Path]
    """Name on the Hub -> the file."""
    left_out: list[str]


def list_files(folder: Path) -> PublishedFiles:
    """Sort the files of a model's folder. A folder without a complete ranker or adapter is refused.

    Example:
        ```python
        list_files(Path("outputs/quickstart/model")).left_out  # ["optimizer.pt", "trainer_state.json"]
        ```
    """
    found = [*folder.iterdir(), *(folder / EVALUATIONS_FOLDER).glob("*")]
    files = {path.relative_to(folder).as_posix(): path for path in sorted(found) if path.is_file()}
    _check_complete(files)
    chosen = {name for name in files if any(fnmatch(name, pattern) for pattern in LISTED)}
    chosen |= set(_find_code(files)) | (set(_find_images(files)) & files.keys())
    folders = {f"{path.name}/" for path in folder.iterdir() if path.is_dir() and path.name != EVALUATIONS_FOLDER}
    left_out = sorted((files.keys() - chosen) | folders)
    _refuse_pickles(left_out)
    return PublishedFiles({name: files[name] for name in sorted(chosen)}, left_out)


def _check_complete(files: dict[str, Path]) -> None:
    if CONFIG in files:
        if "auto_map" not in read_json(files[CONFIG]):
            raise InputError(
                f"{CONFIG} is not the configuration of a docparade ranker (it has no auto_map); load the model "
                "with docparade, and save it with save_pretrained."
            )
        shards = set(read_json(files[INDEX]).get("weight_map", {}).values()) if INDEX in files else set()
        needed = {"processor_config.json", "tokenizer.json"} | (shards or {"model.safetensors"})
    elif ADAPTER in files:
        needed = {"adapter_model.safetensors"}
    else:
        raise InputError(f"there is no {CONFIG}; name the folder of a saved ranker, such as outputs/NAME/model.")
    if missing := sorted(needed - files.keys()):
        pickles = sorted(name for name in files if name.endswith(PICKLES) and not _is_training_state(name))
        if pickles:
            raise pickle_error(pickles[0])
        raise InputError(f"there is no {missing[0]}; save the model again with save_pretrained.")


def _find_code(files: dict[str, Path]) -> Iterator[str]:
    """The Python files that a model's JSON files name, and the files that they import in turn."""
    waiting = list(dict.fromkeys(_find_modules(files)))
    found: set[str] = set()
    while waiting:
        name = f"{waiting.pop()}.py"
        if name in found:
            continue
        if name not in files:
            raise InputError(f"there is no {name}, which its code needs; save the model again with save_pretrained.")
        found.add(name)
        yield name
        waiting += get_relative_imports(files[name])


def _find_modules(files: dict[str, Path]) -> Iterator[str]:
    """The modules of the classes that a model's JSON files name, and `handler`, which Inference Endpoints looks for."""
    for name in (CONFIG, "processor_config.json", "tokenizer_config.json"):
        content = read_json(files[name]) if name in files else {}
        classes = [*content.get("auto_map", {}).values()]
        classes += [pipeline["impl"] for pipeline in content.get("custom_pipelines", {}).values()]
        yield from (each.partition(".")[0] for each in classes)
    if "handler.py" in files:
        yield "handler"
    if "modules.json" in files:
        types = read_module_types(files["modules.json"])
        yield from (each.partition(".")[0] for each in types if each.count(".") == 1)


def _find_images(files: dict[str, Path]) -> list[str]:
    """The images that the card shows."""
    if CARD_FILE not in files:
        return []
    text = files[CARD_FILE].read_text(encoding="utf-8", errors="replace")
    return re.findall(r"""[("']([\w.-]+\.(?:png|svg|jpg|webp))[)"' ]""", text)


def _is_training_state(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in TRAINING_STATE)


def _refuse_pickles(left_out: list[str]) -> None:
    for name in left_out:
        if name.endswith(PICKLES) and not _is_training_state(name):
            raise pickle_error(name)


def pickle_error(name: str) -> InputError:
    """Why a pickle is refused."""
    return InputError(
        f"{name} is a pickle, which can run code when it is loaded; save the model as safetensors with "
        "save_pretrained, and remove this file."
    )
