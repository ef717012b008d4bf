"""The two ways to a spool's tables: one commits, one reads.

Whatever waits to be written when the writer becomes free goes into one transaction and costs one sync. A job that
fails is taken back alone (a savepoint of its own); a transaction that fails is taken back whole and its jobs are tried
one by one, and nobody was told that it had succeeded.

Where every job of a group may be done again after a power failure, the commit is not synced: the next one that is
brings it to the disk, because the log is written in its order, and one a second is. A process that dies loses nothing.

A database in memory waits for no disk: its jobs run in the event loop, because to wake a thread and to hand the
interpreter's lock over costs several times what such a transaction does.

The reader of a file has a thread and a connection of its own. Nobody may rename a database file under an open
connection (SQLite would later remove the log of the file that took its name), so a repair closes this connection
first and keeps readers out until it is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from . import file as spool_file

T = TypeVar("T")
logger = logging.getLogger("lens.spool")

# A group is at most about half of the spool's reserve: what the log holds must fit into that (spool_reserve.py).
MAX_GROUP_BYTES = 4 * 1024 * 1024
MAX_GROUP_JOBS = 1000
SYNC_EVERY_SECONDS = 1.0


class Job(Generic[T]):
    """Work on a connection. `after` runs in the thread once the commit is done, before the future has its result.

    `repeatable`: nothing but the time is lost if a power failure takes it back.
    """

    __slots__ = ("after", "future", "repeatable", "size", "work")

    def __init__(
        self,
        work: Callable[[sqlite3.Connection], T],
        future: asyncio.Future[T] | None,
        after: Callable[[T], None] | None = None,
        size: int = 0,
        *,
        repeatable: bool = False,
    ) -> None:
        self.work = work
        self.future = future
        self.after = after
        self.size = size
        self.repeatable = repeatable


class Owner(Protocol):
    """The interface of the spool for its thread."""

    def connection(self) -> sqlite3.Connection:
        """The thread's connection; another one after a repair."""

    def translate(self, error: Exception) -> Exception:
        """Translate an error of SQLite for the caller, and record damage."""

    def mark(self) -> object:
        """The counts that follow the open transaction."""

    def restore(self, mark: Any) -> None:
        """A transaction or a job of it was taken back: the counts are as they were at the mark."""

    def idle(self) -> float | None:
        """Clean up a little; returns in how many seconds there is more to clean up, None for nothing."""

    def committed(self) -> None:
        """Called in the event loop after each group."""


Outcome = tuple[Job[Any], Any, Exception | None]


class GroupCommitter(ABC):
    """Runs jobs in their order, in groups."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        owner: Owner,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue: queue.SimpleQueue[Job[Any] | None] = queue.SimpleQueue()
        self._loop = loop
        self._owner = owner
        self._clock = clock
        self._lock = threading.Lock()
        self._synced_at = float("-inf")
        self.queued_bytes = 0

    def submit(
        self,
        work: Callable[[sqlite3.Connection], T],
        after: Callable[[T], None] | None = None,
        size: int = 0,
        *,
        repeatable: bool = False,
    ) -> asyncio.Future[T]:
        """Queue work; the future has its result once it is durable (if `repeatable`, once it outlasts the process)."""
        future: asyncio.Future[T] = self._loop.create_future()
        with self._lock:
            self.queued_bytes += size
        self._queue.put(Job(work, future, after, size, repeatable=repeatable))
        return future

    @abstractmethod
    async def stop(self) -> None:
        """Finish what is queued."""

    def _next_group(self, wait: float | None) -> tuple[list[Job[Any]], bool]:
        """The jobs that wait, at most one group's worth, and whether to go on."""
        group: list[Job[Any]] = []
        size = 0
        try:
            job = self._queue.get(timeout=wait)
            while job is not None:
                group.append(job)
                size += job.size
                if size >= MAX_GROUP_BYTES or len(group) >= MAX_GROUP_JOBS:
                    return group, True
                job = self._queue.get_nowait()
        except queue.Empty:
            return group, True
        return group, False

    def _execute(self, group: Sequence[Job[Any]]) -> list[Outcome]:
        outcomes = self._transaction(group)
        if len(group) > 1 and outcomes and outcomes[0][2] is not None and outcomes[0][2] is outcomes[-1][2]:
            # The group failed as a whole: one by one, so that a small job does not fail for a large one's sake.
            outcomes = [outcome for job in group for outcome in self._transaction([job])]
        with self._lock:
            self.queued_bytes -= sum(job.size for job in group)
        return outcomes

    def _transaction(self, group: Sequence[Job[Any]]) -> list[Outcome]:
        """Run a group in one transaction; if that fails, all its jobs have the same error."""
        connection: sqlite3.Connection | None = None
        mark: object = None
        try:
            connection = self._owner.connection()
            mark = self._owner.mark()
            synced_at = self._begin_transaction(connection, group)
            # A job by itself is taken back with its transaction.
            run = self._savepoint if len(group) > 1 else self._alone
            outcomes = [run(connection, job) for job in group]
            connection.execute("COMMIT")
            self._synced_at = synced_at
        except Exception as error:  # noqa: BLE001 - it is handed to whoever waits for the result
            if connection is not None:
                self._roll_back(connection)
                self._owner.restore(mark)
            told = self._owner.translate(error)
            return [(job, None, told) for job in group]
        self._run_after(outcomes)
        return outcomes

    def _begin_transaction(self, connection: sqlite3.Connection, group: Sequence[Job[Any]]) -> float:
        """Begin a transaction; returns when the last synced one will have begun, once this one is committed."""
        now = self._clock()
        is_due = now - self._synced_at >= SYNC_EVERY_SECONDS
        is_synced = is_due or not all(job.repeatable for job in group)
        connection.execute(f"PRAGMA synchronous = {'FULL' if is_synced else 'NORMAL'}")
        connection.execute("BEGIN IMMEDIATE")
        return now if is_synced else self._synced_at

    @staticmethod
    def _alone(connection: sqlite3.Connection, job: Job[Any]) -> Outcome:
        return (job, job.work(connection), None)

    def _savepoint(self, connection: sqlite3.Connection, job: Job[Any]) -> Outcome:
        mark = self._owner.mark()
        connection.execute("SAVEPOINT job")
        try:
            result = job.work(connection)
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001 - it is handed to whoever waits for the result
            connection.execute("ROLLBACK TO job")
            connection.execute("RELEASE job")
            self._owner.restore(mark)
            return (job, None, error)
        connection.execute("RELEASE job")
        return (job, result, None)

    @staticmethod
    def _roll_back(connection: sqlite3.Connection) -> None:
        # SQLite has rolled back by itself after some errors; then there is nothing to do and it says so.
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")

    @staticmethod
    def _run_after(outcomes: Sequence[Outcome]) -> None:
        for job, result, error in outcomes:
            if error is None and job.after is not None:
                try:
                    job.after(result)
                except Exception:  # committed work stays committed, and must not be repeated
                    logger.exception("the spool's counts are wrong until the next start")

    def _idle(self) -> float | None:
        """Clean up a little; returns in how many seconds there is more to clean up, None for nothing."""
        try:
            return self._owner.idle()
        except Exception:  # cleanup must not delay the commits that callers wait for
            logger.exception("spool cleanup failed")
            return None

    def _resolve(self, outcomes: Sequence[Outcome]) -> None:
        for job, result, error in outcomes:
            if job.future is None or job.future.done():
                continue  # the waiting task was cancelled; the work is done all the same
            if error is None:
                job.future.set_result(result)
            else:
                job.future.set_exception(error)
        self._owner.committed()


