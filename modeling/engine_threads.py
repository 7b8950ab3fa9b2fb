"""Several threads on a CPU: each computes a batch of its own, instead of all threads sharing every matrix product.

Threads that share a product wait for the slowest at the end of each one, thousands of times. Threads with batches of
their own never wait for each other, so two cores do more, and many cores much more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import Barrier, Lock
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

# Starting threads changes a setting of the whole process for a moment: one caller at a time.
_starting = Lock()


def thread_count(device: torch.device) -> int:
    """How many threads may compute batches: as many as torch has; one where gradients or autocast are on."""
    if device.type != "cpu" or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
        return 1
    return torch.get_num_threads()


def map_in_threads(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> list[Result]:
    """The results of a function for each item, in order; a thread that is free takes the next item.

    One thread is the caller's own, which computes with all threads of torch. Others compute no gradients.

    Example:
        >>> map_in_threads(abs, [-1, 2, -3], threads=2)
        [1, 2, 3]
    """
    if threads == 1:
        return [function(item) for item in items]
    inference = torch.is_inference_mode_enabled()

    def without_gradients(item: Item) -> Result:
        with torch.inference_mode(inference), torch.no_grad():
            return function(item)

    with _starting:
        pool = _start_pool(threads, os.getpid())
    return list(pool.map(without_gradients, items))


@lru_cache(maxsize=4)
def _start_pool(count: int, process: int) -> ThreadPoolExecutor:
    """Threads in which torch uses one core each. They do not survive a fork, so every process has its own."""
    before = torch.get_num_threads()
    started = Barrier(count)

    def start() -> None:
        torch.get_num_threads()  # a thread's first call sets its number to that of the process: call it before setting
        torch.set_num_threads(1)
        started.wait()

    pool = ThreadPoolExecutor(count, thread_name_prefix="docparade", initializer=start)
    for _ in range(count):
        pool.submit(int)
    pool.submit(int).result()
    # set_num_threads also changes the default of new threads: restore it.
    torch.set_num_threads(before)
    return pool
