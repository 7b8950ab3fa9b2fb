"""A training's files: what cannot be written or read again is told in one sentence that says how to go on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME

from docparade.retrieval.errors import InputError

# How torch's own writer of files begins its complaints, which have no type of their own.
_TORCH_WRITER = ("inline_container", "PytorchStreamWriter", "iostream error", "Parent directory")


@contextmanager
def saving(folder: str | Path) -> Iterator[None]:
    """Turn what goes wrong while files are written to a folder into one sentence.

    Example:
        ```python
        with saving("outputs/run"):
            model.save_pretrained("outputs/run/model")
        ```
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if not _is_of_writing(error):
            raise
        raise InputError(
            f"{folder} cannot be written: {_reason(error)}; see to its space and permissions, and start again."
        ) from error


@contextmanager
def reading(checkpoint: str | Path | None) -> Iterator[None]:
    """Turn what goes wrong while a training's checkpoint is read into one sentence."""
    try:
        yield
    except InputError:
        raise
    # torch and pickle raise anything at all on files of another form than they expect.
    except Exception as error:
        raise _damaged(checkpoint, f"{type(error).__name__}: {_reason(error)}") from error


def check_checkpoint(checkpoint: str | Path, files: tuple[str, ...] = (OPTIMIZER_NAME, SCHEDULER_NAME)) -> None:
    """See that a training can go on exactly where a checkpoint was saved.

    Args:
        checkpoint: The folder.
        files: What it has to hold beside the model and the state: Trainer starts anew with what is missing, in silence.
    """
    folder = Path(checkpoint)
    if not folder.is_dir():
        raise InputError(f"{folder} cannot be continued from: there is no such folder.")
    for name in (TRAINER_STATE_NAME, *files):
        if not (folder / name).is_file():
            raise _damaged(folder, f"{name} is missing")
    if files and not any(folder.glob("rng_state*.pth")):
        raise _damaged(folder, "rng_state.pth is missing")
    try:
        state = json.loads((folder / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
        whole = isinstance(state["global_step"], int) and isinstance(state["log_history"], list)
    except (OSError, ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise _damaged(folder, f"{TRAINER_STATE_NAME} is damaged")


def _damaged(checkpoint: str | Path | None, what: str) -> InputError:
    return InputError(
        f"{checkpoint} cannot be continued from: {what}; remove the folder to go on from the checkpoint before it."
    )


def _is_of_writing(error: Exception) -> bool:
    if isinstance(error, RuntimeError):
        return any(words in str(error) for words in _TORCH_WRITER)
    # The tokenizers library raises bare Exceptions.
    return isinstance(error, (OSError, SafetensorError)) or type(error) is Exception


def _reason(error: BaseException) -> str:
    """What the operating system said, if it stands behind the error."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno is not None:
            return os.strerror(seen.errno)
        seen = seen.__cause__ or seen.__context__
    return " ".join(str(error).split())[:300]
