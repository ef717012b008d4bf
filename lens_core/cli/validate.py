"""`lens validate`: everything that is wrong with a configuration file, at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click
import msgspec

from ..base.self_metrics import SelfMetrics
from ..config.loading import Config, InvalidConfiguration, SinkConfig, load_config
from ..directory.directory import Directory
from ..plugin_host.host import PluginHost
from . import EXIT_CONFIGURATION, EXIT_FAILED
from .client import plugins_dir_option

CHECK_TIMEOUT_SECONDS = 15.0


@click.command("validate")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--connect", is_flag=True, help="Also try whether every sink can be reached.")
@plugins_dir_option
@click.option("--data-dir", type=click.Path(path_type=Path), help="As for `lens up`.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of lines.")
def command(file: Path, connect: bool, data_dir: Path | None, as_json: bool) -> None:
    """Report everything that is wrong with FILE, as file:line:column: what; how to mend it.

    \b
    Examples:
      lens validate lens.yaml
      lens validate lens.yaml --connect     try every sink as well
      lens validate lens.yaml --json

    Exit codes: 0 valid, 1 a sink cannot be reached, 78 the configuration is wrong.
    """
    answer: dict[str, Any] = {"file": str(file), "valid": False, "problems": [], "notices": [], "sinks": []}
    try:
        config = load_config(file, PluginHost.load(), data_dir=data_dir)
    except InvalidConfiguration as error:
        answer["problems"] = [
            {"file": found.file, "line": found.place.line, "column": found.place.column, "message": found.message}
            for found in error.problems
        ]
        _say(answer, as_json, [*map(str, error.problems), f"{len(error.problems)} to mend"])
        raise SystemExit(EXIT_CONFIGURATION) from None
    answer.update(valid=True, notices=config.notices)
    if connect:
        answer["sinks"] = asyncio.run(_connect(config))
    _say(answer, as_json, [*config.notices, f"{file}: valid ({_counts(config)})", *map(_sink_line, answer["sinks"])])
    if not all(sink["reachable"] for sink in answer["sinks"]):
        raise SystemExit(EXIT_FAILED)


def _say(answer: dict[str, Any], as_json: bool, lines: list[str]) -> None:
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())
    else:
        click.echo("\n".join(lines))


def _counts(config: Config) -> str:
    parts = []
    for what in ("sources", "collectors", "sinks", "detectors", "pipelines"):
        count = len(getattr(config, what))
        if count:
            parts.append(f"{count} {what if count > 1 else what.removesuffix('s')}")
    return ", ".join(parts)


def _sink_line(sink: dict[str, Any]) -> str:
    state = click.style("reachable", fg="green") if sink["reachable"] else click.style("not reachable", fg="red")
    return f"  {sink['name']} ({sink['type']}): {state}" + (f": {sink['error']}" if sink["error"] else "")


async def _connect(config: Config) -> list[dict[str, Any]]:
    errors = await asyncio.gather(*(_check(sink, config) for sink in config.sinks.values()))
    return [
        {"name": sink.name, "type": sink.type, "reachable": not error, "error": error}
        for sink, error in zip(config.sinks.values(), errors, strict=True)
    ]


async def _check(sink: SinkConfig, config: Config) -> str:
    """Why a sink cannot be reached; '' if it can."""
    from ..daemon.assembly import make  # only here: it brings the whole daemon along

    try:
        made = make(config, sink, SelfMetrics(), Directory(config.server.cluster_name))
        try:
            await asyncio.wait_for(made.check(), CHECK_TIMEOUT_SECONDS)
        finally:
            await made.stop()
    except (asyncio.TimeoutError, TimeoutError):
        return f"no answer within {CHECK_TIMEOUT_SECONDS:g} s"
    except Exception as error:  # noqa: BLE001 - whatever a sink raises is the reason to show
        return " ".join(str(error).split()) or type(error).__name__
    return ""
