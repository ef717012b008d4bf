"""The Store contract: a sink that also answers the query routes, and the names that its answers are made with."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast

from ..base.deprecation import former_name
from ..base.errors import LensError, Unavailable
from ..model.ends import merge_ends
from ..model.queries import (
    MEASURED_PREFIX,
    PROBE_WORKLOAD,
    SHORTEST_SPAN_SECONDS,
    EventRow,
    MetricInfo,
    MetricPoint,
    News,
    PodLife,
    PointColumns,
    PointQuery,
    Progress,
    RunValues,
    SourceChoice,
    SourceCount,
    WorkloadDetail,
    WorkloadPage,
    as_columns,
    measured_uid,
    metric_name,
    percentile_of,
    progress_of,
    sources_of,
    stored_name,
)
from ..model.records import Detection, Diagnosis, Origin, Record
from .components import Sink

__all__ = [
    "MEASURED_PREFIX",
    "PROBE_WORKLOAD",
    "SHORTEST_SPAN_SECONDS",
    "SourceChoice",
    "Store",
    "measured_uid",
    "merge_ends",
    "metric_name",
    "percentile_of",
    "progress_of",
    "sources_of",
    "stored_name",
]


def config_in(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a run in the facts of its evidence: as wandb has it, else as another tracker; {} if none."""
    wandb = facts.get("wandb")
    config = (wandb.get("config") if isinstance(wandb, Mapping) else None) or facts.get("config")
    return dict(config) if isinstance(config, Mapping) else {}


