"""Summaries of workloads for the lines of the list: framework, loss, throughput, memory, time left.

Made of the ordinary questions to the store, kept until the store's version of the workload changes.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec

from ...detection.verdict import fuse
from ...model.event_types import DIAGNOSIS_EVENTS
from ...model.queries import (
    SHORTEST_SPAN_SECONDS,
    MetricInfo,
    MetricPoint,
    PointQuery,
    Progress,
    RunSummary,
    WorkloadDetail,
)
from ...plugin_api.overview import line_of
from ...plugin_api.store import Store
from ..attempts import AttemptEnd, describe_attempts
from ..detection import all_opinions
from ..diagnosis import hang_of, reports_of
from ..not_finite import find_not_finite, with_place
from ..point_text import special_name
from ..progress import progress_of
from ..state import ApiState
from ..verdict import VerdictFacts, WorkloadVerdict
from .tracker_links import TrackerLink, tracker_links

SPARK_POINTS = 60
MAX_KEPT = 5000
AT_ONCE = 4
MOST_EVENTS = 1000

# The first that a workload has is shown; patterns over names in lower case.
LOSS = ("^lm_loss$", "^loss$", "^train[/_]loss$", "^train.*loss$", "^(?!val|eval|test).*loss$", "loss$")
THROUGHPUT = (
    "^tokens_per_gpu$",
    "tokens?_?per_?s",
    "^samples_per_second$",
    "samples?_?per_?s",
    "throughput",
    "^tflops",
    "it/s$|iterations?_per_s",
)
MEMORY = ("^mem_usage$", "mem(ory)?.*(used|alloc|usage|reserved)", "^mem_usage_ratio$", "^mem|[/_]mem")
NO_MEMORY = re.compile("free|total|percent.*cpu")


class TrainingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of one workload. `loss` and `spark` are of `loss_name`, with texts where JSON has no number."""

    workload_uid: str
    wrapper_framework: str | None = None
    base_framework: str | None = None
    confidence: float = 0.0
    detection_status: str = "unknown"
    loss_name: str | None = None
    loss: float | str | None = None
    spark: Sequence[float | str] = ()
    throughput_name: str | None = None
    throughput: float | None = None
    memory_name: str | None = None
    memory: float | None = None
    runs: int = 0
    iterations_per_second: float | None = None
    target_iteration: int | None = None
    eta_seconds: float | None = None
    links: Sequence[TrackerLink] = ()
    verdict: WorkloadVerdict | None = None


class TrainingSummaries:
    """Computes and caches the summaries of workloads."""

    def __init__(self, state: ApiState) -> None:
        self._state = state
        self._kept: OrderedDict[str, tuple[str, TrainingSummary, VerdictFacts | None]] = OrderedDict()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def summarise(self, uids: Sequence[str]) -> list[TrainingSummary]:
        """Return the summaries in the order of `uids`."""
        progress = await self._state.required_store().newest_progress(uids)
        summaries = await asyncio.gather(*(self._summarise_one(uid) for uid in uids))
        return [with_progress(summary, progress.get(summary.workload_uid)) for summary in summaries]

    async def _summarise_one(self, uid: str) -> TrainingSummary:
        summary, facts = await self._known(uid)
        if facts is None:
            return summary
        now = time.time()
        if facts.line.event == "stalled":  # what is known of a hang changes with the time, too
            store = self._state.required_store()
            diagnoses, progress = await reports_of(store, uid), await progress_of(store, uid, now)
            facts = msgspec.structs.replace(facts, hang=hang_of(now, diagnoses, facts.events, progress))
        return msgspec.structs.replace(summary, verdict=facts.verdict(round(now * 1000)))

    async def verdict(self, uid: str) -> WorkloadVerdict | None:
        """Return the verdict on a workload; None when nobody knows it."""
        return (await self._summarise_one(uid)).verdict

    async def attempts(self, uid: str) -> list[AttemptEnd]:
        """Return the attempts of a workload with their ends; none of one that nobody knows."""
        _, facts = await self._known(uid)
        return [] if facts is None else describe_attempts(facts.runs, facts.events)

    async def _known(self, uid: str) -> tuple[TrainingSummary, VerdictFacts | None]:
        store = self._state.required_store()
        async with self._turns:
            version = await store.version(uid)
            kept = self._kept.get(uid)
            if kept is not None and kept[0] == version:
                return kept[1:]
            found = await self._compute(store, uid)
        self._kept[uid] = (version, *found)
        self._kept.move_to_end(uid)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return found

    async def _compute(self, store: Store, uid: str) -> tuple[TrainingSummary, VerdictFacts | None]:
        detail = await store.workload(uid)
        metrics = await store.available_metrics(uid, "")
        evidence = await store.evidence(uid)
        verdict = fuse(await all_opinions(store, uid, evidence, self._state.rules), self._state.rules.relations)
        runs = detail.runs if detail else []
        speed, target, eta = time_left(runs)
        values, newest = await _metric_values(store, uid, metrics, runs)
        summary = TrainingSummary(
            workload_uid=uid,
            wrapper_framework=verdict.wrapper_framework or None,
            base_framework=verdict.base_framework or None,
            confidence=verdict.confidence,
            detection_status=verdict.status,
            runs=len({(run.run_id, run.attempt) for run in runs}),
            iterations_per_second=speed,
            target_iteration=target,
            eta_seconds=eta,
            links=tracker_links(evidence),
            **values,
        )
        return summary, None if detail is None else await _verdict_facts(store, detail, summary, newest)


