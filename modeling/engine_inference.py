"""A model in use: no dropout and no gradients while threads rank with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch

if TYPE_CHECKING:
    from .modeling_ranker import DocumentRanker


class _Readers:
    """How many threads use a model now, and which of its modules were in training mode before."""

    def __init__(self) -> None:
        self.count = 0
        self.were_training: list[torch.nn.Module] = []


_readers: WeakKeyDictionary[torch.nn.Module, _Readers] = WeakKeyDictionary()
_readers_lock = Lock()


@contextmanager
def changing_mode(model: DocumentRanker, training: bool) -> Iterator[None]:
    """A context in which the model's mode may be changed; to training mode only while no thread ranks with it.

    Raises:
        RuntimeError: A thread is ranking, and its scores would become random.
    """
    with _readers_lock:
        readers = _readers.get(model)
        if readers is not None and readers.count:
            if training:
                raise RuntimeError(
                    "model.train() while another thread ranks with the model: its scores would become random. Train "
                    "when it has ended, or rank with a copy."
                )
            readers.were_training = []
        yield


@contextmanager
def inference(model: DocumentRanker) -> Iterator[None]:
    """No dropout and no gradients. The last of several threads that use a model restores its training mode."""
    with _readers_lock:
        readers = _readers.setdefault(model, _Readers())
        if readers.count == 0:
            readers.were_training = [module for module in model.modules() if module.training]
            for module in readers.were_training:
                module.training = False
        readers.count += 1
    try:
        with torch.inference_mode():
            yield
        if any(module.training for module in model.modules()):
            raise RuntimeError(
                "A part of the model was put into training mode while it was ranking, so the scores are random: rank "
                "again, or with a copy."
            )
    finally:
        with _readers_lock:
            readers.count -= 1
            if readers.count == 0:
                for module in readers.were_training:
                    module.training = True
