"""What the query routes ask a store, and what it answers; the field names are those of the HTTP answers."""

from __future__ import annotations

from typing import Any

import msgspec

# Fields of a stored row that describe it; never metrics (seed 000, 3.2.1). A user's metric of such a name, or of one
# with underscores before it, is stored with one more underscore in front.
METADATA_FIELDS = frozenset({"step", "run_id", "source", "history", "created_at", "updated_at"})


def stored_name(metric: str) -> str:
    """The key under which a metric is stored beside the row's metadata."""
    return f"_{metric}" if metric.lstrip("_") in METADATA_FIELDS else metric


def metric_name(stored: str) -> str:
    """The metric's own name, from the key under which it is stored."""
    return stored[1:] if stored.startswith("_") and stored.lstrip("_") in METADATA_FIELDS else stored


class PointQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which points: `metrics` None means all; times in ms, inclusive, each alone too; '' and None mean any."""

    workload_uid: str
    metrics: tuple[str, ...] | None = None
    data_source: str = ""
    start_ms: int | None = None
    end_ms: int | None = None
    run_id: str | None = None
    attempt: int | None = None


class SourceCount(msgspec.Struct, frozen=True):
    """A data source and its number of rows."""

    name: str
    count: int


class MetricInfo(msgspec.Struct, frozen=True):
    """A metric, the sources that have it, and its number of points."""

    name: str
    data_source: list[str]
    count: int


class MetricPoint(msgspec.Struct, frozen=True):
    """One point; `timestamp` in ms, `value` may be NaN or infinite (the API writes null and `special`)."""

    metric_name: str
    value: float
    timestamp: int
    iteration: int
    data_source: str
    run_id: str
    attempt: int


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


class WorkloadPage(msgspec.Struct, frozen=True):
    """A page of workloads; `next_cursor` is '' on the last."""

    workloads: list[WorkloadSummary]
    next_cursor: str = ""


class WorkloadDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One workload with all of its runs and attempts."""

    summary: WorkloadSummary
    runs: list[RunSummary]


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """One stored event; `timestamp` in ms."""

    type: str
    timestamp: int
    iteration: int | None
    run_id: str
    attempt: int | None
    data_source: str
    details: dict[str, Any]
