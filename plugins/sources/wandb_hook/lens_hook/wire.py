"""Rows, events and evidence as lines of JSON, and lines as the body of a request."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Dict, NamedTuple

from . import __version__
from .buffer import Row
from .session import Session
from .values import Number, numbers

PRODUCER = f"lens-hook/{__version__}"
# Keys that enhancement adds for wandb's sake and that are no measurement.
_MARKERS = frozenset({"_primus_lens_enabled"})
_MAX_KEYS = 20_000
_compact = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


class Line(NamedTuple):
    """One encoded record."""

    text: bytes
    points: int  # metrics in it; 0 for evidence and events
    is_row: bool = True


class Merged(NamedTuple):
    """A row ready for the wire: one call of log, or several of one step whose keys differ."""

    session: Session
    values: dict[str, Number]
    row_step: int
    event_time: float
    dropped_by_wandb: bool


class Encoder:
    """Gives every record of this process its sequence; used by one thread at a time."""

    def __init__(self) -> None:
        self._last_sequence = 0

    def sequence(self, event_time: float) -> int:
        """A number above all earlier ones of this process, the time in microseconds where that is so."""
        self._last_sequence = max(self._last_sequence + 1, int(event_time * 1e6))
        return self._last_sequence

    def row(self, row: Merged) -> Line:
        """A `step_metrics` record."""
        session = row.session
        iteration = session.iteration(row.values, row.row_step)
        tags = f',"tags":{_dropped_tags(row.values)}' if row.dropped_by_wandb else ""
        text = (
            f'{session.row_prefix},"row_step":{row.row_step},"iteration":{iteration},'
            f'"event_time":{row.event_time:.6f},"sequence":{self.sequence(row.event_time)}{tags},'
            f'"values":{values_json(row.values)}}}'
        )
        return Line(text.encode("ascii"), len(row.values))

    def event(self, session: Session, kind: str, event_time: float, details: dict[str, Any]) -> Line:
        """An `event` record."""
        text = (
            f'{{"record":"event","type":"{kind}",{session.identity_json()},"event_time":{event_time:.6f},'
            f'"sequence":{self.sequence(event_time)},"details":{_compact.encode(details)}}}'
        )
        return Line(text.encode("ascii"), 0, is_row=False)

    def evidence(self, session: Session, source: str, event_time: float, facts: dict[str, Any]) -> Line:
        """An `evidence` record; `facts` must be plain JSON."""
        text = (
            f'{{"record":"evidence","source":"{source}",{session.identity_json()},"event_time":{event_time:.6f},'
            f'"facts":{_compact.encode(facts)}}}'
        )
        return Line(text.encode("ascii"), 0, is_row=False)


def _dropped_tags(values: dict[str, Number]) -> str:
    """Tags are per metric: all of this row are values that wandb did not keep."""
    return _compact.encode({name: {"wandb": "dropped"} for name in values})


class _Keys(Dict[str, str]):
    """Names of metrics as JSON with the colon behind them; a job logs the same few names over and over."""

    def __missing__(self, name: str) -> str:
        text = f"{_compact.encode(name)}:"
        if len(self) < _MAX_KEYS:
            self[name] = text
        return text


_keys = _Keys()


def values_json(values: dict[str, Number]) -> str:
    """Metrics as a JSON object; `repr` of a plain number is its JSON."""
    keys = _keys
    return "{" + ",".join([keys[name] + repr(number) for name, number in values.items()]) + "}"


def row_values(data: dict[Any, Any]) -> dict[str, Number]:
    """The metrics of a snapshot, without what enhancement marked."""
    values = numbers(data)
    if not _MARKERS.isdisjoint(values):
        for name in _MARKERS:
            values.pop(name, None)
    return values


def merge(rows: Iterable[Row]) -> list[Merged]:
    """The rows with consecutive ones of one session and step made one where no key is in both.

    Rows without a metric (text, media) vanish. The last call's time and order stand for the merged row.
    """
    merged: list[Merged] = []
    latest: dict[int, int] = {}  # id of a session -> index of its latest row
    for session, data, row_step, event_time, dropped in rows:
        values = row_values(data)
        if not values:
            continue
        index = latest.get(id(session), -1)
        if index >= 0:
            earlier = merged[index]
            same = earlier.row_step == row_step and earlier.dropped_by_wandb == dropped
            if same and earlier.values.keys().isdisjoint(values):
                earlier.values.update(values)
                merged[index] = earlier._replace(event_time=event_time)
                continue
        latest[id(session)] = len(merged)
        merged.append(Merged(session, values, row_step, event_time, dropped))
    return merged


def envelope(origin: bytes, lines: Iterable[bytes]) -> bytes:
    """The body of POST /records; `origin` and `lines` are JSON objects."""
    head = f'{{"version":1,"producer":"{PRODUCER}","origin":'.encode("ascii")
    return head + origin + b',"records":[' + b",".join(lines) + b"]}"


def encode_origin(origin: dict[str, Any]) -> bytes:
    """An origin as compact JSON."""
    return _compact.encode(origin).encode("ascii")
