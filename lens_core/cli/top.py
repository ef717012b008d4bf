"""`lens top`: the workloads and the pipeline, live in the terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..errors import LensError
from .client import ask, ask_many, daemon_url, data_dir_option, json_option, url_option
from .wording import ago, amount, bytes_text, duration, plain, sparkline

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

STYLES = {"failed": "bold red", "stalled": "bold yellow", "running": "green", "ended": "", "silent": "dim"}
SINK_STYLES = {"failing": "bold red", "retrying": "yellow", "idle": "green", "sending": "green"}
LINES_OF_PIPELINE = 8
MOST_GLANCES = 100


@click.command("top")
@click.option("--interval-seconds", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True)
@click.option("--search", default="", help="Only workloads whose name, uid or namespace holds this.")
@click.option("--limit", type=click.IntRange(1, 500), help="How many workloads [default: as many as fit].")
@click.option("--once", is_flag=True, help="Print once and end, as it does in a pipe.")
@json_option
@url_option
@data_dir_option
def command(
    interval_seconds: float,
    search: str,
    limit: int | None,
    once: bool,
    as_json: bool,
    url: str | None,
    data_dir: Path | None,
) -> None:
    """Show what trains and how the pipeline is doing, again and again; Ctrl-C ends it.

    Failed and stalled workloads come first. In a pipe it prints once.

    \b
    Examples:
      lens top
      lens top --search llama --interval-seconds 5
      lens top --json | jq '.workloads[] | select(.state == "stalled")'
    """
    address = daemon_url(url, data_dir)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(look(address, search, limit or 50))).decode())
        return
    if once or not sys.stdout.isatty():
        from rich.console import Console

        console = Console(width=None if sys.stdout.isatty() else 160)
        console.print(picture(look(address, search, limit or 50)))
        return
    with contextlib.suppress(KeyboardInterrupt):
        _live(address, search, limit, interval_seconds)


def _live(address: str, search: str, limit: int | None, interval_seconds: float) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            fitting = max(1, console.height - LINES_OF_PIPELINE - 4)
            try:
                live.update(picture(look(address, search, limit or fitting)), refresh=True)
            except LensError as error:
                live.update(f"[red]{time.strftime('%H:%M:%S')}[/]  {error}; trying again …", refresh=True)
            time.sleep(interval_seconds)


def look(address: str, search: str, limit: int) -> dict[str, Any]:
    """Everything that is shown: the daemon's status, the list, and a glance at each of its workloads."""
    status = ask("GET", address, "/api/v1/status")
    page = ask("GET", address, "/api/v1/overview", search=search, limit=str(limit))
    workloads = page["workloads"]
    for first in range(0, len(workloads), MOST_GLANCES):
        part = workloads[first : first + MOST_GLANCES]
        asked = [("uid", line["workload_uid"]) for line in part]
        for line, glance in zip(part, ask_many(address, "/api/v1/glance", asked)["glances"], strict=True):
            line["glance"] = glance
    return {"status": status, "workloads": workloads, "total_count": page["total_count"], "time": page["time"]}


def picture(seen: dict[str, Any]) -> Group:
    """All of it, for a terminal."""
    from rich.console import Group

    status = seen["status"]
    total = seen["total_count"]
    ready = "[green]ready[/]" if status["ready"] else f"[bold red]{status['state']}[/]"
    head = (
        f"[bold]lens top[/]  {time.strftime('%H:%M:%S')}  {status['url']}  {ready}  up "
        f"{duration(status['uptime_seconds'])}  workloads {'' if total is None else total}"
    )
    parts: list[Any] = [head, _pipeline(status), ""]
    parts.append(
        _workloads(seen) if seen["workloads"] else "No workload yet. Try: lens run --workload my-run -- COMMAND"
    )
    return Group(*parts)


def _pipeline(status: dict[str, Any]) -> Table:
    from rich.text import Text

    table = _table("component", "state", ">in/s", ">out/s", ">waiting", ">queue", ">lag", "last error")
    for source in status["sources"]:
        if source["received"] or source["state"] != "running":
            rate = amount(source["accepted_per_second"])
            error = Text(plain(source["last_error"]))
            table.add_row(Text(plain(source["name"])), source["state"], rate, "", "", "", "", error)
    for pipeline in status["pipelines"]:
        queue = bytes_text(pipeline["spool"].get("bytes", 0))
        for sink in pipeline["sinks"]:
            state = f"[{SINK_STYLES.get(sink['state'], 'white')}]{sink['state']}[/]"
            rates = (amount(pipeline["accepted_per_second"]), amount(sink["delivered_per_second"]))
            waiting = (f"{sink['pending_records']:,}", queue, duration(sink["lag_seconds"]))
            road = Text(plain(f"{pipeline['name']} → {sink['name']}"))
            table.add_row(road, state, *rates, *waiting, Text(plain(sink["last_error"])))
    return table


def _workloads(seen: dict[str, Any]) -> Table:
    from rich.text import Text

    table = _table("state", "workload", "framework", ">iteration", ">done", ">left", "loss", ">speed", ">seen")
    for line in seen["workloads"]:
        glance = line["glance"]
        target, done = line["target_iteration"], line["last_iteration"]
        share = f"{100 * done / target:.0f} %" if target and done is not None else ""
        left = duration(glance["eta_seconds"]) if line["state"] == "running" and glance["eta_seconds"] else ""
        framework = "/".join(filter(None, (glance["wrapper_framework"], glance["base_framework"]))) or "–"
        table.add_row(
            Text(line["state"], STYLES.get(line["state"], "")),
            Text(plain(line["name"], 40)),
            Text(plain(framework)),
            "–" if done is None else f"{done:,}",
            share,
            left,
            Text(_loss(glance["spark"])),
            amount(glance["throughput"]),
            ago(seen["time"] - line["last_seen"]),
        )
    return table


def _loss(values: list[float | str]) -> str:
    numbers = [value for value in values if isinstance(value, int | float)]
    marks = "!" if len(numbers) < len(values) else ""
    return f"{sparkline(numbers, 20)} {amount(numbers[-1])}{marks}" if numbers else marks or "–"


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, expand=False)
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", no_wrap=True)
    return table
