"""Makes the ledger's facts of what Lens reads in a log: rows, events and the frameworks that it shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lens_core import Detection, Event, Record, StepMetrics

from .drafts import BATCH, DATA_WAIT, ENDS, PHASED, Draft, Said, name_preemptions, step_of
from .facts import DataWait, Facts, Row

# Output of a dying process comes within this time; output after a longer silence is of the next process.
_SILENCE_SECONDS = 5.0


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


class LogFacts:
    """Collects the records of one log in their order; `facts` gives what they say."""

    def __init__(self, begun: float, run: str) -> None:
        self._run = run
        self._drafts = [Draft(start=begun)]
        self._number: int | None = None
        self._has_phases = False
        self._silence = _Silence(begun, begun)
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
        """Begin an attempt with the first line of its process: that behind a silence, at the latest with this one."""
        silence = self._silence
        behind = silence.behind_longest if self._drafts[-1].end is None else silence.behind_first
        self._drafts.append(Draft(start=min(time, behind if behind is not None else time)))
        self._silence = _Silence(time, time)
        return self._drafts[-1]

    def _read_row(self, row: StepMetrics) -> None:
        if row.event_time is None:
            return
        draft = self._draft(row.attempt, row.event_time)
        if draft.end is not None and row.event_time > draft.end:
            # Whatever looked like an end, training goes on behind it: a new process only where the steps went back.
            if not draft.rows or row.row_step > draft.rows[-1].step:
                draft.end, draft.cause, draft.ended_cleanly = None, "", False
            else:
                draft = self._open(row.event_time)
        step = step_of(row.iteration if row.iteration is not None else row.row_step)
        if step is None:
            return
        self._silence = _Silence(row.event_time, max(self._silence.latest, row.event_time))
        draft.rows.append(Row(step, row.event_time, row.origin.rank, row.data_source))
        if DATA_WAIT in row.values:
            draft.data.append(DataWait(step, row.values[DATA_WAIT] / 1000.0))
        if BATCH in row.values:
            draft.batch = f"{row.values[BATCH]:g}"

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
        is_end = kind in ENDS or kind == "training_ended"
        if is_end and draft.end is None:
            self._silence = _Silence(time, time)
        # A checkpoint that is loaded behind rows was loaded by a process that nobody announced.
        if kind == "checkpoint_loaded" and (draft.rows or draft.end is not None):
            draft = self._open(time)
        draft.read_event(said)
