"""Several streams on a CPU: each thread computes a batch of its own, instead of all threads sharing every product.

Threads that share a product wait for the slowest at the end of each one, thousands of times. Streams never wait for
each other, so two cores do more, and many cores much more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import Barrier
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def stream_count(device: torch.device) -> int:
    """How many streams there may be: as many as torch has threads; one where gradients or autocast are asked for."""
    if device.type != "cpu" or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
        return 1
    return torch.get_num_threads()


def in_streams(function: Callable[[Item], Result], items: Iterable[Item], streams: int) -> list[Result]:
    """What a function gives for each item, in their order; each stream takes the next item that nobody has taken.

    Example:
        >>> in_streams(abs, [-1, 2, -3], streams=2)
        [1, 2, 3]
    """

    def without_gradients(item: Item) -> Result:
        with torch.inference_mode(inference):
            return function(item)

    inference = torch.is_inference_mode_enabled()
    return list(_threads(streams, os.getpid()).map(without_gradients, items))


@lru_cache(maxsize=4)
def _threads(count: int, process: int) -> ThreadPoolExecutor:
    """Threads in which torch computes alone. They do not outlive a fork, so every process has its own."""
    before = torch.get_num_threads()
    started = Barrier(count)

    def start() -> None:
        torch.get_num_threads()  # asked for first: a thread's first question sets it to what all have
        torch.set_num_threads(1)
        started.wait()

    threads = ThreadPoolExecutor(count, thread_name_prefix="docparade", initializer=start)
    for _ in range(count):
        threads.submit(int)
    threads.submit(int).result()
    # The setting is one for all new threads as well: give them back what they had.
    torch.set_num_threads(before)
    return threads
