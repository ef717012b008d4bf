"""Server-sent events: a workload's new points and events, within a second of their being stored."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..base.errors import NotFound, TooManyRequests, Unavailable
from ..model.queries import News, PointQuery
from ..plugin_api.store import Store
from .auth import require_role
from .parameters import is_elsewhere, point_query
from .point_text import encode_points
from .sse import EventStream
from .state import ApiState

logger = logging.getLogger(__name__)

MOST_STREAMS = 200
_LOOK_SECONDS = 0.4
_KEEP_ALIVE_SECONDS = 15.0
_CHANGED_SECONDS = 10.0
_RETRY_MS = 2000


class StreamRoutes:
    """GET /api/v1/workloads/{uid}/stream."""

    def __init__(self, state: ApiState) -> None:
        self._state = state
        self._open = 0

    def routes(self) -> list[Route]:
        """One path."""
        return [Route("/workloads/{uid:path}/stream", self.stream, methods=["GET"])]

    async def stream(self, request: Request) -> Response:
        """New points and events as server-sent events; `metrics`, `data_source`, `run_id`, `attempt` choose.

        `points` carries `{"points": […]}`, a point of an iteration that was sent before replaces it; `event` is one
        event; `changed` says that rows of the past were written, `left_out` how many rows are not sent. An id is where
        to go on (`Last-Event-ID`, or `cursor`); without one the stream begins now. 404 for a `cluster` that is another
        one.
        """
        require_role(request, self._state, "read")
        if is_elsewhere(request, self._state.cluster_name):
            raise NotFound(f"this daemon's cluster is {self._state.cluster_name!r}")
        query = point_query(request)
        store = self._state.required_store()
        if self._open >= MOST_STREAMS:
            raise TooManyRequests(f"{MOST_STREAMS} streams are open already", retry_after_seconds=10)
        cursor = request.headers.get("last-event-id", "").strip() or query.cursor
        self._open += 1
        try:
            first = await store.news(query, cursor)
        except BaseException:
            self._close_one()
            raise
        return EventStream(self._events(request, store, query, first), on_end=self._close_one)

    def _close_one(self) -> None:
        self._open -= 1

    async def _events(self, request: Request, store: Store, query: PointQuery, news: News) -> AsyncIterator[bytes]:
        try:
            yield b"retry: %d\nid: %b\nevent: ready\ndata: {}\n\n" % (_RETRY_MS, news.cursor.encode())
            sent = time.monotonic()
            told = sent - _CHANGED_SECONDS
            version = ""
            untold = False
            while True:
                now = time.monotonic()
                data = _encoded(news)
                untold |= news.changed
                if untold and now - told >= _CHANGED_SECONDS:
                    untold, told = False, now
                    data += b"event: changed\ndata: {}\n\n"
                if data:
                    sent = now
                    yield data
                elif now - sent >= _KEEP_ALIVE_SECONDS:
                    sent = now
                    yield b": still here\n\n"
                if not news.more:
                    version = await self._changed(store, query.workload_uid, version)
                if not version:
                    return
                news = await store.news(query, news.cursor)
        except Unavailable as error:
            # The status is sent already: the client finds the end, waits and asks again with its last id.
            logger.info("Closed a stream: the store is unavailable. path=%s reason=%s", request.url.path, error.message)

    async def _changed(self, store: Store, uid: str, version: str) -> str:
        """Wait until something was written about the workload, or it is time to say that the stream is alive.

        The version of now; '' when the daemon is stopping.
        """
        ends = time.monotonic() + _KEEP_ALIVE_SECONDS
        while True:
            if self._state.ready() in ("stopping", "stopped"):
                return ""
            found = await store.version(uid)
            if found != version or time.monotonic() >= ends:
                return found
            await asyncio.sleep(_LOOK_SECONDS)


def _encoded(news: News) -> bytes:
    """The events of one look; the last carries the id."""
    found = []
    points = b",".join(encode_points(piece.points()) for piece in news.points if len(piece))
    if points:
        found.append(b'event: points\ndata: {"points":[%b]}\n\n' % points)
    if news.left_out:
        found.append(b'event: left_out\ndata: {"rows":%d}\n\n' % news.left_out)
    found += [b"event: event\ndata: %b\n\n" % msgspec.json.encode(event) for event in news.events]
    if found:
        found[-1] = b"id: %b\n%b" % (news.cursor.encode(), found[-1])
    return b"".join(found)