class Store(Sink):
    """A sink that also answers the query routes.

    `point_options` names what of `PointQuery.options` it knows; a question that needs another one is refused.
    """

    point_options: frozenset[str] = frozenset()

    @classmethod
    def destination(cls, settings: Any) -> str:
        """Return where it stores, without credentials; the daemons of one cluster must agree. '' is not compared.

        Since 1.3.
        """
        return ""

    @abstractmethod
    async def metric_sources(self, workload_uid: str) -> list[SourceCount]:
        """The data sources of a workload and how many rows each has; from the catalogue, never from a scan."""

    @abstractmethod
    async def available_metrics(self, workload_uid: str, data_source: str) -> list[MetricInfo]:
        """The metrics of a workload by name, with their sources and number of points; `data_source` '' means all."""

    @abstractmethod
    def metric_points(self, query: PointQuery) -> AsyncIterator[list[MetricPoint]]:
        """The points of a query in the order metric, run, attempt, iteration; in pieces, in bounded memory."""

    @abstractmethod
    def iteration_times(self, query: PointQuery) -> AsyncIterator[list[MetricPoint]]:
        """`iteration` and, where known, `target_iteration` of every row: when was which step reached."""

    def metric_columns(self, query: PointQuery) -> AsyncIterator[PointColumns]:
        """The same as `metric_points`, as columns; a store that keeps columns answers them without making points."""
        return as_columns(self.metric_points(query))

    def iteration_columns(self, query: PointQuery) -> AsyncIterator[PointColumns]:
        """The same as `iteration_times`, as columns."""
        return as_columns(self.iteration_times(query))

    async def source_choices(self, query: PointQuery) -> Sequence[SourceChoice]:
        """The choices among data sources that repeat each other, which an answer to this query has made."""
        return ()

    def notice(self) -> str:
        """Return a notice about the path to the answers, for `lens status`; '' for nothing."""
        return ""

    async def changed_workloads(self, cursor: str) -> tuple[list[str], str]:
        """The workloads that something was written about since `cursor` ('': all), and the cursor to go on from.

        A workload may come again without a change. By default those whose newest time is not before the cursor, from
        the list of workloads, which knows nothing of rows that come late: a store that can should say it better.
        Since 1.3.
        """
        since = int(cursor) if cursor else None
        found: list[str] = []
        newest, page_cursor = since or 0, ""
        while True:
            page = await self.workloads(limit=1000, cursor=page_cursor)
            recent = [one for one in page.workloads if since is None or one.last_seen >= since]
            found += [one.workload_uid for one in recent]
            newest = max([newest, *(one.last_seen for one in recent)])
            page_cursor = page.next_cursor
            if not page_cursor or len(recent) < len(page.workloads):
                return found, str(newest)

    async def news(self, query: PointQuery, cursor: str) -> News:
        """Return the news since `cursor` ('': nothing, only the cursor of now); of a query its workload and filters
        count.
        """
        raise Unavailable(f"the store {self.name!r} cannot say what is new")

    def beside_daemon(self) -> Store:
        """This store, for a command of the terminal that runs while a daemon may hold its files."""
        return self

    async def stats(self) -> dict[str, Any]:
        """Sizes and counts, for `lens db stats`."""
        raise LensError(f"the store {self.name!r} has no figures of its own")

    async def vacuum(self) -> dict[str, Any]:
        """Do the background maintenance now, for `lens db vacuum`; return what was done."""
        if not isinstance(inspect.getattr_static(self, "tidy"), property):
            return cast("dict[str, Any]", await self.tidy())  # a store that was written for the former name
        raise LensError(f"the store {self.name!r} cannot be vacuumed")

    tidy = former_name("Store.tidy", "vacuum", since="1.3", removal="2.0")

    async def origins(self, workload_uid: str) -> list[Origin]:
        """The workloads and pods whose records are shown under a uid, so that a deletion finds them in the spools."""
        return []

    async def delete_workload(self, workload_uid: str) -> dict[str, int] | None:
        """Remove everything that is shown under a uid; how much it was by kind, None when nothing is known about it."""
        raise Unavailable(f"the store {self.name!r} cannot delete workloads")

    async def delete_run(self, workload_uid: str, run_id: str) -> dict[str, int] | None:
        """Remove one run of a workload; how much it was by kind, None when there is no such run."""
        raise Unavailable(f"the store {self.name!r} cannot delete runs")

    def export_records(self, workload_uid: str = "") -> AsyncIterator[list[Record]]:
        """Everything ('') or what belongs to one workload, as records that make the same when they are stored."""
        raise LensError(f"the store {self.name!r} cannot be exported")

    async def newest_progress(self, workload_uids: Sequence[str]) -> dict[str, Progress]:
        """Return the progress of the attempt that each workload logged last; workloads without any are missing."""
        return {}

    async def run_progress(self, query: PointQuery) -> list[Progress]:
        """Return the progress of each attempt of a query's runs."""
        return []

    @abstractmethod
    async def workloads(self, *, search: str = "", limit: int = 100, cursor: str = "") -> WorkloadPage:
        """The workloads, those seen last first; PROBE_WORKLOAD only where it is searched for, MEASURED_PREFIX never."""

    @abstractmethod
    async def workload(self, workload_uid: str) -> WorkloadDetail | None:
        """One workload with its runs and attempts; None when nobody knows it."""

    @abstractmethod
    async def events(self, workload_uid: str, *, limit: int = 1000) -> list[EventRow]:
        """Return the events of a workload, newest first."""

    async def pods(self, workload_uid: str) -> list[PodLife]:
        """Return the pods of a workload that the store was told of, with when they held GPUs. Since 1.3."""
        return []

    async def count_events(self, workload_uid: str) -> int | None:
        """Count the events of a workload; None where the store does not count them."""
        return None

    @abstractmethod
    async def evidence(self, workload_uid: str) -> list[dict[str, Any]]:
        """All evidence about a workload, newest of each source and run, as it was reported."""

    @abstractmethod
    async def detections(self, workload_uid: str) -> list[Detection]:
        """All opinions of detectors about a workload, newest of each source, framework and method."""

    async def evidence_of(self, workload_uids: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """`evidence` of each of several workloads; for stores that answer it in one question."""
        return {uid: await self.evidence(uid) for uid in workload_uids}

    async def detections_of(self, workload_uids: Sequence[str]) -> dict[str, list[Detection]]:
        """`detections` of each of several workloads; for stores that answer it in one question."""
        return {uid: await self.detections(uid) for uid in workload_uids}

    async def workloads_of(self, workload_uids: Sequence[str]) -> dict[str, WorkloadDetail]:
        """`workload` of each of several that are known; for stores that answer it in one question. Since 1.3."""
        found = {uid: await self.workload(uid) for uid in workload_uids}
        return {uid: detail for uid, detail in found.items() if detail is not None}

    async def events_of(self, workload_uids: Sequence[str], *, limit: int = 1000) -> dict[str, list[EventRow]]:
        """`events` of each of several workloads; for stores that answer it in one question. Since 1.3."""
        return {uid: await self.events(uid, limit=limit) for uid in workload_uids}

    async def versions_of(self, workload_uids: Sequence[str]) -> dict[str, str]:
        """`version` of each of several workloads; for stores that answer it in one question. Since 1.3."""
        return {uid: await self.version(uid) for uid in workload_uids}

    async def run_values(self, workload_uids: Sequence[str], *, most: int) -> dict[str, dict[str, RunValues]]:
        """By workload and run the values of the `most` metrics with the most points, as far as the store keeps them.

        Workloads that are missing are computed from their points. Since 1.3.
        """
        return {}

    async def run_configs(self, workload_uids: Sequence[str]) -> dict[str, dict[str, list[dict[str, Any]]]]:
        """By workload and run ('': none was named) the configurations in the evidence, newest first. Since 1.3."""
        found: dict[str, dict[str, list[dict[str, Any]]]] = {uid: {} for uid in workload_uids}
        for uid, items in (await self.evidence_of(workload_uids)).items():
            for item in items:
                if config := config_in(item.get("facts") or {}):
                    found[uid].setdefault(item.get("run_id") or "", []).append(config)
        return found

    async def repeated_runs(self, workload_uids: Sequence[str]) -> dict[str, dict[str, str]]:
        """By workload the runs that tell of the training of another run, each with that one; none by default.

        Several trackers of one job, its log or a collector repeat it. Since 1.3.
        """
        return {}

    async def not_finite_ranks(self, workload_uids: Sequence[str]) -> dict[str, dict[str, list[int]]]:
        """By workload and metric the ranks whose newest value is not finite, in the attempt that was logged last.

        As far as the store knows it without reading points; by default none. Since 1.3.
        """
        return {}

    async def diagnoses(self, workload_uid: str, *, data_type: str = "") -> list[Diagnosis]:
        """The newest diagnosis reports about a workload, oldest first; '' means all types; none by default."""
        return []

    @abstractmethod
    async def version(self, workload_uid: str) -> str:
        """A text that changes whenever an answer about this workload may change; for ETags."""
