"""Builds and starts the parts of a configuration: sinks, pipelines, gates, sources, collectors, analyzers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ..base.errors import LensError
from ..base.exits import without_exit
from ..base.self_metrics import SelfMetrics
from ..config.loading import (
    AnalyzerConfig,
    CollectorConfig,
    Config,
    FilterSettings,
    PipelineConfig,
    SinkConfig,
)
from ..delivery.ledger import end_quiet_periods
from ..delivery.sending.sender import SinkSlot
from ..delivery.spool.spool import Spool
from ..detection.detectors import EvidenceRules, make_detectors
from ..detection.log_lines.processor import DetectorProcessor
from ..directory.directory import API_FEED, RECORDS_FEED, Directory
from ..model.processing import RecordProcessor
from ..model.record_filter import RecordFilter
from ..pipeline.analyzing import AnalyzerPoll
from ..pipeline.collecting import CollectorRunner
from ..pipeline.ingest_gate import IngestGate
from ..pipeline.intake import Intake
from ..pipeline.isolated import isolated
from ..pipeline.pipeline import Pipeline
from ..plugin_api.analyzer import Analyzer
from ..plugin_api.components import Collector, Component, Context, Sink, Source
from ..plugin_api.instance import ComponentConfig
from ..plugin_api.siblings import Siblings
from ..plugin_api.store import Store
from ..plugin_host.guard import Guard
from ..plugin_host.host import PluginHost
from ..plugin_host.info import ComponentKind
from .assembly import Assembly
from .call_meter import CallMeter, MemoryWatch
from .clustering import join_cluster
from .starting import Starter

logger = logging.getLogger("lens.assembly")

# Files of the data directory that all daemons of a cluster have in common.
SHARED_FILES = ("tokens.json", "sessions.json")
# The interval of calls of processors without records, so that they notice silence.
TICK_SECONDS = 5.0
# A source's task that failed is started again after so long; one that ran so long before was well.
RESTART_SECONDS = 1.0
RUN_IS_WELL_SECONDS = 60.0


async def assemble(
    config: Config,
    host: PluginHost,
    metrics: SelfMetrics,
    directory: Directory,
    memory: MemoryWatch | None = None,
) -> Assembly:
    """Build and start everything. Raises LensError that names the component which cannot be started."""
    detectors = make_detectors(config.detectors, metrics, config.server.cluster_name)
    memory = memory or MemoryWatch(metrics)
    assembly = Assembly(config, host, metrics, directory, memory, detectors=detectors, rules=EvidenceRules(detectors))
    try:
        files = [config.data_dir / name for name in SHARED_FILES]
        assembly.cluster = await join_cluster(config, directory, files)
        await _start_sinks(assembly)
        await _start_pipelines(assembly)
        await _start_sources(assembly)
        if assembly.cluster is not None:
            assembly.cluster.start()
    except BaseException:
        await assembly.stop(config.server.shutdown_deadline_seconds)
        raise
    _show_states(host, metrics)
    return assembly


def make_component(
    config: Config,
    component: ComponentConfig,
    metrics: SelfMetrics,
    directory: Directory,
    siblings: Siblings | None = None,
) -> Component:
    """Make a component. Raises LensError when its constructor fails."""
    context = Context(
        name=component.name,
        logger=logging.getLogger(f"lens.{component.type}.{component.name}"),
        data_dir=config.data_dir / "plugins" / component.name,
        metrics=metrics,
        cluster=config.server.cluster_name,
        directory=directory,
        siblings=siblings or Siblings(),
    )
    try:
        return component.plugin(component.settings, context)
    except (Exception, SystemExit) as error:
        raise LensError(f"{component.type} {component.name!r} cannot be made: {error}") from error


def _make(assembly: Assembly, config: ComponentConfig) -> Component:
    siblings = assembly.siblings_of(f"component/{config.name}")
    return make_component(assembly.config, config, assembly.metrics, assembly.directory, siblings)


def _contained(assembly: Assembly, component: Component, config: ComponentConfig, kind: ComponentKind) -> Component:
    """Return the component, or what stands for one with a process of its own."""
    if not config.isolate:
        return component
    owner = assembly.host.owner_of(kind, component.name) or component.name
    stand_in: Component = isolated(component, owner)
    return stand_in


def _starter(assembly: Assembly, component: Component, kind: ComponentKind) -> Starter:
    assembly.starters[component.context.name] = starter = Starter(component, kind, assembly.host)
    return starter


def _make_folder(component: Component, what: str) -> None:
    try:
        component.context.data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LensError(f"{what} {component.context.name!r} cannot have its folder: {error}") from error


async def _start_sinks(assembly: Assembly) -> None:
    used = {name for pipeline in assembly.config.pipelines.values() for name in pipeline.sinks}
    for name, sink_config in assembly.config.sinks.items():
        if name not in used and name != assembly.config.store:
            continue
        made = _make(assembly, sink_config)
        sink = _contained(assembly, made, sink_config, "sink")
        assert isinstance(sink, Sink)
        _make_folder(sink, "sink")
        assembly.sinks[name] = sink
        starter = _starter(assembly, sink, "sink")
        if not await starter.tried() and name not in used:
            assembly.tasks.append(asyncio.create_task(starter.until_started(), name=f"start of {name}"))
    store = assembly.sinks.get(assembly.config.store or "")
    assembly.store = store if isinstance(store, Store) else None


async def _start_pipelines(assembly: Assembly) -> None:
    for name, pipeline_config in assembly.config.pipelines.items():
        slots = [_slot(assembly, assembly.config.sinks[sink]) for sink in pipeline_config.sinks]
        pipeline: Intake
        if assembly.cluster is not None:
            pipeline = assembly.cluster.make_pipeline(
                pipeline_config,
                slots,
                metrics=assembly.metrics,
                make_processor=await asyncio.to_thread(_processor_factory, assembly),
                end_processor=partial(_end_processor, assembly),
                forget_ended=partial(assembly.log_tails.drop_released, at_once=True),
                read_by_owner=DetectorProcessor.reads if assembly.detectors else frozenset(),
                record_filter=_filter(pipeline_config.filter),
            )
        else:
            pipeline = Pipeline(
                name,
                _spool(assembly.config.data_dir, pipeline_config),
                slots,
                metrics=assembly.metrics,
                processor=await asyncio.to_thread(_processor, assembly),
                record_filter=_filter(pipeline_config.filter),
            )
        await pipeline.start()
        assembly.pipelines.append(pipeline)
    assembly.tasks.append(asyncio.create_task(_tick(assembly), name="tick"))


def _processor(assembly: Assembly) -> DetectorProcessor | None:
    """The detectors at work in a pipeline; one whose patterns are paused is shown with its plugin."""
    if not assembly.detectors:
        return None

    def show(detector: str, reason: str) -> None:
        assembly.host.pause(assembly.config.detectors[detector].type, reason, kind="detector")

    processor = DetectorProcessor(assembly.detectors, assembly.metrics, on_pause=show)
    assembly.log_tails.add_tails(processor.tails)
    return processor


def _processor_factory(assembly: Assembly) -> Callable[[], DetectorProcessor | None]:
    """Makes a processor for each partition that is owned here; the detectors are compiled once for all."""
    first = _processor(assembly)
    if first is None:
        return lambda: None

    def make_sibling() -> DetectorProcessor:
        processor = first.make_sibling()
        assembly.log_tails.add_tails(processor.tails)
        return processor

    return make_sibling


def _end_processor(assembly: Assembly, processor: RecordProcessor, *, is_moved: bool) -> None:
    """Release the last lines of a partition that is not owned here any more."""
    if isinstance(processor, DetectorProcessor):
        assembly.log_tails.release_tails(processor.tails, is_moved=is_moved)


def _slot(assembly: Assembly, config: SinkConfig) -> SinkSlot:
    guard = Guard(assembly.host, "sink", config.type, pauses=False)
    return SinkSlot(
        name=config.name,
        sink=assembly.sinks[config.name],
        required=config.required,
        filter=_filter(config.filter),
        limits=msgspec.structs.replace(assembly.sinks[config.name].limits(), **config.limits),
        delivery=config.delivery,
        on_exception=guard.record_failure,
        on_answer=guard.succeeded,
        ensure_started=assembly.starters[config.name].ensure,
        measure=_meter(assembly, config, "sink", "send").measure,
    )


def _spool(data_dir: Path, config: PipelineConfig) -> Spool:
    path = data_dir / "spool" / f"{config.name}.sqlite3" if config.spool.kind == "disk" else None
    return Spool(path, max_bytes=config.spool.max_bytes, max_dead_letter_bytes=config.spool.max_dead_letter_bytes)


def _filter(settings: FilterSettings) -> RecordFilter:
    return RecordFilter(kinds=settings.kinds, data_sources=settings.data_sources, labels=settings.labels)


async def _start_sources(assembly: Assembly) -> None:
    for component in assembly.config.sources.values():
        source = _contained(assembly, _make(assembly, component), component, "source")
        assert isinstance(source, Source)
        source.gate = _ingest_gate(assembly, component)
        source.judge = assembly.judge_evidence
        await _starter(assembly, source, "source").tried()
        assembly.guards[component.name] = Guard(
            assembly.host,
            "source",
            component.type,
            why_not_started=lambda name=component.name: assembly.why_not_started(name),  # type: ignore[misc]
            **_measured(assembly, component),
        )
        assembly.notices[component.name] = _unwanted(source, component)
        assembly.sources.append(source)
        assembly.tasks.append(asyncio.create_task(_run_source(assembly, source), name=f"source {component.name}"))
    assembly.api_gate = IngestGate("api", assembly.pipelines, metrics=assembly.metrics, identity=assembly.directory)
    assembly.directory.keep_feeds([API_FEED, RECORDS_FEED, *assembly.config.collectors])
    for collector_config in assembly.config.collectors.values():
        await _start_collector(assembly, collector_config)
    for analyzer_config in assembly.config.analyzers.values():
        await _start_analyzer(assembly, analyzer_config)


def _meter(assembly: Assembly, config: ComponentConfig, kind: ComponentKind, function: str) -> CallMeter:
    return assembly.memory.meter(config.name, function, assembly.host.owner_of(kind, config.type) or config.type)


def _measured(assembly: Assembly, config: ComponentConfig) -> dict[str, Any]:
    """Measure the requests of third parties' sources; those of built-in ones are too many for it."""
    if assembly.host.is_built_in("source", config.type):
        return {}
    return {"measure": _meter(assembly, config, "source", "a request").measure}


