"""`lens status`: one page of state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..base.durations import duration
from ..plugin_api.commands import data_dir_option, json_option
from .client import config_option, daemon_url, request_json, url_option
from .columns import (
    Cell,
    Column,
    count_cells,
    count_columns,
    error_cell,
    fitting_table,
    is_worth_a_row,
    pipeline_counts,
    sink_counts,
    source_counts,
)
from .screen import make_console
from .wording import STATE_STYLES, busy_text, memory_text, plain

if TYPE_CHECKING:
    from rich.table import Table


@click.command("status")
@json_option
@url_option
@data_dir_option
@config_option
def command(as_json: bool, url: str | None, data_dir: Path | None) -> None:
    """Show every component with its state, rates, lag and last error.

    \b
    Examples:
      lens status
      lens status --json | jq .pipelines
    """
    status = request_json("GET", daemon_url(url, data_dir), "/api/v1/status")
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(status)).decode())
        return
    _print_status(status)


def _print_status(status: dict[str, Any]) -> None:
    from rich.text import Text

    console = make_console(piped_width=200)
    console.print(
        f"[bold]{status['state']}[/]  {status['url']}  up {duration(status['uptime_seconds'])}  "
        f"version {status['version']}  data in {status['data_dir']}"
    )
    if status["not_ready"] and status["not_ready"] != status["state"]:
        console.print(Text(f"takes nothing now: {plain(status['not_ready'], 400)}", style="bold red"))
    console.print(_status_table(status, console.width))
    for name, problem in sorted(status.get("problems", {}).items()):
        console.print(Text(f"{name}: {plain(problem, 400)}", style="yellow"))
    for one in status.get("processes", []):
        console.print(plain(_process(one), 400))
    for one in status.get("blockers", []):
        text = f"plugin {one['distribution']}: {one['function']} blocked the event loop"
        text += f" for {one['longest_seconds']:.1f} s ({one['times']} times)"
        console.print(Text(plain(text, 400), style="yellow"))
    for one in status.get("memory_growth", []):
        console.print(Text(plain(memory_text(one), 400), style="yellow"))
    for one in status.get("busy_threads", []):
        console.print(Text(plain(busy_text(one), 400), style="yellow"))
    if silent := (status.get("shared") or {}).get("silent"):
        missing = f"daemons that do not answer, and are not counted here: {', '.join(silent)}"
        console.print(Text(plain(missing, 400), style="bold red"))
    if status["store_notice"]:
        console.print(plain(f"{status['store']}: {status['store_notice']}", 400))


def _process(one: dict[str, Any]) -> str:
    where = f"process {one['pid']}, {one['memory_bytes'] / 2**20:,.0f} MiB" if one["pid"] else "no process now"
    return f"{one['component']}: {where}" + (f", replaced {one['restarts']} times" if one["restarts"] else "")


def _status_table(status: dict[str, Any], width: int) -> Table:
    """One row for each source, pipeline that changes the number of records, and sink."""
    pipelines = status["pipelines"]
    changing = [pipeline for pipeline in pipelines if is_worth_a_row(pipeline)]
    sinks = [(pipeline["name"], sink) for pipeline in pipelines for sink in pipeline["sinks"]]
    counts = [*map(source_counts, status["sources"]), *map(pipeline_counts, changing)]
    counts += [sink_counts(sink) for _, sink in sinks]
    figures = count_columns(counts)
    columns = [
        Column("component"),
        Column("pipeline", goes=3),
        Column("state"),
        *figures,
        Column("rate/s", right=True, goes=2),
        Column("lag", right=True, goes=1),
        Column("last error", shrinks=True),
    ]
    heads = [_source_cells(source) for source in status["sources"]]
    heads += [_pipeline_cells(pipeline) for pipeline in changing]
    heads += [_sink_cells(name, sink) for name, sink in sinks]
    rows = [
        [*first, *count_cells(figures, counted), *last] for (first, last), counted in zip(heads, counts, strict=True)
    ]
    return fitting_table(columns, rows, width)


# The cells of a row before its figures, and those after them.
_Cells = tuple[list[Cell], list[Cell]]


def _source_cells(source: dict[str, Any]) -> _Cells:
    first = _name_cells(source["name"], ", ".join(source["pipelines"]), source["state"])
    return first, [(_rate(source["accepted_per_second"]), ""), ("", ""), error_cell(source, 200)]


def _pipeline_cells(pipeline: dict[str, Any]) -> _Cells:
    error = (plain(pipeline["last_processor_error"], 200), "red")
    first = _name_cells("(pipeline)", pipeline["name"], "")
    return first, [(_rate(pipeline["accepted_per_second"]), ""), ("", ""), error]


def _sink_cells(pipeline: str, sink: dict[str, Any]) -> _Cells:
    first = _name_cells(sink["name"], pipeline, sink["state"])
    return first, [
        (_rate(sink["delivered_per_second"]), ""),
        (duration(sink["lag_seconds"]), ""),
        error_cell(sink, 200),
    ]


def _name_cells(name: str, pipeline: str, state: str) -> list[Cell]:
    return [(plain(name, 200), ""), (plain(pipeline, 200), ""), (state, STATE_STYLES.get(state, ""))]


def _rate(number: float) -> str:
    return f"{number:,.1f}"
