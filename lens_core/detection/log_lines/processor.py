"""Turns log lines into rows, events and opinions on frameworks, and evidence into opinions: the detectors at work.

A `RecordProcessor` of the pipeline: what it remembers between lines is stored in the transaction that stores what it
made of them. Records that came in stay in the stream; sinks take what they want.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...base.self_metrics import SelfMetrics
from ...model.event_types import ATTENTION_EVENTS, END_EVENTS
from ...model.processing import Processed
from ...model.records import Detection, Event, Evidence, LogLine, Origin, Record
from ...plugin_api.components import Detector
from ..detectors import EvidenceRules
from . import attempts, log_events
from .engine import Context, LineEngine
from .log_tails import TOTAL_BYTES, LogTails
from .prefilter import Candidates
from .reader import StreamReader
from .stream_context import StreamContext
from .stream_memory import Memory, is_silent
from .text import PARTIAL

_MAX_PLACES = 50_000
_SAID_CHARACTERS = 100
# A cluster's daemon has a processor for each of its partitions, mostly 64 of them.
_SIBLING_TAIL_BYTES = TOTAL_BYTES // 16


# Kinds of record that detectors process; all others pass unchanged.
_READ = frozenset((LogLine, Evidence, Event))


class DetectorProcessor:
    """Runs all detectors over everything that passes; see `pipeline.RecordProcessor`."""

    reads = _READ

    def __init__(
        self,
        detectors: Iterable[Detector],
        metrics: SelfMetrics,
        clock: Callable[[], float] = time.time,
        on_pause: Callable[[str, str], None] | None = None,
        *,
        sibling: DetectorProcessor | None = None,
        repeats_ends: bool = False,
    ) -> None:
        detectors = list(detectors)
        self.engine: LineEngine = LineEngine(detectors, on_pause) if sibling is None else sibling.engine
        self.rules: EvidenceRules = EvidenceRules(detectors) if sibling is None else sibling.rules
        self.tails = LogTails(total_bytes=TOTAL_BYTES if sibling is None else _SIBLING_TAIL_BYTES)
        self._metrics = metrics
        for kind in ("understood", "other"):
            metrics.log_analysis.inc(0, type=kind)
        for counter in (
            metrics.event_stream_create,
            metrics.workload_event_create,
            metrics.workload_event_create_errors,
        ):
            counter.inc(0, operation="create")
        metrics.event_stream_create_errors.inc(0, operation="load")
        self._clock = clock
        self._memory = Memory()
        self._reader = StreamReader(self._memory, self.engine, repeats_ends=repeats_ends)
        self._places: dict[tuple[str, ...], StreamContext] = {}
        self._counted: dict[str, int] = {} if sibling is None else sibling._counted
        for name in self.engine.overruns:
            metrics.detector_overruns.labels(name)
            metrics.detector_paused.labels(name)

    def make_sibling(self) -> DetectorProcessor:
        """Make a processor for other jobs with the same compiled detectors, of which only one may run at a time."""
        return DetectorProcessor((), self._metrics, self._clock, sibling=self)

    def load(self, state: Mapping[str, bytes]) -> None:
        """Take up what was remembered; silence is counted from now, not from when the daemon was stopped."""
        unreadable = self._memory.load_entries(state)
        if unreadable:
            self._metrics.event_stream_create_errors.inc(unreadable, operation="load")
        now = self._clock()
        for _, job in self._memory.jobs():
            job.stepped_at = now
        self._memory.schedule_all()

    def process(self, records: Sequence[Record]) -> Processed:
        """All records, with what they gave after them."""
        now = self._clock()
        self._memory.begin()
        self.tails.begin()
        if records and _READ.isdisjoint(map(type, records)):
            return Processed(records=records)
        merged = self._reader.merged
        lines = [record for record in records if type(record) is LogLine]
        place = self._only_place(lines)
        hits = self.engine.filter_lines([line.text for line in lines], place.context if place is not None else None)
        if place is not None and len(lines) == len(records) and _are_plain(lines, place):
            out, reported, dropped = self._process_hits(lines, place, hits, now)
        else:
            out, reported, dropped = self._go_through(records, dict(hits), now)
        made = self._reader.drain_records()
        if not records:
            made += self._notice_silence(now)
        self._keep_tails(out if lines else (), made, now)
        if not records:
            made += self.tails.drain_due(now)
        out += made
        self._count_lines(len(lines), reported, made)
        return Processed(
            records=out,
            state_changes=self._memory.changes(),
            derived=len(out) - (len(records) - dropped),
            merged=self._reader.merged - merged + dropped,
        )

    def _keep_tails(self, records: Sequence[Record], made: Sequence[Record], now: float) -> None:
        """Keep the last lines, and note which jobs are in trouble by their own logs."""
        if records:
            kept = [record for record in records if type(record) is LogLine]
            self.tails.append_lines(kept, _identity, _job_names, now)
        for event in made:
            if isinstance(event, Event) and event.type in ATTENTION_EVENTS:
                by = None if event.type == "stalled" else _identity(event.origin)
                said = str(event.details.get("reason") or event.details.get("line") or "")[:_SAID_CHARACTERS]
                self.tails.note_trouble(_job_names(event.origin), event.origin, by, now, said)

    def _only_place(self, lines: Sequence[LogLine]) -> StreamContext | None:
        """Return the origin of these lines, if they share one."""
        if not lines:
            return None
        first = lines[0].origin
        return self._place(first) if all(line.origin is first for line in lines) else None

    def _process_hits(
        self, lines: Sequence[LogLine], place: StreamContext, hits: Sequence[tuple[int, Candidates]], now: float
    ) -> tuple[list[Record], int, int]:
        """As `_go_through`, for plain lines of one place: only those that may say something are looked at."""
        reported = 0
        for number, (index, candidates) in enumerate(hits, 1):
            readings = self.engine.read_found(lines[index].text, candidates, place.context)
            if readings:
                reported += 1
                self._reader.process_line(place, lines[index], readings, now)
            if place.context.table is not None:  # a line below a header may be a row without a word
                self._reader.remember_table(place, now)
                rest = {later - index - 1: found for later, found in hits[number:]}
                out, more, dropped = self._go_through(lines[index + 1 :], rest, now)
                return [*lines[: index + 1], *out], reported + more, dropped
        return list(lines), reported, 0

    def _go_through(
        self, records: Sequence[Record], hits: Mapping[int, Candidates], now: float
    ) -> tuple[list[Record], int, int]:
        """The records that go on, how many lines said something, and how many became part of another or were known.

        `hits` are what is to be tried on the lines that may say something, by the line's number among the lines.
        """
        out: list[Record] = []
        last_origin: Origin | None = None
        place: StreamContext | None = None
        places: dict[int, StreamContext] = {}  # by the origins' identity: the records keep them
        moved: dict[str, StreamContext] = {}
        joined: dict[str, StreamContext] = {}
        number = -1
        reported = dropped = 0
        for record in records:
            if type(record) is not LogLine:
                out.append(record)
                if type(record) is Evidence:
                    self._detect(record, out)
                elif type(record) is Event:
                    self._record_end(record)
                    if record.type in ATTENTION_EVENTS:
                        self.tails.note_trouble(_job_names(record.origin), record.origin, None, self._clock())
                continue
            number += 1
            if place is None or record.origin is not last_origin:
                last_origin = record.origin
                place = places.get(id(last_origin)) or self._place(last_origin)
                places[id(last_origin)] = place
            if record.position is not None and not self._is_behind(record, place, moved):
                dropped += 1
                continue
            candidates = hits.get(number)
            if place.partial or record.source == PARTIAL:
                joined[place.stream] = place
                whole = self._reader.join_parts(place, record)
                if whole is None:
                    dropped += 1
                    continue
                record, candidates = whole, self.engine.filter_line(whole.text)
            out.append(record)
            if candidates is not None or place.context.table is not None:
                header = place.context.columns
                readings = self.engine.read_found(record.text, candidates, place.context)
                if place.context.columns is not header:
                    self._reader.remember_table(place, now)
                if readings:
                    reported += 1
                    self._reader.process_line(place, record, readings, now)
        for changed in moved.values():
            self._reader.keep_positions(changed, now)
        for changed in joined.values():
            self._reader.keep_partials(changed, now)
        return out, reported, dropped

    def _is_behind(self, line: LogLine, place: StreamContext, moved: dict[str, StreamContext]) -> bool:
        """Whether a line of a file comes after all that was taken of it; moves the position there."""
        assert line.position is not None
        if line.position <= place.positions.get(line.stream, -1):
            return False
        place.positions[line.stream] = line.position
        moved[place.stream] = place
        return True

    def end_jobs(self, is_over: Callable[[Origin], bool]) -> Mapping[str, bytes | None]:
        """Expect no more steps of the jobs with these origins, and take for new what they say again."""
        self._memory.begin()
        self.tails.forget_streams(is_over)
        for name, job in self._memory.jobs():
            if is_over(job.origin):
                self._memory.touch_job(name)
                job.is_running = False
                self._reader.forget_job(name)
        return self._memory.changes()

    def rollback(self) -> None:
        """The last result was not stored: remember nothing of it."""
        self._memory.rollback()
        self.tails.rollback()
        self._reader.forget_rows()
        self._places.clear()

    def _place(self, origin: Origin) -> StreamContext:
        key = _identity(origin)
        place = self._places.get(key)
        if place is None:
            if len(self._places) >= _MAX_PLACES:
                self._places.clear()
            place = StreamContext(origin, job_name(origin), "/".join(key), Context(skips_known=True), {}, {})
            self._reader.restore_stream(place)
            self._places[key] = place
            self._metrics.event_stream_create.inc(operation="create")
        return place

    def _record_end(self, event: Event) -> None:
        """Take a job's end from whoever tells of it: its log may end without a word, and its silence is no stall."""
        if event.type not in END_EVENTS:
            return
        for name in _job_names(event.origin):
            job = self._memory.known_job(name)
            if job is not None and attempts.is_of_newest(job, event.event_time):
                self._memory.touch_job(name)
                job.is_running = False
                log_events.remember_told(job, event)

    def _detect(self, evidence: Evidence, out: list[Record]) -> None:
        detections = self.rules.detect(evidence)
        out += detections
        for detection in detections:
            self._count_detection(detection)

    def _count_detection(self, detection: Detection) -> None:
        framework, method = detection.framework, detection.method
        if not self.rules.knows(framework):
            framework = "other"  # texts of people and configurations have no bounds
        self._metrics.framework_detection.inc(framework=framework, method=method, source=detection.source)
        confidence = self._metrics.framework_detection_confidence.labels(framework=framework, method=method)
        confidence.observe(detection.confidence)

    def _count_lines(self, lines: int, reported: int, made: Sequence[Record]) -> None:
        if lines:
            self._metrics.log_analysis.inc(reported, type="understood")
            self._metrics.log_analysis.inc(lines - reported, type="other")
            self._count_limits()
        for record in made:
            if isinstance(record, Detection):
                self._count_detection(record)
            elif isinstance(record, Event):
                self._metrics.workload_event_create.inc(operation="create")

    def _count_limits(self) -> None:
        """Count the lines that were cut, and those on which a detector's patterns took too long."""
        if self.engine.cut_lines:
            self._metrics.log_lines_cut.inc(self.engine.cut_lines)
            self.engine.cut_lines = 0
        for name, overruns in self.engine.overruns.items():
            if overruns.count:
                self._metrics.detector_paused.labels(name).set(bool(overruns.paused))
            if overruns.count != self._counted.get(name, 0):
                self._metrics.detector_overruns.labels(name).inc(overruns.count - self._counted.get(name, 0))
                self._counted[name] = overruns.count

    def _notice_silence(self, now: float) -> list[Record]:
        """A stall for every job that was running and has been silent for too long; forgets the very old."""
        found: list[Record] = []
        for name, job in self._memory.pop_overdue(now):
            if is_silent(job, now):
                self._memory.touch_job(name)
                job.is_stalled = True
                found.append(self._reader.stalled(job, now))
        self._memory.forget_unseen(now)
        return found


def _are_plain(lines: Sequence[LogLine], place: StreamContext) -> bool:
    """Whether each of these lines is whole and new by itself, and none stands below a header."""
    if place.partial or place.context.table is not None:
        return False
    return all(line.position is None and line.source != PARTIAL for line in lines)


def _identity(origin: Origin) -> tuple[str, ...]:
    rank = "" if origin.rank is None else str(origin.rank)
    pod = origin.pod_uid or f"{origin.namespace}/{origin.pod_name}"
    return (origin.cluster, origin.workload_uid, pod, origin.container, rank)


def job_name(origin: Origin) -> str:
    """The name of an origin's job: its workload where the record carries one, else its pod, as rows are stored."""
    return _job_names(origin)[0]


def _job_names(origin: Origin) -> list[str]:
    """The names under which the rows of an origin may stand, its own first: other sources may know less of it."""
    names = [f"w/{origin.workload_uid}"] if origin.workload_uid else []
    if origin.pod_uid:
        names.append(f"p/{origin.pod_uid}")
    if origin.pod_name or not names:
        names.append(f"p/{origin.namespace}/{origin.pod_name}")
    return [f"{origin.cluster}/{name}" for name in names]
