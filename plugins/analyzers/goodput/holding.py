"""GPUs between attempts: when pods (or a Slurm job's parts of nodes) held them, by what the store was told of them."""

from __future__ import annotations

from collections.abc import Sequence

from lens_core import PodLife

from .drafts import Draft

# The clocks of who tells of pods and of who trains differ, and a pod is noticed some seconds late.
_SKEW_SECONDS = 120.0
Span = tuple[float, float]


def spans_of_pods(pods: Sequence[PodLife], now: float) -> list[Span]:
    """The spans in which a workload's pods held GPUs, in seconds since the epoch, by their begin."""
    found = [
        (span.begin / 1000, now if span.until is None else span.until / 1000) for pod in pods for span in pod.spans
    ]
    return sorted(found)


def begin_with_pods(
    drafts: Sequence[Draft], begins: Sequence[float], ends_before: Sequence[float], spans: Sequence[Span]
) -> list[float]:
    """Let an attempt start when its first pod began to hold GPUs, if that was after the attempt before; the starts.

    `begins` are the times of the first rows, `ends_before` the ends of what ran before each attempt.
    """
    starts = []
    for draft, begun, previous in zip(drafts, begins, ends_before, strict=False):
        start = begun if draft.start is None else draft.start
        own = [begin for begin, until in spans if previous < begin < start <= until]
        if own:
            draft.start = start = min(own)
        starts.append(start)
    return starts


def held_spans(starts: Sequence[float], ends: Sequence[float], spans: Sequence[Span]) -> list[Span] | None:
    """The spans in which GPUs were held; None where nothing is known of any gap between attempts.

    A gap at whose ends no pod is known counts as held: nobody can tell.
    """
    gaps = [(end, start) for end, start in zip(ends, starts[1:], strict=False) if start > end]
    known = [gap for gap in gaps if _is_covered(gap[0], spans) and _is_covered(gap[1], spans)]
    if not known:
        return None
    return [*spans, *(gap for gap in gaps if gap not in known)]


def gpus_of_pods(pods: Sequence[PodLife], begin: float, end: float) -> int | None:
    """The GPUs of all pods that ran within an attempt; None unless those of each are known."""
    counts = [
        max(known)
        for pod in pods
        if (
            known := [
                -1 if span.gpus is None else span.gpus
                for span in pod.spans
                if span.begin / 1000 < end and (span.until is None or span.until / 1000 > begin)
            ]
        )
    ]
    return sum(counts) if counts and min(counts) > 0 else None


def _is_covered(moment: float, spans: Sequence[Span]) -> bool:
    return any(begin - _SKEW_SECONDS <= moment <= until + _SKEW_SECONDS for begin, until in spans)