async def _verdict_facts(
    store: Store, detail: WorkloadDetail, summary: TrainingSummary, newest: MetricPoint | None
) -> VerdictFacts:
    uid = summary.workload_uid
    found = await store.events(uid, limit=MOST_EVENTS)
    not_finite = None
    if newest is not None:
        ranks = (await store.not_finite_ranks([uid])).get(uid, {}).get(newest.metric_name, [])
        not_finite = await find_not_finite(store, uid, newest, detail.runs, ranks)
        not_finite = None if not_finite is None else with_place(not_finite, found)
    events = [event for event in found if event.type in DIAGNOSIS_EVENTS]
    line = line_of(detail.summary, detail.runs, events)
    return VerdictFacts(
        line=line,
        runs=detail.runs,
        events=events,
        loss_name=summary.loss_name,
        loss=summary.loss,
        not_finite=not_finite,
    )


async def _metric_values(
    store: Store, uid: str, metrics: Sequence[MetricInfo], runs: Sequence[RunSummary]
) -> tuple[dict[str, Any], MetricPoint | None]:
    """The values of a summary, and the newest point of the loss."""
    names = [metric.name for metric in metrics]
    loss, speed, memory = (
        choose_name(names, LOSS),
        choose_name(names, THROUGHPUT),
        choose_name(names, MEMORY, NO_MEMORY),
    )
    wanted = tuple(dict.fromkeys(name for name in (loss, speed, memory) if name is not None))
    if not wanted:
        return {}, None
    points = await _newest_points(store, PointQuery(workload_uid=uid, metrics=wanted, max_points=SPARK_POINTS), runs)
    newest = points[loss][-1] if loss and points[loss] else None
    values = {
        "loss_name": loss,
        "loss": None if newest is None else _value_or_text(newest.value),
        "spark": spark(points[loss]) if loss else [],
        "throughput_name": speed,
        "throughput": _last(points[speed]) if speed else None,
        "memory_name": memory,
        "memory": _last(points[memory]) if memory else None,
    }
    return values, newest


async def _newest_points(store: Store, query: PointQuery, runs: Sequence[RunSummary]) -> dict[str, list[MetricPoint]]:
    """The points of every metric in the attempt that logged it last, of its lowest rank that has them.

    Asked of the attempt that logged last of all, because all attempts would share the points; what that one does not
    log (a log's attempt beside wandb's) is asked of any. All ranks are asked for what the lowest one does not log.
    """
    points: dict[str, list[MetricPoint]] = {name: [] for name in query.metrics or ()}
    for narrowed in _narrowed(runs):
        missing = tuple(name for name, found in points.items() if not found)
        if missing:
            await _collect_points(store, msgspec.structs.replace(query, metrics=missing, **narrowed), points)
    return {name: newest_attempt(found) for name, found in points.items()}


