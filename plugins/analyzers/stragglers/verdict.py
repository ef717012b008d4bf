"""Judges windows of times per rank: a straggler, a slow node, imbalance, uneven data, slow input, or unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from .statistics import Slow, is_spread, least_waiting, slower_than_before, slower_than_others

Kind = Literal["none", "straggler", "imbalance", "uneven_data", "input", "unknown"]
WINDOWS = 5
_NEEDED = 3
_NODE_SHARE = 0.75
_IMBALANCE_SHARE = 0.25
_INPUT_SHARE = 0.80
_GONE_RATIO = 1.05
ADVICE = (
    "step times cannot tell in synchronous training: every rank waits for the slowest. Switch on what is local to a "
    "rank: forward and backward times or data loading times in the rows of each rank, Megatron's "
    "--log-straggler, NVRx, the xpu_timer collector, or all_ranks of the stacks collector"
)


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The medians of each rank in one window (50 logged intervals, or 5 minutes), in any unit but one.

    `compute` is time that a rank needs by itself, `waiting` time in collectives or backward, where it waits for others,
    `data` waiting for input, `step` the whole step.
    """

    compute: Mapping[int, float] = {}
    waiting: Mapping[int, float] = {}
    data: Mapping[int, float] = {}
    step: Mapping[int, float] = {}


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The node and the pipeline stage of each rank, as far as they are known."""

    node: Mapping[int, str] = {}
    stage: Mapping[int, int] = {}


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement: `ranks` and `node` that are slow, how much slower, which rule found them, the cost as a share.

    `cause` is why, where a line, a stack or the GPU itself says it.
    """

    kind: Kind
    ranks: list[int] = []
    node: str = ""
    stage: int | None = None
    ratio: float | None = None
    z: float | None = None
    score: float | None = None
    is_critical: bool = False
    rule: str = ""
    cost_share: float | None = None
    windows: int = 0
    advice: str = ""
    cause: str = ""


def judge(windows: Sequence[Window], layout: Layout | None = None) -> Verdict:
    """Judge the newest five windows, the oldest first."""
    layout = layout or Layout()
    seen = len(windows)
    recent = list(windows[-WINDOWS:])
    by_waiting = _by_waiting(recent)
    with_compute = [window for window in recent if len(window.compute) >= 3]
    if not with_compute:
        if by_waiting is not None:
            return by_waiting
        return Verdict(kind="unknown", advice=ADVICE, windows=seen)
    flagged = [_flagged(window, windows, layout) for window in with_compute]
    counts = Counter(rank for window in flagged for rank in window)
    needed = min(_NEEDED, len(with_compute))
    lasting = {rank for rank, count in counts.items() if count >= needed}
    if lasting:
        return _name(lasting, flagged, with_compute, layout)
    if by_waiting is not None:
        return by_waiting
    if _changes(with_compute):
        return Verdict(kind="uneven_data", windows=len(with_compute), rule="the slowest rank changes")
    if sum(is_spread(window.compute) for window in with_compute) >= needed:
        return Verdict(kind="imbalance", windows=len(with_compute), rule="p90/p10 of compute > 1.25")
    return Verdict(kind="none", windows=len(with_compute))


def is_gone(windows: Sequence[Window], rank: int) -> bool:
    """Whether a rank that was slow has been like the others for five windows."""
    recent = [window for window in windows[-WINDOWS:] if rank in window.compute]
    if len(recent) < WINDOWS:
        return False
    return all(window.compute[rank] / float(np.median([*window.compute.values()])) < _GONE_RATIO for window in recent)


def _flagged(window: Window, windows: Sequence[Window], layout: Layout) -> dict[int, Slow]:
    """The candidates of one window: against the other ranks, or against what they were themselves."""
    found = {slow.rank: slow for slow in slower_than_others(window.compute)}
    if not found:
        centres = [float(np.median([*one.compute.values()])) for one in windows if one.compute]
        best = {rank: min(one.compute[rank] for one in windows if rank in one.compute) for rank in window.compute}
        found = {slow.rank: slow for slow in slower_than_before(window.compute, best, min(centres))}
    return found


