"""How far long work is: a bar in a terminal, and lines where the output is redirected."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

from tqdm.auto import tqdm

SECONDS_BETWEEN_LINES = 30.0


class ProgressLines:
    """A line on standard error every half minute: what is done, and about how much time is left.

    Work that takes less time prints nothing. It is used like a bar of tqdm.

    Args:
        iterable: What is worked on, if the work is a loop over it.
        desc: What is done.
        total: How many there are; `None` is unknown.
        unit: What is counted, after a space: `" documents"`.
    """

    def __init__(
        self, iterable: Iterable[Any] | None = None, desc: str = "working", total: int | None = None, unit: str = ""
    ) -> None:
        self.iterable = iterable
        self.desc, self.unit = desc, unit
        self.total = len(iterable) if total is None and hasattr(iterable, "__len__") else total  # type: ignore[arg-type]
        self.done = 0
        self.start = self.last = time.monotonic()

    def update(self, count: int = 1) -> None:
        """Count what is done now."""
        self.done += count
        now = time.monotonic()
        if now - self.last >= SECONDS_BETWEEN_LINES:
            self.last = now
            print(self._describe(now - self.start), file=sys.stderr, flush=True)

    def _describe(self, seconds: float) -> str:
        if not self.total:
            return f"{self.desc}: {self.done:,}{self.unit} after {format_time(seconds)}"
        left = f", about {format_time(seconds / self.done * (self.total - self.done))} left" if self.done else ""
        return f"{self.desc}: {self.done:,} of {self.total:,}{self.unit} after {format_time(seconds)}{left}"

    def close(self) -> None:
        """Nothing is left to do: the end of the work is said by who does it."""

    def __iter__(self) -> Iterator[Any]:
        for item in self.iterable or ():
            yield item
            self.update()

    def __enter__(self) -> ProgressLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def format_time(seconds: float) -> str:
    """A duration in the largest units that tell something.

    Example:
        >>> format_time(9.6), format_time(95), format_time(7260)
        ('10 s', '1 min 35 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def show_progress(
    iterable: Iterable[Any] | None = None,
    desc: str = "working",
    total: int | None = None,
    unit: str = "",
    hide: bool | None = None,
) -> tqdm | ProgressLines:
    """Show how far work is: in a terminal a bar of tqdm, elsewhere `ProgressLines`.

    Args:
        iterable: What is worked on, if the work is a loop over it.
        desc: What is done.
        total: How many there are; `None` is unknown.
        unit: What is counted, after a space: `" documents"`.
        hide: `True` shows nothing, `False` a bar wherever the output goes.

    Example:
        ```python
        for document in show_progress(documents, "indexing", unit=" documents"):
            ...
        ```
    """
    if hide is None and not sys.stderr.isatty():
        return ProgressLines(iterable, desc, total, unit)
    return tqdm(iterable, desc=desc, total=total, unit=unit, disable=bool(hide))
