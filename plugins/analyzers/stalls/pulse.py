"""The memory of a job between two looks, and the rule that its rows and events are judged by."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lens_core import EventRow, PodLife, RunSummary, WorkloadSummary
from lens_core.plugin_api.overview import Overview, State, line_of, state_of
from lens_core.plugin_api.silence import MIN_STALL_SECONDS, STALL_FACTOR, stall_limit

LOG_SOURCE = "log"
# A job that was silent for so long when it was first seen was imported, or ended when nobody looked.
RECENT_SECONDS = 3600.0
# Jobs that have a log are looked at again after so long: it may have ended before the job.
WITH_LOG_SECONDS = 600.0
FORGET_SECONDS = 7 * 24 * 3600.0
_PAUSES = frozenset({"evaluation", "checkpoint_saving"})
_ENDS_OF_PAUSES = frozenset({"checkpoint_saved"})
_SLOWING = 0.2
# Fewer rows have no usual time between them.
_ROWS_WITH_PACE = 3
_STARTS = frozenset({"training_started", "resumed"})


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """The pulse of one job; times in seconds by the daemon's clock.

    `last_row` is when the newest row that is known was logged, in ms, and `row_at` when it came at the latest; `lag` is
    the least time from logging to seeing a row so far, by two clocks.
    `changed_at` is when something new of the job, a row or a report, was last seen, `changes` how often.
    `longest_pause` is the longest time between two such moments that was no stall. `due` is when the store is asked
    again. `stalled_at`: the time of the event that says so. `attempt` is the one that logged last, with its number of
    `rows` and its usual time from row to row.
    """

    last_row: int = 0
    row_at: float = 0.0
    lag: float | None = None
    attempt: tuple[str, str, int] = ("", "", 0)
    rows: int = 0
    usual_seconds: float | None = None
    changed_at: float = 0.0
    changes: int = 0
    longest_pause: float = 0.0
    due: float = 0.0
    stalled_at: float | None = None

    def note_change(self, now: float) -> Pulse:
        """The pulse of a job of which something new is in the store."""
        pause = now - self.changed_at if self.changes and self.stalled_at is None else 0.0
        return msgspec.structs.replace(
            self,
            changed_at=now,
            changes=self.changes + 1,
            longest_pause=max(self.longest_pause, pause),
            due=now if self.stalled_at is not None else self.due,
        )

    def skip(self, seconds: float) -> Pulse:
        """The pulse after a time in which nobody looked: it is no silence of the job."""
        return msgspec.structs.replace(
            self,
            row_at=self.row_at + seconds,
            changed_at=self.changed_at + seconds,
            due=self.due + seconds,
        )

    def note_rows(self, facts: Facts) -> Pulse:
        """The pulse when the newest row is known; the usual time follows slowly, and stalls do not count."""
        newest = facts.newest
        assert newest is not None
        attempt, usual = (newest.run_id, newest.data_source, newest.attempt), self.usual_seconds
        if attempt != self.attempt or usual is None:
            usual = facts.mean_seconds
        elif self.stalled_at is None and facts.rows > self.rows:
            count = facts.rows - self.rows
            interval = (newest.last_seen - self.last_row) / 1000 / count
            usual += (1.0 - (1.0 - _SLOWING) ** count) * (interval - usual)
        logged = newest.last_seen / 1000
        lag = self.changed_at - logged
        if self.lag is not None:
            lag = min(self.lag, lag)
        return msgspec.structs.replace(
            self,
            last_row=newest.last_seen,
            row_at=min(self.changed_at, max(self.row_at, logged + lag)),
            lag=lag,
            attempt=attempt,
            rows=facts.rows,
            usual_seconds=usual,
        )


class Facts(msgspec.Struct, frozen=True):
    """The answers of a store about one workload; events newest first."""

    summary: WorkloadSummary
    runs: Sequence[RunSummary]
    events: Sequence[EventRow]

    @property
    def newest(self) -> RunSummary | None:
        """The run that logged last."""
        return max((run for run in self.runs if run.rows), key=lambda run: run.last_seen, default=None)

    @property
    def has_log(self) -> bool:
        """Whether a log has the newest rows, too: the pipeline's detectors know of its stalls."""
        newest = self.newest
        if newest is None:
            return False
        late_ms = 1000 * max(MIN_STALL_SECONDS, STALL_FACTOR * (self.mean_seconds or 0.0))
        logs = [run for run in self.runs if run.data_source == LOG_SOURCE and run.rows >= _ROWS_WITH_PACE]
        return any(run.last_seen >= newest.last_seen - late_ms for run in logs)

    def has_ended(self, now: float) -> bool:
        """Whether somebody said that it ended or failed, or it is at its last step."""
        return self._state(now) in ("failed", "ended")

    def reported_at(self, now: float) -> float | None:
        """The time, in seconds, of a report of a stall that still holds; by whomever."""
        return (self._line.event_at or 0) / 1000 if self._state(now) == "stalled" else None

    @property
    def _line(self) -> Overview:
        return line_of(self.summary, [*self.runs], [*self.events])

    def _state(self, now: float) -> State:
        return state_of(self._line, round(now * 1000))

    @property
    def is_told(self) -> bool:
        """Whether the job itself says when it begins, so that its rows come when they are logged."""
        return any(event.type in _STARTS for event in self.events)

    @property
    def is_pausing(self) -> bool:
        """Whether an evaluation or a checkpoint was announced after the newest row."""
        newest = self.newest
        for event in self.events:
            if newest is None or event.timestamp < newest.last_seen or event.type in _ENDS_OF_PAUSES:
                return False
            if event.type in _PAUSES:
                return event.details.get("duration_seconds") is None
        return False

    @property
    def rows(self) -> int:
        """The rows of the attempt that logged last, of the rank that has most."""
        newest = self.newest
        if newest is None:
            return 0
        mine = (newest.run_id, newest.data_source, newest.attempt)
        return max(run.rows for run in self.runs if (run.run_id, run.data_source, run.attempt) == mine)

    def run_of(self, seconds: float) -> RunSummary | None:
        """The run that logged last; None where others logged within so many seconds of it, as in a sweep."""
        newest = self.newest
        since = 0 if newest is None else newest.last_seen - seconds * 1000
        return newest if len({run.run_id for run in self.runs if run.rows and run.last_seen >= since}) == 1 else None

    @property
    def mean_seconds(self) -> float | None:
        """The mean time from row to row of the run that logged last; None before the third row."""
        newest = self.newest
        if newest is None or newest.rows < _ROWS_WITH_PACE:
            return None
        return (newest.last_seen - newest.first_seen) / 1000 / (newest.rows - 1)


def have_ended(pods: Sequence[PodLife]) -> bool:
    """Whether the pods of a job are known and hold no GPUs any more."""
    spans = [span for pod in pods for span in pod.spans]
    return bool(spans) and all(span.until is not None for span in spans)


def is_stalled(pulse: Pulse, facts: Facts, now: float) -> bool:
    """Whether a job that goes on by all that is known is silent for too long."""
    limit = limit_of(pulse, facts)
    return limit is not None and now - pulse.row_at >= limit


def limit_of(pulse: Pulse, facts: Facts) -> float | None:
    """The seconds of silence after which a job is stalled; None where its pace is not known yet."""
    usual = pulse.usual_seconds
    if usual is None or (pulse.changes < 2 and not facts.is_told):
        return None
    return stall_limit(usual, pulse.longest_pause, is_pausing=facts.is_pausing)
