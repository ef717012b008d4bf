"""Reads all that tells slow ranks of a job, and judges it: the surest signal first, and why if something says so.

Times that ranks log of themselves come first, then XPU timer's kernels, then the log's own reports, then stacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from lens_core import Diagnosis, EventRow, Store

from ...device_errors import DEVICE_ERROR
from .job import RankTimes, read_ranks
from .reports import judge_reports
from .stack_samples import DATA_TYPE as STACKS
from .stack_samples import judge_stacks
from .stages import stages_of
from .timers import read_spread, read_timers
from .verdict import ADVICE, Layout, Verdict, Window, judge
from .xpu_timer import DATA_TYPE as XPU_TIMER
from .xpu_timer import windows_of_reports

_MOST_EVENTS = 2_000
# A GPU that was throttled so long before the newest report says nothing of it.
_THROTTLED_MS = 3_600_000
Source = Literal["rows", "xpu_timer", "log", "stacks", ""]


class Signals(msgspec.Struct, frozen=True, kw_only=True):
    """The signals of one job; `times` is None where no two ranks log rows. `stages` are those of its pipeline.

    `spread` is what its log says of the slowest rank where it does not say which it is.
    """

    times: RankTimes | None
    events: Sequence[EventRow] = ()
    xpu_timer: Sequence[Diagnosis] = ()
    stacks: Sequence[Diagnosis] = ()
    stages: dict[int, int] = {}
    spread: str = ""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict, the signal that it rests on, the windows where it rests on times, and the node of each rank."""

    verdict: Verdict
    source: Source = ""
    windows: Sequence[Window] = ()
    nodes: dict[int, str] = {}


async def read_signals(store: Store, uid: str) -> Signals:
    """Everything that the store has of a job's ranks."""
    events = sorted(await store.events(uid, limit=_MOST_EVENTS), key=lambda event: event.timestamp)
    detail = await store.workload(uid)
    runs = detail.runs if detail is not None else []
    times = await read_ranks(store, uid)
    spread = ""
    if times is None or not times.windows:
        times = await read_timers(store, uid, runs) or times
        spread = await read_spread(store, uid, runs) if times is None or not times.windows else ""
    stages: dict[int, int] = {}
    if times is not None and times.windows:
        ranks = sorted({rank for window in times.windows for rank in window.compute})
        stages = stages_of(await store.evidence(uid), ranks, times.world_size)
    return Signals(
        times=times,
        stages=stages,
        spread=spread,
        events=events,
        xpu_timer=await store.diagnoses(uid, data_type=XPU_TIMER),
        stacks=await store.diagnoses(uid, data_type=STACKS),
    )


def judge_signals(signals: Signals) -> Judgement:
    """Judge each signal in its turn: the first that names somebody, else the first that clears everybody."""
    times = signals.times
    nodes = {event.rank: event.node for event in signals.events if event.rank is not None and event.node}
    if times is not None:
        nodes |= times.nodes
    layout = Layout(node=nodes, stage=signals.stages)
    judged: list[Judgement] = []

    def append_verdict(verdict: Verdict | None, source: Source, windows: Sequence[Window] = ()) -> None:
        if verdict is not None and verdict.kind != "unknown":
            judged.append(Judgement(verdict=verdict, source=source, windows=windows, nodes=nodes))

    if times is not None:
        append_verdict(judge(times.windows, layout), "rows", times.windows)
    kernels = windows_of_reports(signals.xpu_timer)
    append_verdict(judge(kernels, layout) if kernels else None, "xpu_timer", kernels)
    append_verdict(judge_reports(signals.events, layout), "log")
    append_verdict(judge_stacks(signals.stacks, layout), "stacks")
    found = next((one for one in judged if one.verdict.kind != "none"), judged[0] if judged else None)
    if found is None:
        own = "" if times is not None else "no two ranks of this job log rows; "
        own = f"{signals.spread}; {own}" if signals.spread else own
        unknown = Verdict(kind="unknown", advice=own + ADVICE, windows=len(times.windows) if times is not None else 0)
        return Judgement(verdict=unknown, windows=times.windows if times is not None else (), nodes=nodes)
    return msgspec.structs.replace(found, verdict=_explain(found.verdict, signals.events, nodes))


def _explain(verdict: Verdict, events: Sequence[EventRow], nodes: Mapping[int, str]) -> Verdict:
    """Add why a rank is slow where its GPU was throttled, or a GPU or link of its node has errors."""
    if verdict.kind != "straggler" or verdict.cause:
        return verdict
    newest = max((event.timestamp for event in events), default=0)
    for event in reversed(events):
        is_recent = event.type == "gpu_throttled" and event.timestamp >= newest - _THROTTLED_MS
        if is_recent and (event.rank in verdict.ranks or (event.rank is None and event.node == verdict.node != "")):
            reason, gpu = event.details.get("reason", ""), event.details.get("gpu", "")
            return msgspec.structs.replace(verdict, cause=f"GPU {gpu} is throttled: {reason}")
    own = {nodes[rank] for rank in verdict.ranks if nodes.get(rank)} | ({verdict.node} if verdict.node else set())
    for event in reversed(events):
        is_recent = event.type == DEVICE_ERROR and event.timestamp >= newest - _THROTTLED_MS
        node = event.node or str(event.details.get("node", ""))
        if is_recent and node in own:
            return msgspec.structs.replace(verdict, cause=f"{event.details.get('error', '')} on {node}")
    return verdict
