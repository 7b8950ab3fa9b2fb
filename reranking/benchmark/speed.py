"""The speed of a ranker beside other systems.

All systems read the same passages of the same documents on the same device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from docparade.modeling import DocumentRanker
from docparade.retrieval.errors import InputError

from .systems import SYSTEMS, reason_against
from .timing import Timing, time_in_turns
from .workload import Workload


def measure_speed(model: DocumentRanker, work: Workload, systems: Sequence[str], turns: int = 3) -> dict[str, Timing]:
    """Time systems, which are keys of `SYSTEMS`.

    Example:
        ```python
        work = Workload.of(model, query, documents)
        measure_speed(model, work, ["docparade", "dense", "limit"])["docparade"].seconds
        ```
    """
    for name in systems:
        if reason := reason_against(name, model):
            raise InputError(f"--systems: leave out {name}: {reason}.")
    return time_in_turns({name: SYSTEMS[name](model, work) for name in systems}, turns, model.device)


def speed_figures(timings: Mapping[str, Timing], work: Workload) -> dict[str, dict[str, Any]]:
    """The figures of each system, as they are reported."""
    return {name: _figures(timing, timings, work) for name, timing in timings.items()}


def _figures(timing: Timing, timings: Mapping[str, Timing], work: Workload) -> dict[str, Any]:
    seconds = timing.seconds
    figures: dict[str, Any] = {
        "seconds": round(seconds, 3),
        "documents_per_second": round(len(work.documents) / seconds, 2),
        "real_tokens_per_second": round(work.real_tokens / seconds),
        "memory_mib": round(timing.memory),
    }
    if ours := timings.get("docparade"):
        figures["docparade_is_faster_by"] = round(seconds / ours.seconds, 2)
        if len(timing.scores) == len(ours.scores):
            differences = (abs(a - b) for a, b in zip(timing.scores, ours.scores, strict=True))
            figures["largest_score_difference"] = float(f"{max(differences):.1e}")
    if limit := timings.get("limit"):
        figures["share_of_the_limit"] = round(limit.seconds / seconds, 3)
    return figures | {f"share_of_{name}": round(part / seconds, 4) for name, part in timing.parts.items()}
