"""The store's half of the plugin: each question of the API, handed to the module that answers it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from lens_core import (
    Detection,
    Diagnosis,
    EventRow,
    MetricInfo,
    MetricPoint,
    News,
    PodLife,
    PointColumns,
    PointQuery,
    Progress,
    Record,
    RunValues,
    SourceCount,
    Store,
    WorkloadDetail,
    WorkloadPage,
    WorkloadSummary,
)
from lens_core.plugin_api.overview import Overview, OverviewPage
from lens_core.plugin_api.store import SourceChoice

from . import exporting, listing, news, pace, points, upkeep
from .compacting import Compactor
from .database import Database
from .facts import read_diagnoses
from .left_out import left_out
from .overview import overview, overviews_of
from .point_store import PointStore
from .run_values import not_finite_ranks, repeated_runs, run_values


class Asking(Store):
    """Answers the query routes out of a database; the sink that inherits brings it."""

    point_options = frozenset(
        {
            "percentile",
            "several aggregates",
            "interval of iterations",
            "across",
            "by workload",
            "last",
            "order",
            "fields",
        }
    )
    _database: Database
    _compactor: Compactor
    _points: PointStore

    async def metric_sources(self, workload_uid: str) -> list[SourceCount]:
        """The data sources of a workload and their number of rows."""
        async with self._database.reading() as connection:
            return await listing.metric_sources(connection, workload_uid)

    async def source_choices(self, query: PointQuery) -> Sequence[SourceChoice]:
        """The choices among data sources that repeat each other."""
        async with self._database.reading() as connection:
            return (await left_out(connection, query)).choices

    async def available_metrics(self, workload_uid: str, data_source: str) -> list[MetricInfo]:
        """The metrics of a workload, from the catalogue."""
        async with self._database.reading() as connection:
            return await listing.available_metrics(connection, workload_uid, data_source)

    async def metric_points(self, query: PointQuery) -> AsyncIterator[list[MetricPoint]]:
        """The points of a query, in pieces."""
        async with aclosing(
            points.metric_columns(self._database, self._points, query, self._compactor.record_readers)
        ) as pieces:
            async for piece in pieces:
                yield piece.points()

    async def iteration_times(self, query: PointQuery) -> AsyncIterator[list[MetricPoint]]:
        """Return when each step was reached, in pieces."""
        async with aclosing(
            points.iteration_columns(self._database, self._points, query, self._compactor.record_readers)
        ) as pieces:
            async for piece in pieces:
                yield piece.points()

    def metric_columns(self, query: PointQuery) -> AsyncGenerator[PointColumns, None]:
        """The points of a query as columns, in pieces."""
        return points.metric_columns(self._database, self._points, query, self._compactor.record_readers)

    def iteration_columns(self, query: PointQuery) -> AsyncGenerator[PointColumns, None]:
        """Return when each step was reached, as columns."""
        return points.iteration_columns(self._database, self._points, query, self._compactor.record_readers)

    async def news(self, query: PointQuery, cursor: str) -> News:
        """Return the news since the cursor. Raises BadRequest for a foreign cursor."""
        async with self._database.reading() as connection, connection.transaction():
            return await news.news(connection, self._points, query, cursor)

    async def changed_workloads(self, cursor: str) -> tuple[list[str], str]:
        """The workloads that something was written about since a moment. Raises BadRequest for a cursor of another."""
        async with self._database.reading() as connection:
            return await listing.changed_workloads(connection, cursor)

    async def newest_progress(self, workload_uids: Sequence[str]) -> dict[str, Progress]:
        """Return the progress of the attempt that each workload logged last."""
        async with self._database.reading() as connection:
            return await pace.newest_progress(connection, self._points, workload_uids)

    async def run_progress(self, query: PointQuery) -> list[Progress]:
        """Return the progress of each attempt of a query's runs."""
        async with self._database.reading() as connection:
            return await pace.run_progress(connection, self._points, query)

    async def stats(self) -> dict[str, Any]:
        """Sizes, counts, and how much is in blocks."""
        async with self._database.reading() as connection:
            return {**await upkeep.database_stats(connection), **await self._points.stats()}

    def export_records(self, workload_uid: str = "") -> AsyncGenerator[list[Record], None]:
        """Everything, or what belongs to one workload, as records."""
        return exporting.export_records(self._database, self._points, workload_uid)

    async def workloads(self, *, search: str = "", limit: int = 100, cursor: str = "") -> WorkloadPage:
        """The workloads, those seen last first. Raises BadRequest for a cursor that this did not give."""
        async with self._database.reading() as connection:
            return await listing.list_workloads(connection, search, limit, cursor)

    async def overview(self, *, search: str, limit: int, cursor: str) -> OverviewPage:
        """The list for the page: what needs attention first. Raises BadRequest for a cursor that this did not give."""
        async with self._database.reading() as connection:
            return await overview(connection, search, limit, cursor)

    async def overviews_of(self, summaries: Sequence[WorkloadSummary]) -> list[Overview]:
        """The lines of some workloads, with what tells their state."""
        async with self._database.reading() as connection:
            return await overviews_of(connection, summaries)

    async def workload(self, workload_uid: str) -> WorkloadDetail | None:
        """One workload with its runs and attempts."""
        async with self._database.reading() as connection:
            return (await listing.workloads_of(connection, [workload_uid])).get(workload_uid)

    async def workloads_of(self, workload_uids: Sequence[str]) -> dict[str, WorkloadDetail]:
        """Those of several workloads that are known, with their runs and attempts."""
        async with self._database.reading() as connection:
            return await listing.workloads_of(connection, workload_uids)

    async def run_values(self, workload_uids: Sequence[str], *, most: int) -> dict[str, dict[str, RunValues]]:
        """The kept values of runs; workloads of which some are not known are missing."""
        async with self._database.reading() as connection:
            return await run_values(connection, workload_uids, most)

    async def repeated_runs(self, workload_uids: Sequence[str]) -> dict[str, dict[str, str]]:
        """The runs that tell of the training of another run: what several trackers, a log or a collector repeat."""
        async with self._database.reading() as connection:
            return await repeated_runs(connection, workload_uids)

    async def not_finite_ranks(self, workload_uids: Sequence[str]) -> dict[str, dict[str, list[int]]]:
        """The ranks of newest attempts whose newest value is not finite, by metric."""
        async with self._database.reading() as connection:
            return await not_finite_ranks(connection, workload_uids)

    async def events(self, workload_uid: str, *, limit: int = 1000) -> list[EventRow]:
        """Return the events of a workload, newest first."""
        async with self._database.reading() as connection:
            return (await listing.list_events(connection, [workload_uid], limit))[workload_uid]

    async def events_of(self, workload_uids: Sequence[str], *, limit: int = 1000) -> dict[str, list[EventRow]]:
        """The events of several workloads, newest first."""
        async with self._database.reading() as connection:
            return await listing.list_events(connection, workload_uids, limit)

    async def pods(self, workload_uid: str) -> list[PodLife]:
        """Return the pods of a workload, with when they held GPUs."""
        async with self._database.reading() as connection:
            return await listing.pods(connection, workload_uid)

    async def count_events(self, workload_uid: str) -> int:
        """Count the events of a workload."""
        async with self._database.reading() as connection:
            return await listing.count_events(connection, workload_uid)

    async def evidence(self, workload_uid: str) -> list[dict[str, Any]]:
        """All evidence about a workload."""
        async with self._database.reading() as connection:
            return (await listing.list_evidence(connection, [workload_uid]))[workload_uid]

    async def evidence_of(self, workload_uids: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """All evidence about several workloads."""
        async with self._database.reading() as connection:
            return await listing.list_evidence(connection, workload_uids)

    async def run_configs(self, workload_uids: Sequence[str]) -> dict[str, dict[str, list[dict[str, Any]]]]:
        """The configurations of all runs in the evidence."""
        async with self._database.reading() as connection:
            return await listing.list_run_configs(connection, workload_uids)

    async def detections(self, workload_uid: str) -> list[Detection]:
        """All opinions about a workload."""
        async with self._database.reading() as connection:
            return (await listing.detections(connection, [workload_uid]))[workload_uid]

    async def detections_of(self, workload_uids: Sequence[str]) -> dict[str, list[Detection]]:
        """All opinions about several workloads."""
        async with self._database.reading() as connection:
            return await listing.detections(connection, workload_uids)

    async def diagnoses(self, workload_uid: str, *, data_type: str = "") -> list[Diagnosis]:
        """The newest diagnosis reports about a workload, oldest first."""
        async with self._database.reading() as connection:
            return await read_diagnoses(connection, workload_uid, data_type)

    async def version(self, workload_uid: str) -> str:
        """A text that changes with every write about this workload."""
        async with self._database.reading() as connection:
            return (await listing.versions(connection, [workload_uid]))[workload_uid]

    async def versions_of(self, workload_uids: Sequence[str]) -> dict[str, str]:
        """For each workload a text that changes with every write about it."""
        async with self._database.reading() as connection:
            return await listing.versions(connection, workload_uids)
