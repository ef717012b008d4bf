"""`lens validate`: everything that is wrong with a configuration file, at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click
import msgspec

from ..base.exits import without_exit
from ..base.redaction import hide
from ..base.self_metrics import SelfMetrics
from ..config.loading import Config, InvalidConfiguration, load_config
from ..directory.directory import Directory
from ..plugin_api.components import Component
from ..plugin_api.instance import ComponentConfig
from ..plugin_host.host import PluginHost
from . import EXIT_CONFIGURATION, EXIT_FAILED
from .client import plugins_dir_option

CHECK_TIMEOUT_SECONDS = 15.0


@click.command("validate")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--config", "-c", type=click.Path(path_type=Path), help="The same as FILE, as in other commands.")
@click.option("--connect", is_flag=True, help="Also test the connections of every component.")
@plugins_dir_option
@click.option("--data-dir", type=click.Path(path_type=Path), help="As for `lens up`.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of lines.")
def command(file: Path | None, config: Path | None, connect: bool, data_dir: Path | None, as_json: bool) -> None:
    """Report everything that is wrong with FILE, as file:line:column: what; how to fix it.

    \b
    Examples:
      lens validate lens.yaml
      lens validate lens.yaml --connect     try every sink, source and collector as well
      lens validate lens.yaml --json

    Exit codes: 0 valid, 1 something cannot be reached, 78 the configuration is wrong.
    """
    if (file is None) == (config is None):
        raise click.UsageError("name one configuration: lens validate FILE")
    file = file or config
    assert file is not None
    answer: dict[str, Any] = {"file": str(file), "valid": False, "problems": [], "notices": [], "sinks": []}
    try:
        settings = load_config(file, PluginHost.load(), data_dir=data_dir)
    except InvalidConfiguration as error:
        answer["problems"] = [
            {"file": found.file, "line": found.place.line, "column": found.place.column, "message": found.message}
            for found in error.problems
        ]
        _print_answer(answer, as_json, [*map(str, error.problems), f"{len(error.problems)} to fix"])
        raise SystemExit(EXIT_CONFIGURATION) from None
    answer.update(valid=True, notices=settings.notices)
    checked = asyncio.run(_check_connections(settings)) if connect else []
    if connect:
        answer["sinks"] = [found for found in checked if found["kind"] == "sink"]
        answer["components"] = checked
    lines = [*settings.notices, f"{file}: valid ({_counts(settings)})", *map(_finding_line, checked)]
    _print_answer(answer, as_json, lines)
    if any(found["reachable"] is False for found in checked):
        raise SystemExit(EXIT_FAILED)


def _print_answer(answer: dict[str, Any], as_json: bool, lines: list[str]) -> None:
    if as_json:
        click.echo(hide(msgspec.json.format(msgspec.json.encode(answer)).decode()))
    else:
        click.echo(hide("\n".join(lines)))


def _counts(config: Config) -> str:
    parts = []
    for what in ("sources", "collectors", "sinks", "detectors", "analyzers", "pipelines"):
        count = len(getattr(config, what))
        if count:
            parts.append(f"{count} {what if count > 1 else what.removesuffix('s')}")
    return ", ".join(parts)


def _finding_line(found: dict[str, Any]) -> str:
    words = {
        True: click.style("reachable", fg="green"),
        False: click.style("not reachable", fg="red"),
        None: click.style("not checked", fg="bright_black"),
    }
    why = f": {found['error']}" if found["error"] else ""
    return f"  {found['kind']} {found['name']} ({found['type']}): {words[found['reachable']]}{why}"


async def _check_connections(config: Config) -> list[dict[str, Any]]:
    """Run the `check` of every configured sink, source and collector; None for one that has no check."""
    components = [
        (kind, component)
        for kind, section in (("sink", config.sinks), ("source", config.sources), ("collector", config.collectors))
        for component in section.values()
        if component.written
    ]
    errors = await asyncio.gather(*(_check_component(component, config) for _, component in components))
    return [
        {
            "kind": kind,
            "name": component.name,
            "type": component.type,
            "reachable": None if error is None else not error,
            "error": error or "",
        }
        for (kind, component), error in zip(components, errors, strict=True)
    ]


async def _check_component(component: ComponentConfig, config: Config) -> str | None:
    """Why a component cannot reach what it needs; '' if it can, None if its plugin has no check."""
    from ..daemon.assembling import make_component  # only here: it brings the whole daemon along

    if component.plugin.check is Component.check:
        return None
    try:
        made = make_component(config, component, SelfMetrics(), Directory(config.server.cluster_name))
        try:
            await asyncio.wait_for(without_exit(made.check()), CHECK_TIMEOUT_SECONDS)
        finally:
            await without_exit(made.stop())
    except (asyncio.TimeoutError, TimeoutError):
        return f"no answer within {CHECK_TIMEOUT_SECONDS:g} s"
    except Exception as error:  # noqa: BLE001 - whatever a component raises is the reason to show
        return " ".join(str(error).split()) or type(error).__name__
    return ""
