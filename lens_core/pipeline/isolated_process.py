"""The child process of an isolated sink or source: started on demand, called, killed when it does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import struct
from collections.abc import Awaitable, Callable

import msgspec
import psutil

from ..base.errors import LensError
from ..base.self_metrics import OwnValue
from ..plugin_api.components import Component
from .isolation import end_process, framed, job_of, spawn
from .isolation_channel import MAX_MESSAGE_BYTES, Channel, ChannelClosed

logger = logging.getLogger("lens.isolation")

START_SECONDS = 60.0
STOP_SECONDS = 5.0
_LENGTH = struct.Struct("<Q")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a component as its child reports it: its problem in its own words, and the values of its metrics."""

    problem: str = ""
    values: list[OwnValue] = []


class ComponentProcess:
    """Runs one component in a child process. A child that ends, or is killed, is replaced by the next call.

    `answer` does what the child asks of its host (a source's records); `owner` names the plugin in the log.
    """

    def __init__(
        self,
        component: Component,
        owner: str,
        answer: Callable[[str, bytes], Awaitable[bytes]] | None = None,
    ) -> None:
        self._component = component
        self._owner = owner
        self._answer_more = answer
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Channel | None = None
        self._reading: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._values: dict[tuple[str, ...], float] = {}
        self._killed_for = ""
        self._is_stopped = False
        self.ended = asyncio.Event()
        self.restarts = 0
        context = component.context
        self._restarts = context.metrics.isolated_restarts.labels(context.name)
        context.metrics.component_memory.labels(context.name).set_function(self.memory_bytes)

    async def ensure_started(self) -> Channel:
        """Return the way to the running component. Raises LensError when its process or its `start` fails."""
        async with self._starting:
            if self._channel is not None and not self.ended.is_set():
                return self._channel
            if self._is_stopped:
                raise ChannelClosed("it is stopped")
            await self._clean_up()
            await self._spawn()
            assert self._channel is not None
            try:
                await asyncio.wait_for(self._channel.call("start"), START_SECONDS)
            except (TimeoutError, asyncio.TimeoutError):
                self.kill(f"start took longer than {START_SECONDS:g} s")
                raise LensError(f"start took longer than {START_SECONDS:g} s") from None
            except BaseException:
                self.kill("")
                raise
            return self._channel

    async def call(self, method: str, body: bytes = b"") -> bytes:
        """Return the component's answer to one call, starting its process if there is none."""
        channel = await self.ensure_started()
        return await channel.call(method, body)

    def kill(self, reason: str) -> None:
        """Kill the child; with a reason it is logged. The next call starts another."""
        process = self._process
        if process is None or self.ended.is_set():
            return
        if reason:
            self._killed_for = reason
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        self._record_end(self._killed_for or "its process was ended")

    def memory_bytes(self) -> float:
        """Return the memory that the child holds; 0 while there is none."""
        process = self._process
        if process is None or self.ended.is_set():
            return 0.0
        try:
            return float(psutil.Process(process.pid).memory_info().rss)
        except psutil.Error:
            return 0.0

    @property
    def pid(self) -> int | None:
        """The process number of the child, while there is one."""
        return self._process.pid if self._process is not None and not self.ended.is_set() else None

    async def stop(self) -> None:
        """Stop the component, then its process; whatever the component does, nothing of it is left."""
        self._is_stopped = True
        try:
            if self._channel is not None and not self.ended.is_set():
                with contextlib.suppress(TimeoutError, asyncio.TimeoutError, ChannelClosed):
                    await asyncio.wait_for(self._channel.call("stop"), STOP_SECONDS)
        finally:
            self._record_end("it is stopped")
            await asyncio.shield(asyncio.ensure_future(self._clean_up()))

    async def _spawn(self) -> None:
        self.ended = asyncio.Event()
        self._killed_for = ""
        process, read_end = await spawn("lens_core.pipeline.isolated_component")
        self._process = process
        try:
            reader = asyncio.StreamReader()
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
            )
            self._channel = Channel(self._write, self._answer_call, self._deaf)
            self._reading = asyncio.create_task(
                self._read(process, reader, transport, self._channel), name=f"pipe of {self._component.context.name}"
            )
            await self._write(framed(msgspec.msgpack.encode(job_of(self._component))))
        except BaseException:
            self._record_end("it could not be started")
            raise

    async def _write(self, frame: bytes) -> None:
        process = self._process
        if process is None or process.stdin is None or self.ended.is_set():
            raise ConnectionError("its process is gone")
        process.stdin.write(frame)
        await process.stdin.drain()

    async def _read(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        transport: asyncio.ReadTransport,
        channel: Channel,
    ) -> None:
        """Hand on what the child says, until it says no more."""
        try:
            while True:
                (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                if size > MAX_MESSAGE_BYTES:
                    raise LensError(f"it sent a message of {size} bytes; at most {MAX_MESSAGE_BYTES} are taken")
                channel.receive(await reader.readexactly(size))
        except asyncio.IncompleteReadError:
            code = await process.wait()
            ended = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            reason = self._killed_for or f"its process {ended}"
        except (LensError, msgspec.DecodeError) as error:
            reason = f"it sent what is no message: {error}"
        finally:
            transport.close()
        self._record_end(reason)

    def _record_end(self, reason: str) -> None:
        if self.ended.is_set():
            return
        self.ended.set()
        if self._channel is not None:
            self._channel.close(reason)
        if self._is_stopped:
            return
        self.restarts += 1
        self._restarts.inc()
        self._values.clear()
        name = self._component.context.name
        logger.error("plugin %s: the process of %s ended: %s; starting a new one.", self._owner, name, reason)

    async def _clean_up(self) -> None:
        """Kill what is left of the last child, with all that it started."""
        process, self._process = self._process, None
        if self._reading is not None:
            self._reading.cancel()
        if process is not None:
            await end_process(process, grace_seconds=0.5 if self._is_stopped else 0.0)

    def _deaf(self, method: str) -> None:
        self.kill(f"{method} ignored its cancellation, so its process was killed")

    async def _answer_call(self, method: str, body: bytes) -> bytes:
        if method == "report":
            self._apply_report(msgspec.msgpack.decode(body, type=Report))
            return b""
        if self._answer_more is None:
            raise LensError(f"nothing is called {method}")
        return await self._answer_more(method, body)

    def _apply_report(self, report: Report) -> None:
        context = self._component.context
        if report.problem != context.metrics.problems.get(context.name, ""):
            context.report_problem(report.problem)
        for value in report.values:
            before = self._values.get(value.key, 0.0)
            self._values[value.key] = value.value
            context.metrics.follow_own(value, before)
