"""From readings to records: numbers rows, joins neighbours, merges ranks, finds attempts, tells events once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ...base.log_redaction import redact_line
from ...model.event_types import FAILURE_EVENTS
from ...model.records import Detection, Event, LogLine, Origin, Record, StepMetrics
from . import attempts, steps
from . import log_events as log_events
from .engine import LineEngine
from .general import ANNOUNCEMENT, CELL, EPOCH, FORMAT, NUMBERED, TABLE
from .loss_checks import check_loss
from .readings import LogEvent, Reading
from .rows import RowMerger
from .stream_context import PartialLine, StreamContext
from .stream_memory import Job, Memory, Stream
from .text import (
    MAX_JOINED_CHARACTERS,
    PARTIAL,
    printed_local_rank,
    printed_rank,
    printed_time,
    split_container_prefix,
)

DATA_SOURCE = "log"
METHOD = "log_pattern"
_SLOWING = 0.2
_FILES_REMEMBERED = 64
_MAX_CELLS = 128
GENERAL = frozenset({ANNOUNCEMENT, CELL, EPOCH, FORMAT, NUMBERED, TABLE})
_MAX_PARTIAL_STREAMS = 16


class _Moment(NamedTuple):
    """One line's place in time and in its job."""

    place: StreamContext
    stream_name: str
    stream: Stream
    job: Job
    time: float
    origin: Origin


