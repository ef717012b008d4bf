"""The answer of /api/v1/status: every component, its state, rates, lag and last error."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ..base.self_metrics import SelfMetrics
from ..pipeline.ingest_gate import IngestGate
from ..pipeline.intake import PipelineStatus
from ..pipeline.isolated import IsolatedSink, IsolatedSource
from ..plugin_host.info import PluginInfo
from .blame import Blame, Blocker
from .call_meter import MemoryGrowth, MemoryWatch
from .loop_watch import LoopWatch, LoopWatchStatus
from .thread_watch import BusyThread, ThreadWatch

if TYPE_CHECKING:  # code that shows a status from outside imports no parts of the daemon
    from ..config.loading import Config
    from ..plugin_host.host import PluginHost
    from .assembly import Assembly


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A source, collector or analyzer: what came in, where it goes. Times in seconds since the epoch.

    `last_refusal` says why there was no room, or no sink, for what came in, the last time that there was none.
    """

    name: str
    type: str
    state: str
    pipelines: Sequence[str]
    received: int
    accepted: int
    filtered: int
    rejected: Mapping[str, int]
    accepted_per_second: float
    last_error: str
    last_error_at: float | None = None
    notice: str = ""
    last_refusal: str = ""


class ProcessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The process of an isolated component; `pid` is None while there is none."""

    component: str
    pid: int | None
    memory_bytes: int
    restarts: int


class DaemonStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The whole daemon; `not_ready` is why it takes nothing now, `store_notice` what the store says of its way.

    `shared` is what it knows of the other daemons of its cluster; None for one that is alone.
    """

    state: str
    ready: bool
    not_ready: str
    version: str
    url: str
    cluster: str
    data_dir: str
    configuration: str
    started_at: float
    uptime_seconds: float
    store: str | None
    store_notice: str
    sources: Sequence[SourceStatus]
    pipelines: Sequence[PipelineStatus]
    plugins: Sequence[PluginInfo]
    blockers: Sequence[Blocker] = ()
    problems: Mapping[str, str] = {}
    processes: Sequence[ProcessStatus] = ()
    memory_growth: Sequence[MemoryGrowth] = ()
    busy_threads: Sequence[BusyThread] = ()
    event_loop: LoopWatchStatus
    shared: Mapping[str, Any] | None = None


class Running(Protocol):
    """The interface of the daemon for its routes."""

    config: Config
    host: PluginHost
    assembly: Assembly | None
    state: str
    url: str
    started_at: float
    loop_watch: LoopWatch
    blame: Blame
    memory: MemoryWatch
    threads: ThreadWatch
    metrics: SelfMetrics

    def ready(self) -> str:
        """Why it is not ready; empty if it is."""
        ...


def daemon_status(daemon: Running) -> DaemonStatus:
    """The state of a daemon at this moment."""
    from .. import __version__

    assembly = daemon.assembly
    config = daemon.config
    reason = daemon.ready()
    return DaemonStatus(
        state=daemon.state,
        ready=not reason,
        not_ready=reason,
        version=__version__,
        url=daemon.url,
        cluster=config.server.cluster_name,
        data_dir=str(config.data_dir),
        configuration=str(config.file) if config.file else "built-in",
        started_at=daemon.started_at,
        uptime_seconds=time.time() - daemon.started_at,
        store=config.store,
        store_notice=assembly.store.notice() if assembly and assembly.store else "",
        sources=_source_statuses(assembly) if assembly else [],
        pipelines=[pipeline.pipeline_status() for pipeline in assembly.pipelines] if assembly else [],
        plugins=daemon.host.plugins(),
        event_loop=daemon.loop_watch.loop_status(),
        blockers=daemon.blame.blockers(),
        problems=dict(daemon.metrics.problems),
        processes=_processes(assembly) if assembly else [],
        memory_growth=[*daemon.memory.found()],
        shared=assembly.cluster.cluster_status() if assembly and assembly.cluster else None,
        busy_threads=daemon.threads.busy(),
    )


def _processes(assembly: Assembly) -> list[ProcessStatus]:
    components = [*assembly.sources, *assembly.sinks.values()]
    return [
        ProcessStatus(
            component=one.context.name,
            pid=one.process.pid,
            memory_bytes=int(one.process.memory_bytes()),
            restarts=one.process.restarts,
        )
        for one in components
        if isinstance(one, IsolatedSink | IsolatedSource)
    ]


def _source_statuses(assembly: Assembly) -> list[SourceStatus]:
    gates = assembly.gates()
    found = []
    for source in assembly.sources:
        name = source.context.name
        error = assembly.source_errors.get(name, "") or assembly.why_not_started(name)
        at = assembly.source_error_times.get(name)
        found.append(_source(assembly, name, source.name, error, at, gates[name]))
    for runner in assembly.collectors:
        name, kind = runner.name, runner.plugin_name
        error = assembly.why_not_started(name) or runner.last_error
        found.append(_source(assembly, name, kind, error, runner.last_error_at, runner.gate))
    return found


def _source(
    assembly: Assembly, name: str, kind: str, error: str, error_at: float | None, gate: IngestGate
) -> SourceStatus:
    ledger = gate.ledger
    return SourceStatus(
        name=name,
        type=kind,
        state="failed" if error else "running",
        pipelines=assembly.fed_by(name),
        received=ledger.received,
        accepted=ledger.accepted,
        filtered=ledger.filtered,
        rejected=dict(ledger.rejected),
        accepted_per_second=ledger.rate.per_second(),
        last_error=error,
        last_error_at=error_at,
        notice=assembly.notices.get(name, ""),
        last_refusal=gate.last_refusal,
    )
