"""The clock: systems take turns, and the best turn of each counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil
import torch

from docparade.modeling import DocumentRanker
from docparade.retrieval.errors import InputError

Turn = Callable[[], tuple[list[float], dict[str, float]]]
"""Reads everything once; returns the documents' scores, and the seconds of each part of the work."""


@dataclass
class Timing:
    """What was measured of one system."""

    seconds: float = float("inf")
    memory: float = 0.0
    """Peak of this process's memory (not a GPU's) above its start, in MiB, measured in the warm-up turn."""
    scores: list[float] = field(default_factory=list)
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds of each part of the work in the best turn."""


def time_in_turns(systems: Mapping[str, Turn], turns: int, device: torch.device) -> dict[str, Timing]:
    """Run the systems in turns, and keep the best turn of each.

    A first turn warms up. Memory is sampled in that turn only, because sampling takes time.
    """
    timings = {name: _warm_up(run) for name, run in systems.items()}
    for _ in range(turns):
        for name, run in systems.items():
            _take_turn(timings[name], run, device)
    return timings


def _warm_up(run: Turn) -> Timing:
    with _peak_memory() as peak:
        scores, _ = run()
    return Timing(memory=peak[0], scores=scores)


def _take_turn(timing: Timing, run: Turn, device: torch.device) -> None:
    start = read_clock(device)
    _, parts = run()
    seconds = read_clock(device) - start
    if seconds < timing.seconds:
        timing.seconds, timing.parts = seconds, parts


@contextmanager
def _peak_memory() -> Iterator[list[float]]:
    """The peak of this process's memory above its start, in MiB, sampled every few milliseconds."""
    process = psutil.Process()
    before = process.memory_info().rss
    peak = [0.0]
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.005):
            peak[0] = max(peak[0], (process.memory_info().rss - before) / 2**20)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


def read_clock(device: torch.device) -> float:
    """Seconds, read when the device has finished its work: calls to an accelerator return before that."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return time.perf_counter()


@dataclass
class Stopwatch:
    """Runs while at least one of several threads is at work."""

    device: torch.device
    seconds: float = 0.0
    _working: int = 0
    _since: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, *_: object) -> None:
        """A thread begins its work."""
        with self._lock:
            if not self._working:
                self._since = read_clock(self.device)
            self._working += 1

    def stop(self, *_: object) -> None:
        """A thread ends its work."""
        with self._lock:
            self._working -= 1
            if not self._working:
                self.seconds += read_clock(self.device) - self._since


@contextmanager
def time_encoder(model: DocumentRanker) -> Iterator[Stopwatch]:
    """Time what the encoder of a model computes within the block."""
    watch = Stopwatch(model.device)
    hooks = [
        model.encoder.register_forward_pre_hook(watch.start),
        model.encoder.register_forward_hook(watch.stop, always_call=True),
    ]
    try:
        yield watch
    finally:
        for hook in hooks:
            hook.remove()


def find_device(name: str | None = None) -> torch.device:
    """The device of this name; without one, the accelerator if there is one, and otherwise the CPU.

    Example:
        >>> find_device("cpu")
        device(type='cpu')
    """
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if name is None:
        return accelerator or torch.device("cpu")
    count = torch.accelerator.device_count() if accelerator else 0
    known = ["cpu", *([accelerator.type] if accelerator else []), *(f"{accelerator}:{i}" for i in range(count))]
    if name not in known:
        raise InputError(f"--device: there is no '{name}' on this machine; choose from {', '.join(known)}.")
    return torch.device(name)
