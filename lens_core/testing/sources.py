"""Contract checks for sources: nothing acknowledged that was not taken, nothing lost beside something bad."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ..base.errors import LensError, Overloaded, RequestError
from ..base.self_metrics import SelfMetrics
from ..http.app import routes_of
from ..http.openapi import parameters_of, schemas_of
from ..http.state import ApiState
from ..http.tokens import TokenStore
from ..model.records import Record, encode_envelope
from ..plugin_api.components import Component, IngestRequest, Reply, Route, Sink, Source
from ..plugin_host.host import PluginHost
from ..plugin_host.info import needs_settings
from .hosts import make_context
from .watching import check_idle, give_up, started, unblocked, within

_GARBAGE: tuple[bytes, ...] = (
    b"",
    b"\x00\xff\xfe",
    b"null",
    b"5",
    b'"text"',
    b"[]",
    b"{}",
    b"[null, 5, {}, []]",
    b'{"logs": 5, "metrics": {}, "records": "x", "detection": []}',
    b'{"records": [{"record": "unknown"}, {"record": "step_metrics"}, 7]}',
    b'{"a": NaN, "b": [Infinity, -Infinity]}',
    b"[" * 2000,
    b'{"a":' * 2000,
    b'{"message": "\xed\xa0\x80 \xc3"}',
    b'[{"message": "\\ud800"}]',
    '{"größe": "\U0001f600"}'.encode(),
    b"1" * 5000,
    b'{"n": 1e999, "m": -99999999999999999999999999}',
)


class RecordingGate:
    """A gate that keeps the records and checks that the counts add up; `overloaded` makes it refuse."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.received = self.filtered = 0
        self.rejected: dict[str, int] = {}
        self.overloaded = False
        self.submissions = 0

    async def submit(
        self,
        records: Sequence[Record],
        *,
        received: int | None = None,
        filtered: int = 0,
        rejected: Mapping[str, int] | None = None,
    ) -> None:
        """As plugin_api.Gate says."""
        if self.overloaded:
            raise Overloaded("the spool is full", retry_after_seconds=7)
        self.submissions += 1
        encode_envelope(records)
        counted = len(records) + filtered + sum((rejected or {}).values())
        came = counted if received is None else received
        assert came >= filtered + sum((rejected or {}).values()), "more was filtered and rejected than came in"
        self.records += records
        self.received += came
        self.filtered += filtered
        for reason, count in (rejected or {}).items():
            assert len(reason) <= 64, f"reasons are labels of a metric and must be few and short, not {reason[:80]!r}"
            self.rejected[reason] = self.rejected.get(reason, 0) + count


async def check_source(source: Source, good: Sequence[IngestRequest]) -> None:
    """Run a source's routes through good requests, garbage, and a gate that refuses.

    `good` are requests that must be taken, at least one for each route that takes records.
    """
    await unblocked(lambda: _check_running(source, good), f"source {source.name}", type(source).__module__)


async def _check_running(source: Source, good: Sequence[IngestRequest]) -> None:
    gate = RecordingGate()
    source.gate = gate
    await started(source)
    try:
        routes = _check_routes(source)
        await _good_requests_are_taken(routes, good, gate)
        await _idle_is_idle(source)
        await _nothing_is_acknowledged_while_the_gate_refuses(routes, good, gate)
        await _garbage_is_refused_politely(routes, good, gate)
        await _good_requests_are_taken(routes, good, gate)
    finally:
        await within(source.stop(), "stop()")


async def _idle_is_idle(source: Source) -> None:
    """Let the source's own task run without anything to do."""
    running = asyncio.ensure_future(source.run())
    try:
        await check_idle(source, "the source")
    finally:
        is_obedient = await give_up(running)
    assert is_obedient, "run() swallowed its cancellation"
    if running.done() and not running.cancelled() and (error := running.exception()) is not None:
        raise AssertionError(f"run() raised {type(error).__name__}: {error}") from error


