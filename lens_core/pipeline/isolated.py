"""Sinks and sources in a process of their own (`isolate: true`), with the same promise as in the daemon's.

A sink's batch goes to the child over a pipe and its answer comes back: what is not answered is sent again. A source's
records go to the gate in the daemon, and the child hears when the spools hold them. A child that ends is replaced, and
one that takes too long or ignores a cancellation is killed first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from ..base.errors import LensError, Unavailable
from ..plugin_api.components import IngestRequest, Reply, Route, Sink, Source
from ..plugin_api.sink_answers import Answer, Batch, BatchLimits, Position
from .isolated_messages import decode_answer, decode_reply, decode_submission, encode_batch, encode_request
from .isolated_process import ComponentProcess
from .isolation_channel import ChannelClosed

# A handler that has not answered by then is cancelled, and so is a process whose event loop does not turn.
HANDLE_SECONDS = 60.0
PING_SECONDS = 10.0
HUNG_SECONDS = 60.0


class IsolatedSink(Sink):
    """Stands in the daemon for a sink in a process of its own."""

    name = "isolated"

    def __init__(self, sink: Sink, owner: str) -> None:
        super().__init__(sink.settings, sink.context)
        self._sink = sink
        self.name = sink.name  # type: ignore[misc]  # the daemon names the plugin by it
        self.accepts = sink.accepts  # type: ignore[misc]
        self.process = ComponentProcess(sink, owner)

    async def start(self) -> None:
        """Start the process, and the sink in it."""
        await self.process.ensure_started()

    async def stop(self) -> None:
        """Stop the sink and end its process."""
        await self.process.stop()

    def limits(self) -> BatchLimits:
        """Return the sink's own limits."""
        return self._sink.limits()

    async def send(self, batch: Batch) -> Answer:
        """Return the sink's answer. Raises LensError when its process ends before it."""
        return decode_answer(await self.process.call("send", encode_batch(batch)))

    async def position(self, spool_id: str) -> Position | None:
        """Return how far the sink has stored a spool, if it keeps that."""
        return msgspec.msgpack.decode(await self.process.call("position", spool_id.encode()), type=Position | None)


class IsolatedSource(Source):
    """Stands in the daemon for a source in a process of its own; its routes are answered there."""

    name = "isolated"

    def __init__(self, source: Source, owner: str) -> None:
        super().__init__(source.settings, source.context)
        self._source = source
        self.name = source.name  # type: ignore[misc]
        self.brings = source.brings  # type: ignore[misc]
        self.rejects = source.rejects  # type: ignore[misc]
        self.process = ComponentProcess(source, owner, self._answer_call)

    def routes(self) -> Sequence[Route]:
        """Return the source's routes, with handlers that ask its process."""
        return [
            msgspec.structs.replace(route, handler=self._handler(index, route))
            for index, route in enumerate(self._source.routes())
        ]

    async def start(self) -> None:
        """Start the process, and the source in it."""
        await self.process.ensure_started()

    async def stop(self) -> None:
        """Stop the source and end its process."""
        await self.process.stop()

    async def run(self) -> None:
        """Let the source run, and see to it that its process answers. Raises LensError when it does not."""
        channel = await self.process.ensure_started()
        running = asyncio.ensure_future(channel.call("run"))
        ended = asyncio.ensure_future(self.process.ended.wait())
        try:
            while not ended.done():
                await asyncio.wait({running, ended}, timeout=PING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if running.done() and running.exception() is not None:
                    raise running.exception() or LensError("it ended")
                if running.done():  # it has no task of its own: its process is looked after all the same
                    await asyncio.wait({ended}, timeout=PING_SECONDS)
                await asyncio.wait_for(channel.call("ping"), HUNG_SECONDS)
        except (TimeoutError, asyncio.TimeoutError):
            self.process.kill(f"its event loop has not turned for {HUNG_SECONDS:g} s, so its process was killed")
            raise LensError(f"its event loop has not turned for {HUNG_SECONDS:g} s") from None
        finally:
            for task in (running, ended):
                task.cancel()
            await asyncio.gather(running, ended, return_exceptions=True)
        raise ChannelClosed("its process ended")

    def _handler(self, index: int, route: Route) -> Callable[[IngestRequest], Awaitable[Reply]]:
        async def handle(request: IngestRequest) -> Reply:
            try:
                answer = await asyncio.wait_for(
                    self.process.call("handle", encode_request(index, request)), HANDLE_SECONDS
                )
            except ChannelClosed as error:
                raise Unavailable(f"the process of this source ended: {error}") from None
            except (TimeoutError, asyncio.TimeoutError):
                raise Unavailable(f"this source did not answer within {HANDLE_SECONDS:g} s") from None
            return decode_reply(answer)

        handle.__doc__ = route.handler.__doc__ or type(self._source).__doc__
        return handle

    async def _answer_call(self, method: str, body: bytes) -> bytes:
        if method != "submit":
            raise LensError(f"nothing is called {method}")
        records, submission = decode_submission(body)
        await self.gate.submit(
            records,
            received=submission.received,
            filtered=submission.filtered,
            rejected=submission.rejected,
        )
        return b""


def isolated(component: Any, owner: str) -> Any:
    """Return a sink or source that does its work in a process of its own."""
    return IsolatedSink(component, owner) if isinstance(component, Sink) else IsolatedSource(component, owner)
