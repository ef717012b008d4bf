"""Reads a log file, with the times on its lines or those of a second file, into the ledger of its run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timezone

import msgspec

from lens_core import LensError, LogLine
from lens_core.logs import parse_log_line, read_log

from .facts import Ledger
from .ledger import ledger_of
from .log_facts import LogFacts

_MILLISECONDS = 1e11
_LATEST = 1e15
HOW = "give their times in a file with one time for each line: --times FILE"


def ledger_of_log(lines: Iterable[bytes], name: str, times: Iterable[str] | None = None) -> Ledger:
    """The ledger of a log; its first time is the start of the process.

    Raises LensError where no line has a time, or where nothing in it is a step of training.
    """
    dated = _Dated(lines, times, name)
    for record in read_log(dated):
        if dated.found is not None:
            dated.found.read([record])
    found = dated.found
    if found is None:
        raise LensError(f"{name}: no line has a date and a time, so nothing can be measured; {HOW}")
    if not found.rows:
        raise LensError(f"{name}: no line is a step of training; `lens explain {name}` says why")
    found.is_approximate = dated.undated > 0
    ledger = ledger_of(found.facts())
    if dated.undated:
        note = f"{dated.undated} of {dated.count} lines have no time and count as of the time before them; {HOW}"
        ledger = msgspec.structs.replace(ledger, notes=[*ledger.notes, note])
    return ledger


class _Dated:
    """The lines with their times, told to the facts; one without a time has that of the line before it."""

    def __init__(self, lines: Iterable[bytes], times: Iterable[str] | None, name: str) -> None:
        self._lines, self._times, self._name = lines, times, name
        self.found: LogFacts | None = None
        self.latest: float | None = None
        self.undated = 0
        self.count = 0

    def __iter__(self) -> Iterator[LogLine]:
        waiting: list[LogLine] = []
        for line, given in self._pairs():
            self.count += 1
            moment = given if given is not None else line.event_time
            if moment is None:
                self.undated += bool(line.text.strip())
                if self.latest is None:
                    waiting.append(line)
                    continue
                moment = self.latest
            if self.found is None:
                self.found = LogFacts(moment, self._name)
                yield from (msgspec.structs.replace(early, event_time=moment) for early in waiting)
            self.latest = moment
            self.found.record_line(moment)
            yield msgspec.structs.replace(line, event_time=moment)

    def _pairs(self) -> Iterator[tuple[LogLine, float | None]]:
        times = iter(self._times) if self._times is not None else None
        for number, raw in enumerate(self._lines, 1):
            given = None
            if times is not None:
                text = next(times, None)
                if text is None:
                    raise LensError(f"--times: ends at line {number - 1}, before the log; give one time for each line")
                given = parse_time(text, number)
            yield parse_log_line(raw.decode("utf-8", "replace")), given


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