def _check_routes(source: Source) -> dict[str, Route]:
    routes: dict[str, Route] = {}
    for route in source.routes():
        assert route.role in ("ingest", "read", "admin"), f"{route.paths}: there is no role {route.role!r}"
        for path in route.paths:
            assert path.startswith("/"), f"the path {path!r} must begin with /"
            assert path not in routes or set(route.methods).isdisjoint(routes[path].methods), f"{path} is there twice"
            routes[path] = route
        _check_description(route)
    check_neighbours(source)
    return routes


def check_neighbours(source: Source) -> None:
    """Nothing else that is installed, and no route of Lens' own, answers a path of this source."""
    host = PluginHost.load()
    kinds: list[type[Component]] = [host.source(name) for name in host.names("source") if name != source.name]
    kinds += [host.sink(name) for name in host.names("sink")]
    with tempfile.TemporaryDirectory() as folder:
        usable = [kind for kind in kinds if not needs_settings(kind)]
        others = [kind(kind.Settings(), make_context(kind.name, Path(folder))) for kind in usable]
        state = ApiState(
            metrics=SelfMetrics(),
            tokens=TokenStore(Path(folder)),
            directory=source.context.directory,
            sources=[*(one for one in others if isinstance(one, Source)), source],
            sinks=[one for one in others if isinstance(one, Sink)],
            status=dict,
            ready=str,
            replay=lambda sink: None,
        )
        try:
            routes_of(state)
        except LensError as error:
            raise AssertionError(f"two take the same requests: {error}") from None


def _check_description(route: Route) -> None:
    """Check that a route's description can stand in the OpenAPI document."""
    for media_type, kind in route.bodies.items():
        assert "/" in media_type, f"{route.paths}: {media_type!r} is no content type"
        assert kind is bytes or schemas_of([kind])[0], f"{route.paths}: {kind!r} has no JSON schema; take bytes"
    for told in parameters_of(route.query) if route.query else ():
        assert told["description"], f"{route.paths}: the query parameter {told['name']} needs a Meta(description=…)"


def _route(routes: Mapping[str, Route], request: IngestRequest) -> Route:
    assert request.path in routes, f"no route answers {request.path}; there are {', '.join(routes)}"
    return routes[request.path]


async def _good_requests_are_taken(
    routes: Mapping[str, Route], good: Sequence[IngestRequest], gate: RecordingGate
) -> None:
    for request in good:
        before = len(gate.records)
        reply = await within(_route(routes, request).handler(request), request.path)
        _check_reply(reply, request)
        assert 200 <= reply.status < 300, f"{request.path}: a good request was answered {reply.status}"
        assert len(gate.records) > before, f"{request.path}: a good request gave no record"


async def _nothing_is_acknowledged_while_the_gate_refuses(
    routes: Mapping[str, Route], good: Sequence[IngestRequest], gate: RecordingGate
) -> None:
    gate.overloaded = True
    for request in good:
        status = await _status(_route(routes, request), request)
        assert status >= 500, f"{request.path}: answered {status} although nothing was taken"
    gate.overloaded = False


async def _garbage_is_refused_politely(
    routes: Mapping[str, Route], good: Sequence[IngestRequest], gate: RecordingGate
) -> None:
    rng = random.Random(7)
    for request in good:
        route = _route(routes, request)
        bodies = [
            *_GARBAGE,
            request.body[: len(request.body) // 2],
            *(_damaged(request.body, rng) for _ in range(200)),
        ]
        for body in bodies:
            await _status(route, msgspec.structs.replace(request, body=body))


async def _status(route: Route, request: IngestRequest) -> int:
    """Return the status of a request's answer; an exception that is no RequestError would be 500 and is a finding."""
    try:
        reply = await within(route.handler(request), request.path)
    except AssertionError:
        raise
    except RequestError as error:
        return error.status
    except Exception as error:
        raise AssertionError(f"{request.path}: {request.body[:80]!r} raised {type(error).__name__}: {error}") from error
    _check_reply(reply, request)
    return reply.status


def _check_reply(reply: Reply, request: IngestRequest) -> None:
    assert isinstance(reply, Reply), f"{request.path}: the handler answered {reply!r}"
    if not isinstance(reply.body, bytes):
        msgspec.json.encode(reply.body)


def _damaged(body: bytes, rng: random.Random) -> bytes:
    changed = bytearray(body)
    for _ in range(rng.randint(1, 4)):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)
