"""The analyzer: reports a job that stopped logging, and that it goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import msgspec

from lens_core import Analyzer, Context, Event, NoSettings, Origin, Record, load_state, save_state
from lens_core.plugin_api.silence import MIN_STALL_SECONDS

from .pulse import FORGET_SECONDS, RECENT_SECONDS, WITH_LOG_SECONDS, Facts, Pulse, have_ended, is_stalled, limit_of

_RUN_SECONDS = 10.0
# The share of a core that looks at one job may take: one of many ranks takes long to read, and is read less often.
_CORE_SHARE = 0.01
_EVENTS_READ = 100
_AT_ONCE = 50


class _Kept(msgspec.Struct):
    """The pulses of all jobs that may go on."""

    pulses: dict[str, Pulse] = {}


class Stalls(Analyzer):
    """Stalls of jobs without a log: no row for a minute and for three times as long as rows take; as events."""

    name: ClassVar[str] = "stalls"
    interval_seconds: ClassVar[float] = 15.0

    def __init__(self, settings: NoSettings, context: Context, clock: Callable[[], float] = time.time) -> None:
        super().__init__(settings, context)
        self._clock = clock
        self._path = context.data_dir / "pulses.json"
        self._pulses: dict[str, Pulse] = {}
        self._next: dict[str, Pulse | None] = {}
        self._looked_at: float | None = None

    async def start(self) -> None:
        """Read which jobs went on; their silence counts from now."""
        try:
            kept = await asyncio.to_thread(load_state, self._path, _Kept)
        except msgspec.DecodeError as error:
            self.context.logger.warning("Jobs that stalled meanwhile are not seen. file=%s error=%s", self._path, error)
            kept = _Kept()
        now = self._clock()
        self._pulses = {uid: pulse.skip(max(0.0, now - pulse.changed_at)) for uid, pulse in kept.pulses.items()}

    async def analyze(self, changed: Sequence[str]) -> Sequence[Record]:
        """Ask the store about the jobs whose next row is overdue, as many as 10 seconds allow."""
        now = self._clock()
        ends = time.monotonic() + _RUN_SECONDS
        pulses = self._skipped(now)
        self._next = dict(pulses) if pulses is not self._pulses else {}
        self._looked_at = now
        for uid in changed:
            self._next[uid] = pulses.get(uid, Pulse()).note_change(now)
        records: list[Record] = []
        known = {**pulses, **self._next}
        due = sorted((pulse.due, uid) for uid, pulse in known.items() if pulse is not None and pulse.due <= now)
        for first in range(0, len(due), _AT_ONCE):
            if time.monotonic() > ends:
                break
            some = {uid: pulse for _, uid in due[first : first + _AT_ONCE] if (pulse := known[uid]) is not None}
            self._next |= await self._examine_jobs(some, now, records)
        return records

    async def stored(self) -> None:
        """Remember what was seen and reported."""
        if not self._next:
            return
        merged = {**self._pulses, **self._next}
        self._pulses = {uid: pulse for uid, pulse in merged.items() if pulse is not None}
        self._next = {}
        await asyncio.to_thread(save_state, self._path, _Kept(dict(self._pulses)))

    def _skipped(self, now: float) -> dict[str, Pulse]:
        """The pulses, without the time in which the store could not be asked."""
        away = 0.0 if self._looked_at is None else now - self._looked_at - 3 * self.interval_seconds
        return {uid: pulse.skip(away) for uid, pulse in self._pulses.items()} if away > 0 else self._pulses

    async def _examine_jobs(
        self, pulses: Mapping[str, Pulse], now: float, records: list[Record]
    ) -> dict[str, Pulse | None]:
        """The pulses after a look at the store; None for jobs of which no row is expected."""
        began = time.thread_time()
        found: dict[str, Pulse | None] = dict.fromkeys(pulses)
        details = {
            uid: detail
            for uid, detail in (await self.store.workloads_of(list(pulses))).items()
            if pulses[uid].last_row or detail.summary.last_seen / 1000 > now - RECENT_SECONDS
        }
        if not details:
            return found
        events = await self.store.events_of(list(details), limit=_EVENTS_READ)
        for uid, detail in details.items():
            facts = Facts(detail.summary, detail.runs, events[uid])
            found[uid] = await self._examine_job(uid, pulses[uid], facts, now, records)
        took = (time.thread_time() - began) / max(1, sum(len(detail.runs) for detail in details.values()))
        for uid, detail in details.items():
            pulse = found[uid]
            if pulse is not None:
                rest = took * len(detail.runs) / _CORE_SHARE
                found[uid] = msgspec.structs.replace(pulse, due=max(pulse.due, now + rest))
        return found

    async def _examine_job(
        self, uid: str, pulse: Pulse, facts: Facts, now: float, records: list[Record]
    ) -> Pulse | None:
        newest = facts.newest
        if newest is None or facts.has_ended(now) or now - pulse.changed_at > FORGET_SECONDS:
            return None
        if facts.has_log:
            return msgspec.structs.replace(pulse, due=now + WITH_LOG_SECONDS, stalled_at=None)
        if not pulse.last_row and now - newest.last_seen / 1000 > RECENT_SECONDS:
            return None
        if newest.last_seen > pulse.last_row:
            pulse = pulse.note_rows(facts)
            if pulse.stalled_at is not None:
                at = max(newest.last_seen / 1000, pulse.stalled_at + 0.001)
                records.append(_event(uid, "resumed", facts, at, {}))
                return msgspec.structs.replace(pulse, stalled_at=None, due=now + MIN_STALL_SECONDS)
        if pulse.stalled_at is None:
            pulse = msgspec.structs.replace(pulse, stalled_at=facts.reported_at(now))
        if pulse.stalled_at is None and is_stalled(pulse, facts, now):
            if have_ended(await self.store.pods(uid)):
                return None
            silent = {"silent_seconds": round(now - pulse.row_at, 3), "usual_seconds": pulse.usual_seconds}
            at = max(now, newest.last_seen / 1000)
            records.append(_event(uid, "stalled", facts, at, silent))
            pulse = msgspec.structs.replace(pulse, stalled_at=at)
        if pulse.stalled_at is not None:
            return msgspec.structs.replace(pulse, due=now + FORGET_SECONDS)
        overdue = pulse.row_at + (limit_of(pulse, facts) or MIN_STALL_SECONDS)
        return msgspec.structs.replace(pulse, due=overdue if overdue > now else now + MIN_STALL_SECONDS)


def _event(uid: str, kind: str, facts: Facts, at: float, details: dict[str, float | None]) -> Event:
    """A report on the run that logged last, or on all of them where several logged at the same time."""
    newest, run = facts.newest, facts.run_of(MIN_STALL_SECONDS)
    assert newest is not None
    return Event(
        origin=Origin(workload_uid=uid, cluster=facts.summary.cluster),
        type=kind,
        run_id="" if run is None else run.run_id,
        attempt=None if run is None else run.attempt,
        iteration=newest.last_iteration,
        event_time=at,
        data_source="analyzer",
        details=details,
    )