class StreamReader:
    """Takes the readings of lines in their order; `drain_records` hands over what they made.

    With `repeats_ends` each line that tells of a failure makes an event, for a reader who knows which are the same.
    """

    def __init__(self, memory: Memory, engine: LineEngine, *, repeats_ends: bool = False) -> None:
        self._repeats_ends = repeats_ends
        self._memory = memory
        self._engine = engine
        self._rows = RowMerger()
        self._made: list[Record] = []

    @property
    def merged(self) -> int:
        """Return how many rows became part of another or repeated one."""
        return self._rows.merged

    def process_line(self, place: StreamContext, line: LogLine, readings: Sequence[Reading], now: float) -> None:
        """Work through a line's readings."""
        moment = self._make_moment(place, line, now)
        for reading in readings:
            if reading.bar is not None:
                moment.stream.bar = reading.bar
            self._append_opinions(moment, reading)
            if reading.log_event is not None and not (reading.only_idle and attempts.has_steps_under_way(moment.job)):
                self._happen(moment, reading.log_event)
            elif reading.only_running is not None and moment.job.is_running:
                self._happen(moment, reading.only_running)
            if reading.format:
                self._process_step(moment, reading, now)

    def drain_records(self) -> list[Record]:
        """All rows, events and detections since the last call."""
        made, self._made = [*self._rows.drain_rows(), *self._made], []
        return made

    def forget_job(self, name: str) -> None:
        """Take the rows of a job for new, also those that were made before."""
        self._rows.forget_job(name)

    def forget_rows(self) -> None:
        """Nothing of what was made since was stored: what is the same again is no duplicate."""
        self._rows.clear()
        self._made = []

    def join_parts(self, place: StreamContext, line: LogLine) -> LogLine | None:
        """A whole line of its parts, or None while its end has not come; an endless one is let go in pieces."""
        partial = place.partial.get(line.stream)
        has_room = partial is not None or len(place.partial) < _MAX_PARTIAL_STREAMS
        partial = partial or PartialLine()
        partial.append_part(line.text)
        if line.source == PARTIAL and has_room and partial.length <= MAX_JOINED_CHARACTERS:
            place.partial[line.stream] = partial
            return None
        place.partial.pop(line.stream, None)
        return msgspec.structs.replace(line, text=partial.text(), source=DATA_SOURCE)

    def keep_partials(self, place: StreamContext, now: float) -> None:
        """Remember the beginnings of lines of a place: once for all lines that came, not for each."""
        self._memory.touch_stream(place.stream)
        stream = self._memory.stream(place.stream)
        stream.partial = {name: partial.text() for name, partial in place.partial.items()}
        stream.seen_at = now

    def remember_table(self, place: StreamContext, now: float) -> None:
        """Remember the header under which the next lines of a place stand."""
        table = place.context.table
        if table is not None:
            self._memory.touch_stream(place.stream)
            stream = self._memory.stream(place.stream)
            stream.table, stream.columns, stream.seen_at = table.name, list(place.context.columns), now

    def keep_positions(self, place: StreamContext, now: float) -> None:
        """Remember how far a place has been read, with its last few files."""
        while len(place.positions) > _FILES_REMEMBERED:
            del place.positions[next(iter(place.positions))]
        self._memory.touch_stream(place.stream)
        stream = self._memory.stream(place.stream)
        stream.positions, stream.seen_at = dict(place.positions), now

    def restore_stream(self, place: StreamContext) -> None:
        """Give a place the header and the beginnings of lines that its stream remembers."""
        stream = self._memory.stream(place.stream)
        place.partial.update((name, PartialLine(text)) for name, text in stream.partial.items())
        place.positions.update(stream.positions)
        table = self._engine.tables.get(stream.table)
        if table is not None:
            place.context.table, place.context.columns = table, tuple(stream.columns)

    def stalled(self, job: Job, now: float) -> Event:
        """The event of a job's silence."""
        details = {"silent_seconds": round(now - job.stepped_at, 3), "usual_seconds": job.usual_seconds}
        return self._make_event(
            job.origin, job, LogEvent("stalled", "", job.last_iteration, None, details), _newest_attempt(job), now
        )

    def _make_moment(self, place: StreamContext, line: LogLine, now: float) -> _Moment:
        time = line.event_time
        if time is None:
            time = split_container_prefix(line.text)[1] or printed_time(line.text, local=True) or now
        rank, local_rank = printed_rank(line.text), printed_local_rank(line.text)
        origin = place.origin
        name = place.stream
        if (rank is not None and origin.rank is None) or (local_rank is not None and origin.local_rank is None):
            origin = msgspec.structs.replace(
                origin,
                rank=origin.rank if origin.rank is not None else rank,
                local_rank=origin.local_rank if origin.local_rank is not None else local_rank,
            )
            name = f"{place.stream}/{rank}/{local_rank}"
        job = self._memory.job(place.job, place.origin)
        self._memory.touch_stream(name)
        stream = self._memory.stream(name)
        stream.seen_at = job.seen_at = now
        return _Moment(place, name, stream, job, time, origin)

    def _append_opinions(self, moment: _Moment, reading: Reading) -> None:
        """An opinion for each framework that a line shows better than any line before."""
        known = moment.job.frameworks
        for hint in reading.hints:
            if not hint.framework or known.get(hint.framework, 0.0) >= hint.confidence:
                continue
            known[hint.framework] = hint.confidence
            self._made.append(
                Detection(
                    origin=moment.origin,
                    workload_uid=moment.origin.workload_uid,
                    source=DATA_SOURCE,
                    framework=hint.framework,
                    layer=hint.layer,
                    confidence=hint.confidence,
                    method=METHOD,
                    facts={"by": hint.by},
                    event_time=moment.time,
                )
            )

    def _happen(self, moment: _Moment, log_event: LogEvent) -> None:
        job = moment.job
        if log_event.type == "training_started":
            attempts.begin_attempt(job, moment.time)
            job.is_running = True
        attempt = attempts.of_time(job, moment.time)
        is_news = log_events.is_news(job, log_event, attempt, moment.stream_name, moment.time)
        if not is_news and not (self._repeats_ends and log_event.type in FAILURE_EVENTS):
            return
        log_event = log_events.follow(job, log_event, moment.time)
        self._made.append(self._make_event(moment.origin, job, log_event, attempt, moment.time))

    def _process_step(self, moment: _Moment, reading: Reading, now: float) -> None:
        stream = moment.stream
        if reading.joins == "evaluates":
            self._merge_evaluation(moment, reading)
            return
        if reading.format in GENERAL and not self._process_general(moment, reading, now):
            return
        if reading.joins == "table":
            self._cell(moment, reading, now)
            return
        if reading.joins == "next":
            stream.held.update(reading.values)
            return
        if reading.joins == "epoch":
            stream.epoch = reading.values.get("epoch")
            self._happen(moment, LogEvent("epoch_started", "", None, None, dict(reading.values)))
            return
        if reading.joins == "repeats" or stream.repeats:
            stream.repeats = reading.joins == "repeats"
            return
        if reading.sums_up_epoch and not stream.last.keys() <= {reading.format}:
            return
        if reading.joins == "beside" and (stream.last_row is None or not stream.attempt):
            return
        if reading.joins in ("previous", "beside") and stream.last_row is not None and stream.attempt:
            self._merge_row(moment, reading, stream.last_row, stream.attempt)
            return
        self._numbered(moment, reading, now)

    def _numbered(self, moment: _Moment, reading: Reading, now: float) -> None:
        """Store a row under its step, in its attempt."""
        stream, job = moment.stream, moment.job
        if steps.is_beside_epoch(reading, stream):
            return
        if reading.iteration is not None and stream.announced is not None and reading.iteration > stream.announced:
            stream.announced = None
        row_step, counter = steps.number(reading, stream, job)
        if reading.values.get("step_in_epoch") == 0.0 and row_step <= stream.last.get(counter, -1):
            return  # a bar that begins anew, before its epoch's name or its numbers have changed
        attempt = attempts.of_step(job, stream, counter, row_step, moment.time)
        if attempt == stream.attempt:
            steps.apply_held(reading, stream)
            self._advance(moment, counter, row_step, now)
        self._merge_row(moment, reading, row_step, attempt)
        steps.announce_own(reading, row_step, stream)
        if stream.evaluated:
            self._merge_earlier_evaluation(moment, row_step, attempt)
        if reading.format not in GENERAL and "lm_loss" in reading.values:
            stream.has_loss = True
        own = check_loss(reading)
        if own is not None and (own.type != "loss_not_finite" or not job.is_not_finite):
            self._happen(moment, own)
        job.is_not_finite = own is not None and own.type == "loss_not_finite"

    def _merge_evaluation(self, moment: _Moment, reading: Reading) -> None:
        """Store results of an evaluation beside the step that they name, or the newest one of the stream."""
        stream, step = moment.stream, reading.iteration
        if moment.job.last_iteration is None:
            self._hold_evaluation(moment, reading)
            return
        step = reading.epoch_of_evaluation if step is None and stream.last.keys() <= {EPOCH} else step
        if step is None or (stream.last_row is not None and step < stream.last_row):
            step = stream.last_row if step is None or step == (stream.last_row or 0) - 1 else None
        if step is not None:
            attempt = attempts.of_step(moment.job, stream, reading.format, step, moment.time)
            self._merge_row(moment, reading, step, attempt)

    def _hold_evaluation(self, moment: _Moment, reading: Reading) -> None:
        """Keep results that come before any step; those of a later step than these are of a training by themselves."""
        stream, step = moment.stream, reading.iteration
        before = stream.evaluated_step
        if step is None or before is None or step <= before:
            stream.evaluated, stream.evaluated_step = {**stream.evaluated, **reading.values}, step
            return
        attempt = attempts.of_step(moment.job, stream, reading.format, step, moment.time)
        if stream.evaluated:
            self._merge_earlier_evaluation(moment, before, attempt)
        stream.evaluated_step = step
        self._merge_row(moment, reading, step, attempt)

    def _merge_earlier_evaluation(self, moment: _Moment, row_step: int, attempt: int) -> None:
        """Store results that came before the first step: at the step that they name, if it is no later."""
        stream = moment.stream
        named = stream.evaluated_step
        step = named if named is not None and named <= row_step else row_step
        self._merge_row(moment, Reading(values=stream.evaluated), step, attempt)
        stream.evaluated, stream.evaluated_step = {}, None

    def _process_general(self, moment: _Moment, reading: Reading, now: float) -> bool:
        """Whether a reading of the general reader is a step of its own; its neighbours get what is theirs.

        It comes after the formats of detectors: a stream that has rows of theirs needs none of its own.
        """
        stream = moment.stream
        if reading.joins == "announces":
            steps.announce(reading, stream, moment.job)
            return False
        if reading.joins == "epoch":
            return True
        has_others = any(counter not in GENERAL for counter in stream.last)
        if has_others and (stream.has_loss or "lm_loss" not in reading.values):
            return False
        if reading.format == NUMBERED and not steps.place_number(reading, stream):
            return False
        if reading.joins == "announced" and stream.announced is None and steps.sums_up_banner(reading, stream):
            return True
        if reading.joins == "cell" and steps.is_of_announced(reading, stream):
            reading.joins = "announced"
        if reading.joins == "announced":
            names = set(stream.announced_names)
            return stream.announced is not None and names.isdisjoint(reading.values)
        if reading.joins == "cell":
            self._cell(moment, reading, now)
            return False
        return True

    def _cell(self, moment: _Moment, reading: Reading, now: float) -> None:
        """Take one row of a table of keys and values; the table is a step as soon as its counter is known."""
        stream = moment.stream
        names = [*reading.values, *(["iteration"] if reading.iteration is not None else [])]
        if not set(stream.cells).isdisjoint(names):
            stream.cells, stream.cell_step = [], None
            stream.held.clear()
        stream.cells = [*stream.cells, *names][-_MAX_CELLS:]
        if reading.iteration is not None:
            stream.cell_step = reading.iteration
            own = msgspec.structs.replace(reading, joins="")
            self._numbered(moment, own, now)
        elif stream.cell_step is None:
            stream.held.update(reading.values)
        elif stream.attempt:
            self._merge_row(moment, reading, stream.cell_step, stream.attempt)

    def _advance(self, moment: _Moment, counter: str, row_step: int, now: float) -> None:
        """A step that is the newest of its stream: the job goes on."""
        stream, job = moment.stream, moment.job
        stream.last[counter] = row_step
        stream.latest = moment.time if stream.latest is None else max(stream.latest, moment.time)
        stream.last_row = row_step
        if counter == "ordinal":
            stream.ordinal = row_step
        if job.last_step_time is not None and job.last_iteration is not None and row_step > job.last_iteration:
            self._update_interval(job, moment.time - job.last_step_time)
        if job.last_step_time is None or moment.time >= job.last_step_time:
            job.last_step_time, job.last_iteration = moment.time, row_step
        if job.is_evaluating and not job.is_stalled:  # a hang is no measure of evaluations
            job.evaluation_seconds = max(job.evaluation_seconds, now - job.stepped_at)
        job.is_evaluating = False
        job.stepped_at = now
        job.is_running = True
        if job.is_stalled:
            job.is_stalled = False
            self._happen(moment, LogEvent("resumed", "", row_step, None, {}))

    def _update_interval(self, job: Job, interval: float) -> None:
        """The usual time from step to step: a mean that follows slowly; neither stalls nor evaluations count."""
        if interval <= 0.0 or job.is_stalled or job.is_evaluating:
            return
        usual = job.usual_seconds
        job.usual_seconds = interval if usual is None else usual + _SLOWING * (interval - usual)
        job.intervals = min(job.intervals + 1, 1000)

    def _merge_row(self, moment: _Moment, reading: Reading, row_step: int, attempt: int) -> None:
        values = reading.values.copy()
        iteration = reading.iteration
        if iteration is not None:
            values["current_iteration"] = float(iteration)
        stream = moment.stream
        stream.sequence = max(stream.sequence + 1, int(moment.time * 1e6))
        row = StepMetrics(
            origin=moment.origin,
            data_source=DATA_SOURCE,
            row_step=row_step,
            values=values,
            attempt=attempt,
            iteration=iteration if iteration != row_step else None,
            event_time=moment.time,
            sequence=stream.sequence,
        )
        self._rows.merge_row(moment.place.job, row)

    def _make_event(self, origin: Origin, job: Job, log_event: LogEvent, attempt: int, time: float) -> Event:
        details = {
            name: redact_line(value) if isinstance(value, str) else value for name, value in log_event.details.items()
        }
        if log_event.framework:
            details["framework"] = log_event.framework
        return Event(
            origin=origin,
            type=log_event.type,
            attempt=attempt,
            iteration=log_event.iteration,
            event_time=time,
            data_source=DATA_SOURCE,
            details=details,
        )


def _newest_attempt(job: Job) -> int:
    return job.attempts[-1].number if job.attempts else 1
