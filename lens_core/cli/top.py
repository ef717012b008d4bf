"""`lens top`: the workloads and the pipeline, live in the terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..base.durations import duration
from ..base.errors import LensError
from ..plugin_api.commands import data_dir_option, json_option
from .client import config_option, daemon_url, request_json, request_with_parameters, url_option
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
from .keys import reading_keys
from .screen import can_redraw, make_console, pictures
from .top_view import SORTS, STATES, TopView
from .wording import STATE_STYLES, ago, amount, bytes_text, in_locale, plain, sparkline

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table

STYLES = {"failed": "bold red", "stalled": "bold yellow", "running": "green", "ended": "", "silent": "dim"}
LINES_OF_PIPELINE = 8
# Of the figures, those of records that did not get through.
LOST = ("filtered", "refused", "dropped", "dead", "lost")
MOST_GLANCES = 100
# Columns from which on there is room for a longer line of bars.
WIDE = 110
LEAST_REASON = 22
# Columns below which there is room for none.
NARROW = 80


def _known_states(text: str) -> str:
    if unknown := [name for name in text.split(",") if name.strip() and name.strip().lower() not in STATES]:
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(STATES)}")
    return text


@click.command("top")
@click.option("--interval-seconds", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True)
@click.option("--search", default="", help="Only workloads whose name, uid or namespace contains this text.")
@click.option(
    "--state",
    default="",
    callback=lambda context, parameter, text: _known_states(text),
    help="Only workloads that are failed, hung, slow, silent, not_finite, running or ended (comma-separated).",
)
@click.option("--sort", type=click.Choice(SORTS), help="Sort by this column [default: by need of attention].")
@click.option("--reverse", is_flag=True, help="Reverse the order.")
@click.option("--limit", type=click.IntRange(1, 500), help="How many workloads [default: as many as fit].")
@click.option("--once", is_flag=True, help="Print once and exit, as in a pipe.")
@json_option
@url_option
@data_dir_option
@config_option
def command(
    interval_seconds: float,
    search: str,
    state: str,
    sort: str | None,
    reverse: bool,
    limit: int | None,
    once: bool,
    as_json: bool,
    url: str | None,
    data_dir: Path | None,
) -> None:
    """Live view of running jobs and pipeline health; q or Ctrl-C ends it.

    Failed and stalled workloads come first, each with the reason. In a pipe it prints once.

    Keys: s sorts by the next column, r reverses the order, f filters by the next state, / searches, x resets all of it.

    \b
    Examples:
      lens top
      lens top --search llama --interval-seconds 5
      lens top --state failed,hung
      lens top --sort loss --reverse
      lens top --json | jq '.workloads[] | select(.state == "stalled")'
    """
    address = daemon_url(url, data_dir)
    view = TopView(search, state, sort or "", is_reversed=reverse)
    wanted = view.wanted
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(fetch_view(address, wanted, limit or 50))).decode())
        return
    console = make_console(piped_width=160)
    if once or not sys.stdout.isatty():
        console.print(index(fetch_view(address, wanted, limit or 50), console.width))
        return
    with contextlib.suppress(KeyboardInterrupt):
        _live(console, address, view, limit, interval_seconds)


def _live(console: Console, address: str, view: TopView, limit: int | None, interval_seconds: float) -> None:
    from rich.console import Group
    from rich.markup import escape
    from rich.text import Text

    with reading_keys() as wait, pictures(console, whole_screen=True) as show:
        has_keys = wait is not None and can_redraw(console)
        while True:
            fitting = max(1, console.height - LINES_OF_PIPELINE - 4 - has_keys)
            picture: Any
            try:
                picture = index(fetch_view(address, view.wanted, limit or fitting), console.width)
            except LensError as error:
                picture = f"[red]{time.strftime('%H:%M:%S')}[/]  {escape(str(error))}; {in_locale('retrying …')}"
            if wait is None or not has_keys:
                show(picture)
                time.sleep(interval_seconds)
                continue
            ends = time.monotonic() + interval_seconds
            is_turned = False
            while not is_turned and (left := ends - time.monotonic()) > 0:
                show(Group(picture, Text(in_locale(view.footer())[: console.width], style="dim")))
                for key in wait(left):
                    before = view.wanted
                    if not view.press_key(key):
                        return
                    is_turned |= view.wanted != before


def fetch_view(address: str, wanted: Mapping[str, str], limit: int) -> dict[str, Any]:
    """Everything that is shown: the daemon's status, the list, and a glance at each of its workloads.

    `store_error` says why the store answers nothing: what the daemon itself knows is shown all the same.
    """
    status = request_json("GET", address, "/api/v1/status")
    seen: dict[str, Any] = {"status": status, "workloads": [], "total_count": None, "store_error": ""}
    try:
        page = request_json("GET", address, "/api/v1/overview", **wanted, limit=str(limit))
        workloads = page["workloads"]
        for first in range(0, len(workloads), MOST_GLANCES):
            part = workloads[first : first + MOST_GLANCES]
            asked = [("uid", line["workload_uid"]) for line in part]
            for line, glance in zip(
                part, request_with_parameters(address, "/api/v1/glance", asked)["glances"], strict=True
            ):
                line["glance"] = glance
            for uid, share in _goodput(address, asked).items():
                next(line for line in part if line["workload_uid"] == uid)["goodput"] = share
    except LensError as error:
        return {**seen, "store_error": str(error), "time": round(time.time() * 1000)}
    return {**seen, "workloads": workloads, "total_count": page["total_count"], "time": page["time"]}


def _goodput(address: str, asked: list[tuple[str, str]]) -> dict[str, float]:
    """The goodput of the last week by workload; empty where nobody keeps the ledgers."""
    try:
        answer = request_with_parameters(address, "/api/v1/goodput", [("by", "workload"), ("since", "7d"), *asked])
    except LensError:
        return {}
    return {group["name"]: group["goodput"] for group in answer["groups"] if group["goodput"] is not None}


def index(seen: dict[str, Any], width: int) -> Group:
    """All of it, for a terminal so many columns wide."""
    from rich.console import Group
    from rich.text import Text

    status = seen["status"]
    total = seen["total_count"]
    ready = "[green]ready[/]" if status["ready"] else "[bold red]takes nothing[/]"
    head = (
        f"[bold]lens top[/]  {time.strftime('%H:%M:%S')}  {status['url']}  {ready}  up "
        f"{duration(status['uptime_seconds'])}  workloads {'' if total is None else total}"
    )
    parts: list[Any] = [head]
    if status["not_ready"]:
        parts.append(Text(f"takes nothing now: {plain(status['not_ready'], 400)}", style="bold red"))
    if silent := (status.get("shared") or {}).get("silent"):
        missing = f"daemons that do not answer, and are not counted here: {', '.join(silent)}"
        parts.append(Text(plain(missing, 400), style="bold red"))
    parts += [_pipeline(status, width), ""]
    if seen["store_error"]:
        parts.append(Text(f"The workloads cannot be shown: {plain(seen['store_error'], 400)}", style="red"))
    elif seen["workloads"]:
        parts.append(_workloads(seen, width))
    else:
        parts.append("No workload yet. Try: lens run --workload my-run -- COMMAND")
    return Group(*parts)


def _pipeline(status: dict[str, Any], width: int) -> Table:
    """Return the rate, the backlog and the losses of a pipeline."""
    sources = [source for source in status["sources"] if source["received"] or source["state"] != "running"]
    changing = [pipeline for pipeline in status["pipelines"] if is_worth_a_row(pipeline)]
    sinks = [(pipeline, sink) for pipeline in status["pipelines"] for sink in pipeline["sinks"]]
    counts = [*map(source_counts, sources), *map(pipeline_counts, changing), *(sink_counts(sink) for _, sink in sinks)]
    figures = [column for column in count_columns(counts) if column.title in LOST]
    columns = [
        Column("component"),
        Column("state"),
        Column("in/s", right=True, goes=3),
        Column("out/s", right=True, goes=2),
        Column("waiting", right=True),
        *figures,
        Column("queue", right=True, goes=4),
        Column("lag", right=True, goes=1),
        Column("last error", shrinks=True),
    ]
    heads = [_source_cells(source) for source in sources]
    heads += [_pipeline_cells(pipeline) for pipeline in changing]
    heads += [_sink_cells(pipeline, sink) for pipeline, sink in sinks]
    rows = [
        [*first, *count_cells(figures, counted), *last] for (first, last), counted in zip(heads, counts, strict=True)
    ]
    return fitting_table(columns, rows, width)


# The cells of a row before the figures of what did not get through, and those after them.
_Cells = tuple[list[Cell], list[Cell]]


def _source_cells(source: dict[str, Any]) -> _Cells:
    cells = (plain(source["name"]), source["state"], amount(source["accepted_per_second"]), "", "")
    return [(cell, "") for cell in cells], [("", ""), ("", ""), error_cell(source, 60)]


def _pipeline_cells(pipeline: dict[str, Any]) -> _Cells:
    cells = (plain(pipeline["name"]), "", amount(pipeline["accepted_per_second"]), "", "")
    return [(cell, "") for cell in cells], [("", ""), ("", ""), (plain(pipeline["last_processor_error"]), "red")]


def _sink_cells(pipeline: dict[str, Any], sink: dict[str, Any]) -> _Cells:
    first = [
        (plain(f"{pipeline['name']} → {sink['name']}"), ""),
        (sink["state"], STATE_STYLES.get(sink["state"], "")),
        (amount(pipeline["accepted_per_second"]), ""),
        (amount(sink["delivered_per_second"]), ""),
        (f"{sink['pending_records']:,}", ""),
    ]
    queue = bytes_text(pipeline["spool"].get("bytes", 0))
    return first, [(queue, ""), (duration(sink["lag_seconds"]), ""), error_cell(sink, 60)]


def _workloads(seen: dict[str, Any], width: int) -> Table:
    columns = [
        Column("state"),
        Column("workload", shrinks=True),
        Column("why", goes=2, shrinks=True, least=LEAST_REASON),
        Column("framework", goes=4),
        Column("iteration", right=True),
        Column("done", right=True, goes=1),
        Column("left", right=True, goes=2),
        Column("loss"),
        Column("speed", right=True, goes=5),
        Column("good", right=True, goes=6),
        Column("seen", right=True, goes=3),
    ]
    bars = 20 if width >= WIDE else 10 if width >= NARROW else 0
    return fitting_table(columns, [_workload_row(line, seen["time"], bars) for line in seen["workloads"]], width)


def _workload_row(line: dict[str, Any], now_ms: int, bars: int) -> list[tuple[str, str]]:
    glance = line["glance"]
    target, done = line["target_iteration"], line["last_iteration"]
    running = line["state"] == "running"
    framework = "/".join(filter(None, (glance["wrapper_framework"], glance["base_framework"]))) or "–"
    return [
        (line["state"], STYLES.get(line["state"], "")),
        (plain(line["name"], 40), ""),
        (plain(_why(line), 48), STYLES["stalled" if line["state"] == "stalled" else "failed"]),
        (plain(framework), ""),
        ("–" if done is None else f"{done:,}", ""),
        (_share(done, target), ""),
        (duration(glance["eta_seconds"]) if running and glance["eta_seconds"] else "", ""),
        (_loss(glance, bars), ""),
        (amount(glance["throughput"]), ""),
        (f"{100 * line['goodput']:.0f} %" if "goodput" in line else "", ""),
        (ago(now_ms - ((glance.get("verdict") or {}).get("last_logged") or line["last_seen"])), ""),
    ]


def _why(line: Mapping[str, Any]) -> str:
    """The first cause of a failure or a stall."""
    verdict = line["glance"].get("verdict")
    return str(verdict["reason"]) if verdict else ""


def _share(done: int | None, target: int | None) -> str:
    """The share that is done, in per cent: 100 only when all of it is, and never more."""
    if not target or target < 0 or done is None:
        return ""
    return f"{min(100, max(0, 100 * done // target))} %"


def _loss(glance: Mapping[str, Any], bars: int) -> str:
    values, newest = glance["spark"], glance["loss"]
    numbers = [value for value in values if isinstance(value, int | float)]
    mark = "!" if len(numbers) < len(values) else ""
    shown = f"{newest if isinstance(newest, str) else amount(newest)}{mark}"
    return f"{sparkline(numbers, bars) if bars else ''} {shown}".lstrip()
