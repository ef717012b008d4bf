"""A store in memory, for the tests of analyzers: it holds the records that it is given and answers for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..model.queries import (
    EventRow,
    MetricInfo,
    MetricPoint,
    PodLife,
    PointQuery,
    RunSummary,
    SourceCount,
    WorkloadDetail,
    WorkloadPage,
    WorkloadSummary,
)
from ..model.records import Detection, Diagnosis, Event, Evidence, Record, StepMetrics
from ..plugin_api.components import NoSettings
from ..plugin_api.sink_answers import Answer, Batch, Delivered
from ..plugin_api.store import Store
from .hosts import make_context


class MemoryStore(Store):
    """Holds rows, events, evidence, detections and diagnosis reports by workload uid; `hold` adds some. Sessions are
    numbered into attempts as they come, for each run, source and rank.
    """

    name = "memory"
    accepts = (StepMetrics, Event, Evidence, Detection, Diagnosis)

    def __init__(self, folder: Path, records: Sequence[Record] = ()) -> None:
        super().__init__(NoSettings(), make_context("memory", folder))
        self._records: list[Record] = []
        self._rows: dict[str, list[tuple[StepMetrics, int]]] = {}
        self._sessions: dict[tuple[object, ...], dict[str, int]] = {}
        self._versions: dict[str, int] = {}
        self._writes = 0
        self._pods: dict[str, list[PodLife]] = {}
        self.hold(records)

    def hold(self, records: Sequence[Record]) -> None:
        """Store records; each needs the `workload_uid` of its origin."""
        for record in records:
            if isinstance(record, StepMetrics):
                self._rows.setdefault(record.origin.workload_uid, []).append((record, self._attempt(record)))
            else:
                self._records.append(record)
            self._writes += 1
            self._versions[record.origin.workload_uid] = self._writes

    def hold_pods(self, workload_uid: str, pods: Sequence[PodLife]) -> None:
        """Say which pods a workload has, and when they held GPUs."""
        self._pods[workload_uid] = [*pods]

    async def pods(self, workload_uid: str) -> list[PodLife]:
        """The pods that were given."""
        return self._pods.get(workload_uid, [])

    async def send(self, batch: Batch) -> Answer:
        """Store a batch."""
        self.hold(batch.records)
        return Delivered()

    async def changed_workloads(self, cursor: str) -> tuple[list[str], str]:
        """The workloads of which something came after the cursor."""
        since = int(cursor or 0)
        return [uid for uid, version in self._versions.items() if version > since], str(self._writes)

    async def metric_sources(self, workload_uid: str) -> list[SourceCount]:
        """Rows of each source."""
        counts: dict[str, int] = {}
        for row, _ in self._rows.get(workload_uid, ()):
            counts[row.data_source] = counts.get(row.data_source, 0) + 1
        return [SourceCount(name, count) for name, count in sorted(counts.items())]

    async def available_metrics(self, workload_uid: str, data_source: str) -> list[MetricInfo]:
        """The metrics by name."""
        found: dict[str, dict[str, int]] = {}
        for row, _ in self._rows.get(workload_uid, ()):
            for name in row.values if data_source in ("", row.data_source) else ():
                counts = found.setdefault(name, {})
                counts[row.data_source] = counts.get(row.data_source, 0) + 1
        return [MetricInfo(name, sorted(counts), sum(counts.values())) for name, counts in sorted(found.items())]

    async def metric_points(self, query: PointQuery) -> AsyncIterator[list[MetricPoint]]:
        """The points in the order metric, run, attempt, iteration."""
        points = [
            _point(name, value, row, attempt)
            for row, attempt in self._chosen_rows(query)
            for name, value in row.values.items()
            if query.metrics is None or name in query.metrics
        ]
        yield sorted(points, key=_order)

    async def iteration_times(self, query: PointQuery) -> AsyncIterator[list[MetricPoint]]:
        """`iteration` of every row."""
        points = [
            _point("iteration", float(_iteration(row)), row, attempt) for row, attempt in self._chosen_rows(query)
        ]
        yield sorted(points, key=_order)

    async def workloads(self, *, search: str = "", limit: int = 100, cursor: str = "") -> WorkloadPage:
        """All workloads on one page, those seen last first."""
        found = [self._summary(uid) for uid in self._versions if search in uid]
        return WorkloadPage(sorted(found, key=lambda one: -one.last_seen), "", len(found))

    async def workload(self, workload_uid: str) -> WorkloadDetail | None:
        """One workload with its runs."""
        if workload_uid not in self._versions:
            return None
        return WorkloadDetail(summary=self._summary(workload_uid), runs=list(self._runs(workload_uid)))

    async def events(self, workload_uid: str, *, limit: int = 1000) -> list[EventRow]:
        """The newest events first."""
        found = [
            EventRow(
                type=event.type,
                timestamp=round((event.event_time or 0.0) * 1000),
                iteration=event.iteration,
                run_id=event.run_id,
                attempt=event.attempt,
                data_source=event.data_source,
                details=event.details,
                rank=event.origin.rank,
                pod_name=event.origin.pod_name,
                node=event.origin.node,
            )
            for event in self._records
            if isinstance(event, Event) and event.origin.workload_uid == workload_uid
        ]
        return sorted(found, key=lambda event: -event.timestamp)[:limit]

    async def evidence(self, workload_uid: str) -> list[dict[str, Any]]:
        """All evidence, newest first."""
        return [
            {"source": one.source, "run_id": one.run_id, "session": one.session, "timestamp": one.event_time or 0.0}
            | {"facts": one.facts}
            for one in reversed(self._records)
            if isinstance(one, Evidence) and one.origin.workload_uid == workload_uid
        ]

    async def detections(self, workload_uid: str) -> list[Detection]:
        """All opinions."""
        return [one for one in self._records if isinstance(one, Detection) and one.origin.workload_uid == workload_uid]

    async def diagnoses(self, workload_uid: str, *, data_type: str = "") -> list[Diagnosis]:
        """The reports, oldest first."""
        found = [one for one in self._records if isinstance(one, Diagnosis) and data_type in ("", one.data_type)]
        own = [one for one in found if one.origin.workload_uid == workload_uid]
        return sorted(own, key=lambda one: one.timestamp)

    async def version(self, workload_uid: str) -> str:
        """The number of the newest write."""
        return str(self._versions.get(workload_uid, 0))

    def _attempt(self, row: StepMetrics) -> int:
        if row.attempt is not None:
            return row.attempt
        stream = (row.origin.workload_uid, row.run_id, row.data_source, row.origin.rank)
        numbers = self._sessions.setdefault(stream, {})
        return numbers.setdefault(row.session, len(numbers) + 1)

    def _chosen_rows(self, query: PointQuery) -> Iterator[tuple[StepMetrics, int]]:
        start, end = query.start_ms or 0, query.end_ms if query.end_ms is not None else 2**62
        for row, attempt in self._rows.get(query.workload_uid, ()):
            if (
                query.rank in (None, -1 if row.origin.rank is None else row.origin.rank)
                and query.run_id in (None, row.run_id)
                and query.attempt in (None, attempt)
                and (not query.sources or row.data_source in query.sources)
                and start <= _milliseconds(row) <= end
            ):
                yield row, attempt

    def _runs(self, uid: str) -> Iterator[RunSummary]:
        parts: dict[tuple[str, int, str, int | None], list[StepMetrics]] = {}
        for row, number in self._rows.get(uid, ()):
            parts.setdefault((row.run_id, number, row.data_source, row.origin.rank), []).append(row)
        for (run_id, attempt, source, rank), rows in parts.items():
            times = [_milliseconds(row) for row in rows]
            yield RunSummary(
                run_id=run_id,
                attempt=attempt,
                data_source=source,
                rank=rank,
                rows=len(rows),
                first_iteration=min(map(_iteration, rows)),
                last_iteration=max(map(_iteration, rows)),
                target_iteration=None,
                first_seen=min(times),
                last_seen=max(times),
                node=next((row.origin.node for row in rows if row.origin.node), ""),
                world_size=next((row.origin.world_size for row in rows if row.origin.world_size), None),
            )

    def _summary(self, uid: str) -> WorkloadSummary:
        rows = [row for row, _ in self._rows.get(uid, ())]
        times = [_milliseconds(row) for row in rows] or [0]
        return WorkloadSummary(
            workload_uid=uid,
            name=uid,
            namespace="",
            cluster="default",
            rows=len(rows),
            last_iteration=max(map(_iteration, rows), default=None),
            first_seen=min(times),
            last_seen=max(times),
        )


def _iteration(row: StepMetrics) -> int:
    return row.row_step if row.iteration is None else row.iteration


def _milliseconds(row: StepMetrics) -> int:
    return round((row.event_time or 0.0) * 1000)


def _point(name: str, value: float, row: StepMetrics, attempt: int) -> MetricPoint:
    return MetricPoint(name, value, _milliseconds(row), _iteration(row), row.data_source, row.run_id, attempt)


def _order(point: MetricPoint) -> tuple[str, str, int, int]:
    return point.metric_name, point.run_id, point.attempt, point.iteration
