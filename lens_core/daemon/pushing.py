"""Sending what `lens collect --push` found, once: to the sinks of a configuration, or to a running daemon."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import httpx
import msgspec

from ..base.bearer import bearer_header
from ..base.data_dir import running_address
from ..base.errors import LensError
from ..base.self_metrics import SelfMetrics
from ..config.loading import Config, PipelineConfig, SinkConfig, SpoolSettings
from ..directory.directory import Directory
from ..model.records import Record, encode_envelope
from ..pipeline.ingest_gate import IngestGate
from ..plugin_api.components import Sink
from ..plugin_api.http_answers import is_lens_success
from ..plugin_host.host import PluginHost
from .assembling import assemble
from .assembly import Assembly

_LOOK_SECONDS = 0.05
_STOP_SECONDS = 0.5
_REST_SECONDS = 8.0


class Push(Protocol):
    """Delivers records; returns when they have arrived, raises LensError when they have not."""

    async def __call__(self, records: Sequence[Record]) -> None:
        """Send records."""
        ...


@asynccontextmanager
async def push_to_sinks(
    config: Config, host: PluginHost, collector: str, metrics: SelfMetrics, deadline_seconds: float
) -> AsyncIterator[Push]:
    """The pipelines that this collector feeds, with a spool in memory: a daemon may be using the one on disk."""
    directory = Directory(config.server.cluster_name)
    reduced = only_sinks(config, collector)
    _make_way(reduced)
    assembly = await assemble(reduced, host, metrics, directory)
    gate = IngestGate(collector, assembly.pipelines, metrics=metrics, identity=directory)

    async def push(records: Sequence[Record]) -> None:
        await gate.submit(records)
        await _drained(assembly, deadline_seconds)

    try:
        yield push
    finally:
        await assembly.stop(_STOP_SECONDS)


def _make_way(config: Config) -> None:
    """Raise LensError when a daemon on this data directory has a sink open that only one process may have."""
    used = {name for pipeline in config.pipelines.values() for name in pipeline.sinks}
    exclusive = [name for name in sorted(used) if _is_exclusive(config.sinks[name])]
    address = running_address(config.data_dir) if exclusive else None
    if address is not None:
        raise LensError(
            f"the daemon at {address.url} has {', '.join(exclusive)} open, and only one process may; "
            "it runs this collector itself if it has the same configuration"
        )


def _is_exclusive(sink: SinkConfig) -> bool:
    assert issubclass(sink.plugin, Sink)
    return sink.plugin.is_exclusive(sink.settings)


def only_sinks(config: Config, collector: str) -> Config:
    """A configuration with nothing but the pipelines that a collector feeds; raises LensError when there is none."""
    pipelines = {
        name: msgspec.structs.replace(pipeline, spool=SpoolSettings(kind="memory"))
        for name, pipeline in config.pipelines.items()
        if collector in pipeline.sources and pipeline.sinks
    }
    if not pipelines:
        raise LensError(f"no pipeline takes from {collector!r}, so there is nowhere to send to; see `pipelines`")
    return msgspec.structs.replace(
        config, sources={}, collectors={}, detectors={}, analyzers={}, pipelines=pipelines, store=None
    )


def sinks_of_environment(config: Config, host: PluginHost, collector: str, environ: Mapping[str, str]) -> Config | None:
    """A configuration with the sinks that the environment names completely; None when it names none."""
    sinks = {}
    for name in host.names("sink"):
        plugin = host.sink(name)
        settings = plugin.settings_from(environ)
        if settings is not None:
            sinks[name] = SinkConfig(name=name, type=name, plugin=plugin, settings=settings)
    if not sinks:
        return None
    pipeline = PipelineConfig(name="push", sources=[collector], sinks=list(sinks))
    return msgspec.structs.replace(config, sinks=sinks, pipelines={"push": pipeline})


async def _drained(assembly: Assembly, deadline_seconds: float) -> None:
    """Wait until no sink has anything pending; raises LensError that says which sink refused what, and why."""
    ends = time.monotonic() + deadline_seconds
    while True:
        sinks = [sink for pipeline in assembly.pipelines for sink in pipeline.pipeline_status().sinks]
        refused = [f"{sink.name}: {sink.last_error}" for sink in sinks if sink.dead_letters or sink.ledger.dropped]
        if refused:
            raise LensError("refused by " + "; ".join(refused))
        waiting = [sink for sink in sinks if sink.pending_records]
        if not waiting:
            return
        # A sink that waits long before it tries again (a refused key) is not waited for.
        resting = all(
            sink.last_error_at is not None and time.time() - sink.last_error_at > _REST_SECONDS for sink in waiting
        )
        if resting or time.monotonic() > ends:
            why = "; ".join(f"{sink.name}: {sink.last_error or 'no answer'}" for sink in waiting)
            raise LensError(f"not delivered: {why}")
        await asyncio.sleep(_LOOK_SECONDS)


def push_to_daemon(url: str, timeout_seconds: float) -> Push:
    """A daemon's /api/v1/records; LENS_TOKEN is sent if it is set."""
    headers = {"Content-Type": "application/msgpack", **bearer_header(os.environ, "LENS_TOKEN")}

    async def push(records: Sequence[Record]) -> None:
        try:
            async with httpx.AsyncClient(timeout=timeout_seconds, headers=headers) as client:
                response = await client.post(f"{url}/api/v1/records", content=encode_envelope(records))
        except httpx.HTTPError as error:
            raise LensError(f"{url} cannot be reached: {type(error).__name__}: {error}") from None
        if not is_lens_success(response.status_code, response.content) or response.json().get("rejected"):
            raise LensError(f"{url} answered {response.status_code}: {response.text[:300]}")

    return push
