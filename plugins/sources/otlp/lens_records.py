"""Rows and events that another Lens sends as log records (sink `otlp`): exact, and read back as what they were."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from lens_core import EVENT_TYPES, Event, Origin, Record, StepMetrics
from lens_core.plugin_api.encoding import why_refused

from .resources import Resource
from .values import BadValue, read_value, without_specials

ROW_NAME = "lens.training.row"
EVENT_PREFIX = "lens.event."
# Attributes of such a record: the fields of a row or an event that are no values.
FIELDS = ("data_source", "run_id", "session", "attempt", "iteration", "row_step", "sequence", "event_time")
PREFIX = "lens."
TAGS = "lens.tags"
_R = TypeVar("_R", bound=Record)


def is_lens_record(name: bytes) -> bool:
    """Whether the name of an event is one that a Lens gives."""
    return name.startswith(b"lens.") and (name == ROW_NAME.encode() or name.startswith(EVENT_PREFIX.encode()))


def record_of(
    record: Any, attributes: Mapping[str, Any], resource: Resource, complete: Callable[[Origin], Origin]
) -> Record:
    """The row or the event. Raises BadValue, also for one that nobody could ever ask for."""
    body = read_value(record.body) if record.body else {}
    name = record.event_name.decode("utf-8", "replace")
    fields = {field: attributes[PREFIX + field] for field in FIELDS if PREFIX + field in attributes}
    fields.setdefault("event_time", record.time_unix_nano / 1_000_000_000 or None)
    if not resource.origin.is_known:
        raise BadValue("a row or an event needs a resource that says whose it is")
    fields["origin"] = complete(resource.origin)
    if name == ROW_NAME:
        return _converted({**fields, "values": body, "tags": attributes.get(TAGS, {})}, StepMetrics)
    kind = name.removeprefix(EVENT_PREFIX)
    if kind not in EVENT_TYPES:
        raise BadValue(f"there are no events of the type {kind[:100]!r}")
    fields.pop("row_step", None)
    fields.pop("sequence", None)
    event = _converted({**fields, "type": kind, "details": without_specials(body)}, Event)
    if reason := why_refused(event):
        raise BadValue(reason)
    return event


def _converted(fields: Mapping[str, Any], kind: type[_R]) -> _R:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise BadValue(f"a record of Lens is malformed: {error}") from None
