"""`lens collect`: run collectors once, print what they would send, or send it."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click
import msgspec

from ..base.data_dir import other_owner, running_address
from ..base.errors import ConfigurationError, LensError
from ..base.redaction import hide
from ..base.self_metrics import SelfMetrics
from ..config.loading import CollectorConfig, Config, ServerSettings, SpoolSettings, load_config
from ..daemon.pushing import Push, push_to_daemon, push_to_sinks, sinks_of_environment
from ..directory.directory import Directory
from ..model.records import Measurement, Record, kind_of
from ..pipeline.collecting import Collected, collect_all, reason_of
from ..pipeline.ingest_gate import MEASURED
from ..plugin_api.commands import data_dir_option
from ..plugin_api.components import Collector
from ..plugin_host.host import PluginHost
from . import EXIT_CONFIGURATION, EXIT_FAILED
from .client import plugins_dir_option, resolve_data_dir
from .wording import print_notice


class Answer(msgspec.Struct, kw_only=True):
    """The result of one run."""

    collector: str
    duration_seconds: float = 0.0
    measurements: list[Measurement] = []
    records: Counter[str] = msgspec.field(default_factory=Counter)
    errors: list[str] = []
    up: bool = True
    configuration: bool = False
    pushed: bool = False


def as_object(answer: Answer) -> dict[str, Any]:
    """The answer in the shape that the contract gives it (section 7)."""
    return {
        "collector": answer.collector,
        "up": answer.up,
        "duration_seconds": round(answer.duration_seconds, 3),
        "measurements": [
            {
                "name": found.name,
                "value": _json_number(found.value),
                "kind": found.kind,
                "unit": found.unit,
                "tags": found.tags,
            }
            for found in answer.measurements
        ],
        "records": dict(answer.records),
        "pushed": answer.pushed,
        "errors": answer.errors,
    }


def _json_number(value: float | None) -> float | str | None:
    """JSON has no NaN and no infinities; they are texts as everywhere in Lens."""
    if value is None or value - value == 0:
        return value
    return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")


def print_answer(answer: Answer, *, as_json: bool, verbose: bool) -> None:
    """Metrics on standard output, unless that has the JSON; how it went on standard error."""
    if not as_json:
        for found in sorted(answer.measurements, key=lambda found: (found.name, sorted(found.tags.items()))):
            if found.value is not None or verbose:
                click.echo(_measurement_line(found))
    others = {kind: count for kind, count in answer.records.items() if kind != "measurement"}
    parts = [f"{len(answer.measurements)} metrics"] if answer.measurements or not others else []
    parts += [f"{count} {kind}" for kind, count in sorted(others.items())]
    state = "sent" if answer.pushed else ("collected" if answer.up else "failed")
    click.echo(f"{answer.collector}: {state} {', '.join(parts)} in {answer.duration_seconds:.1f} s", err=True)
    for error in answer.errors:
        click.echo(hide(f"{answer.collector}: {error}"), err=True)


def _measurement_line(found: Measurement) -> str:
    value = "no data" if found.value is None else f"{found.value:.6g}"
    tags = ",".join(f"{name}={text}" for name, text in sorted(found.tags.items()))
    return f"{found.name}{'{' + tags + '}' if tags else ''}: {value} {found.unit}".rstrip()


_SEND_SECONDS = 60.0


@click.command("collect")
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="Run every collector of the configuration in turn.")
@click.option("--config", "-c", type=click.Path(dir_okay=False, path_type=Path), help="The configuration file.")
@click.option("--push", is_flag=True, help="Send the records; without it nothing leaves this machine.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; --all prints a list.")
@click.option("--verbose", "-v", is_flag=True, help="Log what happens, and print metrics without a value as well.")
@plugins_dir_option
@data_dir_option
def command(
    name: str | None,
    everything: bool,
    config: Path | None,
    push: bool,
    as_json: bool,
    verbose: bool,
    data_dir: Path | None,
) -> None:
    """Run the collector NAME once and print what it found.

    NAME is a collector of the configuration file or, without a file, a collector plugin that takes its settings from
    the environment. --push sends to the pipelines that the collector feeds; without a file to the sinks that the
    environment names (DD_API_KEY: Datadog), else to the daemon that runs on this machine.

    \b
    Examples:
      WANDB_API_KEY=... WANDB_ENTITY=acme WANDB_PROJECT=llm lens collect wandb_cloud
      lens collect ci --config lens.yaml --push
      lens collect --all --config lens.yaml --push --json      in a CronJob, every 15 minutes

    Exit codes: 0 ok, 1 a collector failed or its data did not arrive, 2 wrong usage, 78 the configuration is wrong.
    """
    if bool(name) == everything:
        raise click.UsageError("give the NAME of one collector, or --all")
    if everything and config is None:
        raise click.UsageError("--all needs --config FILE: it runs the collectors of a configuration")
    _configure_logging(verbose)
    host = PluginHost.load()
    loaded = load_config(config, host, data_dir=data_dir) if config else _no_file(data_dir)
    chosen = _chosen(loaded, host, name, from_file=config is not None)
    if owner := other_owner(loaded.data_dir):
        text = f"{loaded.data_dir} belongs to {owner}, whose daemon cannot read what root stores there"
        print_notice(f"lens: {text}; run this as {owner}, or with another --data-dir")
    answers = asyncio.run(_run_all(chosen, loaded, host, push=push, from_file=config is not None))
    if as_json:
        shown = [as_object(answer) for answer in answers]
        click.echo(hide(msgspec.json.format(msgspec.json.encode(shown if everything else shown[0])).decode()))
    for answer in answers:
        print_answer(answer, as_json=as_json, verbose=verbose)
    if any(answer.configuration for answer in answers):
        raise SystemExit(EXIT_CONFIGURATION)
    if any(answer.errors for answer in answers):
        raise SystemExit(EXIT_FAILED)


def _configure_logging(verbose: bool) -> None:
    from ..base.process import configure_logging

    configure_logging({**os.environ, "LOG_LEVEL": "debug" if verbose else os.environ.get("LOG_LEVEL", "warn")})


def _no_file(data_dir: Path | None) -> Config:
    """A configuration in which nothing is, so that nothing can be wrong with it."""
    return Config(
        server=ServerSettings(),
        data_dir=resolve_data_dir(data_dir).absolute(),
        spool=SpoolSettings(),
        sources={},
        collectors={},
        sinks={},
        detectors={},
        disabled_detectors=[],
        analyzers={},
        pipelines={},
        store=None,
        notices=[],
    )


def _chosen(config: Config, host: PluginHost, name: str | None, *, from_file: bool) -> list[CollectorConfig]:
    if name is None:
        return list(config.collectors.values())
    if name in config.collectors:
        return [config.collectors[name]]
    if from_file:
        there_are = ", ".join(config.collectors) or "none"
        raise click.UsageError(f"the configuration has no collector {name!r}; there are: {there_are}")
    if name not in host.names("collector"):
        raise click.UsageError(f"collector {name}: {host.why_missing('collector', name)}")
    plugin = host.collector(name)
    settings = plugin.settings_from(os.environ)
    if settings is None:
        raise ConfigurationError(
            f"{name} has settings that the environment does not give; name them in a file: --config FILE"
        )
    return [
        CollectorConfig(
            name=name,
            type=name,
            plugin=plugin,
            settings=settings,
            interval_seconds=plugin.interval_seconds,
            timeout_seconds=plugin.timeout_seconds,
        )
    ]


async def _run_all(
    chosen: list[CollectorConfig], config: Config, host: PluginHost, *, push: bool, from_file: bool
) -> list[Answer]:
    return [await _run_one(collector, config, host, push=push, from_file=from_file) for collector in chosen]


async def _run_one(chosen: CollectorConfig, config: Config, host: PluginHost, *, push: bool, from_file: bool) -> Answer:
    """One collector from its start to its end; whatever goes wrong is part of the answer."""
    answer = Answer(collector=chosen.name, measurements=[], errors=[])
    started = time.monotonic()
    metrics = SelfMetrics()
    try:
        async with AsyncExitStack() as stack:
            send = await _open_push(stack, chosen.name, config, host, metrics, from_file=from_file) if push else None
            await _collect_once(chosen, config, metrics, answer, send)
            answer.pushed = push
    except Exception as error:  # noqa: BLE001 - a failing collector never touches another
        answer.up = False
        answer.configuration = isinstance(error, ConfigurationError)
        answer.errors.append(reason_of(error, chosen.timeout_seconds))
    answer.duration_seconds = time.monotonic() - started
    return answer


async def _open_push(
    stack: AsyncExitStack, name: str, config: Config, host: PluginHost, metrics: SelfMetrics, *, from_file: bool
) -> Push:
    target = config if from_file else sinks_of_environment(config, host, name, os.environ)
    if target is not None:
        return await stack.enter_async_context(push_to_sinks(target, host, name, metrics, _SEND_SECONDS))
    address = running_address(config.data_dir)
    if address is None:
        raise LensError("there is nowhere to send to: no --config FILE, no DD_API_KEY, and no daemon runs here")
    return push_to_daemon(address.url, _SEND_SECONDS)


async def _send_apart(records: Sequence[Record], send: Push) -> None:
    """Send measured values by themselves: where no sink stores them, the push must fail whatever came with them."""
    measured = [record for record in records if type(record) in MEASURED]
    others = [record for record in records if type(record) not in MEASURED]
    for part in (others, measured):
        if part:
            await send(part)


async def _collect_once(
    chosen: CollectorConfig, config: Config, metrics: SelfMetrics, answer: Answer, send: Push | None
) -> None:
    from ..daemon.assembling import make_component

    collector = make_component(config, chosen, metrics, Directory(config.server.cluster_name))
    assert isinstance(collector, Collector)
    collector.context.data_dir.mkdir(parents=True, exist_ok=True)

    async def append_found(found: Collected) -> None:
        answer.measurements += [record for record in found.records if isinstance(record, Measurement)]
        answer.records.update(kind_of(record) for record in found.records)
        answer.errors += [f"a record was refused: {reason}" for reason in found.rejected]
        if send is not None:
            await _send_apart(found.records, send)

    if not collector.isolated:
        await collector.start()
    try:
        # Nothing is remembered as done that was only looked at.
        await collect_all(collector, chosen.timeout_seconds, append_found, remember=send is not None)
    finally:
        if not collector.isolated:
            await collector.stop()
