"""Processes that work together: which one this is, and waiting for the others."""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed
from accelerate import PartialState
from accelerate.utils import parse_flag_from_env

PATIENCE = timedelta(days=30)
"""How long a process that is done waits for the others."""


def join_processes() -> PartialState:
    """Join the processes that `accelerate launch` or `torchrun` started; without these, there is one.

    Example:
        >>> join_processes().num_processes
        1
    """
    # A bare PartialState() asks nobody whether it is on a CPU, and there takes each of several processes for the only
    # one. Whoever comes later, such as Trainer, gets what the first call found.
    cpu = parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()
    state = PartialState(cpu=cpu, timeout=PATIENCE)
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if state.num_processes != started:
        raise RuntimeError(f"{started} processes were started, and {state.num_processes} found each other.")
    return state


def place_among_processes() -> tuple[int, int]:
    """This process's number, and how many there are: `(0, 1)` without a process group."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def wait_for_all() -> None:
    """Until every process is here."""
    if place_among_processes()[1] > 1:
        torch.distributed.barrier()


def hide_bar(progress: bool | None) -> bool | None:
    """What tqdm's `disable` takes: only the first process shows a bar, and with `None` only in a terminal."""
    if place_among_processes()[0] > 0:
        return True
    return None if progress is None else not progress
