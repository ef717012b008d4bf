"""Server-sent events: whose data came (for the page), and the records themselves (for `lens tap`)."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...base.errors import BadRequest
from ...model.records import RECORD_KINDS, LogLine, Record, SeriesBatch, StepMetrics
from ...pipeline.tap import (
    MAX_CHANGED_NAMES,
    MAX_KEPT_RECORDS,
    ChangeListener,
    RecordListener,
    RecordSelection,
    Tap,
)
from ..auth import require_role
from ..point_text import special_name
from ..sse import EventStream
from ..state import ApiState

# Proxies end connections on which nothing comes; a comment keeps them.
HEARTBEAT_SECONDS = 5.0
CHANGES_EVERY_SECONDS = 1.0
_PIECE_BYTES = 512 * 1024
# Longer than this no text is shown; it is stored whole.
MAX_SHOWN_TEXT = 2000


class LiveRoutes:
    """GET /api/v1/changes and /api/v1/tap."""

    def __init__(self, state: ApiState) -> None:
        self._state = state

    def routes(self) -> list[Route]:
        """Both routes; what passes may be anybody's configuration, so the role is that of asking."""
        return [
            Route("/changes", self.changes, methods=["GET"]),
            Route("/tap", self.tap, methods=["GET"]),
        ]

    async def changes(self, request: Request) -> Response:
        """Server-sent events `changed`: whose data came within the last second."""
        require_role(request, self._state, "read")
        self._state.tap.ensure_room()
        return _stream(_changes(self._state.tap))

    async def tap(self, request: Request) -> Response:
        """Server-sent events `record`: the records as they pass; `pipeline`, `workload`, `kind` with * and ?."""
        require_role(request, self._state, "read")
        wanted = wanted_records(request)
        self._state.tap.ensure_room()
        return _stream(_records(self._state.tap, wanted))


def wanted_records(request: Request) -> RecordSelection:
    """The filter of the parameters. Raises BadRequest for a kind that there is not."""
    kinds = {name for text in request.query_params.getlist("kind") for name in text.split(",") if name}
    if unknown := sorted(kinds - set(RECORD_KINDS)):
        raise BadRequest(f"kind {unknown[0]!r} is not one of {', '.join(RECORD_KINDS)}")
    parameters = request.query_params
    return RecordSelection(parameters.get("pipeline", "*"), parameters.get("workload", "*"), sorted(kinds))


def shown(pipeline: str, record: Record) -> dict[str, Any]:
    """A record as JSON can hold it: numbers that it cannot hold as texts, long texts cut, bytes left out."""
    fields: dict[str, Any] = {"pipeline": pipeline, **msgspec.to_builtins(_light(record))}
    if isinstance(record, StepMetrics):
        fields["values"] = {
            name: value if math.isfinite(value) else special_name(value) for name, value in record.values.items()
        }
    return fields


def _light(record: Record) -> Record:
    if isinstance(record, SeriesBatch):
        return msgspec.structs.replace(record, body=b"")
    if isinstance(record, LogLine) and len(record.text) > MAX_SHOWN_TEXT:
        return msgspec.structs.replace(record, text=record.text[:MAX_SHOWN_TEXT] + " …")
    return record


async def _changes(tap: Tap) -> AsyncIterator[bytes]:
    silent: Sequence[str] = ()
    with tap.listening(ChangeListener(MAX_CHANGED_NAMES)) as listener:
        yield _encode_event("hello", {"time": time.time()})
        while not listener.closed:
            await listener.wait(HEARTBEAT_SECONDS)
            if listener.silent != silent:
                silent = listener.silent
                yield _encode_event("silent", {"daemons": list(silent)})
            names = listener.drain_subjects()
            if not names:
                # An event, not a comment: a browser tells a page nothing of comments, and the page must see a
                # daemon that holds the connection and says nothing.
                yield _encode_event("alive", {"time": time.time()})
                continue
            yield _encode_event("changed", {"workloads": names, "more": len(names) >= MAX_CHANGED_NAMES})
            await asyncio.sleep(CHANGES_EVERY_SECONDS)


async def _records(tap: Tap, wanted: RecordSelection) -> AsyncIterator[bytes]:
    dropped = 0
    silent: Sequence[str] = ()
    with tap.listening(RecordListener(wanted, MAX_KEPT_RECORDS)) as listener:
        yield _encode_event("hello", {"time": time.time()})
        while not listener.closed:
            await listener.wait(HEARTBEAT_SECONDS)
            if listener.silent != silent:
                silent = listener.silent
                yield _encode_event("silent", {"daemons": list(silent)})
            records = listener.drain_records()
            if listener.dropped > dropped:
                yield _encode_event("dropped", {"records": listener.dropped - dropped})
                dropped = listener.dropped
            if not records:
                yield b":\n\n"
            piece = bytearray()
            for item in records:
                piece += _encode_event("record", shown(*item))
                if len(piece) >= _PIECE_BYTES:  # a reader that is slow holds no more than that
                    yield bytes(piece)
                    piece.clear()
            if piece:
                yield bytes(piece)


def _encode_event(name: str, data: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))


def _stream(events: AsyncIterator[bytes]) -> Response:
    return EventStream(events)
