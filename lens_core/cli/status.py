"""`lens status`: one page of state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from ..base.durations import duration
from .client import ask, daemon_url, data_dir_option, json_option, url_option
from .columns import Column, fitting_table
from .screen import make_console
from .wording import STATE_STYLES, plain


@click.command("status")
@json_option
@url_option
@data_dir_option
def command(as_json: bool, url: str | None, data_dir: Path | None) -> None:
    """Show what runs: every component, its state, rates, lag and last error.

    \b
    Examples:
      lens status
      lens status --json | jq .pipelines
    """
    status = ask("GET", daemon_url(url, data_dir), "/api/v1/status")
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(status)).decode())
        return
    _show(status)


def _show(status: dict[str, Any]) -> None:
    console = make_console(piped_width=200)
    console.print(
        f"[bold]{status['state']}[/]  {status['url']}  up {duration(status['uptime_seconds'])}  "
        f"version {status['version']}  data in {status['data_dir']}"
    )
    columns = [
        Column("component"),
        Column("pipeline", goes=3),
        Column("state"),
        Column("in", right=True),
        Column("out", right=True),
        Column("pending", right=True),
        Column("rate/s", right=True, goes=2),
        Column("lag", right=True, goes=1),
        Column("last error", shrinks=True),
    ]
    rows = [_source_row(source) for source in status["sources"]]
    rows += [_sink_row(pipeline["name"], sink) for pipeline in status["pipelines"] for sink in pipeline["sinks"]]
    console.print(fitting_table(columns, rows, console.width))
    for name, problem in sorted(status.get("problems", {}).items()):
        console.print(f"[yellow]{plain(f'{name}: {problem}', 400)}[/]")
    for one in status.get("blockers", []):
        text = (
            f"plugin {one['distribution']}: {one['function']} blocked the event loop for {one['longest_seconds']:.1f} s"
        )
        console.print(f"[yellow]{plain(text, 400)} ({one['times']} times)[/]")
    if status["store_notice"]:
        console.print(plain(f"{status['store']}: {status['store_notice']}", 400))


def _source_row(source: dict[str, Any]) -> list[tuple[str, str]]:
    counts = [_count(source["received"]), _count(source["accepted"]), ""]
    rates = [_rate(source["accepted_per_second"]), ""]
    return _row(source["name"], ", ".join(source["pipelines"]), source, counts, rates)


def _sink_row(pipeline: str, sink: dict[str, Any]) -> list[tuple[str, str]]:
    ledger = sink["ledger"]
    taken = ledger["accepted"] + ledger["recovered"]
    counts = [_count(taken), _count(ledger["delivered"]), _count(sink["pending_records"])]
    rates = [_rate(sink["delivered_per_second"]), duration(sink["lag_seconds"])]
    return _row(sink["name"], pipeline, sink, counts, rates)


def _row(
    name: str, pipeline: str, component: dict[str, Any], counts: list[str], rates: list[str]
) -> list[tuple[str, str]]:
    error = (plain(component["last_error"], 200), "red" if component["last_error"] else "")
    state = (component["state"], STATE_STYLES.get(component["state"], ""))
    numbers = [(cell, "") for cell in (*counts, *rates)]
    return [(plain(name, 200), ""), (plain(pipeline, 200), ""), state, *numbers, error]


def _rate(number: float) -> str:
    return f"{number:,.1f}"


def _count(number: float) -> str:
    return f"{number:,.0f}"