class CommitThread(GroupCommitter):
    """Runs jobs in a thread; whatever comes while it works is the next group."""

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        owner: Owner,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(loop, owner, clock=clock)
        self._thread = threading.Thread(target=self._commit_until_stopped, name=name, daemon=True)
        self._thread.start()

    def poke(self) -> None:
        """Have the thread ask its owner for a connection, so that a repair happens; from any thread."""
        self._queue.put(Job(lambda connection: None, None))

    async def stop(self) -> None:
        """Finish what is queued and end the thread."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _commit_until_stopped(self) -> None:
        wait: float | None = 0.0  # there may be something to clean up from before
        running = True
        while running:
            group, running = self._next_group(wait)
            if group:
                self._report_outcomes(self._execute(group))
            wait = self._idle() if running else None

    def _report_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        # The loop is closed only when the process ends without stopping the spool: nobody is left to be told.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._resolve, outcomes)


class CommitLoop(GroupCommitter):
    """Runs jobs in the event loop; whatever is queued in one round of the loop is a group."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        owner: Owner,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(loop, owner, clock=clock)
        self._turn: asyncio.Handle | None = None
        self._tidying: asyncio.TimerHandle | None = None

    def submit(
        self,
        work: Callable[[sqlite3.Connection], T],
        after: Callable[[T], None] | None = None,
        size: int = 0,
        *,
        repeatable: bool = False,
    ) -> asyncio.Future[T]:
        """Queue work for the next round of the loop; the future has its result once it is committed."""
        if self._turn is None:
            self._turn = self._loop.call_soon(self._run)
        return super().submit(work, after, size, repeatable=repeatable)

    async def stop(self) -> None:
        """Finish what is queued; clean up no more."""
        if self._turn is not None:
            self._turn.cancel()
            self._run()
        if self._tidying is not None:
            self._tidying.cancel()

    def _run(self) -> None:
        self._turn = None
        while not self._queue.empty():
            group, _ = self._next_group(0.0)
            self._resolve(self._execute(group))
        if self._tidying is None:
            self._clean_up()

    def _clean_up(self) -> None:
        self._tidying = None
        wait = self._idle()
        if wait is not None:
            self._tidying = self._loop.call_later(wait, self._clean_up)


class SpoolReader:
    """Runs reading work in a thread; `translate` makes what callers get of SQLite's errors."""

    def __init__(self, path: Path, translate: Callable[[Exception], Exception]) -> None:
        self._path = path
        self._translate = translate
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"spool-reader-{path.name}")

    async def run_work(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of the work."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._run_on_connection, work)

    def _run_on_connection(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with self._lock:
                if self._connection is None:
                    self._connection = spool_file.open_connection(str(self._path))
                return work(self._connection)
        except sqlite3.Error as error:
            raise self._translate(error) from error

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """No connection is open within this context."""
        with self._lock:
            self._close()
            yield

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def stop(self) -> None:
        """End the thread and close the connection."""
        await asyncio.to_thread(self._executor.shutdown)
        with self._lock:
            self._close()
