"""Processes that work together: which one this is, waiting for the others, and sharing what each has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed
from accelerate import PartialState
from accelerate.utils import gather_object, parse_flag_from_env
from torch.distributed.rendezvous import rendezvous

from docparade.retrieval.errors import InputError
from docparade.retrieval.storage.locks import lock_output

from .process_watch import DONE, FAILED, Watch

Share = TypeVar("Share")

PATIENCE = timedelta(days=30)
"""How long torch lets a process wait for the others while they are alive: longer than any work takes."""
MEETING = timedelta(minutes=10)
"""How long all processes may take to start."""

_MEETING_PLACE = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_watch: Watch | None = None
_working = False


def join_processes() -> PartialState:
    """Join the processes that `accelerate launch`, `torchrun` or a user's own script started; else there is one.

    From here on, a process that dies ends the others too: none of them waits for it.

    Example:
        >>> join_processes().num_processes
        1
    """
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started > 1 and all(os.environ.get(name) for name in _MEETING_PLACE):
        _meet(started)
    return _state()


def _state() -> PartialState:
    """What accelerate knows of the processes; the first call joins them."""
    # A bare PartialState() asks nobody whether it is on a CPU, and there takes each of several processes for the only
    # one. Whoever comes later, such as Trainer, gets what the first call found.
    cpu = parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()
    state = PartialState(cpu=cpu, timeout=PATIENCE)
    started = torch.distributed.get_world_size() if _are_joined() else int(os.environ.get("WORLD_SIZE", "1"))
    if state.num_processes != started:
        raise RuntimeError(
            f"{started} processes were started, and accelerate found {state.num_processes}: start them with "
            "accelerate launch or torchrun, or set RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in each."
        )
    return state


def _are_joined() -> bool:
    """Whether this process has joined others; accelerate has no such question, PartialState() goes and joins them."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _meet(size: int) -> None:
    """Wait until all processes have started, and begin to watch them."""
    global _watch  # noqa: PLW0603
    if _watch is not None:
        return
    try:
        # accelerate joins processes without a look at the store they meet in, which the watch needs.
        store, rank, _ = next(rendezvous("env://", timeout=MEETING))
        _watch = Watch(store, rank, size)
    except (RuntimeError, ValueError) as error:
        place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise InputError(
            f"the {size} processes did not find each other at {place} (MASTER_ADDR, MASTER_PORT) within "
            f"{MEETING.total_seconds():.0f} seconds: {str(error).splitlines()[0]}"
        ) from error
    _watch.start()


@contextmanager
def working_together() -> Iterator[None]:
    """Work that all processes share: the one that fails tells the others why, and they end as well.

    It may be entered again inside. Without other processes it changes nothing.
    """
    global _working  # noqa: PLW0603
    if _working:
        yield
        return
    _working = True
    try:
        yield
    except InputError as error:
        _tell(FAILED, str(error))
        raise
    except BaseException as error:
        # Where another process is gone, torch may notice first. Who it was is found out before anything else is said.
        if _watch is not None and isinstance(error, RuntimeError):
            _watch.wait_for_verdict()
        _tell(FAILED, f"{type(error).__name__}: {' '.join(str(error).split())}")
        raise
    else:
        _tell(DONE)
    finally:
        _working = False


def _tell(is_now: str, sentence: str = "") -> None:
    if _watch is not None:
        _watch.tell(is_now, sentence)


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Work on an output that other commands may want as well: they wait. All processes of this one enter together."""
    with lock_output(path) if place_among_processes()[0] == 0 else nullcontext():
        wait_for_all()
        yield


def place_among_processes() -> tuple[int, int]:
    """This process's number, and how many there are: `(0, 1)` where it has joined no others."""
    if not _are_joined():
        return 0, 1
    state = _state()
    return state.process_index, state.num_processes


def wait_for_all() -> None:
    """Until every process is here."""
    if _are_joined():
        _state().wait_for_everyone()


def gather(mine: Share) -> list[Share]:
    """What every process has, in the order of their numbers. All processes call this, and all get the list.

    Example:
        >>> gather({"a": 1})
        [{'a': 1}]
    """
    return gather_object([mine]) if place_among_processes()[1] > 1 else [mine]


def hide_bar(progress: bool | None) -> bool | None:
    """What tqdm's `disable` takes: only the first process shows a bar, and with `None` only in a terminal."""
    if place_among_processes()[0] > 0:
        return True
    return None if progress is None else not progress
