"""Several streams on a CPU: each thread computes a batch of its own, instead of all threads sharing every product.

Threads that share a product wait for the slowest at the end of each one, thousands of times. Streams never wait for
each other, so two cores do more, and many cores much more.
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

# Making threads changes a setting of all of them for a moment: one caller at a time.
_making_threads = Lock()


def stream_count(device: torch.device) -> int:
    """How many streams there may be: as many as torch has threads; one where gradients or autocast are asked for."""
    if device.type != "cpu" or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
        return 1
    return torch.get_num_threads()


def in_streams(function: Callable[[Item], Result], items: Iterable[Item], streams: int) -> list[Result]:
    """What a function gives for each item, in their order; each stream takes the next item that nobody has taken.

    One stream is the caller's own thread, with all that torch may use. Streams compute no gradients.

    Example:
        >>> in_streams(abs, [-1, 2, -3], streams=2)
        [1, 2, 3]
    """

    if streams == 1:
        return [function(item) for item in items]
    inference = torch.is_inference_mode_enabled()

    def without_gradients(item: Item) -> Result:
        with torch.inference_mode(inference), torch.no_grad():
            return function(item)

    with _making_threads:
        threads = _threads(streams, os.getpid())
    return list(threads.map(without_gradients, items))


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
