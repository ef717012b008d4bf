"""The sink: a batch in, one transaction, an answer; and the store: questions handed to the queries."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec
import psycopg

from lens_core import (
    Answer,
    Batch,
    BatchLimits,
    Context,
    Delivered,
    Detection,
    Diagnosis,
    Event,
    Evidence,
    LensError,
    Measurement,
    Origin,
    Pod,
    Position,
    Record,
    Rejected,
    Retry,
    Secret,
    StepMetrics,
    Unavailable,
)

from . import deleting, upkeep
from .address import DATA_ERRORS, NotReady, StreamsGone, answer_for, describe_error, destination_of
from .asking import Asking
from .clickhouse.address import parse_points_address
from .clickhouse.client import ClickHouse
from .clickhouse.moving import Moved, PointMove
from .clickhouse.store import ClickHouseStore
from .compacting import Compactor
from .database import Database
from .echoes import mark_echoes
from .embedded import check_installed, running_dsn
from .facts import write_detections, write_diagnoses, write_events, write_evidence, write_pods, write_told_memberships
from .figures import touch_subjects
from .grouping import NameCache
from .identity import Connection, Identities
from .metrics import StoreMetrics
from .news_log import forget_old_news, note_news
from .point_store import BatchName, PointStore
from .rank_summaries import update_rank_summaries
from .retention import policy_of
from .row_store import RowStore
from .sessions import Superseded, already_written, begin_cursor, lock_cursor, move_cursor, read_position
from .settings import PostgreSQLSettings
from .sorting import Sorted, sort_batch, source_label
from .text import clean, refuse_nul

T = TypeVar("T")

_IN_THREAD_RECORDS = 1000
_DAY_US = 86_400_000_000
_MOST_MEMBERSHIPS = 100_000
_FORGET_NEWS_US = 30_000_000
_RECONNECT_SECONDS = 1.0
_APART_WAIT_SECONDS = 1.0


class PostgreSQL(Asking):
    """Stores training rows, events and evidence in PostgreSQL and answers the query routes.

    Without a `dsn` it starts a PostgreSQL of its own under Lens' data directory.
    """

    name: ClassVar[str] = "postgresql"
    Settings: ClassVar[type[PostgreSQLSettings]] = PostgreSQLSettings
    accepts: ClassVar[Sequence[type[Record]]] = (
        StepMetrics,
        Event,
        Evidence,
        Detection,
        Diagnosis,
        Pod,
        Measurement,
    )

    def __init__(self, settings: PostgreSQLSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._options = settings
        self._points = _open_points(settings)
        self._database = Database(settings, context, self._points)
        self._compactor = Compactor(self._database, self._points, context.logger, policy_of(settings))
        self._identities = Identities()
        # Those that were written today: retention may remove them, so that they are written again each day.
        self._memberships: set[tuple[str, str, str]] = set()
        self._memberships_day = 0
        self._forgot_news_us = 0
        self._names = NameCache()
        self._metrics = context.metrics.group(StoreMetrics)

    @property
    def database(self) -> Database:
        """The way to the database, for `lens db` and tests."""
        return self._database

    def beside_daemon(self) -> PostgreSQL:
        """This store without work in the background; on the embedded server of a daemon where one runs."""
        dsn = self._options.dsn
        running = running_dsn(self.context.data_dir / "postgresql") if dsn is None else None
        options = msgspec.structs.replace(self._options, blocks=False, dsn=Secret(running) if running else dsn)
        return PostgreSQL(options, self.context)

    @classmethod
    def is_exclusive(cls, settings: PostgreSQLSettings) -> bool:
        """Without a DSN it runs its own server."""
        return not settings.dsn

    @classmethod
    def destination(cls, settings: PostgreSQLSettings) -> str:
        """The hosts and the name of the database."""
        return "" if settings.dsn is None else destination_of(settings.dsn.reveal())

    def notice(self) -> str:
        """Why the database is not there, and where queries go, where there is a replica for them."""
        return self._database.describe_outage

    async def start(self) -> None:
        """Bring PostgreSQL up; an absent one raises nothing, a database of a newer Lens does."""
        self.context.siblings.answer_siblings(self._forget_memberships)
        try:
            await self._database.start()
        except BaseException:
            await self._points.close()
            raise
        if self._options.blocks:
            self._compactor.start()

    async def stop(self) -> None:
        """Close the connections, end the embedded server."""
        await self._compactor.stop()
        await self._database.stop()
        await self._points.close()

    async def check(self) -> None:
        """Connect once, or see that the embedded server can be run. Raises psycopg.Error or LensError."""
        points = _open_points(self._options)  # beside that of a store which runs
        try:
            if self._options.dsn is None:
                check_installed()
            else:
                await self._database.check_connections()
            if isinstance(points, ClickHouseStore):
                await self._check_points(points)
        finally:
            await points.close()

    async def _check_points(self, points: ClickHouseStore) -> None:
        if self._options.dsn is None:
            return await points.clickhouse.ping()
        async with await self._database.connect() as connection:
            await points.check_place(connection)

    def limits(self) -> BatchLimits:
        """Large batches: a transaction's fixed costs are shared by more rows; ClickHouse's are higher."""
        wait_seconds = _APART_WAIT_SECONDS if self._points.is_apart else 0.1
        return BatchLimits(max_records=20_000, max_bytes=8 * 1024 * 1024, max_wait_seconds=wait_seconds)

    async def position(self, spool_id: str) -> Position | None:
        """Return how far this sink has written a spool. Raises NotReady or psycopg.Error while the database is away."""
        async with self._database.writing() as connection:
            return await read_position(connection, spool_id, self.context.name)

    async def send(self, batch: Batch) -> Answer:
        """Write a batch and its cursor in one transaction."""
        try:
            async with self._database.writing() as connection:
                answer = await self._store_batch(connection, batch)
        except (StreamsGone, psycopg.errors.ForeignKeyViolation):
            self._identities.clear_cache()
            return Retry("streams were removed while they were written to", after_seconds=0.0)
        except NotReady as error:
            return Retry(str(error), after_seconds=_RECONNECT_SECONDS)
        except Superseded:
            return Retry("another daemon delivers this part of the log by now", after_seconds=_RECONNECT_SECONDS)
        except (psycopg.Error, OSError, *DATA_ERRORS) as error:
            answer = answer_for(error)
        if not isinstance(answer, Delivered | Rejected):
            self._count_failure(batch, type(answer).__name__.lower())
        return answer

    async def _store_batch(self, connection: Connection, batch: Batch) -> Answer:
        stored = await read_position(connection, batch.spool_id, batch.sink)
        if stored is not None and stored >= batch.end:
            return Delivered()
        await self._points.begin_write(connection)
        if stored is None and self._points.is_apart:
            stored = await begin_cursor(connection, batch)
        skip = already_written(stored, batch)
        if len(batch.records) > _IN_THREAD_RECORDS:
            sorted_ = await asyncio.to_thread(self._sort, batch, skip)
        else:
            sorted_ = self._sort(batch, skip)
        await self._write_batch(connection, batch, sorted_)
        self._count_success(sorted_)
        self._log_wandb(batch, sorted_)
        if sorted_.rows.rejected:
            return Rejected(sorted_.rows.rejected, sorted_.filtered)
        return Delivered(sorted_.filtered)

    def _sort(self, batch: Batch, skip: int) -> Sorted:
        return sort_batch(batch, skip, self.context.cluster, self._options.history_limit, self._names)

    async def _write_batch(self, connection: Connection, batch: Batch, sorted_: Sorted) -> None:
        now_us = time.time_ns() // 1000
        grouped = sorted_.rows
        self._identities.trim()
        sessions = [stream for _, stream, _ in sorted_.events if stream.session]
        subjects = await self._identities.subjects(connection, grouped.subjects)
        wanted = {key: grouped.places[key] for key in (*grouped.streams, *sessions)}
        streams = await self._identities.streams(connection, grouped.subjects, wanted)
        async with connection.transaction():
            # Points apart are written before the cursor moves, so that it says which of them are counted.
            written = await lock_cursor(connection, batch) if self._points.is_apart else batch.start
            if not await move_cursor(connection, batch):
                return  # another daemon wrote this meanwhile
            changes = {}
            if grouped.streams:
                name = BatchName(batch.spool_id, batch.sink, batch.end, written)
                changes = await self._points.write_rows(connection, grouped.streams, streams, now_us, name)
                await mark_echoes(connection, grouped.echoes, streams)
            await write_events(connection, sorted_.events, subjects, streams, now_us)
            await write_evidence(connection, sorted_.evidence, subjects, now_us)
            await write_detections(connection, sorted_.detections, subjects, now_us)
            await write_diagnoses(connection, sorted_.diagnoses, subjects, now_us)
            await write_pods(connection, sorted_.pods, self.context.cluster, now_us)
            told = self._memberships_of(batch)
            if self._memberships_day != now_us // _DAY_US or len(self._memberships) > _MOST_MEMBERSHIPS:
                self._memberships, self._memberships_day = set(), now_us // _DAY_US
            await write_told_memberships(connection, told - self._memberships, now_us)
            owners = {streams[key].stream_id: streams[key].subject_id for key in grouped.streams}
            await note_news(connection, changes, owners, now_us)
            if now_us - self._forgot_news_us > _FORGET_NEWS_US:
                await forget_old_news(connection, now_us)
            seen = {subjects[key]: now_us for key in sorted_.fact_subjects}
            with_curves = await touch_subjects(connection, changes, owners, seen)
            if changes:
                ids = {key: streams[key] for key in grouped.streams}
                await update_rank_summaries(connection, self._points, ids, changes, with_curves)
        self._memberships |= told
        if now_us - self._forgot_news_us > _FORGET_NEWS_US:
            self._forgot_news_us = now_us
        if self._options.blocks:
            self._compactor.record_changes(changes)

    def _memberships_of(self, batch: Batch) -> set[tuple[str, str, str]]:
        """(cluster, pod uid, workload uid) of every origin that names both."""
        origins = {id(record.origin): record.origin for record in batch.records}.values()
        cluster = self.context.cluster
        return {
            (clean(origin.cluster) or cluster, clean(origin.pod_uid), clean(origin.workload_uid))
            for origin in origins
            if origin.pod_uid and origin.workload_uid
        }

    def _count_success(self, sorted_: Sorted) -> None:
        for source, count in sorted_.saved.items():
            self._metrics.rows.inc(count, data_source=source)
        if sorted_.wandb_points:
            self._metrics.wandb_points.inc(sorted_.wandb_points)
        if sorted_.events:
            self.context.metrics.workload_event_create.inc(len(sorted_.events), operation="create")

    def _log_wandb(self, batch: Batch, sorted_: Sorted) -> None:
        """The messages that Primus Lens' documentation tells people to look for, at `LOG_LEVEL=debug`."""
        logger = self.context.logger
        if not sorted_.wandb_points or not logger.isEnabledFor(logging.DEBUG):
            return
        logger.debug("✓ WandB metrics stored to MetricsStorage: %d success", sorted_.wandb_points)
        rows = (record for record in batch.records if isinstance(record, StepMetrics) and record.data_source == "wandb")
        for workload in sorted({row.origin.workload_uid or row.origin.pod_uid or row.origin.pod_name for row in rows}):
            logger.debug("✓ Updated WandB training data for workload %s", workload)

    def _count_failure(self, batch: Batch, reason: str) -> None:
        rows = [record for record in batch.records if isinstance(record, StepMetrics)]
        sources = Counter(source_label(row.data_source) for row in rows)
        for source, count in sources.items():
            self._metrics.rows_failed.inc(count, data_source=source, reason=reason)
        wandb_points = sum(len(row.values) for row in rows if row.data_source == "wandb")
        if wandb_points:
            self._metrics.wandb_points_failed.inc(wandb_points)

    async def vacuum(self) -> dict[str, Any]:
        """Remove what is too old, make all blocks that can be made, vacuum all tables. Raises LensError."""
        try:
            async with await self._database.connect_when_ready(timeout_seconds=0.0) as connection:
                return await upkeep.clean_database(connection, self._points, policy_of(self._options))
        except psycopg.Error as error:
            raise LensError(f"PostgreSQL refused: {describe_error(error)}") from None

    async def move_points(self, points: Secret, show: Callable[[int], None]) -> Moved:
        """Copy the points to a ClickHouse and leave them to it; `show` gets the number of rows that were copied.

        Raises ValueError for what is no address, LensError, psycopg.Error.
        """
        clickhouse = ClickHouse(parse_points_address(points), self._options.write_timeout_seconds)
        try:
            async with await self._database.connect_when_ready(timeout_seconds=0) as connection:
                store = ClickHouseStore(clickhouse, self._options.history_limit)
                return await PointMove(connection, store, self._options.history_limit, show).move_everything()
        finally:
            await clickhouse.close()

    async def origins(self, workload_uid: str) -> list[Origin]:
        """The workloads and pods whose records are shown under a uid. Raises Unavailable."""
        return await self._delete(lambda connection: deleting.origins(connection, refuse_nul(workload_uid)))

    async def delete_workload(self, workload_uid: str) -> dict[str, int] | None:
        """Remove everything that is shown under a uid, on a connection of its own. Raises Unavailable."""
        return await self._delete(
            lambda connection: deleting.delete_workload(connection, self._points, refuse_nul(workload_uid))
        )

    async def delete_run(self, workload_uid: str, run_id: str) -> dict[str, int] | None:
        """Remove one run of a workload, on a connection of its own. Raises Unavailable."""
        uid, run = refuse_nul(workload_uid), refuse_nul(run_id)
        return await self._delete(lambda connection: deleting.delete_run(connection, self._points, uid, run))

    async def _delete(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        try:
            async with await self._database.connect_when_ready() as connection:
                return await work(connection)
        except NotReady as error:
            raise Unavailable(str(error)) from None
        except psycopg.Error as error:
            raise Unavailable(
                f"PostgreSQL refused: {describe_error(error)}; what is left can be deleted again"
            ) from None
        finally:
            # Streams are looked up again where they turn out to be gone.
            await self._forget_memberships()
            await self.context.siblings.ask_siblings()

    async def _forget_memberships(self, question: bytes = b"") -> bytes:
        """Earlier rows of pods may be gone, whichever daemon deleted them: they are written again."""
        self._memberships = set()
        return b""


def _open_points(settings: PostgreSQLSettings) -> PointStore:
    """The store of points of the options. Raises LensError where a package is missing."""
    if settings.points is None:
        return RowStore(settings.history_limit)
    clickhouse = ClickHouse(parse_points_address(settings.points), settings.write_timeout_seconds)
    return ClickHouseStore(clickhouse, settings.history_limit)
