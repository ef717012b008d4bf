"""Makes the ledger's facts of what Lens reads in a log: rows, events and the frameworks that it shows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from lens_core import Detection, Event, Record, StepMetrics

from .evaluation_lines import EVALUATION
from .facts import Attempt, DataWait, Facts, Row, Span

# The ends that are not clean, the least telling first: a launcher that stops its other processes says little.
_ENDS = ("process_terminated", "training_failed", "collective_timeout", "out_of_memory")
_PREEMPTED = "preempted"
_MAX_STEP = 2**53
_DATA_WAIT = "data_loading_time_ms"
_BATCH = "global_batch_size"
# Their steps are a rollout and a training phase of changing lengths.
_PHASED = frozenset({"verl", "openrlhf", "nemo_rl", "areal", "prime_rl"})
# What a dying process still prints comes within this time; what comes after a longer silence is the next process.
_SILENCE_SECONDS = 5.0


@dataclass
class _Draft:
    """One attempt while its log is read."""

    start: float | None = None
    end: float | None = None
    cause: str = ""
    ended_cleanly: bool = False
    was_asked: bool = False
    node: str = ""
    rank: int | None = None
    resumed_from: int | None = None
    restore_seconds: float = 0.0
    batch: str = ""
    rows: list[Row] = field(default_factory=list)
    saves: list[Span] = field(default_factory=list)
    evaluations: list[Span] = field(default_factory=list)
    data: list[DataWait] = field(default_factory=list)
    stalls: list[float] = field(default_factory=list)

    def finish(self, gpus: int | None) -> Attempt:
        """The attempt that it has become."""
        return Attempt(
            rows=self.rows,
            start=self.start,
            end=self.end,
            resumed_from=self.resumed_from,
            restore_seconds=self.restore_seconds,
            cause=self.cause,
            ended_cleanly=self.ended_cleanly,
            node=self.node,
            rank=self.rank,
            gpus=gpus,
            configuration=self.batch,
            saves=self.saves,
            evaluations=self.evaluations,
            data=self.data,
            stalls=self.stalls,
        )


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
        self._drafts = [_Draft(start=begun)]
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
                self._has_phases = self._has_phases or record.framework in _PHASED

    def facts(self) -> Facts:
        """The facts of all that was read; a log never says how many GPUs there were."""
        for draft in self._drafts[:-1]:
            if draft.cause == "process_terminated" and draft.was_asked:
                draft.cause = _PREEMPTED
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

    def _draft(self, number: int | None, time: float) -> _Draft:
        """The attempt of a record; a new one for a higher number, or for what follows an end."""
        newest = self._drafts[-1]
        if number is not None and self._number is not None and number > self._number and newest.rows:
            newest = self._open(time)
        self._number = number if self._number is None else max(self._number, number or 0)
        return newest

    def _open(self, time: float) -> _Draft:
        """Begin an attempt with the first line of its process: that behind a silence, at the latest with this one."""
        silence = self._silence
        behind = silence.behind_longest if self._drafts[-1].end is None else silence.behind_first
        self._drafts.append(_Draft(start=min(time, behind if behind is not None else time)))
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
        step = _step(row.iteration if row.iteration is not None else row.row_step)
        if step is None:
            return
        self._silence = _Silence(row.event_time, max(self._silence.latest, row.event_time))
        draft.rows.append(Row(step, row.event_time, row.origin.rank, row.data_source))
        if _DATA_WAIT in row.values:
            draft.data.append(DataWait(step, row.values[_DATA_WAIT] / 1000.0))
        if _BATCH in row.values:
            draft.batch = f"{row.values[_BATCH]:g}"

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
        if kind in _ENDS or kind == "training_ended":
            if draft.end is None:
                self._silence = _Silence(time, time)
            _end(draft, event, time)
        elif kind == "checkpoint_saved":
            draft.saves.append(Span(time - _seconds(event), time, _step(event.iteration)))
        elif kind == "checkpoint_loaded":
            self._read_load(draft, event, time)
        elif kind == EVALUATION:
            length = _seconds(event)
            draft.evaluations.append(Span(time - length, time, _step(event.iteration), marker=not length))
        elif kind == "stalled":
            draft.stalls.append(time)

    def _read_load(self, draft: _Draft, event: Event, time: float) -> None:
        """A checkpoint that is loaded behind rows was loaded by a process that nobody announced."""
        if draft.rows or draft.end is not None:
            draft = self._open(time)
        if draft.resumed_from is None:
            draft.resumed_from = _step(event.iteration)
        draft.restore_seconds = max(draft.restore_seconds, _seconds(event))


def _step(number: int | None) -> int | None:
    """A step that can be counted with; None for one that no training reaches."""
    return number if number is not None and 0 <= number < _MAX_STEP else None


def _seconds(event: Event) -> float:
    """Return the duration that an event reports; 0 without one."""
    seconds = event.details.get("duration_seconds")
    return max(0.0, float(seconds)) if isinstance(seconds, int | float) and math.isfinite(seconds) else 0.0


def _is_request(event: Event) -> bool:
    """Whether a process was told to end: by SIGTERM, or by a scheduler that says why."""
    if event.type != "process_terminated":
        return False
    said = [str(event.details.get(name, "")).upper() for name in ("signal", "number", "reason")]
    return any(word in ("15", "15.0") or "SIGTERM" in word or "PREEMPT" in word for word in said)


def _end(draft: _Draft, event: Event, time: float) -> None:
    """The first word of an end counts; a failure's details may come in the lines behind it."""
    if draft.end is None:
        draft.end = time
    if event.type == "training_ended" and not draft.cause:
        draft.ended_cleanly = True
        return
    if event.type != "training_ended":
        draft.ended_cleanly = False
        if not draft.cause or _ENDS.index(event.type) > _ENDS.index(draft.cause):
            draft.cause = event.type
        draft.was_asked = draft.was_asked or _is_request(event)
        draft.node = draft.node or event.origin.node
        draft.rank = event.origin.rank if draft.rank is None else draft.rank
