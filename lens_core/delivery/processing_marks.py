"""Marks of what each sink is being given, so that a batch that ends the daemon is recognised after a restart.

A mark is written before a sink gets records and erased when it has answered: 64 bytes in a file beside the spool, never
synced, because the kernel keeps what a process wrote when that process dies. A mark that is found at start says that
the daemon died meanwhile. What died once is given in small parts; a part that was there at a second death is put aside.
"""

from __future__ import annotations

import hashlib
import logging
import os
import struct
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ..plugin_api.sink_answers import Position
from .sending.policy import Part

logger = logging.getLogger("lens.delivery")

SUFFIX = ".processing"
DEATHS_UNTIL_ASIDE = 2
_PARTS = 16
_ENTRY = struct.Struct("<16s16sqqqqi")
_SIZE = 128


class Suspect(NamedTuple):
    """The records in flight to a sink, from `start` to `end`, when the daemon died for the `deaths`-th time."""

    start: Position
    end: Position
    deaths: int

    @property
    def must_go_aside(self) -> bool:
        """Whether it is not given to the sink again."""
        return self.deaths >= DEATHS_UNTIL_ASIDE

    @property
    def reason(self) -> str:
        """Why it is a dead letter."""
        return f"the daemon died {self.deaths} times while the sink was given this; replay it when the cause is known"


class ProcessingMarks:
    """The marks of one spool's sinks; without a path, or where the file cannot be used, there are none."""

    def __init__(self, path: Path | None) -> None:
        self._path = path.with_name(path.name + SUFFIX) if path is not None else None
        self._spool = b""
        self._places: dict[str, int] = {}
        self._file: int | None = None
        self._suspects: dict[str, Suspect] = {}

    def load_marks(self, spool_id: str, sinks: Iterable[str]) -> None:
        """Read what the last process left for these sinks of this spool, and begin anew."""
        self._spool = _digest(spool_id)
        self._places = {sink: number * _SIZE for number, sink in enumerate(sorted(sinks))}
        if self._path is None:
            return
        try:
            self._suspects = self._decode_marks(self._path.read_bytes() if self._path.exists() else b"")
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            for sink, suspect in self._suspects.items():  # until it is given again, a death is not forgotten
                self._write_mark(sink, suspect._replace(deaths=suspect.deaths - 1))
        except OSError as error:
            logger.warning("batches that crash the daemon cannot be detected: %s: %s", self._path, error)
        for sink, suspect in self._suspects.items():
            logger.warning("%s: the daemon died while this sink was given %s to %s", sink, suspect.start, suspect.end)

    def close(self) -> None:
        """Close the file; what is marked stays."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def suspect(self, sink: str) -> Suspect | None:
        """Return the records in flight to the sink when the daemon died."""
        return self._suspects.get(sink)

    def clear(self, sink: str) -> None:
        """Clear the mark: the suspected batch was delivered or put aside."""
        self._suspects.pop(sink, None)

    def begin_batch(self, sink: str, start: Position, end: Position, deaths: int = 0) -> None:
        """The sink is about to get the records from `start` to `end`, at which the daemon died so often before."""
        self._write_mark(sink, Suspect(start, end, deaths))

    def end_batch(self, sink: str) -> None:
        """The sink has answered, whatever it said."""
        if self._file is not None:
            self._write_at(bytes(_SIZE), self._places[sink])

    def _write_mark(self, sink: str, mark: Suspect) -> None:
        if self._file is not None and sink in self._places:
            entry = _ENTRY.pack(self._spool, _digest(sink), *mark.start, *mark.end, mark.deaths)
            self._write_at(entry.ljust(_SIZE, b"\0"), self._places[sink])

    def _write_at(self, data: bytes, place: int) -> None:
        assert self._file is not None
        try:
            os.pwrite(self._file, data, place)
        except OSError as error:  # a full disk: deliver on without marks
            logger.warning("batches that crash the daemon cannot be detected: %s", error)
            self.close()

    def _decode_marks(self, data: bytes) -> dict[str, Suspect]:
        sinks = {_digest(sink): sink for sink in self._places}
        found: dict[str, Suspect] = {}
        for place in range(0, len(data) - _SIZE + 1, _SIZE):
            spool, name, *numbers, deaths = _ENTRY.unpack_from(data, place)
            if spool == self._spool and name in sinks:
                start, end = Position(*numbers[:2]), Position(*numbers[2:])
                found[sinks[name]] = Suspect(start, end, deaths + 1)
        return found


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()


def parts_around(places: Sequence[Position], suspect: Suspect | None) -> list[Part]:
    """The records of a batch in parts: what is suspected in small ones, or in one that is put aside, the rest whole.

    `places` are the positions before the first record and after each one.
    """
    size = len(places) - 1
    inside = [index for index in range(size) if is_inside(places, Part(index, index + 1), suspect)]
    if suspect is None or not inside:
        return [Part(0, size)]
    first, last = inside[0], inside[-1] + 1
    step = last - first if suspect.must_go_aside else max(1, -(-(last - first) // _PARTS))
    cuts = [0, *range(first, last, step), last, size]
    return [Part(low, high) for low, high in pairwise(cuts) if low < high]


def is_inside(places: Sequence[Position], part: Part, suspect: Suspect | None) -> bool:
    """Whether all records of a part are suspected."""
    return suspect is not None and suspect.start < places[part.first + 1] and places[part.last - 1] < suspect.end
