"""Rows, events and evidence as lines of JSON, and lines as the body of a request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Dict, NamedTuple, Tuple

from . import __version__, say
from .buffer import Row, Summary
from .echo import Echo
from .session import USUAL_AXES, Session
from .values import Number, all_plain, numbers

PRODUCER = f"lens-hook/{__version__}"
# Keys that enhancement adds for wandb's sake and that are no measurement.
_MARKERS = frozenset({"_primus_lens_enabled"})
_MAX_KEYS = 20_000
_MAX_NAME_BYTES = 1024
_TEMPLATE_BYTES = 1 << 20
_compact = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


class Line(NamedTuple):
    """One encoded record."""

    text: bytes
    points: int  # metrics in it; 0 for evidence and events
    is_row: bool = True


# A row ready for the wire, one call of log or several of one step whose keys differ: the session, nothing but metrics,
# the step, the time, and whether wandb drops it.
Merged = Tuple[Session, Dict[str, Number], int, float, bool]

# Lines are made a thousand at a stretch, and the constructor of a NamedTuple takes three times as long.
_new_tuple: Any = tuple.__new__

# An encoder's knowledge of rows with the same names: their JSON with a place for each number, and whether one of the
# names may be the axis. A job logs the same few sets of names over and over.
Template = Tuple[bytes, bool]


class Encoder:
    """Gives every record of this process its sequence; used by one thread at a time."""

    def __init__(self) -> None:
        self._last_sequence = 0
        self._templates: dict[tuple[str, ...], Template] = {}
        self._template_bytes = 0

    def sequence(self, event_time: float) -> int:
        """A number above all earlier ones of this process, the time in microseconds where that is so."""
        sequence = int(event_time * 1e6)
        if sequence <= self._last_sequence:
            sequence = self._last_sequence + 1
        self._last_sequence = sequence
        return sequence

    def row(self, row: Merged) -> Line:
        """A `step_metrics` record."""
        session, values, row_step, event_time, dropped = row
        is_summary, of = type(values) is Summary, values.of if type(values) is Echo else ""
        if is_summary:  # beside the points of the curve, not among them
            of = values.of  # type: ignore[attr-defined]
            values = {f"summary/{name}" if name in session.names else name: values[name] for name in values}
        names = tuple(values)
        text, has_axis = self._templates.get(names) or self._template(names)
        if session.latest_names is not text and not is_summary:
            session.note_names(text, names)
        iteration = session.iteration(values, row_step) if has_axis or session.axes else row_step
        # `%a` of a number is its JSON.
        text %= (row_step, iteration, event_time, self.sequence(event_time), *values.values())
        if dropped:
            text = b'"tags":%b,%b' % (_tags(values, session.data_source, "dropped"), text)
        if is_summary:
            text = b'"tags":%b,%b' % (_tags(values, session.data_source, "summary"), text)
        if of:
            text = b'"echo_of":%b,%b' % (_compact.encode(of).encode("ascii"), text)
        line: Line = _new_tuple(Line, (session.row_prefix + text, len(names), True))
        return line

    def _template(self, names: tuple[str, ...]) -> Template:
        """The template for rows of these `names`, remembered as long as there is room."""
        places = ",".join([_keys[name].replace("%", "%%") + "%a" for name in names])
        text = f'"row_step":%d,"iteration":%d,"event_time":%.6f,"sequence":%d,"values":{{{places}}}}}'.encode("ascii")
        template = text, any(axis in names for axis in USUAL_AXES)
        self._template_bytes += 2 * len(text)
        if self._template_bytes > _TEMPLATE_BYTES:
            self._templates, self._template_bytes = {}, 2 * len(text)
        self._templates[names] = template
        return template

    def event(self, session: Session, kind: str, event_time: float, details: dict[str, Any]) -> Line:
        """An `event` record, of the source of the session's rows: so it has their attempt."""
        text = (
            f'{{"record":"event","type":"{kind}","data_source":{_compact.encode(session.data_source)},'
            f'{session.identity_json()},"event_time":{event_time:.6f},"sequence":{self.sequence(event_time)},'
            f'"details":{_compact.encode(details)}}}'
        )
        return Line(text.encode("ascii"), 0, is_row=False)

    def evidence(self, session: Session, source: str, event_time: float, facts: dict[str, Any]) -> Line:
        """An `evidence` record; `facts` must be plain JSON."""
        text = (
            f'{{"record":"evidence","source":"{source}",{session.identity_json()},"event_time":{event_time:.6f},'
            f'"facts":{_compact.encode(facts)}}}'
        )
        return Line(text.encode("ascii"), 0, is_row=False)