def _unwanted(source: Source, config: ComponentConfig) -> str:
    """Return why a source is not needed; logged once for those who configured it, and shown in the status."""
    assert isinstance(source.gate, IngestGate)
    kinds = [kind for kind in source.brings if not source.gate.wants(kind)]
    if not kinds:
        return ""
    notice = f"no sink takes what it brings ({', '.join(kind.__name__ for kind in kinds)}); it is counted as filtered"
    logger.log(logging.INFO if config.written else logging.DEBUG, "%s: %s", source.context.name, notice)
    return notice


async def _start_collector(assembly: Assembly, config: CollectorConfig) -> None:
    collector = _make(assembly, config)
    assert isinstance(collector, Collector)
    _make_folder(collector, "collector")
    starter = None if collector.isolated else _starter(assembly, collector, "collector")
    if starter is not None:
        await starter.tried()
    gate = _ingest_gate(assembly, config)
    _run_polled(assembly, config, collector, gate, starter)


async def _start_analyzer(assembly: Assembly, config: AnalyzerConfig) -> None:
    """Start an analyzer; without a store there is nothing to analyze."""
    if assembly.store is None:
        if config.written:
            logger.warning("No sink answers queries; the analyzer is disabled. analyzer=%s", config.name)
        return
    analyzer = _make(assembly, config)
    assert isinstance(analyzer, Analyzer)
    analyzer.store = assembly.store
    _make_folder(analyzer, "analyzer")
    assembly.analyzers.append(analyzer)
    starter = _starter(assembly, analyzer, "analyzer")
    await starter.tried()
    assembly.guards[config.name] = Guard(
        assembly.host,
        "analyzer",
        config.type,
        why_not_started=lambda name=config.name: assembly.why_not_started(name),  # type: ignore[misc]
    )
    gate = _ingest_gate(assembly, config)
    _run_polled(assembly, config, AnalyzerPoll(analyzer, gate.wants), gate, starter)