def _narrowed(runs: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """The selections of points to try, the narrowest first: the newest attempt's lowest rank, all of it, anything."""
    found: list[dict[str, Any]] = [{}]
    attempts = {(run.data_source, run.run_id, run.attempt) for run in runs}
    if not attempts:
        return found
    newest = max(runs, key=lambda run: run.last_seen)
    attempt = (newest.data_source, newest.run_id, newest.attempt)
    which = {"data_source": newest.data_source, "run_id": newest.run_id, "attempt": newest.attempt}
    if len(attempts) > 1:
        found.append(which)
    ranks = {run.rank for run in runs if (run.data_source, run.run_id, run.attempt) == attempt}
    numbered = [rank for rank in ranks if rank is not None and rank >= 0]
    if len(ranks) > 1 and numbered:
        found.append({**which, "rank": min(numbered)})
    return found[::-1]


async def _collect_points(store: Store, query: PointQuery, points: dict[str, list[MetricPoint]]) -> None:
    async for piece in store.metric_points(query):
        for point in piece:
            points[point.metric_name].append(point)


def choose_name(names: Sequence[str], patterns: Sequence[str], without: re.Pattern[str] | None = None) -> str | None:
    """The name that the first matching pattern finds; None when no pattern finds one."""
    usable = [name for name in names if without is None or not without.search(name.lower())]
    for pattern in patterns:
        found = sorted((name for name in usable if re.search(pattern, name.lower())), key=len)
        if found:
            return found[0]
    return None


def newest_attempt(points: Sequence[MetricPoint]) -> list[MetricPoint]:
    """The points of the run and attempt that logged last, in the order of their time."""
    if not points:
        return []
    newest = max(points, key=lambda point: point.timestamp)
    which = (newest.data_source, newest.run_id, newest.attempt)
    mine = [point for point in points if (point.data_source, point.run_id, point.attempt) == which]
    return sorted(mine, key=lambda point: (point.timestamp, point.iteration))


def spark(points: Sequence[MetricPoint]) -> list[float | str]:
    """At most SPARK_POINTS values in their order; of each share the one that is farthest from the share's mean."""
    count = min(SPARK_POINTS, len(points))
    values = [point.value for point in points]
    shares = [values[place * len(values) // count : (place + 1) * len(values) // count] for place in range(count)]
    return [_telling(share) for share in shares]


def _telling(share: Sequence[float]) -> float | str:
    for value in share:
        if not math.isfinite(value):
            return special_name(value)
    mean = sum(value / len(share) for value in share)  # a sum of large values would be infinite
    found = max(share, key=lambda value: abs(value / 2 - mean / 2))
    rounded = float(f"{found:.5g}")
    return rounded if math.isfinite(rounded) else found


def _value_or_text(value: float) -> float | str:
    """Return the newest value; a loss that is no number any more must not look like the last one that was."""
    return value if math.isfinite(value) else special_name(value)


def _last(points: Sequence[MetricPoint]) -> float | None:
    return next((point.value for point in reversed(points) if math.isfinite(point.value)), None)


def with_progress(summary: TrainingSummary, progress: Progress | None) -> TrainingSummary:
    """The pace of the last rows, where the store knows it, in the place of the whole attempt's."""
    if progress is None:
        return summary
    return msgspec.structs.replace(
        summary,
        iterations_per_second=progress.iterations_per_second or summary.iterations_per_second,
        target_iteration=progress.target_iteration or summary.target_iteration,
        eta_seconds=progress.remaining_seconds if progress.remaining_seconds is not None else summary.eta_seconds,
    )


def time_left(runs: Sequence[RunSummary]) -> tuple[float | None, int | None, float | None]:
    """Iterations per second of the newest attempt, the iteration where it ends, and the seconds until then."""
    moving = [run for run in runs if run.first_iteration is not None and run.last_iteration is not None]
    if not moving:
        return None, None, None
    newest = max(moving, key=lambda run: run.last_seen)
    target = max((run.target_iteration for run in runs if run.target_iteration is not None), default=None)
    seconds = (newest.last_seen - newest.first_seen) / 1000
    done = (newest.last_iteration or 0) - (newest.first_iteration or 0)
    if seconds < SHORTEST_SPAN_SECONDS or done <= 0:
        return None, target, None
    speed = done / seconds
    left = None if target is None else max(0, target - (newest.last_iteration or 0)) / speed
    return speed, target, left
