"""`lens show`: one workload in the terminal: its verdict, its curves, its events."""

from __future__ import annotations

import shutil
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import msgspec

from ..base.errors import LensError
from ..plugin_api.commands import data_dir_option, json_option
from .client import config_option, daemon_url, find_workload, request_json, request_with_parameters, url_option
from .curve import draw_curve
from .wording import ago, plain

_COLOURS = {"failed": "red", "stalled": "yellow", "running": "green"}
_FIRST = ("loss", "learning_rate", "lr", "grad_norm", "samples_per_second", "tokens_per_gpu", "throughput")
_MOST_CURVES = 4
_TROUBLED = ("failed", "stalled")
_LOG_LINES = 12
_BUCKETS = 240


@click.command("show")
@click.argument("workload")
@click.option("--metric", "metrics", multiple=True, help="Draw this metric; repeatable [default: the loss and others].")
@click.option("--events", type=click.IntRange(0, 1000), default=8, show_default=True, help="The newest so many events.")
@json_option
@url_option
@data_dir_option
@config_option
def command(
    workload: str, metrics: tuple[str, ...], events: int, as_json: bool, url: str | None, data_dir: Path | None
) -> None:
    """Show one workload: the verdict, its last log lines after a failure, its curves and its newest events.

    WORKLOAD is its uid or its name, as `lens top` prints it.

    \b
    Examples:
      lens show my-job
      lens show my-job --metric loss --metric grad_norm
      lens show my-job --json | jq -r .verdict.summary
    """
    address = daemon_url(url, data_dir)
    answer = fetch_workload(address, find_workload(address, workload), metrics, events)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())
        return
    for text in describe_workload(answer, shutil.get_terminal_size((100, 24)).columns):
        click.echo(text)


def fetch_workload(address: str, uid: str, metrics: Sequence[str], events: int) -> dict[str, Any]:
    """Everything that is shown: the workload, its verdict, the buckets of its curves, its newest events."""
    path = f"/api/v1/workloads/{quote(uid)}"
    detail = request_json("GET", address, path)
    names = [one["name"] for one in request_json("GET", address, f"{path}/metrics/available")["metrics"]]
    verdict = request_json("GET", address, f"{path}/verdict")
    if unknown := [name for name in metrics if name not in names]:
        raise LensError(f"workload {uid!r} has no metric {unknown[0]!r}; it has: {', '.join(names[:20]) or 'none'}")
    chosen = list(metrics) or _telling(names, verdict["loss_name"])
    newest = max(detail["runs"], key=lambda run: run["last_seen"], default=None)
    curves = {}
    if chosen and newest is not None:
        asked = [("metrics", name) for name in chosen] * (2 if len(chosen) == 1 else 1)
        asked += [("buckets", str(_BUCKETS)), ("run_id", newest["run_id"]), ("attempt", str(newest["attempt"]))]
        found = request_with_parameters(address, f"{path}/metrics/data", asked)
        curves = {name: [one for one in found["data"] if one["metric_name"] == name] for name in chosen}
    happened = request_json("GET", address, f"{path}/events", limit=str(events))["events"] if events else []
    tails = request_json("GET", address, f"{path}/log-tail")["streams"] if verdict["state"] in _TROUBLED else []
    known = {name: detail[name] for name in ("workload_uid", "name", "namespace", "framework", "last_seen")}
    return {**known, "verdict": verdict, "curves": curves, "events": happened, "log": tails}


def _telling(names: Sequence[str], loss: str | None) -> list[str]:
    first = [name for name in (loss, *_FIRST) if name in names]
    return [str(name) for name in dict.fromkeys(first)][:_MOST_CURVES] or list(names[:_MOST_CURVES])


def describe_workload(answer: Mapping[str, Any], width: int) -> list[str]:
    """The lines for a terminal so many columns wide."""
    verdict = answer["verdict"]
    title = plain(answer["name"], max(20, width - 20))
    state = click.style(verdict["state"], fg=_COLOURS.get(verdict["state"]), bold=True)
    lines = [f"{click.style(title, bold=True)}  {state}"]
    about = [plain(str(answer[name]), 80) for name in ("namespace", "framework") if answer[name]]
    if answer["workload_uid"] != answer["name"]:
        about.insert(0, plain(answer["workload_uid"], 80))
    age = ago(time.time() * 1000 - (verdict["last_logged"] or answer["last_seen"]))
    lines += [", ".join([*about, f"last seen {age}"]), "", *_wrapped(verdict["summary"], width)]
    if (cause := verdict["cause"]) is not None:
        lines.append(f"at {_clock(cause['at'])}")
    if verdict["advice"]:
        lines += _wrapped(verdict["advice"], width)
    lines += _log_lines(answer["log"], width)
    for name, points in answer["curves"].items():
        lines += ["", *draw_curve(plain(name, width), points, width)]
    if answer["events"]:
        lines += ["", click.style("events, newest first", bold=True)]
        lines += [_event_line(event, width) for event in answer["events"]]
    return lines


def _log_lines(streams: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    """The last lines of the stream that told of the trouble, or printed last."""
    stream = next((one for one in streams if one["lines"]), None)
    if stream is None:
        return []
    rank = "" if stream["rank"] is None else f"rank {stream['rank']}"
    where = ", ".join(
        plain(text, 60) for text in (rank, stream["node"] or stream["pod_name"], stream["stream"]) if text
    )
    head = click.style(f"last log lines{f' of {where}' if where else ''}", bold=True)
    return ["", head, *(f"  {plain(line['text'], max(40, width - 2))}" for line in stream["lines"][-_LOG_LINES:])]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(plain(text, 2000), max(20, width), break_long_words=False, break_on_hyphens=False)


def _event_line(event: Mapping[str, Any], width: int) -> str:
    parts = [_clock(event["timestamp"]), event["type"].replace("_", " ")]
    if event["iteration"] is not None:
        parts.append(f"at {event['iteration']:,}")
    if event["rank"] is not None:
        parts.append(f"rank {event['rank']}")
    parts += [plain(event[name], 60) for name in ("node",) if event[name]]
    details = event["details"]
    if told := details.get("reason") or details.get("line") or details.get("path"):
        parts.append(str(told))
    return plain("  ".join(parts), max(40, width))


def _clock(milliseconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds / 1000))
