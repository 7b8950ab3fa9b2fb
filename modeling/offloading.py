"""Weights that accelerate keeps elsewhere: its hooks fetch them for each module's forward, and drop them after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


def has_hooks(module: nn.Module) -> bool:
    """Whether accelerate has put a hook on a module itself, such as one that fetches its weights."""
    return hasattr(module, "_hf_hook")


def computing_device(model: nn.Module) -> torch.device:
    """Where a model's inputs belong: the device of its weights, or the one to which the first hook fetches them."""
    own = next(model.parameters()).device
    if own.type != "meta":
        return own
    devices = (getattr(hook, "execution_device", None) for module in model.modules() for hook in _hooks(module))
    return torch.device(next((device for device in devices if device is not None), own))


@contextmanager
def at_hand(module: nn.Module) -> Iterator[None]:
    """A context in which a module's own weights can be read outside of its forward."""
    hook = getattr(module, "_hf_hook", None)
    if hook is None:
        yield
        return
    hook.pre_forward(module)
    try:
        yield
    finally:
        hook.post_forward(module, None)


def _hooks(module: nn.Module) -> list[Any]:
    """The hooks of a module: accelerate joins several to one."""
    hook = getattr(module, "_hf_hook", None)
    return [] if hook is None else list(getattr(hook, "hooks", [hook]))
