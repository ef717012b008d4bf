"""`lens status`: one page of state."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from .client import ask, daemon_url, data_dir_option, json_option, url_option
from .wording import plain


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
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(
        f"[bold]{status['state']}[/]  {status['url']}  up {status['uptime_seconds']:.0f} s  "
        f"version {status['version']}  data in {status['data_dir']}"
    )
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("component", "pipeline", "state", "in", "out", "pending", "rate/s", "lag s", "last error"):
        table.add_column(column, justify="right" if column in ("in", "out", "pending", "rate/s", "lag s") else "left")
    for source in status["sources"]:
        table.add_row(*_source_row(source))
    for pipeline in status["pipelines"]:
        for sink in pipeline["sinks"]:
            table.add_row(*_sink_row(pipeline["name"], sink))
    console.print(table)


def _source_row(source: dict[str, Any]) -> list[str]:
    pipelines = ", ".join(source["pipelines"])
    counts = [_count(source["received"]), _count(source["accepted"]), ""]
    rates = [_rate(source["accepted_per_second"]), ""]
    return [_text(source["name"]), _text(pipelines), source["state"], *counts, *rates, _text(source["last_error"])]


def _sink_row(pipeline: str, sink: dict[str, Any]) -> list[str]:
    ledger = sink["ledger"]
    counts = [
        _count(ledger["accepted"] + ledger["recovered"]),
        _count(ledger["delivered"]),
        _count(sink["pending_records"]),
    ]
    rates = [_rate(sink["delivered_per_second"]), f"{sink['lag_seconds']:.1f}"]
    return [_text(sink["name"]), _text(pipeline), sink["state"], *counts, *rates, _text(sink["last_error"])]


def _text(words: str) -> str:
    """Words that are not markup."""
    from rich.markup import escape

    return escape(plain(words, 200))


def _rate(number: float) -> str:
    return f"{number:,.1f}"


def _count(number: float) -> str:
    return f"{number:,.0f}"
