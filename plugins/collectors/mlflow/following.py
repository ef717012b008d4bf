"""Follows the runs of a server: a round over those that run and those that ended lately, in as many calls as it takes.

Each call reads values up to the limits and says how far every run is; the cursors become the state when the records
are stored. A run whose reading was cut off is the first of the next call.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from lens_core import LensError, Origin, Record

from .api import Point, Refused, Run, Server
from .facts import ENDED, digest_of, end_of, evidence_of, origin_of, page_of, start_of
from .history import KeyCursor, KeyReading
from .rows import SYSTEM_PREFIX, Value, rows_of_values
from .settings import MlflowSettings

# A call ends soon after this time, so that the host's time limit never throws away what it has read.
_SECONDS_AT_ONCE = 20.0
_EXPERIMENTS_AT_ONCE = 200
_SECONDS_PER_HOUR = 3600.0
_RUNNING = "attributes.status = 'RUNNING'"


class RunCursor(msgspec.Struct, omit_defaults=True):
    """The progress in a run: its status, digests of its facts and of its latest values, and a cursor for each metric.

    A run that has ended has no cursors any more: if its values change once more, it is read from the beginning.
    """

    status: str = ""
    facts: str = ""
    latest: str = ""
    news_at: float = 0.0
    keys: dict[str, KeyCursor] = {}


class FollowedRuns(msgspec.Struct):
    """The state that must outlast a restart: a cursor for each run."""

    runs: dict[str, RunCursor] = {}


class Found(msgspec.Struct):
    """The result of one call: records, the cursors after them, runs that are no longer followed, problems."""

    records: list[Record] = []
    cursors: dict[str, RunCursor] = {}
    dropped: set[str] = set()
    problems: list[str] = []
    points: int = 0


class Round:
    """One pass over the runs of a server. `is_over` says that every run was looked at."""

    def __init__(
        self,
        server: Server,
        settings: MlflowSettings,
        logger: logging.Logger,
        experiments: Mapping[str, str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.is_over = False
        self._problems: list[str] = []
        self._server = server
        self._settings = settings
        self._logger = logger
        self._clock = clock
        patterns = settings.experiments
        self._experiments = {
            experiment_id: name
            for experiment_id, name in experiments.items()
            if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
        }
        ids = sorted(self._experiments)
        parts = [ids[at : at + _EXPERIMENTS_AT_ONCE] for at in range(0, len(ids), _EXPERIMENTS_AT_ONCE)]
        since_ms = int((clock() - settings.window_hours * _SECONDS_PER_HOUR) * 1000)
        ended = f"attributes.end_time >= {since_ms}"
        # Running ones first: a run that ends in between is then in both listings, and not in none.
        self._pages = deque((part, condition, "") for condition in (_RUNNING, ended) for part in parts)
        self._waiting: deque[Run] = deque()
        self._listed: set[str] = set()
        self._missing: deque[str] | None = None
        self._slots = asyncio.Semaphore(settings.requests_at_once)

    async def read_on(self, state: FollowedRuns) -> Found:
        """Look at further runs until there is enough; at the end of the round, or of its hope, with all problems."""
        found = Found()
        until = time.monotonic() + _SECONDS_AT_ONCE
        try:
            while not self.is_over and found.points < self._settings.points_at_once and time.monotonic() < until:
                run = self._waiting.popleft() if self._waiting else await self._next_run(state, found)
                if run is not None and not await self._read_run(run, state, found, until):
                    self._waiting.appendleft(run)
        except LensError as error:
            self._problems.append(str(error))
            self.is_over = True
        found.problems = self._problems if self.is_over else []
        return found

    async def _next_run(self, state: FollowedRuns, found: Found) -> Run | None:
        """The next run of the listings, then of those that were followed and are in no listing any more."""
        if self._pages:
            part, condition, token = self._pages.popleft()
            page = await self._server.search_runs(part, condition, token)
            if page.next_page_token and page.next_page_token != token:
                self._pages.appendleft((part, condition, page.next_page_token))
            self._waiting.extend(page.runs)
            self._listed.update(run.info.run_id for run in page.runs)
            return None
        if self._missing is None:
            self._missing = deque(sorted(state.runs.keys() - self._listed))
        if not self._missing:
            self.is_over = True
            return None
        run_id = self._missing.popleft()
        if state.runs[run_id].status in ENDED:
            found.dropped.add(run_id)  # it ended before the window
            return None
        run = await self._server.find_run(run_id)
        if run is None or run.info.lifecycle_stage != "active" or run.info.experiment_id not in self._experiments:
            self._logger.info("A run is not followed any more: it was deleted or left out. run_id=%s", run_id)
            found.dropped.add(run_id)
            return None
        return run

    async def _read_run(self, run: Run, state: FollowedRuns, found: Found, until: float) -> bool:
        """Read on in a run; False when there is more to read of it. Raises LensError."""
        run_id = run.info.run_id
        before = found.cursors.get(run_id) or state.runs.get(run_id)
        if before is None and not any(self._is_wanted(point.key) for point in run.data.metrics):
            return True  # no training, or none yet
        experiment = self._experiments.get(run.info.experiment_id, "")
        origin = origin_of(run, experiment, workload=self._settings.workload, workload_tag=self._settings.workload_tag)
        cursor = RunCursor() if before is None else msgspec.structs.replace(before, keys=dict(before.keys))
        records: list[Record] = []
        if before is None:
            records.append(start_of(run, origin))
        elif before.status in ENDED and run.info.status not in ENDED:
            records.append(start_of(run, origin, "resumed"))
        facts = digest_of((run.info.run_name, run.data.params, run.data.tags, experiment))
        if cursor.facts != facts:
            cursor.facts = facts
            records.append(evidence_of(run, experiment, origin, page_of(run, self._settings)))
        wanted = await self._keys_to_read(run, cursor)
        left = deque(wanted)
        values: list[Value] = []
        refused = False
        while left and (not values or found.points + len(values) < self._settings.points_at_once):
            some = [left.popleft() for _ in range(min(len(left), self._settings.requests_at_once))]
            room = max(1, (self._settings.points_at_once - found.points - len(values)) // len(some))
            refused = not await self._read_keys(run, some, cursor, values, room, until) or refused
            if time.monotonic() >= until:
                break
        if values:
            cursor.news_at = min(self._clock(), max(value.timestamp_ms for value in values) / 1000)
            records += rows_of_values(origin, run_id, values)
            found.points += len(values)
        is_whole = not left and not any(cursor.keys[one.key].has_more for one in wanted if one.key in cursor.keys)
        if is_whole and not refused:
            self._finish_run(run, cursor, origin, records)
        found.records += records
        if cursor != before:
            found.cursors[run_id] = cursor
        return is_whole

    def _finish_run(self, run: Run, cursor: RunCursor, origin: Origin, records: list[Record]) -> None:
        """Note the state of a run whose values are read, and its end."""
        is_end = run.info.status in ENDED
        if is_end and cursor.status != run.info.status:
            records.append(end_of(run, origin))
        cursor.status = run.info.status
        cursor.latest = _digest_of_values(run)
        if is_end:
            cursor.keys = {}

    async def _keys_to_read(self, run: Run, cursor: RunCursor) -> list[Point]:
        """The metrics that may have new values.

        The latest value of a metric is the one of the highest step, so that a job which repeats steps does not change
        it: every round the longest metric of a running run is looked at, and all of them are when a run has ended.
        """
        known = [point for point in run.data.metrics if self._is_wanted(point.key)]
        if run.info.status in ENDED and cursor.status == run.info.status and cursor.latest == _digest_of_values(run):
            return []
        changed = [
            point
            for point in known
            if (found := cursor.keys.get(point.key)) is None or found.has_more or found.latest != latest_of(run, point)
        ]
        if changed or not known or run.info.status in ENDED:
            return changed
        if self._clock() - cursor.news_at > self._settings.window_hours * _SECONDS_PER_HOUR:
            return []  # nobody has said that it ended
        longest = max(known, key=lambda point: cursor.keys[point.key].count)
        probe = KeyReading(run.info.run_id, longest.key, cursor.keys[longest.key], "")
        try:
            await probe.read_page(self._server)
        except Refused as error:
            self._problems.append(str(error))
        if not probe.values:
            return []
        cursor.keys = {key: msgspec.structs.replace(one, latest="") for key, one in cursor.keys.items()}
        return known

    def _is_wanted(self, key: str) -> bool:
        patterns = self._settings.metrics
        return not key.startswith(SYSTEM_PREFIX) and (
            not patterns or any(fnmatchcase(key, pattern) for pattern in patterns)
        )

    async def _read_keys(
        self, run: Run, some: Sequence[Point], cursor: RunCursor, values: list[Value], room: int, until: float
    ) -> bool:
        """Read some metrics side by side; False when the server refuses one of them. Raises LensError."""
        readings = [
            KeyReading(run.info.run_id, one.key, cursor.keys.get(one.key, KeyCursor()), latest_of(run, one))
            for one in some
        ]
        reading_all = (self._read_key(reading, room, until) for reading in readings)
        outcomes = await asyncio.gather(*reading_all, return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
        self._problems += map(str, refused)
        for outcome in outcomes:
            if outcome is not None and not isinstance(outcome, Refused):
                raise outcome
        for one, reading, outcome in zip(some, readings, outcomes, strict=True):
            if outcome is None:
                cursor.keys[one.key] = reading.cursor
                values += reading.values
        return not refused

    async def _read_key(self, reading: KeyReading, room: int, until: float) -> None:
        while reading.cursor.has_more or not reading.pages:
            async with self._slots:
                await reading.read_page(self._server)
            if not reading.is_chained and (len(reading.values) >= room or time.monotonic() >= until):
                return


def latest_of(run: Run, point: Point) -> str:
    """The state of a metric in a listing; the end of its run changes it, so that the metric is read once more."""
    return f"{point.mark} {run.info.status}" if run.info.status in ENDED else point.mark


def _digest_of_values(run: Run) -> str:
    return digest_of([point.mark for point in run.data.metrics])


def first_problem(problems: Sequence[str]) -> str:
    """Problems as one text."""
    return problems[0] + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else "") if problems else ""


def merge_found(state: FollowedRuns, found: Found) -> FollowedRuns:
    """The state after what was found is stored."""
    runs = {run_id: cursor for run_id, cursor in state.runs.items() if run_id not in found.dropped}
    return FollowedRuns(runs={**runs, **found.cursors})
