"""The running parts of one configuration, and how they stop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from ..base.errors import BadRequest, LensError
from ..base.self_metrics import SelfMetrics
from ..config.loading import Config
from ..detection.detectors import EvidenceRules
from ..detection.log_lines.kept_tails import KeptTails
from ..detection.verdict import fuse
from ..directory.directory import Directory
from ..model.processing import Verdict
from ..model.records import Evidence
from ..pipeline.analyzing import AnalyzerPoll
from ..pipeline.collecting import CollectorRunner
from ..pipeline.ingest_gate import IngestGate
from ..pipeline.intake import Intake
from ..plugin_api.analyzer import Analyzer
from ..plugin_api.components import Component, Detector, Sink, Source
from ..plugin_api.siblings import Siblings
from ..plugin_api.store import Store
from ..plugin_host.guard import Guard
from ..plugin_host.host import PluginHost
from .call_meter import MemoryWatch
from .starting import Starter
from .stopping import TASKS_SHARE, end_tasks, stop_component

if TYPE_CHECKING:  # imported where the configuration has a section for it, and nowhere else
    from ..cluster.cluster import Cluster

logger = logging.getLogger("lens.assembly")


@dataclass
class Assembly:
    """The parts that run for one configuration."""

    config: Config
    host: PluginHost
    metrics: SelfMetrics
    directory: Directory
    memory: MemoryWatch
    guards: dict[str, Guard] = field(default_factory=dict)
    pipelines: list[Intake] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    collectors: list[CollectorRunner] = field(default_factory=list)
    analyzers: list[Analyzer] = field(default_factory=list)
    sinks: dict[str, Sink] = field(default_factory=dict)
    store: Store | None = None
    api_gate: IngestGate | None = None
    detectors: Sequence[Detector] = ()
    log_tails: KeptTails = field(default_factory=KeptTails)
    rules: EvidenceRules = field(default_factory=lambda: EvidenceRules([]))
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    source_errors: dict[str, str] = field(default_factory=dict)
    source_error_times: dict[str, float] = field(default_factory=dict)
    notices: dict[str, str] = field(default_factory=dict)
    is_stopped: bool = False
    starters: dict[str, Starter] = field(default_factory=dict)
    cluster: Cluster | None = None

    def gates(self) -> dict[str, IngestGate]:
        """Return the ingest gate of each source."""
        return {source.context.name: source.gate for source in self.sources if isinstance(source.gate, IngestGate)}

    def siblings_of(self, kind: str) -> Siblings:
        """Questions of this kind to the other daemons of the cluster, if there is one."""
        return self.cluster.peers.siblings_of(kind) if self.cluster is not None else Siblings()

    def fed_by(self, name: str) -> list[str]:
        """Return the pipelines that a source, collector or analyzer feeds.

        An analyzer that no pipeline names feeds those that lead to the store: it is there without being written down.
        """
        pipelines = self.config.pipelines.values()
        named = [pipeline.name for pipeline in pipelines if name in pipeline.sources]
        if named or name not in self.config.analyzers:
            return named
        return [pipeline.name for pipeline in pipelines if self.config.store in pipeline.sinks]

    def judge_evidence(self, evidence: Evidence) -> Verdict:
        """Return the verdict of one piece of evidence alone."""
        return fuse(self.rules.detect(evidence), self.rules.relations)

    def why_not_ready(self) -> str:
        """'' when a submission would be taken now."""
        for pipeline in self.pipelines:
            for slot in pipeline.slots:
                starter = self.starters.get(slot.name)
                if slot.required and starter is not None and not starter.is_started:
                    return f"sink {slot.name} is not started: {starter.error}; its records stay in the spool"
            if pipeline.is_required:
                try:
                    pipeline.ensure_room()
                    reason = pipeline.log.why_full()
                except LensError as error:
                    reason = str(error)
                if reason:
                    return f"pipeline {pipeline.name}: {reason}"
        return ""

    async def replay(self, sink: str) -> int:
        """Send dead letters again; raises BadRequest for a sink that there is not."""
        if sink and sink not in self.sinks:
            raise BadRequest(f"there is no sink {sink!r}; there are: {', '.join(self.sinks)}")
        records = 0
        for pipeline in self.pipelines:
            for slot in pipeline.slots:
                if sink in ("", slot.name):
                    records += await pipeline.dead_letters.replay_letters(slot.name)
        return records

    async def dead_letters(self, sink: str) -> list[dict[str, Any]]:
        """List why records were refused, for each pipeline; `sink` '' means all."""
        return [
            {"pipeline": pipeline.name, **msgspec.to_builtins(found)}
            for pipeline in self.pipelines
            for found in await pipeline.dead_letters.reasons(sink)
        ]

    async def stop(self, deadline_seconds: float) -> None:
        """End what produces, then drain the pipelines within the deadline, then end the sinks; only once."""
        if self.is_stopped:
            return
        self.is_stopped = True
        ends = time.monotonic() + deadline_seconds
        for starter in self.starters.values():
            starter.cancel()
        await end_tasks(self.tasks, deadline_seconds * TASKS_SHARE)
        await self._stop_all(self.sources, deadline_seconds * TASKS_SHARE)
        collectors = [runner.collector for runner in self.collectors if not runner.collector.isolated]
        polled = [one for one in collectors if not isinstance(one, AnalyzerPoll)]
        await self._stop_all([*polled, *self.analyzers], deadline_seconds * TASKS_SHARE)
        if self.cluster is not None:
            await self.cluster.leave()
        await asyncio.gather(*(_drain(pipeline, max(0.1, ends - time.monotonic())) for pipeline in self.pipelines))
        if self.cluster is not None:
            await self.cluster.close()
        await self._stop_all(list(self.sinks.values()), max(1.0, ends - time.monotonic()))

    def why_not_started(self, name: str | None) -> str:
        """Why a component is not started; empty if it is, or if there is none of this name."""
        starter = self.starters.get(name or "")
        return starter.error or "it is starting" if starter is not None and not starter.is_started else ""

    async def _stop_all(self, components: Sequence[Component], deadline_seconds: float) -> None:
        stops = (
            stop_component(one, deadline_seconds, is_started=not self.why_not_started(one.context.name))
            for one in components
        )
        await asyncio.gather(*stops)


async def _drain(pipeline: Intake, deadline_seconds: float) -> None:
    try:
        await pipeline.stop(deadline_seconds)
    except Exception:
        logger.exception("Pipeline could not be stopped in order. pipeline=%s", pipeline.name)
