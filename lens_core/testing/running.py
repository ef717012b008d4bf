"""A whole Lens inside a test: HTTP on a free port, a spool on disk, sinks; and one sink that keeps what arrives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, overload

import httpx

from ..base.deprecation import former_name
from ..config.loading import parse_config
from ..daemon.daemon import Daemon
from ..model.records import (
    Detection,
    Diagnosis,
    Event,
    Evidence,
    LogLine,
    Measurement,
    Pod,
    Record,
    SeriesBatch,
    StepMetrics,
    encode_envelope,
)
from ..plugin_api.components import Component, Context, Sink
from ..plugin_api.sink_answers import Answer, Batch, Delivered
from .hosts import host_with
from .waiting import until

_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_KEPT = "kept"


class Kept(Sink):
    """Keeps every record in memory; the other end of a running pipeline in a test."""

    name = _KEPT
    accepts = (StepMetrics, Measurement, SeriesBatch, LogLine, Evidence, Detection, Event, Pod, Diagnosis)

    def __init__(self, settings: Any, context: Context) -> None:
        super().__init__(settings, context)
        self.records: list[Record] = []

    async def send(self, batch: Batch) -> Answer:
        """Keep them."""
        self.records += batch.records
        return Delivered()


Kind = TypeVar("Kind", bound=Record)


class RunningLens:
    """A daemon in this process. `url` is its address; Tests use `wait_for_records`, `post` and `get_json`."""

    kept = former_name("RunningLens.kept", "wait_for_records", since="1.3", removal="2.0")
    get = former_name("RunningLens.get", "get_json", since="1.3", removal="2.0")

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self._task = asyncio.ensure_future(daemon.run())

    @property
    def url(self) -> str:
        """The address on which it listens, without a path."""
        return self.daemon.url

    @property
    def records(self) -> list[Record]:
        """The records that have arrived at the sink so far."""
        sink = self.component(_KEPT)
        assert isinstance(sink, Kept)
        return sink.records

    def component(self, name: str) -> Component:
        """The running source or sink of this name in the configuration. Raises KeyError without one."""
        parts = self.daemon.assembly
        assert parts is not None
        return {**{source.context.name: source for source in parts.sources}, **parts.sinks}[name]

    @overload
    async def wait_for_records(self, count: int) -> list[StepMetrics]: ...

    @overload
    async def wait_for_records(self, count: int, kind: type[Kind]) -> list[Kind]: ...

    async def wait_for_records(self, count: int, kind: type[Record] = StepMetrics) -> Sequence[Record]:
        """The records of a kind, once there are so many. Raises AssertionError when they do not come."""
        await until(lambda: len(self._records_of(kind)) >= count, f"{count} {kind.__name__} arrive")
        return self._records_of(kind)

    def _records_of(self, kind: type[Record]) -> list[Record]:
        return [record for record in self.records if isinstance(record, kind)]

    async def send(self, records: Sequence[Record]) -> None:
        """Send records the way other lenses do; raises AssertionError unless all of them are taken."""
        answer = await self.post("/records", encode_envelope(records), content_type="application/msgpack")
        assert answer.is_success, answer.text
        assert not answer.json()["rejected"], answer.text

    async def post(self, path: str, body: Any, *, content_type: str = "application/json") -> httpx.Response:
        """The answer to a POST below /api/v1; bytes go as they are, everything else as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with httpx.AsyncClient(timeout=30) as client:
            return await client.post(
                f"{self.url}/api/v1{path}", content=content, headers={"Content-Type": content_type}
            )

    async def get_json(self, path: str, **parameters: Any) -> Any:
        """The JSON of a GET below /api/v1. Raises AssertionError unless it succeeds."""
        async with httpx.AsyncClient(timeout=30) as client:
            answer = await client.get(f"{self.url}/api/v1{path}", params=parameters)
        assert answer.is_success, answer.text
        return answer.json()

    async def started(self) -> RunningLens:
        """Wait until it answers; raises why it could not start."""
        await until(lambda: self.daemon.state == "running" or self._task.done(), "Lens runs", seconds=_START_SECONDS)
        if self._task.done():
            await self._task
        return self

    async def stop(self) -> None:
        """Drain and end, as at SIGTERM."""
        self.daemon.stop()
        await asyncio.wait_for(self._task, _STOP_SECONDS)


class LensFactory(Protocol):
    """The fixture `lens`: start a Lens with these classes beside what is installed.

    `config` is a configuration as a mapping; a sink `kept` and a free port are added to it. `store` adds the embedded
    PostgreSQL, so that the query routes answer.
    """

    async def __call__(
        self, *classes: type[Component], config: Mapping[str, Any] | None = None, store: bool = False
    ) -> RunningLens:
        """The running Lens; it ends with the test."""
        ...


def configured(
    folder: Path, classes: Sequence[type[Component]], config: Mapping[str, Any] | None, store: bool
) -> Daemon:
    """A daemon, not yet running. Raises InvalidConfiguration when the configuration is wrong."""
    document = {"server": {"listen": "127.0.0.1:0"}, **(config or {})}
    sinks = {_KEPT: {"type": _KEPT}, **document.get("sinks", {})}
    document["sinks"] = {**sinks, "store": {"type": "postgresql"}} if store else sinks
    host = host_with(Kept, *classes)
    return Daemon(parse_config(json.dumps(document), "test", host, {}, folder=folder, data_dir=folder / "lens"), host)


__all__ = ["Kept", "LensFactory", "RunningLens", "configured"]
