"""Reads lines with what all installed detectors declare; built once, and as quick with eighty detectors as with five.

A line's words are looked up in one hash set of all words that anybody needs. Which formats, events and marks a set of
found words leaves to be tried is worked out once per set and remembered (`prefilter.py`). So a line that is nobody's
costs the same however many detectors there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ...plugin_api.log_formats import EventPattern, LogFormat, Mark, Table
from .bars import Bar, apply_bar, last_bar
from .checkpoints import read_checkpoint
from .compiled import CompiledEvent, CompiledFormat, CompiledMark, CompiledTable
from .exceptions import TracebackState, read_exception
from .general import GeneralReader
from .general_labels import apply_counter
from .general_tables import GeneralTable
from .limited import LineTime, Overruns
from .prefilter import Candidates, Declared, Prefilter
from .readings import FrameworkHint, LogEvent, Reading
from .resuming import read_resuming
from .searching import MAX_CHARACTERS
from .text import open_envelope, strip_colours, unwrap, without_launchers

# Dictionaries on one line that are read: each may be looked for up to the line's end.
MAX_READINGS = 32


class Declares(Protocol):
    """The part of a detector that the engine needs."""

    @property
    def name(self) -> str: ...
    @property
    def framework(self) -> str: ...
    @property
    def layer(self) -> str: ...
    @property
    def formats(self) -> Sequence[LogFormat]: ...
    @property
    def events(self) -> Sequence[EventPattern]: ...
    @property
    def marks(self) -> Sequence[Mark]: ...
    @property
    def tables(self) -> Sequence[Table]: ...


class Context:
    """State of a stream that the next line needs: the table whose header was read.

    With `skips_known` lines that show a framework and say nothing else are read only until they have shown it.
    """

    __slots__ = ("columns", "reported", "skips_known", "table", "traceback")

    def __init__(self, *, skips_known: bool = False) -> None:
        self.table: CompiledTable | GeneralTable | None = None
        self.columns: tuple[str, ...] = ()
        self.skips_known = skips_known
        self.reported: set[int] = set()
        self.traceback = TracebackState()


class LineEngine:
    """All declared formats, events and marks, ready to read lines."""

    def __init__(self, detectors: Iterable[Declares], on_pause: Callable[[str, str], None] | None = None) -> None:
        self.formats: list[CompiledFormat] = []
        self.events: list[CompiledEvent] = []
        self.marks: list[CompiledMark] = []
        self.tables: dict[str, CompiledTable | GeneralTable] = {}
        self.overruns: dict[str, Overruns] = {}
        self.cut_lines = 0
        self._line_time = LineTime()
        self._on_pause = on_pause
        tables: list[CompiledTable] = []
        for detector in detectors:
            tables += self._add_detector(detector)
        self.formats.sort(key=lambda item: item.rank)
        self.events.sort(key=lambda item: item.rank)
        self.marks.sort(key=lambda item: -item.confidence)
        self._prefilter = Prefilter(Declared(self.formats, self.events, self.marks, tables))
        self._refinements: dict[tuple[str, tuple[CompiledMark, ...]], tuple[tuple[FrameworkHint, ...], str]] = {}
        self._marked: dict[tuple[CompiledMark, ...], tuple[Reading]] = {}
        self._general = GeneralReader()
        self._general_table = GeneralTable()
        self.tables = {table.name: table for table in tables}
        self.tables[self._general_table.name] = self._general_table

    def _add_detector(self, detector: Declares) -> Iterable[CompiledTable]:
        """Compile what a detector declares; returns its tables."""
        framework = (detector.framework or detector.name) if detector.layer else ""
        overruns = self.overruns.setdefault(detector.name, Overruns(detector.name, self._line_time, self._on_pause))
        whose = (framework, detector.layer, overruns)
        self.formats += [CompiledFormat(declared, *whose) for declared in detector.formats]
        self.events += [CompiledEvent(declared, *whose) for declared in detector.events]
        self.marks += [CompiledMark(declared, *whose) for declared in detector.marks]
        return [CompiledTable(declared, *whose) for declared in detector.tables]

    def read_line(self, text: str, context: Context | None = None) -> Sequence[Reading]:
        """Return the readings of a line; most lines have none. `context` is kept from line to line of one stream."""
        return self.read_found(text, self._prefilter.find_candidates(text), context)

    def filter_lines(self, texts: Sequence[str], context: Context | None = None) -> list[tuple[int, Candidates]]:
        """The lines that may say something, as (index, candidates) for `read_found`; all others say nothing.

        With a context that `skips_known` neither do those that only show what it has been shown.
        """
        return (
            self._prefilter.filter_lines(texts)
            if context is None
            else self._prefilter.filter_lines(texts, context.reported)
        )

    def filter_line(self, text: str) -> Candidates | None:
        """As `filter_lines`, for one line."""
        return self._prefilter.find_candidates(text)

    def read_found(self, text: str, candidates: Candidates | None, context: Context | None = None) -> Sequence[Reading]:
        """As `read_line`, for a line of which it is known what is to be tried on it."""
        self._line_time.left = self._line_time.limit
        if candidates is None:
            return self._below_header(text, context)
        reported = (
            context.reported if context is not None and context.skips_known and candidates.has_only_marks else None
        )
        if reported is not None and candidates.number in reported:
            return self._below_header(text, context)
        readings = self._read_candidates(text, candidates, context)
        if reported is not None and readings:
            reported.add(candidates.number)
        return readings

    def _below_header(self, text: str, context: Context | None) -> Sequence[Reading]:
        """A row without any words, below a table's header."""
        if context is None or context.table is None:
            return ()
        row = context.table.read_row(without_launchers(strip_colours(self._newest_part(text))), context.columns)
        return (row,) if row is not None else ()

    def _newest_part(self, text: str) -> str:
        """The part of a line that is looked at; of one that a progress bar has overwritten, the newest."""
        if len(text) <= MAX_CHARACTERS:
            return text
        self.cut_lines += 1
        return text[-MAX_CHARACTERS:] if "\r" in text[MAX_CHARACTERS:] else text[:MAX_CHARACTERS]

    def words_of(self, text: str) -> frozenset[bytes]:
        """The words of a line that some declaration asks for."""
        return self._prefilter.words_of(text)

    def why_not_general(self, text: str) -> str:
        """Say why the general reader makes no step of a line; empty where it has nothing to do with such lines."""
        text = without_launchers(strip_colours(self._newest_part(text)))
        candidates = self._prefilter.find_candidates(text)
        if candidates is None or not candidates.general:
            return ""
        if self._general_table.header(text) is not None:
            return "it is the header of a table, whose rows are below it"
        return self._general.why_not(text)

    def _read_candidates(self, text: str, candidates: Candidates, context: Context | None) -> Sequence[Reading]:
        if "\x1b" in text or "[0m" in text or "[39m" in text:
            text = strip_colours(text)
        if "#011" in text:  # a tab, as syslog and CloudWatch store it
            text = text.replace("#011", "\t")
        if text[-1:] == "]":
            text = unwrap(text)
        elif text[:2] == '{"':
            text = open_envelope(text)
        # Somebody's own pattern, which goes before the others, is searched in the whole line.
        is_own = bool(candidates.formats) and candidates.formats[0].is_somebodys_own
        if len(text) > MAX_CHARACTERS:
            text = self._newest_part(text)
        printed = text if is_own else without_launchers(text)
        if "\r" in printed:
            readings = self._read_segments(printed.split("\r"), candidates, context)
        else:
            readings = self._read_segment(printed, candidates, context, None)
        marks = _marks_on(text, candidates.marks) if candidates.marks else ()
        if not marks:
            return readings
        if not readings:
            return self._only_marks(marks)
        for reading in readings:
            hints, reading.framework = self._refined(reading.framework, marks)
            reading.hints += hints
        return readings

    def _refined(self, framework: str, marks: tuple[CompiledMark, ...]) -> tuple[tuple[FrameworkHint, ...], str]:
        """The signs of marks on a line, and the line's framework: a mark that refines it takes its place."""
        known = self._refinements.get((framework, marks))
        if known is None:
            ordered = sorted(marks, key=lambda mark: (-mark.confidence, mark.framework))
            finer = (mark.framework for mark in ordered if framework in mark.refines or not framework)
            known = (tuple(mark.hint for mark in ordered), next(finer, framework))
            self._refinements[framework, marks] = known
        return known

    def _only_marks(self, marks: tuple[CompiledMark, ...]) -> Sequence[Reading]:
        """The reading of a line that shows frameworks and says nothing else; made once for each set of marks."""
        made = self._marked.get(marks)
        if made is None:
            best = max(marks, key=lambda mark: mark.confidence)
            made = (Reading(framework=best.framework, hints=tuple(mark.hint for mark in marks)),)
            self._marked[marks] = made
        return made

    def _read_segments(self, segments: Sequence[str], candidates: Candidates, context: Context | None) -> list[Reading]:
        readings: list[Reading] = []
        bar: Bar | None = None
        for segment in segments:
            new = self._read_segment(segment, candidates, context, bar)
            for reading in new:
                bar = reading.bar or bar
            readings += new
        return readings

    def _read_segment(
        self, text: str, candidates: Candidates, context: Context | None, bar: Bar | None
    ) -> list[Reading]:
        readings: list[Reading] = []
        if context is not None and context.table is not None:
            readings = self._read_table_row(text, context)
        if candidates.formats and not readings:
            readings = self._steps(text, candidates, bar)
        is_header = False
        if candidates.tables and not readings and context is not None:
            is_header = self._open_table(text, candidates, context)
        for event in candidates.events:
            log_event = event.parse_event(text)
            if log_event is not None:
                self._attach(readings, event, log_event)
                break
        if candidates.failure and all(reading.log_event is None for reading in readings):
            failure = read_exception(text, context.traceback if context is not None else TracebackState())
            if failure is not None:
                readings.append(Reading(log_event=failure, text=text))
        if candidates.checkpoint and all(reading.log_event is None for reading in readings):
            checkpoint = read_checkpoint(text) or read_resuming(text)
            if checkpoint is not None:
                readings = readings or [Reading(text=text)]
                readings[-1].log_event = checkpoint
        if candidates.general and not (readings and readings[0].format):
            general = self._general.parse_line(text)
            if general is not None and (not readings or general.joins == "evaluates"):
                readings.append(general)
            elif general is None and context is not None and not is_header:
                self._open_general_table(text, context)
        if not readings and candidates.bar:
            seen = last_bar(text)
            if seen is not None:
                readings.append(Reading(bar=seen, text=text))
        return readings

    def _read_table_row(self, text: str, context: Context | None) -> list[Reading]:
        """The row of the table under whose header the line stands."""
        if context is None or context.table is None:
            return []
        row = context.table.read_row(text, context.columns)
        return [row] if row is not None else []

    def _steps(self, text: str, candidates: Candidates, bar: Bar | None) -> list[Reading]:
        for fmt in candidates.formats:
            if fmt.beginning not in text:
                continue
            readings: list[Reading] = []
            start = 0
            for _ in range(MAX_READINGS):
                result = fmt.parse_row(text, start)
                if isinstance(result, str):
                    break
                reading, end = result
                if fmt.is_mapping:
                    bar = last_bar(text[start:end]) or bar
                    apply_counter(reading, text[start : max(start, text.find("{", start))])
                    apply_bar(reading, bar)
                if not fmt.lacks(reading):
                    readings.append(reading)
                start = end
                if not fmt.is_mapping:
                    break
            if readings:
                return readings
        return []

    def _open_table(self, text: str, candidates: Candidates, context: Context) -> bool:
        for table in candidates.tables:
            names = table.header(text)
            if names is not None:
                context.table, context.columns = table, names
                return True
        return False

    def _open_general_table(self, text: str, context: Context) -> None:
        table = self._general_table
        names = table.header(text, context.columns if context.table is table else ())
        if names is not None:
            context.table, context.columns = table, names

    def _attach(self, readings: list[Reading], event: CompiledEvent, log_event: LogEvent) -> None:
        if not readings:
            readings.append(Reading(framework=event.framework))
        if event.declared.only_running:
            readings[-1].only_running = log_event
        else:
            readings[-1].log_event = log_event
            readings[-1].only_idle = event.declared.only_idle
        if event.framework:
            readings[-1].hints += (event.hint,)


def _marks_on(text: str, marks: Sequence[CompiledMark]) -> tuple[CompiledMark, ...]:
    """The marks that stand on a line, the surest of their kin: the others would say the same."""
    found: dict[tuple[str, frozenset[str]], CompiledMark] = {}
    for mark in marks:
        if mark.beginning in text and mark.kin not in found and mark.search(text, 0) is not None:
            found[mark.kin] = mark
    return tuple(found.values())
