"""Progress of a workload, and the usual time of its steps, computed from the store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

import msgspec

from ..diagnosis import Progress
from ..model.queries import MetricPoint, PointQuery, RunSummary
from ..plugin_api.store import Store

# The time span for steps: no longer than is needed to know the duration of one.
_LOOK_BACK_SECONDS = (60.0, 600.0, 6 * 3600.0)
_ENOUGH_GAPS = 8
_MOST_RUNS = 16


async def progress_of(store: Store, uid: str, now: float) -> Progress | None:
    """Return when the newest step came and how long one usually takes, over all sources; None without any step."""
    detail = await store.workload(uid)
    if detail is None or not detail.runs:
        return None
    newest_ms = max(run.last_seen for run in detail.runs)
    queries = _queries(uid, detail.runs)
    best: Progress | None = None
    for seconds in _LOOK_BACK_SECONDS:
        recent: _Steps = defaultdict(dict)
        for query in queries:
            since = msgspec.structs.replace(query, start_ms=newest_ms - int(seconds * 1000))
            async for points in store.iteration_times(since):
                _remember(points, recent)
        found = [_progress_of_steps(source, steps) for (source, _, _), steps in recent.items()]
        best = max(found, key=lambda progress: progress.last_step_at, default=None)
        newest = max(recent.values(), key=lambda steps: max(steps.values()), default={})
        if len(newest) > _ENOUGH_GAPS:
            break
    return best


def _queries(uid: str, runs: Sequence[RunSummary]) -> list[PointQuery]:
    """Yield the queries to make: one for everything, or, for a job with thousands of runs, those written last."""
    seen: dict[tuple[str, str, int], int] = {}
    for run in runs:
        key = (run.data_source, run.run_id, run.attempt)
        seen[key] = max(run.last_seen, seen.get(key, run.last_seen))
    if len(seen) <= _MOST_RUNS:
        return [PointQuery(workload_uid=uid)]
    newest = sorted(seen, key=seen.__getitem__, reverse=True)[:_MOST_RUNS]
    return [
        PointQuery(workload_uid=uid, data_source=source, run_id=run_id, attempt=attempt)
        for source, run_id, attempt in newest
    ]


# By source, run and attempt: iterations and their times in ms.
_Steps: TypeAlias = dict[tuple[str, str, int], dict[int, int]]


def _remember(points: Iterable[MetricPoint], recent: _Steps) -> None:
    """Ranks that log one step are one step, made when the first of them logs it."""
    for point in points:
        if point.metric_name == "iteration":
            steps = recent[point.data_source, point.run_id, point.attempt]
            steps[point.iteration] = min(point.timestamp, steps.get(point.iteration, point.timestamp))


def _progress_of_steps(source: str, times_of: Mapping[int, int]) -> Progress:
    steps = sorted(times_of.items(), key=lambda step: step[1])
    # Steps that share a time were written together: what can be told is how far such writes are apart.
    gaps = sorted(later[1] - earlier[1] for earlier, later in pairwise(steps) if later[1] > earlier[1])
    usual = gaps[len(gaps) // 2] / 1000 if len(gaps) >= 2 else None
    return Progress(last_step_at=steps[-1][1] / 1000, usual_seconds=usual, iteration=steps[-1][0], data_source=source)