def _tags(values: dict[str, Number], tracker: str, tag: str) -> bytes:
    """Tags are per metric: all of this row are values that wandb did not keep, or that belong to a summary."""
    return _compact.encode({shorten_name(name): {tracker: tag} for name in values}).encode("ascii")


def shorten_name(name: str) -> str:
    """A name of at most 1,024 bytes: a longer one keeps its beginning and gets a digest, as Lens' store has it."""
    if len(name) <= _MAX_NAME_BYTES // 4:
        return name
    encoded = name.encode("utf-8", "replace")
    if len(encoded) <= _MAX_NAME_BYTES:
        return name
    import hashlib  # hardly ever needed

    say.once("names", f"a metric's name of {len(encoded)} bytes is cut to {_MAX_NAME_BYTES}: {name[:60]}...")
    digest = hashlib.sha256(encoded).hexdigest()[:16]
    return encoded[: _MAX_NAME_BYTES - 20].decode("utf-8", "ignore") + "#" + digest


class _Keys(Dict[str, str]):
    """Names of metrics as JSON with the colon after them; a job logs the same few names over and over."""

    def __missing__(self, name: str) -> str:
        text = f"{_compact.encode(shorten_name(name))}:"
        if len(self) < _MAX_KEYS:
            self[name] = text
        return text


_keys = _Keys()


def row_values(data: dict[Any, Any]) -> dict[str, Number]:
    """The metrics of a snapshot, without what enhancement marked; the snapshot itself if it holds nothing else."""
    if all_plain(data):
        return data
    values = numbers(data)
    if not _MARKERS.isdisjoint(values):
        for name in _MARKERS:
            values.pop(name, None)
    return values


def _raise(points: int, error: Exception) -> None:
    raise error


def merge(rows: Iterable[Row], lose: Callable[[int, Exception], None] = _raise) -> list[Merged]:
    """The rows with their steps, and consecutive ones of one session and step made one where no key is in both.

    Rows without a metric (text, media) vanish. The last call's time and order stand for the merged row. A row that
    fails goes to `lose` with the number of its values and the error, and takes no other row with it.
    """
    merged: list[Merged] = []
    latest: dict[Session, int] = {}  # index of each session's latest row
    for session, data, step, commit, before, after, event_time in rows:
        try:
            if type(data) is Summary:
                found = Summary(row_values(data), data.of)
                merged += [(session, found, session.latest_step, event_time, False)] if found else []
                continue
            row_step, dropped = session.place(step, commit, before, after)
            values = row_values(data)
            if type(data) is Echo and type(values) is not Echo:
                values = Echo(values, data.of)
        except Exception as error:  # noqa: BLE001 - whatever somebody has logged
            lose(len(data), error)
            continue
        if not values:
            continue
        index = latest.get(session, -1)
        if index >= 0:
            _, earlier, earlier_step, _, was_dropped = merged[index]
            is_same = earlier_step == row_step and was_dropped == dropped and _is_alike(earlier, values)
            if is_same and earlier.keys().isdisjoint(values):
                earlier.update(values)
                merged[index] = (session, earlier, row_step, event_time, dropped)
                continue
        latest[session] = len(merged)
        merged.append((session, values, row_step, event_time, dropped))
    return merged


def _is_alike(earlier: dict[str, Number], values: dict[str, Number]) -> bool:
    """Whether both are the same framework's echo, or none."""
    return getattr(earlier, "of", None) == getattr(values, "of", None)


def envelope(origin: bytes, lines: Iterable[bytes]) -> bytes:
    """The body of POST /records; `origin` and `lines` are JSON objects."""
    head = f'{{"version":1,"producer":"{PRODUCER}","origin":'.encode("ascii")
    return head + origin + b',"records":[' + b",".join(lines) + b"]}"


def encode_origin(origin: dict[str, Any]) -> bytes:
    """An origin as compact JSON."""
    return _compact.encode(origin).encode("ascii")
