"""Log records of OTLP → log lines, on the road that `/logs` takes; and rows and events that another Lens sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from lens_core import Event, LogLine, Origin, Record

from ..log_batches import LineBatch
from ..log_entries import Entry, EntryConverter
from .lens_records import is_lens_record, record_of
from .resources import MAX_RANK, RANK_KEYS, Resource, read_resource
from .turns import AT_A_TIME, Turns
from .values import BadValue, read_attributes, read_value, text_of, whole_number, without_specials

_NANOSECONDS = 1_000_000_000
_STREAM_KEYS = ("log.iostream", "stream")
_STACK_KEY = "exception.stacktrace"
# Fields by which a body is an entry as shippers write them, and not a map of somebody's own.
_MESSAGE_KEYS = ("message", "log", "msg")
_ITEM_ERRORS = (msgspec.DecodeError, UnicodeDecodeError)
_entry = msgspec.json.Decoder(Entry, strict=False)


class LogRecords:
    """The records of one request on their way to lines; `others` are rows and events."""

    def __init__(self, max_line_bytes: int, complete: Callable[[Origin], Origin], lines: LineBatch) -> None:
        self._max_line_bytes = max_line_bytes
        self._complete = complete
        self._converters: dict[bytes, tuple[Resource, EntryConverter]] = {}
        self.lines = lines
        self.others: list[Record] = []
        self.received = 0

    def convert_records(self, message: Any) -> Iterator[None]:
        """Convert a request; yields whenever others should get a turn. Raises BadRequest for too many parts."""
        turns = Turns()
        turns.announce(message.resource_logs)
        for resource_logs in message.resource_logs:
            turns.announce(resource_logs.scope_logs)
            for scope_logs in resource_logs.scope_logs:
                records = scope_logs.log_records
                turns.announce(records)
                for first in range(0, len(records), AT_A_TIME):
                    portion = records[first : first + AT_A_TIME]
                    self.lines.append_converted(self._lines_of(portion, resource_logs.resource))
                    if turns.is_over(len(portion)):
                        yield
                if turns.is_over():
                    yield
            if turns.is_over():
                yield

    def _lines_of(self, records: Any, raw: bytes) -> Iterator[tuple[int, LogLine | Event | str]]:
        try:
            resource, converter = self._converter_of(raw)
        except BadValue as error:
            for _ in records:
                yield self._count_record(), str(error)
            return
        for record in records:
            place = self._count_record()
            try:
                attributes = read_attributes(record.attributes)
                if is_lens_record(record.event_name):
                    self.others.append(record_of(record, attributes, resource, self._complete))
                    continue
                entry = _entry_of(record, attributes)
            except BadValue as error:
                yield place, str(error)
                continue
            for text in _texts_of(entry, attributes):
                yield place, converter.convert(msgspec.structs.replace(entry, message=text, log=None, msg=None))

    def _count_record(self) -> int:
        self.received += 1
        return self.received - 1

    def _converter_of(self, raw: bytes) -> tuple[Resource, EntryConverter]:
        found = self._converters.get(raw)
        if found is None:
            resource = read_resource(raw)
            converter = EntryConverter(resource.origin, self._max_line_bytes, self._complete)
            found = self._converters[raw] = (resource, converter)
        return found


def _entry_of(record: Any, attributes: Mapping[str, Any]) -> Entry:
    """A record as the entry that a shipper would post to `/logs`. Raises BadValue."""
    body = read_value(record.body) if record.body else None
    moment = (record.time_unix_nano or record.observed_time_unix_nano) / _NANOSECONDS or None
    stream = next((text_of(attributes[key]) for key in _STREAM_KEYS if key in attributes), None)
    rank = next((whole_number(attributes[key], -1, MAX_RANK) for key in RANK_KEYS if key in attributes), None)
    if isinstance(body, dict) and any(isinstance(body.get(key), str) for key in _MESSAGE_KEYS):
        return _entry_of_map(body, moment, stream, rank)
    if isinstance(body, bytes):
        text = body.decode("utf-8", "replace")
    else:
        text = text_of(body) or record.event_name.decode("utf-8", "replace")
    return Entry(message=text, date=moment, stream=stream, rank=rank)


def _entry_of_map(body: Mapping[str, Any], moment: float | None, stream: str | None, rank: int | None) -> Entry:
    """The entry that a shipper has put into a map, with what the record itself says beside it."""
    try:
        entry = _entry.decode(msgspec.json.encode(without_specials(body)))
    except _ITEM_ERRORS as error:
        raise BadValue(f"the body is no entry: {error}") from None
    return msgspec.structs.replace(
        entry,
        message=entry.message or entry.log or entry.msg,
        date=moment if moment is not None else entry.date,
        stream=stream or entry.stream,
        rank=rank if rank is not None else entry.rank,
    )


def _texts_of(entry: Entry, attributes: Mapping[str, Any]) -> list[str]:
    """The lines of an entry, and those of the traceback that a logging library has put beside it."""
    text = entry.message or ""
    stack = attributes.get(_STACK_KEY)
    if isinstance(stack, str) and stack not in text:
        text = f"{text}\n{stack}"
    return text.rstrip("\r\n").split("\n") if "\n" in text else [text]
