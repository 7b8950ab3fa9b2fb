"""Processes that work together: which one this is, and waiting for the others."""

from __future__ import annotations

import torch.distributed


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
