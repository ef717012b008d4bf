"""The child process of an isolated sink or source: answers its host's calls until the host closes the pipe."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

import msgspec

from ..base.errors import LensError
from ..base.self_metrics import SelfMetrics
from ..model.records import Record
from ..plugin_api.components import Component, IngestRequest, Route, Sink, Source
from ..plugin_api.sink_answers import Poisoned
from .isolated_child import kill_group, make_component, read_frame, receive_job
from .isolated_messages import (
    decode_batch,
    decode_request,
    encode_answer,
    encode_reply,
    encode_submission,
)
from .isolated_process import Report
from .isolation import Job
from .isolation_channel import Channel


def main() -> None:
    """Read the job, make the component, and answer calls through the descriptor that the first argument names."""
    asyncio.run(_serve(*receive_job()))


def _read_calls(calls: BinaryIO, receive: Callable[[bytes], object]) -> None:
    """Hand on each call; runs in a thread, so that a parent that is gone is noticed while the loop is blocked."""
    try:
        while True:
            receive(read_frame(calls))
    except (EOFError, RuntimeError):  # the parent is gone, or this process ends
        kill_group()


async def _serve(job: Job, calls: BinaryIO, answers: int) -> None:
    loop = asyncio.get_running_loop()
    written = asyncio.Lock()

    async def write_frame(frame: bytes) -> None:
        async with written:
            await asyncio.to_thread(_write_all, answers, frame)

    served = Served(job, write_frame)
    threading.Thread(
        target=_read_calls,
        args=(calls, lambda frame: loop.call_soon_threadsafe(served.channel.receive, frame)),
        name="lens-calls",
        daemon=True,
    ).start()
    await served.stopped.wait()


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


class RemoteGate:
    """The client of a source's gate, which is in the parent."""

    def __init__(self, served: Served) -> None:
        self._served = served

    async def submit(
        self,
        records: Sequence[Record],
        *,
        received: int | None = None,
        filtered: int = 0,
        rejected: Mapping[str, int] | None = None,
    ) -> None:
        """As plugin_api.Gate says; the parent's spools hold the records when it returns."""
        await self._served.send_report()
        body = encode_submission(records, received, filtered, rejected)
        await self._served.channel.call("submit", body)


class Served:
    """The component with what its host may call."""

    def __init__(self, job: Job, write: Callable[[bytes], Any]) -> None:
        self.channel = Channel(write, self._answer_call)
        self.stopped = asyncio.Event()
        self._job = job
        self._metrics = SelfMetrics()
        self._component: Component | None = None
        self._routes: Sequence[Route] = ()
        self._reported = Report()

    async def send_report(self) -> None:
        """Tell the host about problems and metrics of the component's own, where they have changed."""
        fresh = Report(problem=self._metrics.problems.get(self._job.name, ""), values=self._metrics.own_values())
        if fresh != self._reported:
            self._reported = fresh
            await self.channel.call("report", msgspec.msgpack.encode(fresh))

    async def _answer_call(self, method: str, body: bytes) -> bytes:
        if method == "start":
            await self._start()
            answer = b""
        elif self._component is None:
            raise LensError("it is not started")
        else:
            answer = await self._call(self._component, method, body)
        if method != "stop":
            await self.send_report()
        return answer

    async def _start(self) -> None:
        if self._component is None:
            self._component = self._make_component()
        await self._component.start()
        if isinstance(self._component, Source):
            self._routes = self._component.routes()

    async def _call(self, component: Component, method: str, body: bytes) -> bytes:
        if method == "send" and isinstance(component, Sink):
            try:
                batch = decode_batch(body)
            except LensError as error:
                return encode_answer(Poisoned(str(error)))  # found by halves, and aside; the others arrive
            return encode_answer(await component.send(batch))
        if method == "position" and isinstance(component, Sink):
            return msgspec.msgpack.encode(await component.position(body.decode()))
        if method == "handle" and isinstance(component, Source):
            index, request = decode_request(body)
            return encode_reply(await self._handle(index, request))
        if method == "run" and isinstance(component, Source):
            await component.run()
        elif method == "stop":
            await component.stop()
            asyncio.get_running_loop().call_later(0.2, self.stopped.set)  # after its answer
        elif method != "ping":
            raise LensError(f"nothing is called {method}")
        return b""

    async def _handle(self, index: int, request: IngestRequest) -> Any:
        if not 0 <= index < len(self._routes):
            raise LensError("the route is not there any more; routes() must answer the same before and after start()")
        return await self._routes[index].handler(request)

    def _make_component(self) -> Component:
        component = make_component(self._job, self._metrics)
        if isinstance(component, Source):
            component.gate = RemoteGate(self)
        return component


if __name__ == "__main__":
    main()