def _run_polled(
    assembly: Assembly,
    config: CollectorConfig | AnalyzerConfig,
    collector: Collector,
    gate: IngestGate,
    starter: Starter | None,
) -> None:
    runner = CollectorRunner(
        collector,
        gate,
        interval_seconds=config.interval_seconds,
        timeout_seconds=config.timeout_seconds,
        start=starter.until_started if starter is not None else None,
        measure=_meter(assembly, config, "collector", "collect").measure,
        plugin_name=config.type,
    )
    assembly.collectors.append(runner)
    cluster = assembly.cluster
    work = runner.collect_repeatedly() if cluster is None else cluster.run_alone(config.name, runner.collect_repeatedly)
    assembly.tasks.append(asyncio.create_task(work, name=f"{config.type} {config.name}"))


def _ingest_gate(assembly: Assembly, component: ComponentConfig) -> IngestGate:
    fed = assembly.fed_by(component.name)
    pipelines = [pipeline for pipeline in assembly.pipelines if pipeline.name in fed]
    reasons = component.plugin.rejects if issubclass(component.plugin, Source) else ()
    return IngestGate(component.name, pipelines, metrics=assembly.metrics, identity=assembly.directory, reasons=reasons)


async def _run_source(assembly: Assembly, source: Source) -> None:
    """A source's own task; one that fails is said, shown and started again, and the others do not notice."""
    name = source.context.name
    guard = assembly.guards[name]
    await assembly.starters[name].until_started()
    while True:
        started = time.monotonic()
        try:
            await without_exit(source.run())
        except Exception as error:
            assembly.source_errors[name] = str(error) or type(error).__name__
            assembly.source_error_times[name] = time.time()
            source.context.logger.exception("Source failed. source=%s", name)
            guard.record_failure(error)
        else:
            return
        if time.monotonic() - started > RUN_IS_WELL_SECONDS:
            guard.succeeded()
        await asyncio.sleep(max(RESTART_SECONDS, guard.seconds_paused()))
        assembly.source_errors.pop(name, None)


async def _tick(assembly: Assembly) -> None:
    """Call processors although nothing came, keep the gauges fresh, and say which losses are over."""
    while True:
        await asyncio.sleep(TICK_SECONDS)
        assembly.directory.expire()
        assembly.log_tails.drop_released()
        for pipeline in assembly.pipelines:
            pipeline.refresh_metrics()
            if pipeline.is_shared:
                continue  # the owners of its partitions tick by themselves
            try:
                await pipeline.submit([])
            except LensError as error:
                logger.debug("Tick refused. pipeline=%s error=%s", pipeline.name, error)
        end_quiet_periods(assembly.metrics.ledgers)


def _show_states(host: PluginHost, metrics: SelfMetrics) -> None:
    metrics.plugin_state.clear()
    for plugin in host.plugins():
        kinds = sorted({component.kind for component in plugin.components})
        metrics.plugin_state.labels(plugin.name, ",".join(kinds), plugin.state).set(1)
