"""Reads a log file, with the times on its lines or those of a second file, into the ledger of its run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone

import msgspec

from lens_core import LensError, LogLine
from lens_core.logs import decode_lines, parse_log_line, read_log

from .facts import Ledger
from .ledger import ledger_of
from .log_facts import LogFacts

_MILLISECONDS = 1e11
_LATEST = 1e15
# Ranks and threads write beside each other; lines that are further back than this are out of order.
_OUT_OF_ORDER_SECONDS = 1.0
_STRAY_SECONDS = 86400.0
_FEW_STRAYS = 0.02
_MOST_SORTED_CHARACTERS = 256 * 1024 * 1024
HOW = "give their times in a file with one time for each line: --times FILE"


def ledger_of_log(read_lines: Callable[[], Iterable[bytes]], name: str, times: Sequence[str] | None = None) -> Ledger:
    """The ledger of a log; its first time is the start of the process.

    `read_lines` gives the lines from the first on, and is called again where they are not in the order of their times.
    Raises LensError where no line has a time, or where nothing in it is a step of training.
    """
    dated = _Dated(read_lines(), times, name)
    found = _read_facts(dated, name)
    if found is None:
        raise LensError(f"{name}: no line has a date and a time, so nothing can be measured; {HOW}")
    notes = []
    if dated.is_out_of_order and dated.characters <= _MOST_SORTED_CHARACTERS:
        found = _read_facts(_in_order(list(_Dated(read_lines(), times, name))), name) or found
    elif dated.is_out_of_order:
        notes.append("the lines are not in the order of their times, and too many to be sorted: sort the file")
    if not found.rows:
        raise LensError(f"{name}: no line is a step of training; `lens explain {name}` says why")
    found.is_approximate = dated.undated > 0
    ledger = ledger_of(found.facts())
    if dated.undated:
        notes.append(f"{dated.undated} of {dated.count} lines have no time and count as of the time before them; {HOW}")
    return msgspec.structs.replace(ledger, notes=[*ledger.notes, *notes]) if notes else ledger


def _read_facts(lines: Iterable[LogLine], name: str) -> LogFacts | None:
    """The facts of lines that all have a time; None without lines."""
    found: LogFacts | None = None

    def noted_lines() -> Iterator[LogLine]:
        nonlocal found
        for line in lines:
            assert line.event_time is not None
            if found is None:
                found = LogFacts(line.event_time, name)
            found.record_line(line.event_time)
            yield line

    for record in read_log(noted_lines(), repeats_ends=True):
        assert found is not None
        found.read([record])
    return found


def _in_order(lines: list[LogLine]) -> list[LogLine]:
    """The lines by their times. A few that are days before both neighbours only mention a date, and stay in place."""
    times = [line.event_time or 0.0 for line in lines]
    strays = [
        place
        for place in range(1, len(times))
        if times[place] < times[place - 1] - _STRAY_SECONDS
        and (place + 1 == len(times) or times[place] < times[place + 1] - _STRAY_SECONDS)
    ]
    if len(strays) <= max(1.0, _FEW_STRAYS * len(times)):
        for place in strays:
            times[place] = times[place - 1]
    order = sorted(range(len(times)), key=times.__getitem__)
    return [msgspec.structs.replace(lines[place], event_time=times[place]) for place in order]


class _Dated:
    """The lines with their times; one without a time has that of the line before it."""

    def __init__(self, lines: Iterable[bytes], times: Sequence[str] | None, name: str) -> None:
        self._lines, self._times, self._name = lines, times, name
        self.latest: float | None = None
        self.highest = 0.0
        self.is_out_of_order = False
        self.undated = 0
        self.count = 0
        self.characters = 0

    def __iter__(self) -> Iterator[LogLine]:
        waiting: list[LogLine] = []
        for line, given in self._pairs():
            self.count += 1
            self.characters += len(line.text)
            moment = given if given is not None else line.event_time
            if moment is None:
                self.undated += bool(line.text.strip())
                if self.latest is None:
                    waiting.append(line)
                    continue
                moment = self.latest
            if self.latest is None:
                yield from (msgspec.structs.replace(early, event_time=moment) for early in waiting)
            self.latest = moment
            self.is_out_of_order = self.is_out_of_order or moment < self.highest - _OUT_OF_ORDER_SECONDS
            self.highest = max(self.highest, moment)
            yield msgspec.structs.replace(line, event_time=moment)

    def _pairs(self) -> Iterator[tuple[LogLine, float | None]]:
        for number, line in enumerate(decode_lines(self._lines), 1):
            given = None
            if self._times is not None:
                if number > len(self._times):
                    raise LensError(f"--times: ends at line {number - 1}, before the log; give one time for each line")
                given = parse_time(self._times[number - 1], number)
            yield parse_log_line(line), given


def parse_time(text: str, number: int) -> float | None:
    """A time in seconds or milliseconds since the epoch, or of ISO 8601 (UTC without a zone); None without one."""
    text = text.strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        except ValueError:
            raise LensError(
                f"--times: line {number} is {text[:40]!r}; write seconds since the epoch or 2026-05-18T16:04:46Z"
            ) from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    if not 0 <= value < _LATEST:
        raise LensError(f"--times: line {number} is {text[:40]!r}, which is no time")
    return value / 1000.0 if value > _MILLISECONDS else value