def _name(
    lasting: set[int], flagged: Sequence[Mapping[int, Slow]], windows: Sequence[Window], layout: Layout
) -> Verdict:
    """Name what lasts: a stage, a node, or ranks."""
    ranks = sorted(lasting)
    newest = next(found for found in reversed(flagged) if lasting & set(found))
    worst = max((found for found in newest.values() if found.rank in lasting), key=lambda slow: slow.ratio)
    window = windows[-1]
    found = Verdict(
        kind="straggler",
        ranks=ranks,
        ratio=worst.ratio,
        z=None if np.isnan(worst.z) else worst.z,
        rule="against its own best" if np.isnan(worst.z) else "against the other ranks",
        windows=len(windows),
        cost_share=_cost(window.compute, lasting),
    )
    named = name_ranks(found, lasting, layout, len(window.compute))
    is_input = named.kind == "straggler" and len(ranks) == 1 and _is_input(ranks[0], window)
    return msgspec.structs.replace(named, kind="input") if is_input else named


def name_ranks(found: Verdict, lasting: set[int], layout: Layout, count: int) -> Verdict:
    """Name what slow ranks are together: a stage, a node, an imbalance among `count` ranks, or single ranks."""
    ranks = sorted(lasting)
    stages = {layout.stage.get(rank) for rank in ranks}
    stage = stages.pop() if len(stages) == 1 else None
    if stage is not None and {rank for rank, of in layout.stage.items() if of == stage} == lasting and len(ranks) > 1:
        return msgspec.structs.replace(found, kind="imbalance", stage=stage)
    node = _node_of(lasting, layout)
    if node:
        return msgspec.structs.replace(found, node=node)
    if len(ranks) >= _IMBALANCE_SHARE * count > 0 and len(ranks) > 1:
        return msgspec.structs.replace(found, kind="imbalance")
    return msgspec.structs.replace(found, node=layout.node.get(ranks[0], "") if len(ranks) == 1 else "")


def _node_of(lasting: set[int], layout: Layout) -> str:
    """The node whose ranks are slow, if there are several on it and nearly all of them are."""
    for node in sorted({layout.node[rank] for rank in lasting if rank in layout.node}):
        own = {rank for rank, of in layout.node.items() if of == node}
        if len(own) > 1 and lasting <= own and len(lasting) >= _NODE_SHARE * len(own):
            return node
    return ""


def _cost(compute: Mapping[int, float], lasting: set[int]) -> float | None:
    """Return the share of compute that all others wait: the slowest over the next group's slowest."""
    others = [value for rank, value in compute.items() if rank not in lasting]
    slow = [value for rank, value in compute.items() if rank in lasting]
    if not others or not slow:
        return None
    centre = float(np.median([*compute.values()]))
    return max(0.0, (max(slow) - max(others)) / centre)


def _is_input(rank: int, window: Window) -> bool:
    """Whether a rank's excess is explained by its waiting for data."""
    if rank not in window.data:
        return False
    compute = window.compute[rank] - float(np.median([*window.compute.values()]))
    data = window.data[rank] - float(np.median([*window.data.values()]))
    return data >= _INPUT_SHARE * compute > 0


def _changes(windows: Sequence[Window]) -> bool:
    """Whether ranks spread by more than noise in most windows, and each time it is another that is slowest."""
    slowest: Counter[int] = Counter()
    spread = 0
    for window in windows:
        centre = float(np.median([*window.compute.values()]))
        rank = max(window.compute, key=lambda one: window.compute[one])
        if centre > 0 and window.compute[rank] / centre >= 1.10:
            spread += 1
            slowest[rank] += 1
    return spread >= _NEEDED and max(slowest.values()) < _NEEDED


def _by_waiting(windows: Sequence[Window]) -> Verdict | None:
    """The rank for which the others wait, where it is the same in most windows."""
    found = []
    for window in windows:
        steps = [*window.step.values()]
        waits = least_waiting(window.waiting, float(np.median(steps)) if steps else 0.0)
        if waits is not None:
            found.append(waits)
    judged = sum(1 for window in windows if len(window.waiting) >= 2)
    counts = Counter(waits.rank for waits in found)
    if not counts or counts.most_common(1)[0][1] < min(_NEEDED, judged):
        return None
    rank = counts.most_common(1)[0][0]
    newest = [waits for waits in found if waits.rank == rank][-1]
    return Verdict(
        kind="straggler",
        ranks=[rank],
        score=newest.score,
        is_critical=newest.is_critical,
        rule="waits least for the others",
        cost_share=newest.score,
        windows=judged,
    )
