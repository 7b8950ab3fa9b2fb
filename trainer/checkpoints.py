"""Training checkpoints: which is the last one, whether it is whole, and clear errors where files cannot be written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME
from transformers.trainer_pt_utils import safe_globals
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import SAFE_WEIGHTS_NAME

from docparade.hub_cards.record_files import RECORD_FILE
from docparade.retrieval.errors import InputError

# torch's file writer raises plain RuntimeErrors; their messages contain one of these.
_TORCH_WRITER = ("inline_container", "PytorchStreamWriter", "iostream error", "Parent directory")


@contextmanager
def explain_write_errors(folder: str | Path) -> Iterator[None]:
    """Turn errors from writing files to a folder into an `InputError` of one sentence.

    Example:
        ```python
        with explain_write_errors("outputs/run"):
            model.save_pretrained("outputs/run/model")
        ```
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if not _is_write_error(error):
            raise
        raise InputError(
            f"{folder} cannot be written: {_reason(error)}; check free space and permissions, and start again."
        ) from error


def last_checkpoint(folder: str | Path) -> Path | None:
    """Find the latest complete checkpoint in an output folder; incomplete ones are skipped.

    Example:
        ```python
        last_checkpoint("outputs/run")  # PosixPath('outputs/run/checkpoint-512')
        ```
    """
    checkpoints = Path(folder).glob(f"{PREFIX_CHECKPOINT_DIR}-*/{RECORD_FILE}")
    return max((file.parent for file in checkpoints), key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def check_checkpoint(checkpoint: str | Path, files: tuple[str, ...] = (OPTIMIZER_NAME, SCHEDULER_NAME)) -> None:
    """Refuse a checkpoint from which training cannot continue exactly. Tensors are not read, only where they are.

    Args:
        checkpoint: The folder.
        files: Files it must hold besides the model and the trainer state. Trainer silently starts fresh with those that
            are missing.
    """
    folder = Path(checkpoint)
    if not folder.is_dir():
        raise InputError(f"training cannot continue from {folder}: there is no such folder.")
    if files and not any(folder.glob("*.safetensors")):
        raise _damaged(folder, f"{SAFE_WEIGHTS_NAME} is missing")
    for name in (TRAINER_STATE_NAME, *files):
        if not (folder / name).is_file():
            raise _damaged(folder, f"{name} is missing")
    if files and not any(folder.glob("rng_state*.pth")):
        raise _damaged(folder, "rng_state.pth is missing")
    try:
        state = json.loads((folder / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
        is_complete = isinstance(state["global_step"], int) and isinstance(state["log_history"], list)
    except (OSError, ValueError, KeyError, TypeError):
        is_complete = False
    if not is_complete:
        raise _damaged(folder, f"{TRAINER_STATE_NAME} is damaged")
    check_weights(folder)
    if files:
        for path in (*(folder / name for name in files), *folder.glob("rng_state*.pth")):
            with _explain_read_errors(path), safe_globals():
                torch.load(path, map_location="cpu", weights_only=True, mmap=True)


def check_weights(checkpoint: Path) -> None:
    """Refuse a checkpoint whose weights are damaged."""
    for path in checkpoint.glob("*.safetensors"):
        with _explain_read_errors(path), safe_open(path, "pt"):
            pass


@contextmanager
def _explain_read_errors(file: Path) -> Iterator[None]:
    try:
        yield
    # torch and pickle can raise any exception on a damaged file.
    except Exception as error:
        raise _damaged(file.parent, f"{file.name} is damaged ({type(error).__name__}: {_reason(error)})") from error


def _damaged(checkpoint: Path, what: str) -> InputError:
    return InputError(
        f"training cannot continue from {checkpoint}: {what}; remove the folder to continue from the checkpoint before."
    )


def _is_write_error(error: Exception) -> bool:
    if isinstance(error, RuntimeError):
        return any(words in str(error) for words in _TORCH_WRITER)
    # The tokenizers library raises bare Exceptions.
    return isinstance(error, (OSError, SafetensorError)) or type(error) is Exception


def _reason(error: BaseException) -> str:
    """The operating system's error message if one caused the error, else the error's own."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno is not None:
            return os.strerror(cause.errno)
        cause = cause.__cause__ or cause.__context__
    return " ".join(str(error).split())[:300]
