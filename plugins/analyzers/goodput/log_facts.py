"""Makes the ledger's facts of what Lens reads in a log: rows, events and the frameworks that it shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite, nan

from lens_core import Detection, Event, Record, StepMetrics

from .drafts import (
    BATCH,
    DATA_WAIT,
    DATA_WAIT_OF_RANK,
    ENDS,
    PHASED,
    Draft,
    Said,
    name_device_errors,
    name_preemptions,
    step_of,
)
from .facts import DataWait, Facts, Row

# Output of a dying process comes within this time; output after a longer silence is of the next process.
_SILENCE_SECONDS = 5.0
_LEAST_PATIENCE_SECONDS = 60.0


@dataclass
class _Silence:
    """The silences since the last row or the end of an attempt, to find when the next process began to speak."""

    since: float
    latest: float
    longest: float = 0.0
    behind_longest: float | None = None
    behind_first: float | None = None

    def record_line(self, time: float) -> None:
        """A line at this time."""
        silent = time - self.latest
        if silent >= _SILENCE_SECONDS and self.behind_first is None:
            self.behind_first = time
        if silent > self.longest:
            self.longest, self.behind_longest = silent, time
        self.latest = max(self.latest, time)


@dataclass
class _Loads:
    """Checkpoints that were loaded after rows, and when the process that loaded them would have begun.

    Training may go on as if nothing was (a test with a checkpoint): the next row says whether there is a new process.
    """

    start: float
    said: list[Said]


class LogFacts:
    """Collects the records of one log in their order; `facts` gives what they say."""

    def __init__(self, begun: float, run: str) -> None:
        self._run = run
        self._drafts = [Draft(start=begun)]
        self._number: int | None = None
        self._has_phases = False
        self._silence = _Silence(begun, begun)
        self._loads: _Loads | None = None
        self.is_approximate = False

    def record_line(self, time: float) -> None:
        """A line was printed, whatever it says."""
        self._silence.record_line(time)

    def read(self, records: Iterable[Record]) -> None:
        """Take in the records."""
        for record in records:
            if isinstance(record, StepMetrics):
                self._read_row(record)
            elif isinstance(record, Event) and record.event_time is not None:
                self._read_event(record, record.event_time)
            elif isinstance(record, Detection):
                self._has_phases = self._has_phases or record.framework in PHASED

    def facts(self) -> Facts:
        """The facts of all that was read; a log never says how many GPUs there were."""
        name_preemptions(self._drafts)
        name_device_errors(self._drafts)
        return Facts(
            attempts=[draft.finish(None) for draft in self._drafts],
            run=self._run,
            now=self._silence.latest if self._drafts[-1].end is None else None,
            has_phases=self._has_phases,
            is_approximate=self.is_approximate,
        )

    @property
    def rows(self) -> int:
        """The number of rows read."""
        return sum(len(draft.rows) for draft in self._drafts)

    def _draft(self, number: int | None, time: float) -> Draft:
        """The attempt of a record; a new one for a higher number, or for what follows an end."""
        newest = self._drafts[-1]
        if number is not None and self._number is not None and number > self._number and newest.rows:
            newest = self._open(time)
        self._number = number if self._number is None else max(self._number, number or 0)
        return newest

    def _open(self, time: float) -> Draft:
        """Begin an attempt with the first line of its process: that after a silence, at the latest with this one."""
        loads, self._loads = self._loads, None
        self._drafts.append(Draft(start=self._begun_before(time) if loads is None else loads.start))
        self._silence = _Silence(time, time)
        for said in loads.said if loads is not None else ():
            self._drafts[-1].read_event(said)
        return self._drafts[-1]

    def _begun_before(self, time: float) -> float:
        """The time at which the process that printed a line at this time began to speak."""
        silence = self._silence
        behind = silence.behind_longest if self._drafts[-1].end is None else silence.behind_first
        return min(time, behind if behind is not None else time)

    def _read_row(self, row: StepMetrics) -> None:
        if row.event_time is None:
            return
        draft = self._draft(row.attempt, row.event_time)
        if self._loads is not None and draft.rows:
            last = draft.rows[-1]
            if row.row_step <= last.step or row.event_time - last.time > _patience(draft):
                draft = self._open(row.event_time)
            elif row.event_time - self._loads.said[-1].time > _patience(draft):
                self._loads = (
                    None  # steps that go on were not loaded; until then they may be of a process that still runs
                )
        if draft.end is not None and row.event_time > draft.end:
            # Whatever looked like an end, training that goes on at once was not ended by it.
            went_back = bool(draft.rows) and row.row_step <= draft.rows[-1].step
            if went_back or row.event_time - draft.end > _patience(draft):
                draft = self._open(row.event_time)
            else:
                draft.end, draft.cause, draft.ended_cleanly = None, "", False
        step = step_of(row.iteration if row.iteration is not None else row.row_step)
        if step is None:
            return
        self._silence = _Silence(row.event_time, max(self._silence.latest, row.event_time))
        draft.rows.append(Row(step, row.event_time, row.origin.rank, row.data_source))
        waits = [value for name, value in row.values.items() if name == DATA_WAIT or name.startswith(DATA_WAIT_OF_RANK)]
        if waits:
            _append_wait(draft, step, max(waits) / 1000.0)
        if isfinite(row.values.get(BATCH, nan)):
            draft.batches.append((step, row.values[BATCH]))

    def _read_event(self, event: Event, time: float) -> None:
        kind = event.type
        if kind == "training_started":
            newest = self._drafts[-1]
            is_next = event.attempt is None or self._number is None or event.attempt > self._number
            if newest.end is not None or (newest.rows and is_next):
                self._open(time)
                self._number = event.attempt if event.attempt is not None else self._number
            return
        draft = self._draft(event.attempt, time)
        said = Said(kind, time, event.iteration, event.details, event.origin.node, event.origin.rank)
        if kind in ENDS or kind == "training_ended":
            draft = self._draft_that_ends(draft, time)
        # A checkpoint that is loaded after rows was loaded by a process that nobody announced.
        if kind == "checkpoint_loaded" and draft.end is not None:
            draft = self._open(time)
        elif kind == "checkpoint_loaded" and draft.rows:
            self._loads = self._loads or _Loads(self._begun_before(time), [])
            self._loads.said.append(said)
            return
        draft.read_event(said)

    def _draft_that_ends(self, draft: Draft, time: float) -> Draft:
        """The attempt that an end is of: one more, where a process spoke for a while after the end before and logged
        no step; what is printed at once after a silence is said of the end before (a watchdog, other ranks)."""
        begun = self._silence.behind_first
        if draft.end is not None and begun is not None and time - begun >= _SILENCE_SECONDS:
            draft = self._open(time)
        if draft.end is None or begun is not None:
            self._silence = _Silence(time, time)
        return draft


def _patience(draft: Draft) -> float:
    """The seconds after an end after which a step is of another process: those after which silence is a stall."""
    lasted = draft.rows[-1].time - draft.rows[0].time if draft.rows else 0.0
    return max(_LEAST_PATIENCE_SECONDS, 3 * lasted / max(1, len(draft.rows) - 1))


def _append_wait(draft: Draft, step: int, seconds: float) -> None:
    """The wait for data of a step: that of the rank that waits longest, where several lines tell of it."""
    if draft.data and draft.data[-1].step == step:
        draft.data[-1] = DataWait(step, max(seconds, draft.data[-1].seconds))
    else:
        draft.data.append(DataWait(step, seconds))
