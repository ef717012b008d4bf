"""The questions of the query routes to a store, and its answers; the field names are those of the HTTP answers."""

from __future__ import annotations

import re
from array import array
from collections.abc import AsyncIterator, Sequence
from itertools import groupby
from typing import Any, Literal

import msgspec

from .records import Origin

# Fields of a stored row that describe it; never metrics (seed 000, 3.2.1). A user's metric of such a name, or of one
# with underscores before it, is stored with one more underscore in front.
METADATA_FIELDS = frozenset({"step", "run_id", "source", "history", "created_at", "updated_at"})

# Under what `lens doctor --send` sends its row. A store answers for it as for every other, and lists it only where it
# is searched for: it is no training.
PROBE_WORKLOAD = "lens-doctor"

# Under what a store keeps measurements, as if machines were workloads: `lens-measured/node/NAME` answers like any uid,
# and is in no list.
MEASURED_PREFIX = "lens-measured/"


def measured_uid(origin: Origin) -> str:
    """The uid under which the measurements of an origin are stored: of its node, else of its workload or pod."""
    if origin.node:
        return f"{MEASURED_PREFIX}node/{origin.node}"
    if origin.workload_uid:
        return f"{MEASURED_PREFIX}workload/{origin.workload_uid}"
    pod = origin.pod_uid or (f"{origin.namespace}/{origin.pod_name}" if origin.pod_name else "")
    return f"{MEASURED_PREFIX}pod/{pod}" if pod else f"{MEASURED_PREFIX}elsewhere"


def stored_name(metric: str) -> str:
    """The key under which a metric is stored beside the row's metadata."""
    return f"_{metric}" if metric.lstrip("_") in METADATA_FIELDS else metric


def metric_name(stored: str) -> str:
    """The metric's own name, from the key under which it is stored."""
    return stored[1:] if stored.startswith("_") and stored.lstrip("_") in METADATA_FIELDS else stored


_PERCENTILE = re.compile(r"p(100|\d{1,2}(?:\.\d{1,3})?)")
Aggregate = Literal["mean", "min", "max", "sum", "count", "first", "last"]
PointField = Literal["rank", "pod_name", "pod_uid", "tags"]


class PointQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A selection of points: `metrics` None means all; times in ms, inclusive, each alone too; '' and None mean any.

    `rank` is of the stream (-1: rows of no known rank, or of all ranks together). Since 1.3.
    `data_source` may name several sources with commas between; `sources` has them one by one.

    `max_points`: at most so many of each metric, the lowest and highest of each part of its range among them.
    `last`: the last so many of each metric and run. `aggregate` with `interval_ms` or `interval_iterations`: one point
    for each interval; an Aggregate or a percentile (`p95`), several with commas between (`aggregates`).
    `is_across_runs`: of all runs together, and of the workloads `others`, too. `is_by_workload`: of the runs of each of
    these workloads together, where the run of a piece is the workload's uid; since 1.3. `is_descending`: within each
    metric the last point comes first. `fields`: what is answered beside each point. `limit`: at most so many in all;
    `cursor` is what the answer before gave as `next_cursor`. `over_ranks`: of a curve with very many ranks the store
    may answer with at most so many summaries over them (`min`, `max`, `count`, `not_finite` and `lowest_rank` in the
    extras, the mean as value) in place of points; since 1.3. `over_parts`: of a curve with
    many more points the store may answer parts of it in their place, enough for so many buckets: points that follow
    each other (`steps`, `count`, `not_finite`, `min`, `max` and `last` in the extras, the mean of the finite ones as
    value, iteration and time of the last). No iteration is in two of them, and the first and the last point of the
    curve stand for themselves; with `fields` of `rank` alone each rank is such a curve; since 1.3. A store answers
    what is not in its `point_options` with an error.
    """

    workload_uid: str
    metrics: tuple[str, ...] | None = None
    data_source: str = ""
    start_ms: int | None = None
    end_ms: int | None = None
    run_id: str | None = None
    attempt: int | None = None
    rank: int | None = None
    max_points: int | None = None
    aggregate: str | None = None
    interval_ms: int | None = None
    limit: int | None = None
    cursor: str = ""
    interval_iterations: int | None = None
    is_across_runs: bool = False
    is_by_workload: bool = False
    others: tuple[str, ...] = ()
    last: int | None = None
    is_descending: bool = False
    fields: tuple[PointField, ...] = ()
    over_ranks: int | None = None
    over_parts: int | None = None

    @property
    def sources(self) -> list[str]:
        """The data sources that are meant; empty for all. The whole text is one of them: a name may hold commas."""
        return sources_of(self.data_source)

    @property
    def aggregates(self) -> list[str]:
        """The aggregates that are meant, in the order in which they were given."""
        return (self.aggregate or "").split(",") if self.aggregate else []

    @property
    def options(self) -> set[str]:
        """The names in `Store.point_options` that the query needs."""
        needed = {
            "percentile": any(percentile_of(name) is not None for name in self.aggregates),
            "several aggregates": len(self.aggregates) > 1,
            "interval of iterations": self.interval_iterations is not None,
            "across": self.is_across_runs,
            "by workload": self.is_by_workload,
            "last": self.last is not None,
            "order": self.is_descending,
            "fields": bool(self.fields),
        }
        return {name for name, is_needed in needed.items() if is_needed}

    @property
    def extra_columns(self) -> list[str]:
        """The names of what is answered beside each point."""
        return [*(["aggregate"] if len(self.aggregates) > 1 else []), *self.fields]


def percentile_of(aggregate: str) -> float | None:
    """The percentile that an aggregate such as `p99.9` names; None for one that is no percentile."""
    matched = _PERCENTILE.fullmatch(aggregate)
    return float(matched[1]) if matched else None


def sources_of(text: str) -> list[str]:
    """List the data sources that a text names with commas between, the whole text among them; empty for all."""
    names = [name.strip() for name in text.split(",")]
    return sorted({name for name in (text, *names) if name}) if any(names) else []


class SourceCount(msgspec.Struct, frozen=True):
    """A data source and its number of rows."""

    name: str
    count: int


class SourceChoice(msgspec.Struct, frozen=True):
    """The data source that an answer has of a framework's rows, and those that repeat them and are left out."""

    echo_of: str
    data_source: str
    left_out: tuple[str, ...]


class MetricInfo(msgspec.Struct, frozen=True):
    """A metric, the sources that have it, and its number of points."""

    name: str
    data_source: list[str]
    count: int


class MetricPoint(msgspec.Struct, frozen=True, gc=False):
    """One point; `timestamp` in ms, `value` may be NaN or infinite (the API writes null and `special`)."""

    metric_name: str
    value: float
    timestamp: int
    iteration: int
    data_source: str
    run_id: str
    attempt: int


class PointColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Points of one metric of one attempt of one run, as columns of one length; `timestamps` in ms.

    `extras` are the query's `extra_columns`, each as long as the others.
    `next_cursor` is set on the last piece of an answer that a limit ended, `total_count` on the last one of any that
    has a limit: how many points there are on all pages.
    """

    metric_name: str
    data_source: str
    run_id: str
    attempt: int
    iterations: array[int]
    timestamps: array[int]
    values: array[float]
    extras: dict[str, Sequence[Any]] = {}
    next_cursor: str = ""
    total_count: int | None = None

    def __len__(self) -> int:
        return len(self.values)

    def points(self) -> list[MetricPoint]:
        """The same, point by point."""
        name, source, run, attempt = self.metric_name, self.data_source, self.run_id, self.attempt
        return [
            MetricPoint(name, value, timestamp, iteration, source, run, attempt)
            for value, timestamp, iteration in zip(self.values, self.timestamps, self.iterations, strict=True)
        ]


async def as_columns(pieces: AsyncIterator[list[MetricPoint]]) -> AsyncIterator[PointColumns]:
    """Points as columns: those in a row that differ in nothing but time, iteration and value."""
    async for piece in pieces:
        for (name, source, run, attempt), group in groupby(
            piece, lambda p: (p.metric_name, p.data_source, p.run_id, p.attempt)
        ):
            points = list(group)
            yield PointColumns(
                metric_name=name,
                data_source=source,
                run_id=run,
                attempt=attempt,
                iterations=array("q", [point.iteration for point in points]),
                timestamps=array("q", [point.timestamp for point in points]),
                values=array("d", [point.value for point in points]),
            )


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of one run of one rank of a workload. Times in ms."""

    run_id: str
    attempt: int
    data_source: str
    rank: int | None
    rows: int
    first_iteration: int | None
    last_iteration: int | None
    target_iteration: int | None
    first_seen: int
    last_seen: int
    node: str = ""
    world_size: int | None = None


