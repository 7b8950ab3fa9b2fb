"""The speed of a ranker beside other systems.

All systems read the same passages of the same documents on the same device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from docparade.modeling import DocumentRanker
from docparade.retrieval.errors import InputError

from .bi_encoder_systems import BI_ENCODER_SYSTEMS, ENCODERS, KEPT, BiEncoder
from .systems import SYSTEMS, missing_sentence_transformers, reason_against
from .timing import Timing, Turn, time_in_turns
from .workload import Workload

ALL_SYSTEMS = (*SYSTEMS, *BI_ENCODER_SYSTEMS)

# The system of docparade that does the same work; for others, it is "docparade".
_OURS = {
    "bi-encoder": "bi-encoder",
    "semantic-search": "bi-encoder",
    "vectors": "vectors",
    "semantic-search-kept": "vectors",
}
# Scores of bi-encoders are compared with those of the first of these that was timed.
_EXACT = ("semantic-search", "semantic-search-kept", "bi-encoder", "vectors")


def check_systems(systems: Sequence[str], model: DocumentRanker, has_bi_encoder: bool) -> None:
    """Refuse systems that cannot read with the ranker, or that need a bi-encoder if there is none."""
    for name in systems:
        if reason := reason_against(name, model):
            raise InputError(f"--systems: leave out {name}: {reason}.")
        if name in BI_ENCODER_SYSTEMS and not has_bi_encoder:
            raise InputError(f"--systems: {name} reads with a bi-encoder; name one with --bi-encoder.")


def measure_speed(
    model: DocumentRanker, work: Workload, systems: Sequence[str], turns: int = 3, bi: BiEncoder | None = None
) -> dict[str, Timing]:
    """Time systems, which are keys of `SYSTEMS`, or with a bi-encoder also of `BI_ENCODER_SYSTEMS`.

    Example:
        ```python
        work = Workload.of(model, query, documents)
        measure_speed(model, work, ["docparade", "dense", "limit"])["docparade"].seconds
        ```
    """
    check_systems(systems, model, bi is not None)

    def prepare(name: str) -> Turn:
        if bi is not None and name in BI_ENCODER_SYSTEMS:
            return BI_ENCODER_SYSTEMS[name](bi)
        return SYSTEMS[name](model, work)

    return time_in_turns({name: prepare(name) for name in systems}, turns, model.device)


def measure_encoding(bi: BiEncoder, turns: int = 3) -> dict[str, Timing]:
    """Time the encoding of all passages with each of `ENCODERS`; without the extra, not with sentence-transformers."""
    names = ["docparade"] if missing_sentence_transformers() else list(ENCODERS)
    return time_in_turns({name: ENCODERS[name](bi) for name in names}, turns, bi.ranker.device)


def speed_figures(
    timings: Mapping[str, Timing], work: Workload, bi: BiEncoder | None = None
) -> dict[str, dict[str, Any]]:
    """The figures of each system, as they are reported."""
    report = {}
    for name, timing in timings.items():
        own = bi.work if bi is not None and name in BI_ENCODER_SYSTEMS else work
        shares = {f"share_of_{part}": round(seconds / timing.seconds, 4) for part, seconds in timing.parts.items()}
        rates = _rates(timing, own, reads_documents=name not in (*KEPT, "kept"))
        report[name] = {**rates, "memory_mib": round(timing.memory), **_comparison(name, timings), **shares}
    return report


def encoding_figures(timings: Mapping[str, Timing], work: Workload) -> dict[str, dict[str, Any]]:
    """The figures of each of `ENCODERS`, as they are reported."""
    ours = timings["docparade"].seconds
    return {
        name: {
            **_rates(timing, work),
            "passages_per_second": round(work.passages / timing.seconds, 2),
            "docparade_is_faster_by": round(timing.seconds / ours, 2),
        }
        for name, timing in timings.items()
    }


def _rates(timing: Timing, work: Workload, reads_documents: bool = True) -> dict[str, Any]:
    rates = {
        "seconds": float(f"{timing.seconds:.4g}"),
        "documents_per_second": round(len(work.documents) / timing.seconds, 2),
        "ms_per_document": float(f"{1000 * timing.seconds / len(work.documents):.4g}"),
    }
    if reads_documents:
        rates["real_tokens_per_second"] = round(work.real_tokens / timing.seconds)
    return rates


def _comparison(name: str, timings: Mapping[str, Timing]) -> dict[str, Any]:
    """The figures of a system that depend on those of others."""
    timing = timings[name]
    figures: dict[str, Any] = {}
    of_bi_encoder = name in BI_ENCODER_SYSTEMS
    if ours := timings.get(_OURS.get(name, "docparade")):
        figures["docparade_is_faster_by"] = round(timing.seconds / ours.seconds, 2)
    if of_bi_encoder and (ranker := timings.get("docparade")):
        figures["times_as_fast_as_the_ranker"] = float(f"{ranker.seconds / timing.seconds:.3g}")
    if not of_bi_encoder and (limit := timings.get("limit")):
        figures["share_of_the_limit"] = round(limit.seconds / timing.seconds, 3)
    exact = next((other for other in _EXACT if other in timings), "") if of_bi_encoder else "docparade"
    if exact in timings and len(timing.scores) == len(timings[exact].scores):
        differences = (abs(a - b) for a, b in zip(timing.scores, timings[exact].scores, strict=True))
        figures["largest_score_difference"] = float(f"{max(differences):.1e}")
    return figures
