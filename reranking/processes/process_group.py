"""Work in several processes: join their group, wait for each other, and share work."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object, parse_flag_from_env

from docparade.retrieval.storage.locks import lock_output

Item = TypeVar("Item")

TIMEOUT = timedelta(hours=6)
"""How long a process waits for the others. torch's own limit of at most half an hour is short for shares of a large
collection, which do not end together. Nobody waits for a process that died: torchrun ends the others."""


def join_process_group() -> PartialState:
    """Join the processes that `accelerate launch`, `torchrun` or a user's own script started, if there are several.

    Example:
        >>> join_process_group().num_processes
        1
    """
    # A bare PartialState() on a CPU takes each of several processes for the only one. The state is a singleton: later
    # users, such as Trainer, get what the first call found.
    cpu = parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()
    had_group = _has_group()
    state = PartialState(cpu=cpu, timeout=TIMEOUT)
    if _has_group() and not had_group:
        # The threads of a group that is there when the interpreter ends may abort the process, after all work is done.
        atexit.register(_leave_group)
    started = torch.distributed.get_world_size() if _has_group() else int(os.environ.get("WORLD_SIZE", "1"))
    if state.num_processes != started:
        raise RuntimeError(
            f"{started} processes were started, and accelerate found {state.num_processes}: start them with "
            "accelerate launch or torchrun, or set RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in each."
        )
    return state


def _has_group() -> bool:
    """Whether this process has joined a group. accelerate cannot be asked: creating its state joins one."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _leave_group() -> None:
    if _has_group():
        torch.distributed.destroy_process_group()


def get_rank_and_size() -> tuple[int, int]:
    """The rank of this process and the number of processes: `(0, 1)` without a process group."""
    if not _has_group():
        return 0, 1
    state = join_process_group()
    return state.process_index, state.num_processes


def is_main_process() -> bool:
    """Whether this is the process that writes files and messages: the first, or the only one."""
    return get_rank_and_size()[0] == 0


def wait_for_all() -> None:
    """Wait until every process has called this."""
    if _has_group():
        join_process_group().wait_for_everyone()


@contextmanager
def lock_output_for_all(path: Path) -> Iterator[None]:
    """Hold the lock on an output for all processes of the group, so that other commands wait. All must enter."""
    with lock_output(path) if is_main_process() else nullcontext():
        wait_for_all()
        yield


def take_share(items: Sequence[Item]) -> Sequence[Item]:
    """The items that this process works on: every n-th one of n processes.

    Example:
        >>> take_share(["a", "b", "c"])
        ['a', 'b', 'c']
    """
    rank, size = get_rank_and_size()
    return items[rank::size]


def gather_shares(share: Sequence[Item]) -> list[Item]:
    """Put the results for the items of `take_share` together, in the order of the items.

    All processes must call this, and all get the whole list.

    Example:
        >>> gather_shares([1, 2, 3])
        [1, 2, 3]
    """
    _, size = get_rank_and_size()
    shares = gather_object([list(share)]) if size > 1 else [list(share)]
    return [shares[i % size][i // size] for i in range(sum(map(len, shares)))]


def share_from_main(item: Item) -> Item:
    """The main process's item, in all processes. All must call this; what the others give is ignored.

    Example:
        >>> share_from_main("cache/vectors")
        'cache/vectors'
    """
    _, size = get_rank_and_size()
    return broadcast_object_list([item])[0] if size > 1 else item


def should_hide_bar(progress: bool | None) -> bool | None:
    """The value for `hide` of `show_progress`: only the main process shows anything."""
    if not is_main_process():
        return True
    return None if progress is None else not progress