class PodSpan(msgspec.Struct, frozen=True):
    """A time in which a pod held its GPUs, in ms; `until` is None while it does, `gpus` None where nobody counted."""

    begin: int
    until: int | None
    gpus: int | None = None


class PodLife(msgspec.Struct, frozen=True):
    """A pod of a workload, or a Slurm job's part of a node: when it was first and last heard of, and held GPUs."""

    uid: str
    namespace: str
    name: str
    node: str
    first_seen: int
    last_seen: int
    spans: list[PodSpan] = []


class WorkloadSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the list of workloads; `name` is the best that is known. Times in ms."""

    workload_uid: str
    name: str
    namespace: str
    cluster: str
    rows: int
    last_iteration: int | None
    first_seen: int
    last_seen: int


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of an attempt. Its speed is that of its last rows (None before a second of them), `eta` in ms.

    `progress` is a share from 0 to 1; `last_values` are the newest values of its metrics.
    """

    run_id: str
    attempt: int
    data_source: str
    rank: int | None
    iteration: int
    target_iteration: int | None
    progress: float | None
    iterations_per_second: float | None
    seconds_per_iteration: float | None
    remaining_seconds: float | None
    eta: int | None
    last_values: dict[str, float] = {}


# Rows within less than that were written at once, or their clock does not tell them apart: they have no speed.
SHORTEST_SPAN_SECONDS = 1.0


def progress_of(
    iteration: int, target: int | None, seen_ms: int, iterations: int, seconds: float
) -> dict[str, float | int | None]:
    """The figures of a Progress: `iterations` passed in the last `seconds`, the last of them at `seen_ms`.

    Of less than a second no speed and no remaining time are told.
    """
    moved = iterations > 0 and seconds >= SHORTEST_SPAN_SECONDS
    left = None if target is None else max(0, target - iteration)
    remaining = left * seconds / iterations if moved and left is not None else None
    return {
        "progress": min(1.0, iteration / target) if target else None,
        "iterations_per_second": iterations / seconds if moved else None,
        "seconds_per_iteration": seconds / iterations if moved else None,
        "remaining_seconds": remaining,
        "eta": None if remaining is None else seen_ms + round(min(remaining, 1e11) * 1000),
    }


class WorkloadPage(msgspec.Struct, frozen=True):
    """A page of workloads; `next_cursor` is '' on the last. `total` is None where counting all would take too long."""

    workloads: list[WorkloadSummary]
    next_cursor: str = ""
    total: int | None = None


class WorkloadDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One workload with all of its runs and attempts."""

    summary: WorkloadSummary
    runs: list[RunSummary]


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """One stored event; `timestamp` in ms. `rank`, `pod_name` and `node` say where it happened, as far as is known."""

    type: str
    timestamp: int
    iteration: int | None
    run_id: str
    attempt: int | None
    data_source: str
    details: dict[str, Any]
    rank: int | None = None
    pod_name: str = ""
    node: str = ""


class RunValues(msgspec.Struct, frozen=True, kw_only=True):
    """The values of the metrics of one run: the lowest and the highest finite one, and the newest, which may be NaN.

    Of several ranks that log a metric the newest is that of the lowest. Since 1.3.
    """

    last: dict[str, float]
    lowest: dict[str, float]
    highest: dict[str, float]


class News(msgspec.Struct, frozen=True, kw_only=True):
    """The points and events since a cursor, and the cursor from which to go on.

    `changed` says that rows of the past were written; `more` that there was more than fits into one answer. `left_out`
    is the number of rows that neither this answer nor the next will have. Since 1.3.
    """

    points: list[PointColumns]
    events: list[EventRow]
    cursor: str
    changed: bool = False
    more: bool = False
    left_out: int = 0
